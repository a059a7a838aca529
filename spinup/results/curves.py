"""Learning curves: what the progress.txt of one run or many holds, as lines with bands."""

import contextlib
import io
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from spinup.parts.errors import UserError
from spinup.parts.jsonio import write_whole
from spinup.parts.plain_text import plot_label, say
from spinup.parts.progress import PERFORMANCE
from spinup.results.statistics import CUT_OFF, interval_at_each_point, iqm
from spinup.results.tables import (
    Paths,
    Strings,
    as_list,
    check_known,
    get_all_datasets,
    numbers,
    warn,
)
from spinup.results.video import has_screen

ESTIMATORS: dict[str, Callable] = dict(
    mean=np.mean, median=np.median, iqm=iqm, max=np.max, min=np.min
)
IN_WORDS = dict(iqm="interquartile mean")  # what a plot calls them, where not by their names
BANDS = dict(ci="95 % bootstrap interval", std="± standard deviation", minmax="all runs", none="")
ENDED = "X: a run diverged, and the line of its experiment ends"
MOST_POINTS = 2000  # of a line; the widest figure has fewer pixels
# Apart for colour-blind eyes too; when they run out they come again with other dashes.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#444444")
DASHES = ("-", "--", ":", "-.")


def smoothed(y: Any, window: int) -> np.ndarray:
    """The moving average over `window` points; near the ends, over those there are."""
    ones = np.ones(window)
    average = np.convolve(y, ones) / np.convolve(np.ones(len(y)), ones)
    return average[(window - 1) // 2 :][: len(y)]


def run_curve(run: Any, xaxis: str, value: str, smooth: int) -> Any:
    """A run as a smoothed y for each x in ascending order; what is no finite number is left out."""
    import pandas as pd

    x, y = (numbers(run[column]) for column in (xaxis, value))
    finite = np.isfinite(x) & np.isfinite(y)
    curve = y[finite].groupby(x[finite]).mean()
    return pd.Series(smoothed(curve, smooth), curve.index) if len(curve) else curve


def _edges(values, estimator, band):
    """Both edges of the band; `values` has a row for each run and a column for each x."""
    if band == "none" or len(values) < 2:
        return np.nan, np.nan
    if band == "minmax":
        return values.min(0), values.max(0)
    if band == "std":
        middle, deviation = ESTIMATORS[estimator](values, axis=0), values.std(0, ddof=1)
        return middle - deviation, middle + deviation
    return tuple(interval_at_each_point(values, estimator))


def summarize(
    curves: Sequence, estimator: str = "mean", band: str = "ci"
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, list[int]]:
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


@dataclass
class _Experiment:
    """The runs that one line of a plot stands for."""

    curves: list = field(default_factory=list)
    ends: list[float] = field(default_factory=list)  # where runs diverged


def plot_data(
    data: Any,
    xaxis: str = "Epoch",
    value: str = "AverageEpRet",
    condition: str = "Condition1",
    smooth: int = 1,
    *,
    ax: Any = None,
    estimator: str | Callable = "mean",
    band: str = "ci",
    **kwargs: Any,
) -> Any:
    """Plot a line for each experiment, with a band where it has several runs; gives the axes.

    data: what `get_datasets` gives, or one DataFrame of all runs
    condition: the column that tells lines apart; Condition2 plots each run by itself
    smooth: how many points of a run the moving average takes in
    ax: where to plot; by default the current axes of pyplot
    estimator: mean, iqm (interquartile mean), median, max or min of the runs
    band: ci (95 % bootstrap interval of what the line is), std, minmax or none
    kwargs: whatever else matplotlib's `plot` takes
    """
    # np.mean says the same as 'mean'.
    name: str = getattr(estimator, "__name__", estimator)  # type: ignore[arg-type]
    frames = data if isinstance(data, list) else [data]
    _check_options(frames, (xaxis, value, condition), smooth, name, band)
    if band == "ci" and name not in CUT_OFF:
        band = "none"  # resampling cannot tell how far beyond the best run another may lie
    experiments = _experiments(frames, xaxis, value, condition, smooth)
    ax = _current_axes() if ax is None else ax
    runs_there: list[int] = []
    for i, (title, found) in enumerate(experiments.items()):
        if found.curves or found.ends:
            label = plot_label(_label(title, found.curves, found.ends, xaxis))
            runs_there += _plot_experiment(ax, i, found, label, name, band, kwargs)
    diverged = any(found.ends for found in experiments.values())
    caption = _caption(runs_there, name, band, smooth, diverged)
    _dress(ax, xaxis, _ylabel(frames, value), caption)
    return ax


def _current_axes():
    import matplotlib.pyplot as plt

    return plt.gca()


def _check_options(frames, columns, smooth, estimator, band):
    """Refuse words that are not known, and columns that no run has."""
    check_known("estimator", estimator, ESTIMATORS)
    check_known("band", band, BANDS)
    if smooth < 1:
        raise UserError(f"smooth is a number of points, 1 or more, not {smooth}.")
    for column in columns:
        check_known("column", column, list(dict.fromkeys(c for frame in frames for c in frame)))


def _experiments(frames, xaxis, value, condition, smooth) -> dict[str, _Experiment]:
    """The curves of each experiment, smoothed."""
    names = [name for frame in frames for name in frame[condition].unique()]
    experiments = {name: _Experiment() for name in names}
    for frame in frames:
        for (name, _), run in frame.groupby([condition, "Unit"]):
            plotted = xaxis in run and value in run
            curve: Any = run_curve(run, xaxis, value, smooth) if plotted else ()
            if "Diverged" in run and run["Diverged"].eq(True).any():
                experiments[name].ends.append(curve.index[-1] if len(curve) else -np.inf)
            if len(curve):
                experiments[name].curves.append(curve)
    if not any(found.curves for found in experiments.values()):
        many = sum(len(found.ends) for found in experiments.values())
        diverged = f" {many} diverged before an epoch was done." if many else ""
        raise UserError(f"No run has numbers under both {xaxis!r} and {value!r}.{diverged}")
    return experiments


def _plot_experiment(ax, i, found, label, estimator, band, kwargs) -> list[int]:
    """Plot the line and the band of an experiment; gives how many runs there are at each x."""
    color, dashes = COLORS[i % len(COLORS)], DASHES[i // len(COLORS) % len(DASHES)]
    style = dict(color=color, linestyle=dashes, linewidth=1.5, label=label) | kwargs
    x = line = low = high = np.array([])
    there: list[int] = []
    if found.curves:
        x, line, low, high, number = summarize(found.curves, estimator, band)
        # Beyond, it would be a line of those runs that were lucky.
        kept = x <= min(found.ends, default=np.inf)
        x, line, low, high = x[kept], line[kept], low[kept], high[kept]
        there = [n for n, k in zip(number, kept) if k]
    (plotted,) = ax.plot(x, line, **dict(marker="o" if len(x) == 1 else "") | style)
    ax.fill_between(x, low, high, color=plotted.get_color(), alpha=0.18, linewidth=0)
    if found.ends and len(x):
        mark = dict(marker="X", markersize=8, linestyle="none", label="_diverged")
        ax.plot(x[-1:], line[-1:], color=plotted.get_color(), **mark)
    return there


def _caption(runs_there, estimator, band, smooth, diverged) -> str:
    """What lines and bands are, in words."""
    fewest, most = min(runs_there, default=0), max(runs_there, default=0)
    many = f"{most}" if fewest == most else f"{fewest} to {most}"
    caption = "each line: one run"
    if most > 1:
        caption = f"line: {IN_WORDS.get(estimator, estimator)} of {many} runs"
        caption += f"; band: {BANDS[band]}" if band != "none" else ""
    caption += f"; smoothed over {smooth} points" if smooth > 1 else ""
    if diverged:
        caption += "\nX: a run diverged, and the line of its experiment ends"
    return caption


def _ylabel(frames, value) -> str:
    """The name of a column; for Performance, also those of the columns that it stands for."""
    kinds = dict.fromkeys(k for f in frames for k in [p for p in PERFORMANCE if p in f][:1])
    return plot_label(value) + (f"\n({' or '.join(kinds)})" if value == "Performance" else "")


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


def _dress(ax, xlabel, ylabel, caption):
    """Name the axes, say under them what is plotted, and keep the rest quiet."""
    from matplotlib.ticker import EngFormatter

    units = EngFormatter(sep="")  # 10k, 1M
    ax.xaxis.set_major_formatter(lambda x, _: units(x) if abs(x) >= 1000 else f"{x:g}")
    ax.set(xlabel=plot_label(xlabel), ylabel=ylabel, axisbelow=True)
    below = dict(xycoords=ax.xaxis.label, textcoords="offset points", ha="center", va="top")
    ax.annotate(caption, (0.5, 0), (0, -5), fontsize="small", color="#555555", **below)
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
    all_logdirs: Paths,
    legend: Strings = None,
    xaxis: str | None = None,
    values: Strings = None,
    count: bool = False,
    font_scale: float = 1.5,
    smooth: int = 1,
    select: Strings = None,
    exclude: Strings = None,
    estimator: str | Callable = "mean",
    *,
    output: Path | str | None = None,
    band: str = "ci",
) -> list:
    """Plot the runs in some folders, a panel for each of `values`, in a window or to a file.

    all_logdirs, legend, select, exclude: as for `get_all_datasets`
    xaxis, values: columns of progress.txt; by default TotalEnvInteracts and Performance
    count: plot each run by itself
    smooth, estimator, band: as for `plot_data`
    output: a file ending in .png, .svg or .pdf; without one, and without a screen,
        plot.png in the first folder, or here if that is only the beginning of a name

    Gives the runs it has plotted.
    """
    _check_suffix(output)
    data = get_all_datasets(all_logdirs, legend, select, exclude)
    for sentence in dict.fromkeys(run.attrs["unsure"] for run in data if run.attrs["unsure"]):
        warn(sentence)
    columns = as_list(values) or ["Performance"]
    xaxis, lines = xaxis or "TotalEnvInteracts", "Condition2" if count else "Condition1"
    look: Any = dict(condition=lines, smooth=smooth, estimator=estimator, band=band)
    show = output is None and _has_screen()
    with _figure(len(columns), font_scale, show) as figure:
        for value, ax in zip(columns, figure.axes):
            plot_data(data, xaxis, value, ax=ax, **look)
        env_ids = {run.attrs["env_id"] for run in data}
        if len(env_ids) == 1 and None not in env_ids:
            figure.suptitle(plot_label(env_ids.pop()))
        _show_or_save(figure, show, output or _default_file(all_logdirs))
    return data


def _check_suffix(output):
    if output is not None and Path(output).suffix not in (".png", ".svg", ".pdf"):
        raise UserError(f"{output} should end in .png, .svg or .pdf, to say what to write.")


def _default_file(logdirs) -> Path:
    first = Path(as_list(logdirs)[0])
    return (first if os.path.isdir(first) else Path()) / "plot.png"


def _show_or_save(figure, show, file):
    if show:
        import matplotlib.pyplot as plt

        plt.show()
    else:
        _save(figure, Path(file))


@contextlib.contextmanager
def _figure(panels, font_scale, show) -> Iterator[Any]:
    """A figure with so many panels; its look holds within this context."""
    import matplotlib
    from matplotlib.figure import Figure

    make: Any = Figure  # a file needs no pyplot, only Agg
    if show:
        import matplotlib.pyplot as plt

        make = plt.figure
    across = min(panels, 3)
    down = -(-panels // across)
    look: Any = {"font.size": 7.5 * font_scale, "figure.titlesize": "medium"}
    look |= {f"figure.constrained_layout.{side}_pad": 0.08 for side in "hw"}  # inches
    with matplotlib.rc_context(look):
        figure = make(figsize=(6.4 * across, 4.4 * down), layout="constrained")
        for i in range(panels):
            figure.add_subplot(down, across, i + 1)
        yield figure


def _save(figure, path):
    content = io.BytesIO()
    try:
        figure.savefig(content, format=path.suffix[1:], dpi=150)
        write_whole(path, content.getvalue())
    except OSError as error:
        raise UserError(f"Cannot write {path} ({error.strerror}). Choose a file with -o.")
    say(f"Wrote {path}")
