// The figures: one panel for each environment, drawn again whenever a control changes.

const chosen = { x: null, y: null, line: "mean", band: "ci", smooth: 1, single: false };
const hidden = new Set();
const environments = [...new Set(data.runs.map((run) => run.environment))];

function ticks(low, high, about) {
  const raw = (high - low) / about, power = 10 ** Math.floor(Math.log10(raw));
  const step = power * ([1, 2, 5, 10].find((f) => power * f >= raw * 0.999) || 10);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) found.push(i * step);
  return { step, found };
}

function extent(values) {
  let low = Infinity, high = -Infinity;
  for (const v of values) {
    if (!Number.isFinite(v)) continue;
    if (v < low) low = v;
    if (v > high) high = v;
  }
  if (low > high) return [0, 1];
  return low === high ? [low - (Math.abs(low) || 1) * 0.5, high + (Math.abs(high) || 1) * 0.5] : [low, high];
}

function makePanel(environment) {
  const figure = add(byId("panels"), "figure", { class: "panel" });
  const name = environment || (environments.length > 1 ? "environment unknown" : "");
  if (name) add(figure, "h3", {}, name);
  const chart = add(figure, "div", { class: "chart" });
  const svg = add(chart, "svg", { tabindex: "0", role: "img" });
  const readout = add(chart, "div", { class: "readout", hidden: "" });
  const caption = add(figure, "figcaption");
  const runs = data.runs.filter((run) => run.environment === environment);
  const performance = [...new Set(runs.map((run) => data.performance.find((c) => run.columns[c])))];
  const panel = { environment, svg, readout, caption, performance, lines: [], at: null };
  svg.addEventListener("pointermove", (event) => point(panel, event));
  svg.addEventListener("pointerdown", (event) => point(panel, event));
  svg.addEventListener("pointerleave", () => moveTo(panel, null));
  svg.addEventListener("focusout", () => moveTo(panel, null));
  svg.addEventListener("keydown", (event) => step(panel, event));
  return panel;
}

function compute(panel) {
  const runs = data.runs.filter((r) => r.environment === panel.environment && !hidden.has(r.experiment));
  panel.lines = [];
  for (const name of data.experiments) {
    const members = runs.filter((r) => r.experiment === name);
    const found = members.map((r) => curve(r, chosen.x, chosen.y, chosen.smooth));
    const curves = found.filter(Boolean);
    if (!curves.length) continue;
    // Beyond the first run that diverged, the line would be one of those that were lucky.
    const ends = members.flatMap((r, i) => r.diverged ? [found[i] ? found[i].x[found[i].x.length - 1] : -Infinity] : []);
    const end = Math.min(Infinity, ...ends);
    const points = summary(curves, chosen.single ? { line: chosen.line, band: "none" } : chosen).filter((p) => p.x <= end);
    panel.lines.push({ name, curves, points, diverged: ends.length, of: members.length });
  }
}

function path(points) {
  return points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
}

function draw(panel) {
  const { svg, lines } = panel, box = svg.getBoundingClientRect();
  const width = box.width, height = box.height;
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.replaceChildren();
  const [xLow, xHigh] = extent(lines.flatMap((l) => l.points.map((p) => p.x)));
  const shown = chosen.single ? lines.flatMap((l) => l.curves.flatMap((c) => c.y))
    : lines.flatMap((l) => l.points.flatMap((p) => [p.y, p.low, p.high]));
  let [yLow, yHigh] = extent(shown);
  [yLow, yHigh] = [yLow - (yHigh - yLow) * 0.04, yHigh + (yHigh - yLow) * 0.04];
  const yTicks = ticks(yLow, yHigh, height / 55), xTicks = ticks(xLow, xHigh, width / 95);
  const label = (v, t, from) => short(Math.abs(v) < t.step * 1e-6 ? 0 : v, 6, from);
  const widest = Math.max(...yTicks.found.map((v) => label(v, yTicks).length), 2);
  const left = 30 + widest * 7, right = 14, top = 12, bottom = 44;
  const sx = (x) => left + (x - xLow) / (xHigh - xLow) * (width - left - right);
  const sy = (y) => height - bottom - (y - yLow) / (yHigh - yLow) * (height - top - bottom);
  panel.sx = sx; panel.sy = sy; panel.top = top; panel.bottom = height - bottom;
  const vertical = (x, name) => add(svg, "line", { class: name, x1: x, x2: x, y1: top, y2: height - bottom });
  const horizontal = (y, name) => add(svg, "line", { class: name, x1: left, x2: width - right, y1: y, y2: y });
  for (let i = Math.ceil(xLow / xTicks.step * 5); i * xTicks.step / 5 <= xHigh; i++) vertical(sx(i * xTicks.step / 5), "fine");
  for (let i = Math.ceil(yLow / yTicks.step * 5); i * yTicks.step / 5 <= yHigh; i++) horizontal(sy(i * yTicks.step / 5), "fine");
  for (const v of xTicks.found) {
    vertical(sx(v), "grid");
    add(svg, "text", { x: sx(v), y: height - bottom + 17, "text-anchor": "middle" }, label(v, xTicks, 1e3));
  }
  for (const v of yTicks.found) {
    horizontal(sy(v), "grid");
    add(svg, "text", { x: left - 7, y: sy(v) + 4, "text-anchor": "end" }, label(v, yTicks));
  }
  horizontal(height - bottom, "axis");
  vertical(left, "axis");
  add(svg, "text", { class: "name", x: (left + width - right) / 2, y: height - 8, "text-anchor": "middle" }, chosen.x);
  const middle = (top + height - bottom) / 2;
  add(svg, "text", { class: "name", x: 13, y: middle, "text-anchor": "middle", transform: `rotate(-90 13 ${middle})` }, chosen.y);
  if (!lines.length) {
    const why = hidden.size ? "No experiment that is shown has these columns." : "No run has numbers here.";
    add(svg, "text", { class: "empty", x: (left + width) / 2, y: middle, "text-anchor": "middle" }, why);
  }
  for (const line of lines) {
    const points = line.points, hue = color(number[line.name]), dashes = dash(number[line.name]);
    if (chosen.single) {
      for (const c of line.curves) trace(svg, c.x.map((x, i) => [sx(x), sy(c.y[i])]), "one", hue, dashes);
      continue;
    }
    // A band may have gaps, where only one run is left.
    let part = [];
    for (const p of [...points, { low: NaN }]) {
      if (Number.isFinite(p.low)) { part.push(p); continue; }
      if (part.length) {
        const outline = [...part.map((q) => [sx(q.x), sy(q.high)]), ...part.reverse().map((q) => [sx(q.x), sy(q.low)])];
        add(svg, "path", { class: "area", d: path(outline) + "Z" }).style.fill = hue;
      }
      part = [];
    }
  }
  if (!chosen.single) {
    for (const line of lines) {
      const at = line.points.map((p) => [sx(p.x), sy(p.y)]);
      if (!at.length) continue;
      if (line.diverged) cross(svg, at[at.length - 1], color(number[line.name]));
      trace(svg, at, "curve", color(number[line.name]), dash(number[line.name]), line.name);
    }
  }
  panel.marks = add(svg, "g");
  describe(panel);
  moveTo(panel, panel.at);
}

function cross(svg, [x, y], hue) {
  const d = path([[x - 5, y - 5], [x + 5, y + 5]]) + path([[x - 5, y + 5], [x + 5, y - 5]]);
  add(svg, "path", { class: "diverged", d }).style.cssText = `stroke:${hue};stroke-width:3`;
}

function trace(svg, at, name, hue, dashes, title) {
  if (at.length === 1) {
    add(svg, "circle", { class: name, cx: at[0][0], cy: at[0][1], r: 3.5 }).style.cssText = `fill:${hue};stroke:${hue}`;
    return;
  }
  const node = add(svg, "path", { class: name, d: path(at), "stroke-dasharray": dashes });
  node.style.stroke = hue;
  if (title !== undefined) node.dataset.experiment = title;
}

function describe(panel) {
  const numbers = panel.lines.flatMap((l) => l.points.map((p) => p.n));
  const [few, most] = numbers.length ? [Math.min(...numbers), Math.max(...numbers)] : [0, 0];
  const many = few === most ? `${most}` : `${few} to ${most}`;
  let text = chosen.single || most <= 1 ? "Each line: one run" : `Line: ${LINES[chosen.line]} of ${many} runs`;
  if (!chosen.single && most > 1 && chosen.band !== "none") text += `; band: ${BANDS[chosen.band]}`;
  if (chosen.smooth > 1) text += `; smoothed over ${chosen.smooth} points`;
  const lost = panel.lines.filter((l) => l.diverged);
  if (lost.length) text += `. A line ends (×) where a run diverged: ${lost.map((l) => `${l.diverged} of ${l.of} of ${l.name}`).join(", ")}`;
  if (chosen.y === "Performance") text += `. Performance: ${panel.performance.join(" or ")}`;
  panel.caption.textContent = numbers.length || lost.length ? text + "." : "";
  const shown = panel.lines.map((l) => l.name).join(", ");
  panel.svg.setAttribute("aria-label", `${chosen.y} against ${chosen.x}${panel.environment ? ` on ${panel.environment}` : ""}: ${shown}. Arrow keys read values.`);
}

// The x values that can be read, of all lines together.
const readable = (panel) => [...new Set(panel.lines.flatMap((l) => l.points.map((p) => p.x)))].sort((a, b) => a - b);

function point(panel, event) {
  const at = event.clientX - panel.svg.getBoundingClientRect().left;
  let best = null;
  for (const x of readable(panel)) {
    if (best === null || Math.abs(panel.sx(x) - at) < Math.abs(panel.sx(best) - at)) best = x;
  }
  moveTo(panel, best);
}

function step(panel, event) {
  const xs = readable(panel), now = xs.indexOf(panel.at), last = xs.length - 1;
  const jump = event.shiftKey ? 10 : 1;
  const next = { ArrowRight: now + jump, ArrowLeft: (now < 0 ? last + 1 : now) - jump, Home: 0, End: last }[event.key];
  if (event.key === "Escape") moveTo(panel, null);
  if (next === undefined || !xs.length) return;
  event.preventDefault();
  moveTo(panel, xs[Math.max(0, Math.min(last, next))]);
  byId("heard").textContent = [...panel.readout.children].map((row) => row.textContent).join("; ");
}

function moveTo(panel, x) {
  panel.at = x;
  panel.marks.replaceChildren();
  const found = x === null ? [] : panel.lines.flatMap((l) => {
    const p = l.points.find((q) => q.x === x);
    return p ? [{ name: l.name, ...p }] : [];
  });
  panel.readout.hidden = !found.length;
  if (!found.length) return;
  const at = panel.sx(x);
  add(panel.marks, "line", { class: "cursor", x1: at, x2: at, y1: panel.top, y2: panel.bottom });
  panel.readout.replaceChildren();
  add(panel.readout, "b", {}, `${chosen.x} ${short(x, 6)}`);
  found.sort((a, b) => b.y - a.y);
  for (const p of found) add(panel.marks, "circle", { cx: at, cy: panel.sy(p.y), r: 3.5 }).style.fill = color(number[p.name]);
  for (const p of found.slice(0, MOST_READ)) {
    const row = add(panel.readout, "div");
    swatch(row, p.name);
    add(row, "span", {}, p.name);
    const band = Number.isFinite(p.low) ? ` [${short(p.low)}, ${short(p.high)}]` : "";
    add(row, "span", {}, ` ${short(p.y)}${band}`);
  }
  if (found.length > MOST_READ) add(panel.readout, "div", {}, `and ${found.length - MOST_READ} below`);
  const onTheRight = at > panel.svg.getBoundingClientRect().width / 2;
  panel.readout.style.left = onTheRight ? "0.5rem" : "auto";
  panel.readout.style.right = onTheRight ? "auto" : "0.5rem";
}

const panels = environments.map(makePanel);
let waiting = false;
function update() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    for (const panel of panels) { compute(panel); draw(panel); }
  });
}

function fill(select, columns, first) {
  for (const column of columns) add(select, "option", { value: column }, column);
  select.value = columns.includes(first) ? first : columns[0];
  return select.value;
}

const columns = [...new Set(data.runs.flatMap((run) => Object.keys(run.columns)))];
chosen.y = fill(byId("y"), columns, data.value);
const along = columns.filter((c) => ["TotalEnvInteracts", "Epoch", "Time"].includes(c));
chosen.x = fill(byId("x"), along.length ? along : columns, "TotalEnvInteracts");
const longest = Math.max(...data.runs.map((run) => Math.max(...Object.values(run.columns).map((c) => c.length))));
byId("smooth").max = Math.max(2, Math.min(100, Math.ceil(longest / 2)));
for (const key of ["x", "y", "line", "band"]) {
  byId(key).addEventListener("change", (event) => { chosen[key] = event.target.value; update(); });
}
byId("smooth").addEventListener("input", (event) => {
  chosen.smooth = Number(event.target.value);
  byId("smoothed").textContent = chosen.smooth > 1 ? `${chosen.smooth} points` : "off";
  update();
});
byId("single").addEventListener("change", (event) => { chosen.single = event.target.checked; update(); });
byId("controls").addEventListener("submit", (event) => event.preventDefault());
for (const name of data.experiments) {
  const button = add(byId("legend"), "button", { type: "button", "aria-pressed": "true" });
  swatch(button, name);
  add(button, "span", {}, name);
  button.addEventListener("click", () => {
    if (!hidden.delete(name)) hidden.add(name);
    button.setAttribute("aria-pressed", String(!hidden.has(name)));
    update();
  });
}
for (const panel of panels) new ResizeObserver(() => { if (panel.sx) draw(panel); }).observe(panel.svg);
