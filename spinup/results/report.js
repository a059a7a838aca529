"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const COLORS = 7, DASHES = ["", "7 4", "2 3", "8 3 2 3"];
  const MOST_POINTS = 800, RESAMPLES = 1000, MOST_READ = 8;
  const LINES = { mean: "mean", iqm: "interquartile mean", median: "median" };
  const BANDS = { ci: "95 % bootstrap interval", std: "± standard deviation", minmax: "all runs" };

  // Whatever came from a run's folder is only ever put into text nodes or checked attributes.
  function add(parent, tag, attributes = {}, ...children) {
    const svg = parent instanceof SVGElement || tag === "svg";
    const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag)
      : document.createElement(tag);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...children);
    parent.append(node);
    return node;
  }

  const color = (number) => `var(--c${number % COLORS})`;
  const dash = (number) => DASHES[Math.floor(number / COLORS) % DASHES.length];
  const number = Object.fromEntries(data.experiments.map((name, i) => [name, i]));

  function swatch(parent, name) {
    const box = add(parent, "svg", { class: "swatch", viewBox: "0 0 28 10", "aria-hidden": "true" });
    const style = `stroke:${color(number[name])};stroke-width:3`;
    const line = add(box, "line", { x1: 1, x2: 27, y1: 5, y2: 5, "stroke-dasharray": dash(number[name]) });
    line.style.cssText = style;
  }

  // A number for people: 12.5k, 3M; `thousands` says from which size on k is used.
  function short(value, digits = 4, thousands = 1e4) {
    if (value === null || !Number.isFinite(value)) return "–";
    const size = Math.abs(value);
    for (const [from, unit, letter] of [[1e9, 1e9, "G"], [1e6, 1e6, "M"], [thousands, 1e3, "k"]]) {
      if (size >= from) return short(value / unit, digits, Infinity) + letter;
    }
    const text = size > 0 && size < 1e-3 ? value.toExponential(Math.max(digits - 2, 1))
      : String(Number(value.toPrecision(digits)));
    return text.replace("-", "−");
  }

  // ------------------------------------------------------------ numbers

  function smoothed(y, window) {
    if (window === 1) return y;
    const sums = [0];
    for (const value of y) sums.push(sums[sums.length - 1] + value);
    const before = window - 1 - Math.floor((window - 1) / 2);
    return y.map((_, i) => {
      const from = Math.max(0, i - before), to = Math.min(y.length, i - before + window);
      return (sums[to] - sums[from]) / (to - from);
    });
  }

  // A run as [x, y] in ascending order of x; of points with the same x, the mean.
  function curve(run, x, y, window) {
    const xs = run.columns[x], ys = run.columns[y], at = new Map();
    if (!xs || !ys) return null;
    xs.forEach((value, i) => {
      if (value === null || ys[i] === null) return;
      const [sum, many] = at.get(value) || [0, 0];
      at.set(value, [sum + ys[i], many + 1]);
    });
    const sorted = [...at].sort((a, b) => a[0] - b[0]);
    if (!sorted.length) return null;
    return { x: sorted.map(([v]) => v), y: smoothed(sorted.map(([, [s, n]]) => s / n), window) };
  }

  // Between a run's own points, on the way from one to the next; beyond its ends, nothing.
  function interpolated({ x, y }, grid) {
    let i = 0;
    return grid.map((at) => {
      if (at < x[0] || at > x[x.length - 1]) return NaN;
      while (x[i + 1] < at) i++;
      if (x[i] === at || x.length === 1) return y[i];
      return y[i] + (y[i + 1] - y[i]) * (at - x[i]) / (x[i + 1] - x[i]);
    });
  }

  // How often each of n runs is sampled, for every resample; the same for all x, so bands are smooth.
  const counted = new Map();
  function counts(n) {
    if (!counted.has(n)) {
      const table = new Uint16Array(RESAMPLES * n);
      let state = 0x9e3779b9 ^ n; // a fixed stream of random numbers (mulberry32): the same each time
      const random = () => {
        state = (state + 0x6d2b79f5) | 0;
        let t = Math.imul(state ^ (state >>> 15), 1 | state);
        t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
        return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
      };
      for (let i = 0; i < RESAMPLES; i++) {
        for (let j = 0; j < n; j++) table[i * n + Math.floor(random() * n)]++;
      }
      counted.set(n, table);
    }
    return counted.get(n);
  }

  // The mean of sorted values from rank `cut` to rank n - cut, each as often as `many` says.
  function trimmed(values, cut, many, offset) {
    const n = values.length;
    let rank = 0, sum = 0;
    for (let i = 0; i < n; i++) {
      const times = many ? many[offset + i] : 1;
      const taken = Math.min(rank + times, n - cut) - Math.max(rank, cut);
      if (taken > 0) sum += taken * values[i];
      rank += times;
    }
    return sum / (n - 2 * cut);
  }

  const cutOf = {
    mean: () => 0,
    iqm: (n) => Math.floor(n / 4),
    median: (n) => Math.floor((n - 1) / 2),
  };

  function quantile(sorted, q) {
    const place = q * (sorted.length - 1), low = Math.floor(place);
    return sorted[low] + (place - low) * ((sorted[low + 1] ?? sorted[low]) - sorted[low]);
  }

  function edges(values, line, band, cut) {
    const n = values.length;
    if (n < 2 || band === "none") return [NaN, NaN];
    if (band === "minmax") return [values[0], values[n - 1]];
    if (band === "std") {
      const mean = trimmed(values, 0);
      const spread = Math.sqrt(values.reduce((s, v) => s + (v - mean) ** 2, 0) / (n - 1));
      return [line - spread, line + spread];
    }
    const many = counts(n), estimates = new Float64Array(RESAMPLES);
    for (let i = 0; i < RESAMPLES; i++) estimates[i] = trimmed(values, cut, many, i * n);
    estimates.sort();
    return [quantile(estimates, 0.025), quantile(estimates, 0.975)];
  }

  function gridOf(curves) {
    let grid = Float64Array.from(new Set(curves.flatMap((c) => c.x))).sort();
    grid = Array.from(grid);
    if (grid.length <= MOST_POINTS) return grid;
    const step = (grid.length - 1) / (MOST_POINTS - 1);
    return Array.from({ length: MOST_POINTS }, (_, i) => grid[Math.round(i * step)]);
  }

  function summary(curves, chosen) {
    const grid = gridOf(curves), rows = curves.map((c) => interpolated(c, grid));
    return grid.map((x, i) => {
      const values = Float64Array.from(rows.map((row) => row[i]).filter(Number.isFinite)).sort();
      const cut = cutOf[chosen.line](values.length), y = trimmed(values, cut);
      const [low, high] = edges(values, y, chosen.band, cut);
      return { x, y, low, high, n: values.length };
    });
  }

  // ------------------------------------------------------------ curves

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
    svg.addEventListener("blur", () => moveTo(panel, null));
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

  // ------------------------------------------------------------ tables

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

  // ------------------------------------------------------------ the page

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
})();
