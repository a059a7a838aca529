// Runs as curves, and several of them as one line with a band.
// Python computes the same in results/curves.py and results/statistics.py; a test in a browser
// holds both equal to the last digit that is shown.

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
// The random numbers are those of Python: see random_numbers in results/statistics.py.
const RESAMPLES = data.resampling.resamples;
const bytes = Uint8Array.from(atob(data.resampling.random_numbers), (letter) => letter.charCodeAt(0));
const randomNumbers = new DataView(bytes.buffer);
const counted = new Map();
function counts(n) {
  if (!counted.has(n)) {
    const table = new Uint16Array(RESAMPLES * n);
    for (let i = 0; i < RESAMPLES * n; i++) {
      const sampled = Math.floor(randomNumbers.getUint32(4 * i, true) * n / 2 ** 32);
      table[i - i % n + sampled]++;
    }
    counted.set(n, table);
  }
  return counted.get(n);
}

// The mean of values from rank `cut` to rank n - cut, each as often as `many` says. They must be
// sorted, unless cut is 0.
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

// Both edges of the band; `values` are in the order of the runs.
function edges(values, sorted, line, band, cut) {
  const n = values.length;
  if (n < 2 || band === "none") return [NaN, NaN];
  if (band === "minmax") return [sorted[0], sorted[n - 1]];
  if (band === "std") {
    const mean = trimmed(values, 0);
    const spread = Math.sqrt(values.reduce((s, v) => s + (v - mean) ** 2, 0) / (n - 1));
    return [line - spread, line + spread];
  }
  const many = counts(n), estimates = new Float64Array(RESAMPLES);
  const ranked = cut ? sorted : values;
  for (let i = 0; i < RESAMPLES; i++) estimates[i] = trimmed(ranked, cut, many, i * n);
  estimates.sort();
  return [data.resampling.tail, 1 - data.resampling.tail].map((q) => quantile(estimates, q));
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
    const values = Float64Array.from(rows.map((row) => row[i]).filter(Number.isFinite));
    const sorted = values.slice().sort();
    const cut = cutOf[chosen.line](values.length), y = trimmed(sorted, cut);
    const [low, high] = edges(values, sorted, y, chosen.band, cut);
    return { x, y, low, high, n: values.length };
  });
}
