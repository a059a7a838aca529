// Results, settings, videos, failures and the list of runs.

const LEFT = new Set(["experiment", "environment", "state", "seeds and interval"]);
function table(parent, header, label, tall) {
  const box = add(parent, "div", { class: tall ? "box tall" : "box", tabindex: "0", role: "region", "aria-label": label });
  const found = add(box, "table"), row = add(add(found, "thead"), "tr");
  for (const name of header) add(row, "th", LEFT.has(name) ? { scope: "col", class: "left" } : { scope: "col" }, name);
  return add(found, "tbody");
}

function named(row, name) {
  const cell = add(row, "th", { scope: "row", title: name });
  swatch(cell, name);
  cell.append(name);
}

// As many decimals as numbers of this size are worth.
function even(value, largest) {
  if (value === null || !Number.isFinite(value)) return "–";
  const text = largest >= 0.1 ? value.toFixed(largest >= 100 ? 1 : largest >= 10 ? 2 : 3) : String(Number(value.toPrecision(3)));
  return text.replace("-", "−");
}
const whole = (value) => (value === null ? "–" : value.toLocaleString("en").replaceAll(",", "\u2009"));

function strip(cell, result, low, high) {
  const svg = add(cell, "svg", { class: "strip", viewBox: "0 0 224 26", role: "img" });
  const scores = Object.values(result.scores).flat(), hue = color(number[result.experiment]);
  svg.setAttribute("aria-label", `Seeds: ${scores.map((s) => short(s)).join(", ")}`);
  const at = (v) => 6 + (v - low) / (high - low) * 212;
  add(svg, "line", { class: "grid", x1: 0, x2: 224, y1: 13, y2: 13 });
  if (result.iqm_interval) {
    const [from, to] = result.iqm_interval.map(at);
    add(svg, "rect", { x: from, y: 8, width: Math.max(to - from, 2), height: 10, rx: 2, opacity: 0.3 }).style.fill = hue;
  }
  for (const score of scores) {
    add(svg, "line", { x1: at(score), x2: at(score), y1: 5, y2: 21, opacity: 0.75 }).style.cssText = `stroke:${hue};stroke-width:1.5`;
  }
  add(svg, "circle", { cx: at(result.iqm), cy: 13, r: 4.5 }).style.fill = hue;
}

function results() {
  const section = byId("results"), comparison = data.comparison;
  add(section, "p", { class: "quiet" }, `Compared by ${comparison.value}: ${comparison.final}. IQM is the mean of the middle half of the seeds; its interval is that of a stratified bootstrap.`);
  for (const environment of new Set(comparison.experiments.map((e) => e.environment))) {
    const rows = comparison.experiments.filter((e) => e.environment === environment);
    if (environment || environments.length > 1) add(section, "h3", {}, environment || "environment unknown");
    const numbers = rows.flatMap((r) => [r.mean, r.iqm, ...(r.iqm_interval || []), ...Object.values(r.scores).flat()]);
    const largest = Math.max(...numbers.map(Math.abs)), [low, high] = extent(numbers);
    const body = table(section, ["experiment", "seeds", "steps", "mean", "IQM", "95 % interval", "seeds and interval"], "Final performance");
    add(body.parentNode.querySelector("thead th:last-child"), "small", {}, `, ${short(low)} to ${short(high)}`);
    for (const r of rows) {
      const row = add(body, "tr");
      named(row, r.experiment);
      const few = add(row, "td", {}, r.diverged ? `${r.seeds} (${r.diverged} diverged)` : String(r.seeds));
      if (r.seeds < data.enough_seeds || r.diverged) few.className = "failed";
      const fewest = r.steps_fewest === r.steps ? "" : `${whole(r.steps_fewest)} to `;
      const interval = r.iqm_interval ? `${even(r.iqm_interval[0], largest)} to ${even(r.iqm_interval[1], largest)}` : "–";
      for (const text of [fewest + whole(r.steps), even(r.mean, largest), even(r.iqm, largest), interval]) add(row, "td", {}, text);
      strip(add(row, "td"), r, low, high);
    }
    chances(section, environment, rows);
  }
}

function chances(section, environment, rows) {
  const pairs = data.comparison.improvement.filter((p) => p.environment === environment);
  if (!pairs.length) return;
  add(section, "p", { class: "quiet" }, "How probable it is that a seed of the row scores higher than a seed of the column, with its 95 % interval:");
  const names = rows.map((r) => r.experiment);
  const body = table(section, ["", ...names], "Probability of improvement");
  body.parentNode.querySelectorAll("thead th").forEach((cell) => { cell.className = "named"; cell.title = cell.textContent; });
  for (const name of names) {
    const row = add(body, "tr");
    named(row, name);
    for (const other of names) {
      const pair = pairs.find((p) => p.experiment === name && p.over === other);
      const back = pairs.find((p) => p.experiment === other && p.over === name);
      const cell = add(row, "td", { class: "p" });
      if (!pair && !back) { cell.textContent = "·"; continue; }
      const p = pair ? pair.probability : 1 - back.probability;
      const bounds = pair ? pair.interval : back.interval && [1 - back.interval[1], 1 - back.interval[0]];
      cell.append(p.toFixed(2));
      add(cell, "small", {}, bounds ? `${bounds[0].toFixed(2)} to ${bounds[1].toFixed(2)}` : "–");
      const hue = p >= 0.5 ? "var(--c0)" : "var(--c1)";
      cell.style.background = `color-mix(in srgb, ${hue} ${Math.round(Math.abs(p - 0.5) * 60)}%, transparent)`;
    }
  }
}

function settings() {
  const section = byId("settings"), groups = data.settings;
  if (!groups.length) return;
  section.hidden = false;
  const keys = [...new Set(groups.flatMap((g) => Object.keys(g.values)))].sort();
  const differing = keys.filter((key) => new Set(groups.map((g) => g.values[key])).size > 1);
  const told = !differing.length ? "All runs have the same settings, seeds apart."
    : `${differing.length} of ${keys.length} settings differ (≠); what is not as in most experiments is marked.`;
  add(section, "p", { class: "quiet" }, told);
  if (differing.length) {
    const label = add(section, "label", { class: "tick" });
    const tick = add(label, "input", { type: "checkbox", id: "only" });
    label.append("only what differs");
    tick.checked = true;
    const show = () => section.classList.toggle("only", tick.checked);
    tick.addEventListener("change", show);
    show();
  }
  const body = table(section, ["setting", ...groups.map((g) => g.experiment)], "Settings", true);
  [...body.parentNode.querySelectorAll("thead th")].slice(1).forEach((cell, i) => {
    add(cell, "br");
    const where = environments.length > 1 && groups[i].environment ? `${groups[i].environment}, ` : "";
    add(cell, "small", {}, where + groups[i].seeds);
  });
  for (const key of keys) {
    const row = add(body, "tr", differing.includes(key) ? { class: "differs" } : {});
    const head = add(row, "th", { scope: "row" }, key);
    if (differing.includes(key)) add(head, "span", { class: "unseen" }, " (differs)");
    const often = new Map();
    for (const g of groups) often.set(g.values[key], (often.get(g.values[key]) || 0) + 1);
    const usual = [...often].sort((a, b) => b[1] - a[1])[0];
    for (const g of groups) {
      const cell = add(row, "td"), text = g.values[key] ?? "–";
      const odd = differing.includes(key) && (usual[1] === 1 || g.values[key] !== usual[0]);
      if (odd) add(cell, "mark", {}, text); else cell.textContent = text;
    }
  }
}

function videos() {
  if (!data.videos.length) return;
  byId("videos").hidden = false;
  for (const video of data.videos) {
    const figure = add(byId("videos").querySelector(".videos"), "figure");
    const label = { "aria-label": `The agent of ${video.run}` };
    if (video.src && video.src.startsWith("data:image/")) add(figure, "img", { src: video.src, alt: label["aria-label"] });
    else if (video.src) {
      const player = add(figure, "video", { controls: "", playsinline: "", loop: "", preload: "metadata", ...label });
      player.muted = true;
      // Without a step forward some browsers show no frame until it is played.
      player.addEventListener("loadedmetadata", () => { player.currentTime = 0.01; }, { once: true });
      player.src = video.src;
    }
    add(figure, "figcaption", {}, video.src ? `${video.run}/${video.name}` : `${video.run}/${video.name}: ${video.why}`);
  }
}

function failures() {
  if (!data.failures.length) return;
  byId("failures").hidden = false;
  for (const failure of data.failures) {
    add(byId("failures"), "h3", {}, failure.run);
    if (!failure.lines.length) add(byId("failures"), "p", { class: "quiet" }, "It left no words.");
    else add(byId("failures"), "pre", { tabindex: "0" }, failure.lines.join("\n"));
  }
}

function runs() {
  const section = byId("runs");
  const body = table(section, ["run", "experiment", "environment", "seed", "epochs", "steps", "score", "state"], "Runs", true);
  const largest = Math.max(...data.listed.map((run) => Math.abs(run.score ?? 0)));
  for (const run of data.listed) {
    const row = add(body, "tr");
    add(row, "th", { scope: "row", title: run.run }, run.run);
    add(row, "td", { class: "left named", title: run.experiment }, run.experiment);
    add(row, "td", { class: "left" }, run.environment || "–");
    for (const text of [run.seed ?? "–", run.epochs, whole(run.steps), even(run.score, largest)]) add(row, "td", {}, String(text));
    add(row, "td", { class: ["failed", "diverged"].includes(run.state) ? "left failed" : "left" }, run.state);
  }
}
