"""Learning curves: what the progress.txt of one run or many holds, as lines with bands."""

import argparse
import io
import os
import re
import sys
from pathlib import Path

import numpy as np

from spinup.utils.errors import UserError, did_you_mean
from spinup.utils.logx import OLDER_RUNS
from spinup.utils.serialization_utils import read_json
from spinup.utils.test_policy import has_screen

PERFORMANCE = ("AverageTestEpRet", "AverageEpRet")  # the first of them that a run has
ESTIMATORS = ("mean", "median", "max", "min")
BANDS = dict(ci="95 % bootstrap interval", std="± standard deviation", minmax="all runs", none="")
RESAMPLES, BOOTSTRAP_SEED = 1000, 0
# Apart for colour-blind eyes too; when they run out they come again with other dashes.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#444444")
DASHES = ("-", "--", ":", "-.")


def _listed(given) -> list:
    """One thing, several or none, as a list."""
    return [] if given is None else [given] if isinstance(given, (str, Path)) else list(given)


def _check(what, word, known):
    if word not in known:
        near = did_you_mean(str(word), known, count=3)
        raise UserError(f"There is no {what} {word!r}.{near} Known are: {', '.join(known)}.")


def _read_run(folder: Path, title):
    """The whole rows of a run's table, with the name of its experiment; None without rows."""
    import pandas as pd

    path = folder / "progress.txt"
    *lines, cut = path.read_text(encoding="utf-8", errors="replace").split("\n")
    if cut:  # the run was killed while it wrote, and half a number is a wrong number
        print(f"{path} ends in the middle of a line; that line is left out.")
    lines = [line for line in lines if line and line.count("\t") == lines[0].count("\t")]
    if len(lines) < 2:
        print(f"{path} holds no epoch yet; it is left out.")
        return None
    data = pd.read_csv(io.StringIO("\n".join(lines)), sep="\t", quoting=3)
    try:
        config = read_json(folder / "config.json")
    except UserError:  # a plot can do without settings
        config = {}
    environment = config.get("environment")
    data.attrs["env_id"] = environment.get("id") if isinstance(environment, dict) else None
    name_without_seed = re.sub(r"_s\d+$", "", folder.resolve().name)
    data.attrs["name"] = str(title or config.get("exp_name") or name_without_seed or "exp")
    return data


def _read_runs(folders, titles):
    """The runs in `folders` and below; each knows its experiment and its number."""
    runs = {}
    for folder, title in zip(folders, titles):
        for root, below, files in os.walk(folder):
            below[:] = sorted(name for name in below if name != OLDER_RUNS)
            run = _read_run(Path(root), title) if "progress.txt" in files else None
            if run is not None:
                # By two paths to the same run an experiment would look surer than it is.
                runs[Path(root).resolve(), run.attrs["name"]] = run
    names = [name for _, name in runs]
    for number, (name, run) in enumerate(zip(names, runs.values())):
        run["Unit"] = names[:number].count(name)
        run["Condition1"], run["Condition2"] = name, f"{name}-{number}"
        for column in [column for column in PERFORMANCE if column in run][:1]:
            run["Performance"] = run[column]
    return list(runs.values())


def get_datasets(logdir, condition=None):
    """Read every progress.txt in a folder and below; gives a list with a DataFrame per run.

    condition: what to call the experiment, instead of the name in config.json
    """
    if not Path(logdir).is_dir():
        raise UserError(f"There is no folder {logdir}. Give the folder of a run or of several.")
    return _read_runs([logdir], [condition])


def _matching_folders(logdir):
    """The folder itself; or, where none has that name, those whose names begin with it."""
    path = Path(logdir)
    if path.is_dir():
        return [path]
    found = sorted(path.parent.iterdir()) if path.parent.is_dir() else []
    found = [f for f in found if f.name.startswith(path.name) and f.is_dir()]
    if not found:
        raise UserError(f"There is no folder {logdir}, and none whose name begins like that.")
    return [folder for folder in found if folder.name != OLDER_RUNS]


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
    runs = _read_runs(folders, titles)
    if not runs:
        raise UserError(f"No progress.txt with an epoch in it was found in {names}.")
    return runs


def smoothed(y, window: int):
    """The moving average over `window` points; near the ends, over those there are."""
    ones = np.ones(window)
    average = np.convolve(y, ones) / np.convolve(np.ones(len(y)), ones)
    return average[(window - 1) // 2 :][: len(y)]


def _curve(run, xaxis, value, smooth):
    """A run as a smoothed y for each x in ascending order; what is no finite number is left out."""
    import pandas as pd

    x, y = (pd.to_numeric(run[column], errors="coerce") for column in (xaxis, value))
    finite = np.isfinite(x) & np.isfinite(y)
    curve = y[finite].groupby(x[finite]).mean()
    return pd.Series(smoothed(curve, smooth), curve.index) if len(curve) else curve


def _edges(values, estimate, band):
    """The lower and upper edge of the band, from the values of all runs at one x."""
    if band == "none" or len(values) < 2:
        return np.nan, np.nan
    if band == "minmax":
        return values.min(), values.max()
    if band == "std":
        return estimate(values) + values.std(ddof=1) * np.array([-1, 1])
    rng = np.random.default_rng(BOOTSTRAP_SEED)  # the same draws at every x: a smooth band
    resampled = values[rng.integers(len(values), size=(RESAMPLES, len(values)))]
    return np.percentile(estimate(resampled, axis=1), [2.5, 97.5])


def summarize(curves, estimator="mean", band="ci"):
    """Several runs as one: x, the line, both edges of the band, and how many runs are there.

    A run is interpolated between its own points and not continued beyond its ends;
    where one run is shorter, line and band are those of the others.
    """
    estimate = getattr(np, estimator)
    x = np.unique(np.concatenate([curve.index for curve in curves]))
    rows = [np.interp(x, curve.index, curve, left=np.nan, right=np.nan) for curve in curves]
    columns = [column[np.isfinite(column)] for column in np.transpose(rows)]
    low, high = np.transpose([_edges(column, estimate, band) for column in columns])
    return x, np.array([estimate(c) for c in columns]), low, high, [len(c) for c in columns]


def plot_data(
    data, xaxis="Epoch", value="AverageEpRet", condition="Condition1", smooth=1, *,
    ax=None, estimator="mean", band="ci", **kwargs,
):  # fmt: skip
    """Draw a line for each experiment, with a band where it has several runs; gives the axes.

    data: what `get_datasets` gives, or one DataFrame of all runs
    condition: the column that tells lines apart; Condition2 draws each run by itself
    smooth: how many points of a run the moving average takes in
    ax: where to draw; by default the present axes of pyplot
    estimator: mean, median, max or min of the runs
    band: ci (95 % bootstrap interval of the mean or median), std, minmax or none
    kwargs: whatever else matplotlib's `plot` takes
    """
    estimator = getattr(estimator, "__name__", estimator)  # np.mean says the same as 'mean'
    _check("estimator", estimator, ESTIMATORS)
    _check("band", band, BANDS)
    if band == "ci" and estimator in ("max", "min"):
        band = "none"  # resampling cannot tell how far beyond the best run another may lie
    if smooth < 1:
        raise UserError(f"smooth is a number of points, 1 or more, not {smooth}.")
    frames = data if isinstance(data, list) else [data]
    for column in (xaxis, value, condition):
        _check("column", column, list(dict.fromkeys(c for frame in frames for c in frame)))
    curves = {name: [] for frame in frames for name in frame[condition].unique()}
    for frame in frames:
        if xaxis in frame and value in frame:
            for (name, _), run in frame.groupby([condition, "Unit"]):
                curves[name].append(_curve(run, xaxis, value, smooth))
    curves = {name: [curve for curve in found if len(curve)] for name, found in curves.items()}
    if not any(curves.values()):
        raise UserError(f"No run has numbers under both {xaxis!r} and {value!r}.")
    if ax is None:
        import matplotlib.pyplot as plt

        ax = plt.gca()
    numbers = []
    for i, (name, found) in enumerate(curves.items()):
        if not found:
            continue
        x, line, low, high, number = summarize(found, estimator, band)
        color, dashes = COLORS[i % len(COLORS)], DASHES[i // len(COLORS) % len(DASHES)]
        style = dict(color=color, linestyle=dashes, linewidth=1.5, label=name)
        (drawn,) = ax.plot(x, line, **style | dict(marker="o" if len(x) == 1 else "") | kwargs)
        ax.fill_between(x, low, high, color=drawn.get_color(), alpha=0.18, linewidth=0)
        numbers += number
    fewest, most = min(numbers), max(numbers)
    many = f"{most}" if fewest == most else f"{fewest} to {most}"
    meaning = f"line: {estimator} of {many} runs" if most > 1 else "each line: one run"
    meaning += f"; band: {BANDS[band]}" if most > 1 and band != "none" else ""
    meaning += f"; smoothed over {smooth} points" if smooth > 1 else ""
    kinds = dict.fromkeys(k for f in frames for k in [p for p in PERFORMANCE if p in f][:1])
    ylabel = f"{value}\n({' or '.join(kinds)})" if value == "Performance" else value
    _dress(ax, xaxis, ylabel, meaning)
    return ax


def _dress(ax, xlabel, ylabel, meaning):
    """Name the axes, say under them what is drawn, and keep the rest quiet."""
    from matplotlib.ticker import EngFormatter

    units = EngFormatter(sep="")  # 10k, 1M
    ax.xaxis.set_major_formatter(lambda x, _: units(x) if abs(x) >= 1000 else f"{x:g}")
    ax.set(xlabel=xlabel, ylabel=ylabel, axisbelow=True)
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
    """Draw the runs in some folders, a panel for each of `values`, in a window or to a file.

    all_logdirs, legend, select, exclude: as for `get_all_datasets`
    xaxis, values: columns of progress.txt; by default TotalEnvInteracts and Performance
    count: draw each run by itself
    smooth, estimator, band: as for `plot_data`
    output: a file ending in .png, .svg or .pdf; without one, and without a screen,
        plot.png in the first folder, or here if that is only the beginning of a name
    """
    import matplotlib
    from matplotlib.figure import Figure

    if output is not None and Path(output).suffix not in (".png", ".svg", ".pdf"):
        raise UserError(f"{output} should end in .png, .svg or .pdf, to say what to write.")
    data = get_all_datasets(all_logdirs, legend, select, exclude)
    xaxis, values = xaxis or "TotalEnvInteracts", _listed(values) or ["Performance"]
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
            figure.suptitle(env_ids.pop())
        if show:
            plt.show()
            return
        first = Path(_listed(all_logdirs)[0])
        path = Path(output or (first if first.is_dir() else Path()) / "plot.png")
        try:
            figure.savefig(path, dpi=150)
        except OSError as error:
            raise UserError(f"Cannot write {path} ({error.strerror}). Choose a file with -o.")
    print(f"Wrote {path}")


def main(argv=None):
    """Draw what the command line asks for."""
    parser = argparse.ArgumentParser("spinup plot", description="Draw learning curves.")
    add, several = parser.add_argument, dict(nargs="*")
    add("all_logdirs", metavar="logdir", nargs="+", help="folders, or how their names begin")
    add("-l", "--legend", **several, help="a title for each folder")
    add("-x", "--xaxis", default="TotalEnvInteracts", help="column of progress.txt (%(default)s)")
    add("-y", "--value", dest="values", **several, help="columns of progress.txt, a panel for each "
        f"(Performance: {', or else '.join(PERFORMANCE)})")  # fmt: skip
    add("--count", action="store_true", help="draw each run by itself")
    add("-s", "--smooth", type=int, default=1, help="average over so many points (%(default)s)")
    add("--select", **several, help="only folders whose paths contain all of these")
    add("--exclude", **several, help="only folders whose paths contain none of these")
    add("--est", dest="estimator", default="mean", choices=ESTIMATORS, help="line (%(default)s)")
    add("--band", default="ci", choices=list(BANDS), help="around it (%(default)s)")
    add("-o", "--output", metavar="FILE", help="write a .png, .svg or .pdf instead of showing it")
    make_plots(**vars(parser.parse_args(argv)))


if __name__ == "__main__":
    from spinup.run import guarded

    guarded(main)
