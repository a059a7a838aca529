"""The files of a run folder: each is read whole and of the right types, or named in a sentence."""

import os
import shlex
from pathlib import Path

import spinup
from spinup.utils.errors import UserError, shown
from spinup.utils.serialization_utils import read_json, regular_file

JOB_FILE = "job.json"  # what a grid notes of a run: its settings, and how it ended
OLDER_RUNS = "older_runs"  # where a script that writes into a used folder finds what was there
LARGEST_INTEGER = 2**53
# The types that others count on, by key; where null stands, the key is taken as missing.
ENVIRONMENT = dict(id=str, made_by=str, kwargs=dict, wrappers=list, max_episode_steps=int)
CONFIG = dict(
    algorithm=str, exp_name=str, env_name=str, seed=int, epochs=int, num_procs=int, ac_kwargs=dict,
    environment=ENVIRONMENT, env_fn=dict(env_name=str, env_kwargs=dict), actor_critic=str,
    logger_kwargs=dict, spaces=dict(observation=str, action=str),
)  # fmt: skip
JOB = CONFIG | dict(job=dict(state=str, function=str))
KINDS = {dict: "an object", list: "a list", str: "a string", int: "an integer"}


def real_path(path) -> Path:
    """Where a path leads in the end; of links in a circle, which `Path.resolve` refuses, too."""
    return Path(os.path.realpath(path))


def read_text(path) -> str:
    """The text of a file, whatever bytes it holds."""
    try:
        return regular_file(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}).")


def read_config(folder) -> dict:
    """What a run's config.json holds, every value that others count on of its type.

    A script may have written a config.json of its own: of that, what has another meaning is left
    out. In one that names an algorithm of ours it is damage.
    """
    path = Path(folder) / "config.json"
    config = read_json(path)
    return _typed(path, config, CONFIG, strict="algorithm" in config)


def read_job(folder) -> dict:
    """What a grid noted of a run in job.json, settings of any function; {} where it has none."""
    path = Path(folder) / JOB_FILE
    noted = read_json(path) if os.path.lexists(path) else {}
    _typed(path, noted, dict(job=JOB["job"], num_procs=int), strict=True)
    return _typed(path, noted, JOB, strict=False)


def _typed(path, found: dict, kinds: dict, strict: bool, inside: str = "") -> dict:
    """`found` with the values of known keys of their types; others raise, or are left out."""
    found = dict(found)
    for key, kind in kinds.items():
        value = found.get(key)
        if value is None:
            found.pop(key, None)
            continue
        wanted = dict if isinstance(kind, dict) else kind
        right = isinstance(value, wanted) and not isinstance(value, bool)
        if right and wanted is int:
            right = 0 <= value <= LARGEST_INTEGER
        if right and key == "wrappers":
            right = all(_is_wrapper(wrapper) for wrapper in value)
        if right and isinstance(kind, dict):
            found[key] = _typed(path, value, kind, strict, f"{inside}{key}:")
        elif key == "env_fn" and isinstance(value, str):
            continue  # a script's own function
        elif not right and strict:
            raise UserError(
                f"{path} is damaged: {inside}{key} must be {KINDS[wanted]}, not {shown(value)}."
            )
        elif not right:
            del found[key]
    return found


def _is_wrapper(saved) -> bool:
    return isinstance(saved, dict) and isinstance(saved.get("kwargs"), (dict, type(None)))


def find_runs(folders) -> list[Path]:
    """The folders of runs in these and below, in order; runs that were put aside are left out."""
    found = []
    for given in folders:
        if not os.path.isdir(given):
            raise UserError(f"There is no folder {given}. Give one that holds runs, such as data.")
        for root, below, files in os.walk(given):
            if {"config.json", "progress.txt", JOB_FILE} & set(files):
                found.append(Path(root))
            below[:] = sorted(n for n in below if n not in (OLDER_RUNS, "checkpoint", "pyt_save"))
    return list(dict.fromkeys(found))


def require_run(folder, command: str) -> Path:
    """The folder, if it is that of a run; else a sentence that names the runs below it."""
    if not os.path.isdir(folder):
        raise UserError(f"There is no folder {folder}. {command} needs the folder of a run.")
    inside = ("config.json", "progress.txt", "pyt_save", "checkpoint", "tf1_save", JOB_FILE)
    if any(os.path.lexists(os.path.join(folder, name)) for name in inside):
        return Path(folder)
    runs = find_runs([folder])
    if not runs:
        raise UserError(f"{folder} is not the folder of a run, and there is none below it.")
    more = f" and {len(runs) - 5} more" if len(runs) > 5 else ""
    names = ", ".join(str(run) for run in runs[:5])
    raise UserError(f"{folder} is not a run. Name one of the runs below it: {names}{more}.")


def how_to_resume(folder) -> str:
    """A sentence on how a user continues the run in a folder."""
    return f"Go on with: {resume_command(folder)} (in a script: resume=True)"


def resume_command(folder) -> str:
    """What continues the run in a folder; `spinup resume` knows only our own algorithms."""
    try:
        name, _, backend = str(read_config(folder).get("algorithm")).rpartition("_")
    except UserError:
        name, backend = "", ""
    if name in spinup.ALGORITHMS.get(backend, ()):
        return f"spinup resume {shlex.quote(str(folder))}"
    return "the same command"
