"""Learning curves: what the progress.txt of one run or many holds, as lines with bands."""

import io
import os
import sys
from pathlib import Path

import numpy as np

from spinup.parts.errors import UserError
from spinup.parts.jsonio import write_whole
from spinup.parts.plain_text import plot_label, say
from spinup.parts.progress import PERFORMANCE
from spinup.results.statistics import iqm
from spinup.results.tables import (
    CUT_OFF,
    IN_WORDS,
    as_list,
    check_known,
    get_all_datasets,
    numbers,
    warn,
)
from spinup.results.video import has_screen

ESTIMATORS = dict(
    mean=np.mean, median=np.median, iqm=iqm, max=np.max, min=np.min
)  # fmt: skip
BANDS = dict(ci="95 % bootstrap interval", std="± standard deviation", minmax="all runs", none="")
RESAMPLES, BOOTSTRAP_SEED = 1000, 0
MOST_POINTS = 2000  # of a line; the widest figure has fewer pixels
# Apart for colour-blind eyes too; when they run out they come again with other dashes.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#444444")
DASHES = ("-", "--", ":", "-.")


def smoothed(y, window: int):
    """The moving average over `window` points; near the ends, over those there are."""
    ones = np.ones(window)
    average = np.convolve(y, ones) / np.convolve(np.ones(len(y)), ones)
    return average[(window - 1) // 2 :][: len(y)]


def _curve(run, xaxis, value, smooth):
    """A run as a smoothed y for each x in ascending order; what is no finite number is left out."""
    import pandas as pd

    x, y = (numbers(run[column]) for column in (xaxis, value))
    finite = np.isfinite(x) & np.isfinite(y)
    curve = y[finite].groupby(x[finite]).mean()
    return pd.Series(smoothed(curve, smooth), curve.index) if len(curve) else curve


def _resampled(values, estimator):
    """What the estimator says of each resample of the runs: a row for each, a column for each x.

    All estimators here are means of what is left when some runs are cut off at both ends, so how
    often each run is sampled gives its weight, and one product does all x at once.
    """
    n = len(values)
    cut = CUT_OFF[estimator](n)
    samples = np.random.default_rng(BOOTSTRAP_SEED).integers(n, size=(RESAMPLES, n))
    times = np.stack([np.bincount(row, minlength=n) for row in samples])
    ranks = times.cumsum(axis=1)
    kept = np.minimum(ranks, n - cut) - np.maximum(ranks - times, cut)
    return kept.clip(0) / (n - 2 * cut) @ (np.sort(values, axis=0) if cut else values)


def _edges(values, estimator, band):
    """Both edges of the band; `values` has a row for each run and a column for each x."""
    if band == "none" or len(values) < 2:
        return np.nan, np.nan
    if band == "minmax":
        return values.min(0), values.max(0)
    if band == "std":
        middle, deviation = ESTIMATORS[estimator](values, axis=0), values.std(0, ddof=1)
        return middle - deviation, middle + deviation
    return np.percentile(_resampled(values, estimator), [2.5, 97.5], axis=0)


def summarize(curves, estimator="mean", band="ci"):
    """Several runs as one: x, the line, both edges of the band, and how many runs are there.

    A run is interpolated between its own points and not continued beyond its ends;
    where one run is shorter, line and band are those of the others, and the number says so.
    """
    x = np.unique(np.concatenate([curve.index for curve in curves]))
    if len(x) > MOST_POINTS:  # seconds are never the same in two runs
        x = x[np.linspace(0, len(x) - 1, MOST_POINTS).round().astype(int)]
    rows = np.array([np.interp(x, c.index, c, left=np.nan, right=np.nan) for c in curves])
    absent = np.isnan(rows)
    rows = np.take_along_axis(rows, absent.argsort(axis=0, kind="stable"), axis=0)
    number = len(rows) - absent.sum(axis=0)
    line, low, high = np.full((3, len(x)), np.nan)
    for many in np.unique(number):
        here = number == many
        line[here] = ESTIMATORS[estimator](rows[:many, here], axis=0)
        low[here], high[here] = _edges(rows[:many, here], estimator, band)
    return x, line, low, high, number.tolist()


def plot_data(
    data, xaxis="Epoch", value="AverageEpRet", condition="Condition1", smooth=1, *,
    ax=None, estimator="mean", band="ci", **kwargs,
):  # fmt: skip
    """Plot a line for each experiment, with a band where it has several runs; gives the axes.

    data: what `get_datasets` gives, or one DataFrame of all runs
    condition: the column that tells lines apart; Condition2 plots each run by itself
    smooth: how many points of a run the moving average takes in
    ax: where to plot; by default the current axes of pyplot
    estimator: mean, iqm (interquartile mean), median, max or min of the runs
    band: ci (95 % bootstrap interval of what the line is), std, minmax or none
    kwargs: whatever else matplotlib's `plot` takes
    """
    estimator = getattr(estimator, "__name__", estimator)  # np.mean says the same as 'mean'
    check_known("estimator", estimator, ESTIMATORS)
    check_known("band", band, BANDS)
    if band == "ci" and estimator not in CUT_OFF:
        band = "none"  # resampling cannot tell how far beyond the best run another may lie
    if smooth < 1:
        raise UserError(f"smooth is a number of points, 1 or more, not {smooth}.")
    frames = data if isinstance(data, list) else [data]
    for column in (xaxis, value, condition):
        check_known("column", column, list(dict.fromkeys(c for frame in frames for c in frame)))
    curves = {name: [] for frame in frames for name in frame[condition].unique()}
    ends = {name: [] for name in curves}  # where runs diverged
    for frame in frames:
        for (name, _), run in frame.groupby([condition, "Unit"]):
            plotted = xaxis in run and value in run
            curve = _curve(run, xaxis, value, smooth) if plotted else ()
            if "Diverged" in run and run["Diverged"].eq(True).any():
                ends[name].append(curve.index[-1] if len(curve) else -np.inf)
            if len(curve):
                curves[name].append(curve)
    if not any(curves.values()):
        many = sum(map(len, ends.values()))
        diverged = f" {many} diverged before an epoch was done." if many else ""
        raise UserError(f"No run has numbers under both {xaxis!r} and {value!r}.{diverged}")
    if ax is None:
        import matplotlib.pyplot as plt

        ax = plt.gca()
    numbers = []
    for i, (name, found) in enumerate(curves.items()):
        if not found and not ends[name]:
            continue
        label = _label(name, found, ends[name], xaxis)
        color, dashes = COLORS[i % len(COLORS)], DASHES[i // len(COLORS) % len(DASHES)]
        style = dict(color=color, linestyle=dashes, linewidth=1.5, label=plot_label(label)) | kwargs
        x = line = low = high = np.array([])
        if found:
            x, line, low, high, number = summarize(found, estimator, band)
            # Beyond, it would be a line of those runs that were lucky.
            kept = x <= min(ends[name], default=np.inf)
            x, line, low, high = x[kept], line[kept], low[kept], high[kept]
            numbers += [n for n, k in zip(number, kept) if k]
        (plotted,) = ax.plot(x, line, **dict(marker="o" if len(x) == 1 else "") | style)
        ax.fill_between(x, low, high, color=plotted.get_color(), alpha=0.18, linewidth=0)
        if ends[name] and len(x):
            mark = dict(marker="X", markersize=8, linestyle="none", label="_diverged")
            ax.plot(x[-1:], line[-1:], color=plotted.get_color(), **mark)
    fewest, most = min(numbers, default=0), max(numbers, default=0)
    many = f"{most}" if fewest == most else f"{fewest} to {most}"
    meaning = (
        f"line: {IN_WORDS.get(estimator, estimator)} of {many} runs"
        if most > 1
        else "each line: one run"
    )
    meaning += f"; band: {BANDS[band]}" if most > 1 and band != "none" else ""
    meaning += f"; smoothed over {smooth} points" if smooth > 1 else ""
    if any(ends.values()):
        meaning += "\nX: a run diverged, and the line of its experiment ends"
    kinds = dict.fromkeys(k for f in frames for k in [p for p in PERFORMANCE if p in f][:1])
    ylabel = plot_label(value)
    ylabel += f"\n({' or '.join(kinds)})" if value == "Performance" else ""
    _dress(ax, xaxis, ylabel, meaning)
    return ax


def _label(name, found, ends, xaxis) -> str:
    """An experiment's name in the legend, with how many of its runs diverged or are shorter."""
    lost = sum(map(np.isneginf, ends))  # those without a curve
    told = [f"{len(ends)} of {len(found) + lost} diverged"] if ends else []
    lengths = {len(curve) for curve in found}
    last = {curve.index[-1] for curve in found}
    if not ends and len(last) > 1 and (len(lengths) > 1 or xaxis != "Time"):
        beyond = sum(curve.index[-1] > min(last) for curve in found)
        told.append(f"{len(found)} runs, {beyond} after {min(last):g}")
    return f"{name} ({', '.join(told)})" if told else name


def _dress(ax, xlabel, ylabel, meaning):
    """Name the axes, say under them what is plotted, and keep the rest quiet."""
    from matplotlib.ticker import EngFormatter

    units = EngFormatter(sep="")  # 10k, 1M
    ax.xaxis.set_major_formatter(lambda x, _: units(x) if abs(x) >= 1000 else f"{x:g}")
    ax.set(xlabel=plot_label(xlabel), ylabel=ylabel, axisbelow=True)
    below = dict(xycoords=ax.xaxis.label, textcoords="offset points", ha="center", va="top")
    ax.annotate(meaning, (0.5, 0), (0, -5), fontsize="small", color="#555555", **below)
    ax.grid(color="#DDDDDD", linewidth=0.6)
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color("#888888")
    ax.tick_params(color="#888888")
    crowded = len(ax.lines) > len(COLORS)
    place = dict(loc="upper left", bbox_to_anchor=(1, 1)) if crowded else dict(loc="best")
    ax.legend(frameon=False, fontsize="small", **place)


def _has_screen():
    """Whether a window, or a notebook's cell, can show a figure."""
    import matplotlib

    shown = has_screen() or "ipykernel" in sys.modules
    return shown and matplotlib.get_backend().lower() != "agg"


def make_plots(
    all_logdirs, legend=None, xaxis=None, values=None, count=False, font_scale=1.5, smooth=1,
    select=None, exclude=None, estimator="mean", *, output=None, band="ci",
):  # fmt: skip
    """Plot the runs in some folders, a panel for each of `values`, in a window or to a file.

    all_logdirs, legend, select, exclude: as for `get_all_datasets`
    xaxis, values: columns of progress.txt; by default TotalEnvInteracts and Performance
    count: plot each run by itself
    smooth, estimator, band: as for `plot_data`
    output: a file ending in .png, .svg or .pdf; without one, and without a screen,
        plot.png in the first folder, or here if that is only the beginning of a name

    Gives the runs it has plotted.
    """
    import matplotlib
    from matplotlib.figure import Figure

    if output is not None and Path(output).suffix not in (".png", ".svg", ".pdf"):
        raise UserError(f"{output} should end in .png, .svg or .pdf, to say what to write.")
    data = get_all_datasets(all_logdirs, legend, select, exclude)
    for sentence in dict.fromkeys(run.attrs["unsure"] for run in data if run.attrs["unsure"]):
        warn(sentence)
    xaxis, values = xaxis or "TotalEnvInteracts", as_list(values) or ["Performance"]
    condition = "Condition2" if count else "Condition1"
    across = min(len(values), 3)
    down = -(-len(values) // across)
    size = dict(figsize=(6.4 * across, 4.4 * down), layout="constrained")
    show = output is None and _has_screen()
    if show:
        import matplotlib.pyplot as plt
    look = {"font.size": 7.5 * font_scale, "figure.titlesize": "medium"}
    look |= {f"figure.constrained_layout.{side}_pad": 0.08 for side in "hw"}  # inches
    with matplotlib.rc_context(look):
        figure = plt.figure(**size) if show else Figure(**size)  # a file needs no pyplot, only Agg
        for i, value in enumerate(values):
            ax = figure.add_subplot(down, across, i + 1)
            plot_data(data, xaxis, value, condition, smooth, ax=ax, estimator=estimator, band=band)
        env_ids = {run.attrs["env_id"] for run in data}
        if len(env_ids) == 1 and None not in env_ids:
            figure.suptitle(plot_label(env_ids.pop()))
        if show:
            plt.show()
            return data
        first = Path(as_list(all_logdirs)[0])
        path = Path(output or (first if os.path.isdir(first) else Path()) / "plot.png")
        content = io.BytesIO()
        try:
            figure.savefig(content, format=path.suffix[1:], dpi=150)
            write_whole(path, content.getvalue())
        except OSError as error:
            raise UserError(f"Cannot write {path} ({error.strerror}). Choose a file with -o.")
    say(f"Wrote {path}")
    return data
