"""Learning curves: what progress.txt of one run or many holds, drawn as lines with bands."""

import argparse
import io
import os
import re
import sys
from itertools import count as count_up
from pathlib import Path

import numpy as np

from spinup.utils.errors import UserError, did_you_mean
from spinup.utils.logx import OLDER_RUNS
from spinup.utils.serialization_utils import read_json

XAXIS, VALUE = "TotalEnvInteracts", "Performance"
ESTIMATORS = ("mean", "median", "max", "min")
BANDS = dict(
    ci="95 % bootstrap interval", std="± 1 standard deviation", minmax="least to greatest", none=""
)
FORMATS = (".png", ".svg", ".pdf")
RESAMPLES, BOOTSTRAP_SEED = 1000, 0
# Apart for colour-blind eyes too; when they run out they come again with other dashes.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#444444")
DASHES = ("-", "--", ":", "-.")


def _listed(given) -> list:
    """One thing, several or none, as a list."""
    return [] if given is None else [given] if isinstance(given, (str, Path)) else list(given)


def _checked(word, known, what):
    if word not in known:
        near = did_you_mean(str(word), known)
        raise UserError(f"There is no {what} {word!r}.{near} Known are: {', '.join(known)}.")
    return word


def _read_table(path: Path):
    """The whole rows of a progress.txt, or None with a word on the terminal where there are none.

    A run that is killed may leave half a row; a half number would be a wrong one.
    """
    import pandas as pd

    try:
        *lines, cut = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError as error:
        print(f"{path} cannot be read ({error.strerror}); it is left out.")
        return None
    if cut:
        print(f"{path} ends in the middle of a line; that line is left out.")
    lines = [line for line in lines if line.count("\t") == lines[0].count("\t") and line.strip()]
    if len(lines) < 2:
        print(f"{path} holds no epoch yet; it is left out.")
        return None
    return pd.read_csv(io.StringIO("\n".join(lines)), sep="\t", quoting=3)


def _read_run(folder: Path, condition):
    """The table of a run as a DataFrame that knows its experiment, or None."""
    data = _read_table(folder / "progress.txt")
    if data is None:
        return None
    try:
        config = read_json(folder / "config.json")
    except UserError:  # a plot needs no settings
        config = {}
    name_without_seed = re.sub(r"_s\d+$", "", folder.resolve().name)
    environment = config.get("environment")
    data.attrs["folder"] = str(folder.resolve())
    data.attrs["env"] = environment.get("id") if isinstance(environment, dict) else None
    data["Unit"] = 0
    data["Condition1"] = str(condition or config.get("exp_name") or name_without_seed or "exp")
    data["Condition2"] = data["Condition1"]
    for column in ("AverageTestEpRet", "AverageEpRet"):
        if column in data and VALUE not in data:
            data[VALUE], data.attrs[VALUE] = data[column], column
    return data


def _numbered(datasets):
    """Give each run a number within its experiment (Unit), and a name of its own (Condition2)."""
    units = {}
    for number, data in enumerate(datasets):
        name = data["Condition1"].iloc[0]
        data["Unit"] = next(units.setdefault(name, count_up()))
        data["Condition2"] = f"{name}-{number}"
    return datasets


def get_datasets(logdir, condition=None):
    """Read every progress.txt in a folder and below; gives one DataFrame per run.

    condition: what to call the experiment, instead of the name in config.json
    """
    if not Path(logdir).is_dir():
        raise UserError(f"There is no folder {logdir}. Give the folder of a run or of several.")
    datasets = []
    for root, folders, files in os.walk(logdir):
        folders[:] = sorted(folder for folder in folders if folder != OLDER_RUNS)
        if "progress.txt" in files:
            datasets.append(_read_run(Path(root), condition))
    return _numbered([data for data in datasets if data is not None])


def _matching_folders(logdir):
    """A folder itself; or, where there is none of that name, those whose names begin with it."""
    path = Path(logdir).expanduser()
    if path.is_dir():
        return [path]
    found = [f for f in path.parent.glob("*") if f.name.startswith(path.name) and f.is_dir()]
    if not found:
        raise UserError(f"There is no folder {logdir}, and none whose name begins like that.")
    return sorted(folder for folder in found if folder.name != OLDER_RUNS)


def get_all_datasets(all_logdirs, legend=None, select=None, exclude=None):
    """Read the runs of several folders, or of all folders whose names begin with a given one.

    legend: a title for each folder, instead of the names of the experiments in it
    select: texts that a folder's path must all contain
    exclude: texts of which it may contain none
    """
    folders = [folder for logdir in _listed(all_logdirs) for folder in _matching_folders(logdir)]
    folders = [f for f in dict.fromkeys(folders) if all(x in str(f) for x in _listed(select))]
    folders = [f for f in folders if not any(x in str(f) for x in _listed(exclude))]
    if not folders:
        raise UserError("No folder is left to plot. Check the folders, --select and --exclude.")
    names, titles = ", ".join(map(str, folders)), _listed(legend) or [None] * len(folders)
    if len(titles) != len(folders):
        raise UserError(
            f"The legend has {len(titles)} title(s) for {len(folders)} folder(s): {names}. "
            "Give one title for each."
        )
    found = [data for pair in zip(folders, titles) for data in get_datasets(*pair)]
    if not found:
        raise UserError(f"No progress.txt with an epoch in it was found in {names}.")
    # A run reached by two paths counts once: it must not make an experiment look surer.
    return _numbered(
        list({(d.attrs["folder"], d["Condition1"].iloc[0]): d for d in found}.values())
    )


def smoothed(y, window: int):
    """The moving average over `window` points, over those that exist near the ends."""
    ones = np.ones(window)
    total, number = np.convolve(y, ones), np.convolve(np.ones(len(y)), ones)
    return (total / number)[(window - 1) // 2 :][: len(y)]


def _curve(run, xaxis, value, smooth):
    """One run as x and y: numbers only, x ascending, each x once."""
    import pandas as pd

    x, y = (pd.to_numeric(run[c], errors="coerce").astype(float) for c in (xaxis, value))
    finite = np.isfinite(x) & np.isfinite(y)
    curve = y[finite].groupby(x[finite]).mean()
    return curve.index.to_numpy(), smoothed(curve.to_numpy(), smooth) if len(curve) else curve


def _edges(values, estimate, band):
    """The lower and upper edge of the band, from the values of all runs at one x."""
    if band == "none" or len(values) < 2:
        return np.nan, np.nan
    if band == "minmax":
        return values.min(), values.max()
    if band == "std":
        return estimate(values) + values.std(ddof=1) * np.array([-1, 1])
    rng = np.random.default_rng(BOOTSTRAP_SEED)  # the same draws at every x keep the band smooth
    resampled = values[rng.integers(len(values), size=(RESAMPLES, len(values)))]
    return np.percentile(estimate(resampled, axis=1), [2.5, 97.5])


def summarize(curves, estimator="mean", band="ci"):
    """Estimate over several curves: x, the line, the band's two edges, and the number of runs.

    Each curve is interpolated between its own points and never continued beyond its ends,
    so where one run is shorter, line and band are those of the others.
    """
    estimate = getattr(np, estimator)
    grid = np.unique(np.concatenate([x for x, _ in curves]))
    rows = np.array([np.interp(grid, x, y, left=np.nan, right=np.nan) for x, y in curves])
    columns = [column[np.isfinite(column)] for column in rows.T]
    low, high = np.array([_edges(column, estimate, band) for column in columns]).T
    line = np.array([estimate(column) for column in columns])
    return grid, line, low, high, np.array([len(column) for column in columns])


def _meaning(numbers, estimator, band, smooth):
    """What line and band are, for the reader of the picture."""
    least, most = min(numbers), max(numbers)
    span = f"{most}" if least == most else f"{least} to {most}"
    parts = ["each line: one run" if most == 1 else f"line: {estimator} of {span} runs"]
    parts += [f"band: {BANDS[band]}"] if band != "none" and most > 1 else []
    parts += [f"each run averaged over {smooth} points"] if smooth > 1 else []
    return "; ".join(parts)


def plot_data(
    data, xaxis="Epoch", value="AverageEpRet", condition="Condition1", smooth=1, *,
    ax=None, estimator="mean", band="ci", **kwargs,
):  # fmt: skip
    """Draw one line for each experiment, with a band where it has several runs; gives the axes.

    data: what `get_datasets` gives, a list of DataFrames or all of them in one
    condition: the column whose values tell lines apart; Condition2 draws each run by itself
    smooth: how many points a moving average takes in
    ax: where to draw; by default the present axes of pyplot
    estimator: mean, median, max or min of the runs
    band: ci (95 % bootstrap interval of the mean or median), std, minmax or none
    kwargs: anything else goes to matplotlib's `plot`
    """
    estimator = _checked(getattr(estimator, "__name__", estimator), ESTIMATORS, "estimator")
    if _checked(band, BANDS, "band") == "ci" and estimator in ("max", "min"):
        band = "none"  # resampling says nothing of how far the greatest of all runs may lie
    if not isinstance(smooth, int) or smooth < 1:
        raise UserError(f"smooth counts points, so it is 1, 2, 3 …, not {smooth!r}.")
    frames = data if isinstance(data, list) else [data]
    columns = list(dict.fromkeys(column for frame in frames for column in frame))
    for column in (xaxis, value, condition):
        _checked(column, columns, "column")
    curves = {name: [] for frame in frames for name in frame[condition].unique()}
    for frame in frames:
        for (name, _), run in frame.groupby([condition, "Unit"]):
            if {xaxis, value} <= set(frame) and len((curve := _curve(run, xaxis, value, smooth))[0]):
                curves[name].append(curve)
    if not any(curves.values()):
        raise UserError(f"No run has a number under both {xaxis!r} and {value!r}.")
    if ax is None:
        import matplotlib.pyplot as plt

        ax = plt.gca()
    numbers = []
    for i, (name, runs) in enumerate(curves.items()):
        if not runs:
            continue
        x, line, low, high, number = summarize(runs, estimator, band)
        numbers += [*number]
        style = dict(color=COLORS[i % len(COLORS)], linestyle=DASHES[i // len(COLORS) % len(DASHES)])
        style |= dict(linewidth=1.4, marker="o" if len(x) == 1 else None, label=name) | kwargs
        (drawn,) = ax.plot(x, line, **style)
        if np.isfinite(low).any():
            ax.fill_between(x, low, high, color=drawn.get_color(), alpha=0.18, linewidth=0)
    _dress(ax, xaxis, value, _meaning(numbers, estimator, band, smooth))
    return ax
