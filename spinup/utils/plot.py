"""Learning curves: what the progress.txt of one run or many holds, as lines with bands."""

import argparse
import io
import os
import re
import sys
from pathlib import Path

import numpy as np

from spinup.parts.divergence import DIVERGED_FILE, find_divergence
from spinup.parts.imports import Elsewhere
from spinup.parts.plain_text import plot_label, printable, say
from spinup.parts.run_folder import OLDER_RUNS, read_config, read_job, read_text, real_path
from spinup.parts.settings import unknown_settings, what_differs
from spinup.utils.errors import UserError, did_you_mean
from spinup.utils.ls import PERFORMANCE
from spinup.utils.serialization_utils import write_whole
from spinup.utils.statistics import iqm
from spinup.utils.test_policy import has_screen

ESTIMATORS = dict(
    mean=np.mean, median=np.median, iqm=iqm, max=np.max, min=np.min
)  # fmt: skip
# How many of n runs, in order, each of these leaves out at either end before it takes the mean.
CUT_OFF = dict(mean=lambda n: 0, median=lambda n: (n - 1) // 2, iqm=lambda n: n // 4)
IN_WORDS = dict(iqm="interquartile mean")  # what the picture calls them, where not by their names
BANDS = dict(ci="95 % bootstrap interval", std="± standard deviation", minmax="all runs", none="")
RESAMPLES, BOOTSTRAP_SEED = 1000, 0
MOST_POINTS = 2000  # of a line; the widest picture has fewer pixels
# Apart for colour-blind eyes too; when they run out they come again with other dashes.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#444444")
DASHES = ("-", "--", ":", "-.")
ENVIRONMENT = ("environment", "env_fn", "env_name", "env_kwargs")  # settings that say which it is


def _listed(given) -> list:
    """One thing, several or none, as a list."""
    return [] if given is None else [given] if isinstance(given, (str, Path)) else list(given)


def check_known(what: str, word, known):
    """Refuse a word that is not known, and name the nearest that are."""
    if word not in known:
        near = did_you_mean(str(word), known, count=3)
        raise UserError(f"There is no {what} {word!r}.{near} Known are: {', '.join(known)}.")


def _note(text: str):
    say(text, file=sys.stderr)


def read_settings(folder: Path) -> tuple[dict, list[str]]:
    """What config.json holds, {} without one; and a sentence where it cannot be read.

    Of a run that stopped before it wrote one, what the grid that started it noted.
    """
    try:
        if os.path.lexists(Path(folder) / "config.json"):
            return read_config(folder), []
        return read_job(folder), []
    except UserError as error:
        return {}, [f"{error} The run is used without its settings."]


def _read_run(folder: Path, title, config: dict, damage: list):
    """The whole rows of a run's table, with the name of its experiment; None without rows.

    A run that diverged has the rows before that; one that did so in its first epoch has a single
    row of NaN, for it counts all the same.
    """
    import pandas as pd

    path, lines, cut = folder / "progress.txt", [], ""
    try:
        if os.path.lexists(path):
            *lines, cut = read_text(path).split("\n")
    except UserError as error:
        _note(f"{error} It is left out.")
        return None
    if cut:  # the run was killed while it wrote, and half a number is a wrong number
        damage.append(f"{path} ends in the middle of a line; that line is left out.")
    for sentence in damage:
        _note(sentence)
    lines = [line for line in lines if line and line.count("\t") == lines[0].count("\t")]
    lines[:1] = [printable(line, keep="\t") for line in lines[:1]]  # the names of the columns
    names, *rows = [line.split("\t") for line in lines] or [[]]
    diverged = find_divergence(folder, config, names, rows)
    if not rows and diverged is None:
        _note(f"{path} holds no epoch yet; it is left out.")
        return None
    if diverged is not None:
        lines = lines[: 1 + diverged.epochs_done]  # a row may be there whose epoch was never saved
    if len(lines) > 1:
        data = pd.read_csv(io.StringIO("\n".join(lines)), sep="\t", quoting=3)
    else:
        data = pd.DataFrame({"Epoch": [np.nan], "TotalEnvInteracts": [np.nan]})
    environment, seed = config.get("environment"), config.get("seed")
    known = environment if isinstance(environment, dict) else dict(id=config.get("env_name"))
    env_id = known.get("id")
    data.attrs |= dict(diverged=diverged, epochs=len(lines) - 1 if lines else 0)
    data.attrs["env_id"] = printable(env_id) if isinstance(env_id, str) else None
    name_without_seed = re.sub(r"_s\d+$", "", real_path(folder).name)
    data.attrs["name"] = printable(title or config.get("exp_name") or name_without_seed or "exp")
    data.attrs |= dict(folder=str(folder), seed=seed if isinstance(seed, int) else None)
    data.attrs["damage"] = damage
    return data


def refuse_damage(runs):
    """End with a sentence and exit code 2 where files were damaged; all else is done by then."""
    damage = [sentence for run in runs for sentence in run.attrs["damage"]]
    if damage:
        raise UserError(f"{' '.join(damage)} All that is whole was used.")


def _read_runs(folders, titles):
    """The runs in `folders` and below; each knows its experiment and its number.

    Runs of one name whose settings differ are several experiments, named by what differs:
    Condition1 with the environment, `attrs` without it ('name' where each environment is looked at
    by itself, 'name_of_all' where all are taken together).
    """
    runs, configs = {}, {}
    for folder, title in zip(folders, titles):
        for root, below, files in os.walk(folder):
            below[:] = sorted(name for name in below if name != OLDER_RUNS)
            if not {"progress.txt", DIVERGED_FILE} & set(files):
                continue
            config, damage = read_settings(Path(root))
            run = _read_run(Path(root), title, config, damage)
            if run is not None:
                # By two paths to the same run an experiment would look surer than it is.
                key = real_path(root), run.attrs["name"]
                runs[key], configs[key] = run, config
    found, configs = list(runs.values()), list(configs.values())
    titles = [run.attrs["name"] for run in found]
    elsewhere = [(run.attrs["name"], run.attrs["env_id"]) for run in found]
    names = _told_apart(titles, titles, configs)
    apart = dict(apart=ENVIRONMENT)
    for run, name, name_of_all in zip(
        found,
        _told_apart(titles, elsewhere, configs, **apart),
        _told_apart(titles, titles, configs, **apart),
    ):
        run.attrs |= dict(name=name, name_of_all=name_of_all)
    pooled = {}
    for name, config in zip(names, configs):
        pooled.setdefault(name, []).append(config)
    unsure = {name: _unsure(name, configs) for name, configs in pooled.items()}
    for number, (name, run) in enumerate(zip(names, found)):
        run.attrs["unsure"] = unsure[name]
        run["Unit"] = names[:number].count(name)
        run["Condition1"], run["Condition2"] = name, f"{name}-{number}"
        for column in [column for column in PERFORMANCE if column in run][:1]:
            run["Performance"] = run[column]
        if run.attrs["diverged"] is not None:
            run["Diverged"] = True
    return found


def _told_apart(titles, groups, configs, **apart) -> list[str]:
    """Titles of runs; within a group, those with other settings get these settings behind it."""
    members, names = {}, list(titles)
    for i, group in enumerate(groups):
        members.setdefault(group, []).append(i)
    for found in members.values():
        for i, difference in zip(found, what_differs([configs[i] for i in found], **apart)):
            names[i] += f" ({difference})" if difference else ""
    return names


def _unsure(name, configs) -> str | None:
    """What a reader should know of runs that are taken together, if their files say too little."""
    unknown = unknown_settings(configs) if len(configs) > 1 else []
    if not unknown:
        return None
    return (
        f"Not every config.json of {name} says what {', '.join(unknown)} was; its "
        f"{len(configs)} runs are taken to have been trained alike."
    )


def get_datasets(logdir, condition=None):
    """Read every progress.txt in a folder and below; gives a list with a DataFrame per run.

    condition: what to call the experiment, instead of the name in config.json
    """
    if not os.path.isdir(logdir):
        raise UserError(f"There is no folder {logdir}. Give the folder of a run or of several.")
    return _read_runs([logdir], [condition])


def _matching_folders(logdir):
    """The folder itself; or, where none has that name, those whose names begin with it."""
    path = Path(logdir)
    if os.path.isdir(path):
        return [path]
    found = sorted(os.listdir(path.parent)) if os.path.isdir(path.parent) else []
    found = [path.parent / name for name in found if name.startswith(path.name)]
    found = [folder for folder in found if os.path.isdir(folder)]
    if not found:
        raise UserError(f"There is no folder {logdir}, and none whose name begins like that.")
    return [folder for folder in found if folder.name != OLDER_RUNS]


def matching_folders(all_logdirs, select=None, exclude=None) -> list[Path]:
    """The folders that `get_all_datasets` reads."""
    folders = [folder for logdir in _listed(all_logdirs) for folder in _matching_folders(logdir)]
    folders = [f for f in dict.fromkeys(folders) if all(x in str(f) for x in _listed(select))]
    folders = [f for f in folders if not any(x in str(f) for x in _listed(exclude))]
    if not folders:
        raise UserError("No folder is left to plot. Check the folders, --select and --exclude.")
    return folders


def get_all_datasets(all_logdirs, legend=None, select=None, exclude=None):
    """Read the runs of several folders, or of all folders whose names begin with a given one.

    legend: a title for each folder, instead of the names of the experiments in it
    select: texts that a folder's path must all contain
    exclude: texts of which it may contain none
    """
    folders = matching_folders(all_logdirs, select, exclude)
    names, titles = ", ".join(map(str, folders)), _listed(legend) or [None] * len(folders)
    if len(titles) != len(folders):
        raise UserError(
            f"The legend has {len(titles)} title(s) for {len(folders)} folder(s): {names}. "
            "Give one title for each."
        )
    runs = _read_runs(folders, titles)
    if not runs:
        raise UserError(f"No progress.txt with an epoch in it was found in {names}.")
    if not any(run.attrs["epochs"] for run in runs):
        many = "1 run diverged in its" if len(runs) == 1 else f"{len(runs)} runs diverged in their"
        raise UserError(f"No epoch was done in {names}: {many} first.")
    return runs


def smoothed(y, window: int):
    """The moving average over `window` points; near the ends, over those there are."""
    ones = np.ones(window)
    average = np.convolve(y, ones) / np.convolve(np.ones(len(y)), ones)
    return average[(window - 1) // 2 :][: len(y)]


def numbers(column):
    """A column of a run as numbers; NaN for what is none, or is too large for one."""
    import pandas as pd

    try:
        return pd.to_numeric(column, errors="coerce")
    except OverflowError:  # of hundreds of digits
        return pd.to_numeric(column.map(str), errors="coerce")


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
    often each run is drawn gives its weight, and one product does all x at once.
    """
    n = len(values)
    cut = CUT_OFF[estimator](n)
    draws = np.random.default_rng(BOOTSTRAP_SEED).integers(n, size=(RESAMPLES, n))
    drawn = np.stack([np.bincount(row, minlength=n) for row in draws])
    ranks = drawn.cumsum(axis=1)
    kept = np.minimum(ranks, n - cut) - np.maximum(ranks - drawn, cut)
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
    """Draw a line for each experiment, with a band where it has several runs; gives the axes.

    data: what `get_datasets` gives, or one DataFrame of all runs
    condition: the column that tells lines apart; Condition2 draws each run by itself
    smooth: how many points of a run the moving average takes in
    ax: where to draw; by default the present axes of pyplot
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
            drawn = xaxis in run and value in run
            curve = _curve(run, xaxis, value, smooth) if drawn else ()
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
        (drawn,) = ax.plot(x, line, **dict(marker="o" if len(x) == 1 else "") | style)
        ax.fill_between(x, low, high, color=drawn.get_color(), alpha=0.18, linewidth=0)
        if ends[name] and len(x):
            mark = dict(marker="X", markersize=8, linestyle="none", label="_diverged")
            ax.plot(x[-1:], line[-1:], color=drawn.get_color(), **mark)
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
    """Name the axes, say under them what is drawn, and keep the rest quiet."""
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
    """Draw the runs in some folders, a panel for each of `values`, in a window or to a file.

    all_logdirs, legend, select, exclude: as for `get_all_datasets`
    xaxis, values: columns of progress.txt; by default TotalEnvInteracts and Performance
    count: draw each run by itself
    smooth, estimator, band: as for `plot_data`
    output: a file ending in .png, .svg or .pdf; without one, and without a screen,
        plot.png in the first folder, or here if that is only the beginning of a name

    Gives the runs it has drawn.
    """
    import matplotlib
    from matplotlib.figure import Figure

    if output is not None and Path(output).suffix not in (".png", ".svg", ".pdf"):
        raise UserError(f"{output} should end in .png, .svg or .pdf, to say what to write.")
    data = get_all_datasets(all_logdirs, legend, select, exclude)
    for sentence in dict.fromkeys(run.attrs["unsure"] for run in data if run.attrs["unsure"]):
        _note(sentence)
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
            figure.suptitle(plot_label(env_ids.pop()))
        if show:
            plt.show()
            return data
        first = Path(_listed(all_logdirs)[0])
        path = Path(output or (first if os.path.isdir(first) else Path()) / "plot.png")
        drawn = io.BytesIO()
        try:
            figure.savefig(drawn, format=path.suffix[1:], dpi=150)
            write_whole(path, drawn.getvalue())
        except OSError as error:
            raise UserError(f"Cannot write {path} ({error.strerror}). Choose a file with -o.")
    say(f"Wrote {path}")
    return data


def add_folders(parser: argparse.ArgumentParser):
    """Add the flags that say which runs to read, in the words of `get_all_datasets`."""
    add, several = parser.add_argument, dict(nargs="*")
    add("all_logdirs", metavar="logdir", nargs="+", help="folders, or how their names begin")
    add("-l", "--legend", **several, help="a title for each folder")
    add("--select", **several, help="only folders whose paths contain all of these")
    add("--exclude", **several, help="only folders whose paths contain none of these")


def main(argv=None):
    """Draw what the command line asks for."""
    parser = argparse.ArgumentParser("spinup plot", description="Draw learning curves.")
    add, several = parser.add_argument, dict(nargs="*")
    add_folders(parser)
    add("-x", "--xaxis", default="TotalEnvInteracts", help="column of progress.txt (%(default)s)")
    add("-y", "--value", dest="values", **several, help="columns of progress.txt, a panel for each "
        f"(Performance: {', or else '.join(PERFORMANCE)})")  # fmt: skip
    add("--count", action="store_true", help="draw each run by itself")
    add("-s", "--smooth", type=int, default=1, help="average over so many points (%(default)s)")
    add(
        "--est",
        dest="estimator",
        default="mean",
        choices=list(ESTIMATORS),
        help="line (%(default)s)",
    )
    add("--band", default="ci", choices=list(BANDS), help="around it (%(default)s)")
    add("-o", "--output", metavar="FILE", help="write a .png, .svg or .pdf instead of showing it")
    args = parser.parse_args(argv)
    with Elsewhere():  # Matplotlib would obey a matplotlibrc in the current folder
        import matplotlib  # noqa: F401
    refuse_damage(make_plots(**vars(args)) or [])


if __name__ == "__main__":
    from spinup.run import guarded

    guarded(main)
