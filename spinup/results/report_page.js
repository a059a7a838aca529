// What is done once all parts of the script are there.

byId("made").textContent = data.made;
for (const warning of data.warnings) add(byId("warnings").querySelector("ul"), "li", {}, warning);
byId("warnings").hidden = !data.warnings.length;
for (const part of [results, settings, videos, failures, runs]) part();
for (const section of document.querySelectorAll("section:not(#warnings):not([hidden])")) {
  add(byId("contents"), "a", { href: `#${section.id}` }, section.querySelector("h2").textContent);
}

const dark = matchMedia("(prefers-color-scheme: dark)"), theme = byId("theme");
const isDark = () => (document.documentElement.dataset.theme || (dark.matches ? "dark" : "light")) === "dark";
function show() {
  theme.textContent = isDark() ? "Light" : "Dark";
  theme.setAttribute("aria-label", `Show the page ${isDark() ? "light" : "dark"}`);
  theme.removeAttribute("aria-pressed");
}
theme.addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  show();
});
dark.addEventListener("change", show);
show();
for (const panel of panels) { compute(panel); draw(panel); }
