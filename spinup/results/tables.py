"""The tables of many runs, read for curves and comparisons."""

import csv
import io
import os
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from spinup.parts.divergence import find_divergence
from spinup.parts.errors import UserError, did_you_mean
from spinup.parts.plain_text import printable, say
from spinup.parts.progress import STEPS, performance_column, read_table
from spinup.parts.run_folder import (
    DIVERGED_FILE,
    OLDER_RUNS,
    read_config,
    read_job,
    real_path,
)
from spinup.parts.settings import environment_name, unknown_settings, what_differs

Paths = Path | str | Sequence[Path | str]
Strings = str | Sequence[str] | None

ENVIRONMENT = ("environment", "env_fn", "env_name", "env_kwargs")  # settings that say which it is


def as_list(given: Any) -> list:
    """One thing, several or none, as a list."""
    return [] if given is None else [given] if isinstance(given, (str, Path)) else list(given)


def check_known(what: str, word: object, known: Collection[str]) -> None:
    """Refuse a word that is not known, and name the nearest that are."""
    if word not in known:
        near = did_you_mean(str(word), list(known), count=3)
        raise UserError(f"There is no {what} {word!r}.{near} Known are: {', '.join(known)}.")


def warn(text: str) -> None:
    """Say on standard error what a reader of the results should know."""
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


def _read_run(folder: Path, title: str | None, config: dict, damage: list[str]) -> Any:
    """The whole rows of a run's table, with the name of its experiment; None without rows.

    A run that diverged has the rows before that; one that did so in its first epoch has a single
    row of NaN, for it counts all the same.
    """
    path = folder / "progress.txt"
    try:
        table = read_table(path)
    except UserError as error:
        warn(f"{error} It is left out.")
        return None
    if table.problem and table.num_rows:  # killed while it wrote; half a number is a wrong number
        damage.append(f"{table.problem.removesuffix('.')}; that line is left out.")
    for sentence in damage:
        warn(sentence)
    names = [printable(name) for name in table.names]
    diverged = find_divergence(folder, config, names, table.rows)
    if not table.num_rows and diverged is None:
        warn(f"{path} holds no epoch yet; it is left out.")
        return None
    # A row may be there whose epoch was never saved.
    rows = table.rows if diverged is None else table.rows[: diverged.epochs_done]
    run = _as_frame(names, rows)
    run.attrs |= dict(folder=str(folder), diverged=diverged, epochs=len(rows), damage=damage)
    run.attrs |= _of_settings(folder, title, config)
    return run


def _as_frame(names: list[str], rows: list[list[str]]) -> Any:
    """A table as pandas reads it, which finds out what kind of numbers a column holds."""
    import pandas as pd

    if not rows:
        return pd.DataFrame({"Epoch": [np.nan], STEPS: [np.nan]})
    text = "\n".join("\t".join(row) for row in [names, *rows])
    return pd.read_csv(io.StringIO(text), sep="\t", quoting=csv.QUOTE_NONE)


def _of_settings(folder: Path, title: str | None, config: dict) -> dict[str, Any]:
    """Environment, name and seed of a run, by its settings or else by its folder."""
    environment, seed = environment_name(config), config.get("seed")
    name_without_seed = re.sub(r"_s\d+$", "", real_path(folder).name)
    return dict(
        env_id=None if environment is None else printable(environment),
        name=printable(title or config.get("exp_name") or name_without_seed or "exp"),
        seed=seed if isinstance(seed, int) else None,
    )


def refuse_damage(runs: Iterable) -> None:
    """End with a sentence and exit code 2 where files were damaged; all else is done by then."""
    damage = [sentence for run in runs for sentence in run.attrs["damage"]]
    if damage:
        raise UserError(f"{' '.join(damage)} All that is whole was used.")


def _read_runs(folders: Iterable[Path | str], titles: Iterable[str | None]) -> list:
    """The runs in `folders` and below; each knows its experiment and its number.

    Runs of one name whose settings differ are several experiments, named by what differs:
    Condition1 with the environment, `attrs` without it ('name' where each environment is looked at
    by itself, 'name_of_all' where all are taken together).
    """
    found: dict[tuple, tuple] = {}
    for folder, title in zip(folders, titles):
        for root in _run_folders(folder):
            config, damage = read_settings(root)
            run = _read_run(root, title, config, damage)
            if run is not None:
                # By two paths to the same run an experiment would look surer than it is.
                found[real_path(root), run.attrs["name"]] = run, config
    runs, configs = [run for run, _ in found.values()], [config for _, config in found.values()]
    names = _name_experiments(runs, configs)
    for run, name, unsure in zip(runs, names, _unsure_of_each(names, configs)):
        run.attrs["unsure"] = unsure
        run["Unit"], run["Condition1"], run["Condition2"] = 0, name, name
        if (column := performance_column(run)) is not None:
            run["Performance"] = run[column]
        if run.attrs["diverged"] is not None:
            run["Diverged"] = True
    number_runs(runs)
    return runs


def _run_folders(folder: Path | str) -> Iterator[Path]:
    """A folder and those below it that hold the table of a run."""
    for root, below, files in os.walk(folder):
        below[:] = sorted(name for name in below if name != OLDER_RUNS)
        if {"progress.txt", DIVERGED_FILE} & set(files):
            yield Path(root)


def _name_experiments(runs: list, configs: list[dict]) -> list[str]:
    """The name of each run's experiment; those without the environment go into `attrs`."""
    titles = [run.attrs["name"] for run in runs]
    with_env = [(run.attrs["name"], run.attrs["env_id"]) for run in runs]
    names = _told_apart(titles, titles, configs)
    on_each = _told_apart(titles, with_env, configs, apart=ENVIRONMENT)
    on_all = _told_apart(titles, titles, configs, apart=ENVIRONMENT)
    for run, name, name_of_all in zip(runs, on_each, on_all):
        run.attrs |= dict(name=name, name_of_all=name_of_all)
    return names


def number_runs(runs: list, exp_idx: int = 0, units: dict[str, int] | None = None) -> int:
    """Number the runs of each experiment in the column Unit, and all of them in Condition2.

    exp_idx: how many runs there were before; the function gives how many there are then
    units: how many of each experiment there were before; it is brought up to date
    """
    units = {} if units is None else units
    for number, run in enumerate(runs, exp_idx):
        name = run["Condition1"].iloc[0]
        run["Unit"], run["Condition2"] = units.get(name, 0), f"{name}-{number}"
        units[name] = units.get(name, 0) + 1
    return exp_idx + len(runs)


def _told_apart(
    titles: list[str], groups: list, configs: list[dict], **apart: tuple[str, ...]
) -> list[str]:
    """Titles of runs; within a group, those with other settings get these settings behind it."""
    members: dict[Any, list[int]] = {}
    names = list(titles)
    for i, group in enumerate(groups):
        members.setdefault(group, []).append(i)
    for found in members.values():
        for i, difference in zip(found, what_differs([configs[i] for i in found], **apart)):
            names[i] += f" ({difference})" if difference else ""
    return names


def _unsure_of_each(names: list[str], configs: list[dict]) -> list[str | None]:
    """For each run, what to know of it and the others of its name if their files say too little."""
    pooled: dict[str, list[dict]] = {}
    for name, config in zip(names, configs):
        pooled.setdefault(name, []).append(config)
    unsure = {name: _unsure(name, members) for name, members in pooled.items()}
    return [unsure[name] for name in names]


def _unsure(name: str, configs: list[dict]) -> str | None:
    unknown = unknown_settings(configs) if len(configs) > 1 else []
    if not unknown:
        return None
    return (
        f"Not every config.json of {name} says what {', '.join(unknown)} was; its "
        f"{len(configs)} runs are taken to have been trained alike."
    )


def get_datasets(logdir: Path | str, condition: str | None = None) -> list:
    """Read every progress.txt in a folder and below; gives a list with a DataFrame per run.

    condition: what to call the experiment, instead of the name in config.json
    """
    if not os.path.isdir(logdir):
        raise UserError(f"There is no folder {logdir}. Give the folder of a run or of several.")
    return _read_runs([logdir], [condition])


def _matching_folders(logdir: Path | str) -> list[Path]:
    """The folder itself; or, where none has that name, those whose names begin with it."""
    path = Path(logdir)
    if os.path.isdir(path):
        return [path]
    names = sorted(os.listdir(path.parent)) if os.path.isdir(path.parent) else []
    found = [path.parent / name for name in names if name.startswith(path.name)]
    found = [folder for folder in found if os.path.isdir(folder)]
    if not found:
        raise UserError(f"There is no folder {logdir}, and none whose name begins like that.")
    return [folder for folder in found if folder.name != OLDER_RUNS]


def matching_folders(
    all_logdirs: Paths, select: Strings = None, exclude: Strings = None
) -> list[Path]:
    """The folders that `get_all_datasets` reads."""
    folders = [folder for logdir in as_list(all_logdirs) for folder in _matching_folders(logdir)]
    folders = [f for f in dict.fromkeys(folders) if all(x in str(f) for x in as_list(select))]
    folders = [f for f in folders if not any(x in str(f) for x in as_list(exclude))]
    if not folders:
        raise UserError("No folder is left to plot. Check the folders, --select and --exclude.")
    return folders


def get_all_datasets(
    all_logdirs: Paths, legend: Strings = None, select: Strings = None, exclude: Strings = None
) -> list:
    """Read the runs of several folders, or of all folders whose names begin with a given one.

    legend: a title for each folder, instead of the names of the experiments in it
    select: strings that a folder's path must all contain
    exclude: strings of which it may contain none
    """
    folders = matching_folders(all_logdirs, select, exclude)
    names, titles = ", ".join(map(str, folders)), as_list(legend) or [None] * len(folders)
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


def numbers(column: Any) -> Any:
    """A column of a run as numbers; NaN for what is none, or is too large for one."""
    import pandas as pd

    try:
        return pd.to_numeric(column, errors="coerce")
    except OverflowError:  # of hundreds of digits
        return pd.to_numeric(column.map(str), errors="coerce")
