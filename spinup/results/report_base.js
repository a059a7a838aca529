// The data of the page, and what all its parts use to show something of it.

const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const COLORS = 7, DASHES = ["", "7 4", "2 3", "8 3 2 3"];
const MOST_POINTS = 800, MOST_READ = 8;
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
