"""The tables of many runs, read for curves and comparisons."""

import io
import os
import re
import sys
from pathlib import Path

import numpy as np

from spinup.parts.divergence import find_divergence
from spinup.parts.errors import UserError, did_you_mean
from spinup.parts.plain_text import printable, say
from spinup.parts.progress import PERFORMANCE
from spinup.parts.run_folder import (
    DIVERGED_FILE,
    OLDER_RUNS,
    read_config,
    read_job,
    read_text,
    real_path,
)
from spinup.parts.settings import unknown_settings, what_differs

# How many of n runs, in order, each of these leaves out at either end before it takes the mean.
CUT_OFF = dict(mean=lambda n: 0, median=lambda n: (n - 1) // 2, iqm=lambda n: n // 4)
IN_WORDS = dict(iqm="interquartile mean")  # what a plot calls them, where not by their names
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
    select: strings that a folder's path must all contain
    exclude: strings of which it may contain none
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


def numbers(column):
    """A column of a run as numbers; NaN for what is none, or is too large for one."""
    import pandas as pd

    try:
        return pd.to_numeric(column, errors="coerce")
    except OverflowError:  # of hundreds of digits
        return pd.to_numeric(column.map(str), errors="coerce")
