"""The files of a run folder: each is read whole and of the right types, or named in a sentence."""

import json
import os
import shlex
import shutil
import time
import zlib
from collections.abc import Iterable
from fnmatch import fnmatch
from pathlib import Path

import spinup
from spinup import user_config
from spinup.parts.earlier_configs import in_todays_units
from spinup.parts.errors import START_OVER, UserError, damaged, shown
from spinup.parts.jsonio import json_bytes, read_json, read_json_and_bytes, regular_file, write_json

JOB_FILE = "job.json"  # what a grid writes about a run: its settings, and how it ended
DIVERGED_FILE = "diverged.json"  # in a run folder: what was not finite, and when
OLDER_RUNS = "older_runs"  # where the files of a run go when a new one uses its folder
LARGEST_INTEGER = 2**53
# The types of the values that the library uses, by key; null counts as a missing key.
ENVIRONMENT = dict(id=str, made_by=str, kwargs=dict, wrappers=list, max_episode_steps=int)
CONFIG = dict(
    algorithm=str,
    exp_name=str,
    env_name=str,
    seed=int,
    epochs=int,
    num_procs=int,
    ac_kwargs=dict,
    environment=ENVIRONMENT,
    env_fn=dict(env_name=str, env_kwargs=dict),
    actor_critic=str,
    logger_kwargs=dict,
    spaces=dict(observation=str, action=str),
)
JOB = CONFIG | dict(job=dict(state=str, function=str))
KINDS = {dict: "an object", list: "a list", str: "a string", int: "an integer"}


def real_path(path: Path | str) -> Path:
    """The path without links; unlike `Path.resolve` it accepts links that form a circle."""
    return Path(os.path.realpath(path))


def read_text(path: Path | str) -> str:
    """The text of a file, whatever bytes it holds."""
    try:
        return regular_file(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}).")


def read_config(folder: Path | str) -> dict:
    """A run's config.json, with every value that the library uses checked for its type.

    A value of another type is damage in the config.json of one of our algorithms; in one that a
    script has written it has a meaning of its own, and is left out.
    """
    path = Path(folder) / "config.json"
    config = in_todays_units(read_json(path))
    return _typed(path, config, CONFIG, strict="algorithm" in config)


def read_job(folder: Path | str) -> dict:
    """What a grid wrote to job.json: settings of any function, and how it ended; {} without one."""
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


def find_runs(folders: Iterable[Path | str]) -> list[Path]:
    """The folders of runs in these and below, in order, without those in `older_runs`."""
    found = []
    for given in folders:
        if not os.path.isdir(given):
            raise UserError(f"There is no folder {given}. Give one that holds runs, such as data.")
        for root, below, files in os.walk(given):
            if {"config.json", "progress.txt", JOB_FILE} & set(files):
                found.append(Path(root))
            below[:] = sorted(n for n in below if n not in (OLDER_RUNS, "checkpoint", "pyt_save"))
    return list(dict.fromkeys(found))


def require_run(folder: Path | str, command: str) -> Path:
    """The folder, if it is that of a run; otherwise a UserError names the runs below it."""
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


def how_to_resume(folder: Path | str) -> str:
    """A sentence on how a user continues the run in a folder."""
    return f"Resume with: {resume_command(folder)} (in a script: resume=True)"


def resume_command(folder: Path | str) -> str:
    """What continues the run in a folder; `spinup resume` knows only our own algorithms."""
    try:
        name, _, backend = str(read_config(folder).get("algorithm")).rpartition("_")
    except UserError:
        name, backend = "", ""
    if name in spinup.ALGORITHMS.get(backend, ()):
        return f"spinup resume {shlex.quote(str(folder))}"
    return "the same command"


EVENTS = "events.out.tfevents.*.spinup"  # files of the trackers that are ours, by their names
WANDB_RUNS = "wandb/*run-*-spinup*"
TRACKER_FILES = (EVENTS, WANDB_RUNS)
RUN_FILES = (
    "config.json",
    "progress.txt",
    "pyt_save",
    "checkpoint",
    "tf1_save*",
    "vars*.pt",
    "vars*.npz",
    "job.json",
    "output.txt",
    DIVERGED_FILE,
    *TRACKER_FILES,
)


def cannot_write(folder: Path | str, error: OSError) -> UserError:
    return UserError(
        f"Cannot write to {folder} ({error.strerror}). "
        "Choose another folder with --data_dir, or logger_kwargs in a script."
    )


def run_files(folder: Path | str, *more: str) -> list[Path]:
    """The files in a run folder that belong to the run, not to the user."""
    return sorted({path for name in (*RUN_FILES, *more) for path in Path(folder).glob(name)})


def older_run(folder: Path | str, table: str) -> list[Path]:
    """The files of an older run that a new one in the same folder must not overwrite.

    Of a run that never completed an epoch these are only its models.

    table: the name of the file that holds the rows
    """
    folder = Path(folder)
    files = run_files(folder, table)
    if (folder / table).exists() and (folder / table).stat().st_size:
        return files
    return [path for path in files if "_save" in path.name or path.suffix == ".pt"]


def move_older_run(folder: Path | str, table: str) -> Path | None:
    """Make way for a new run: move an older run to `older_runs/1` or the next free number.

    What a run left that never completed an epoch is deleted, except for its models. Gives the
    folder that the older run is in now; None where there was none.
    """
    folder = Path(folder)
    older, unfinished = older_run(folder, table), ("checkpoint", DIVERGED_FILE, *TRACKER_FILES)
    left = {path for name in unfinished for path in folder.glob(name)}
    remove_all(left.difference(older))
    if not older:
        return None
    number = 1
    while (aside := folder / OLDER_RUNS / str(number)).exists():
        number += 1
    aside.mkdir(parents=True)
    for path in older:
        shutil.move(path, aside / path.name)
    return aside


def refuse_links(folder: Path | str, *more: str) -> None:
    """Refuse a run folder in which a symbolic link would lead what is written to another place.

    more: names of files that are written there besides the usual ones
    """
    names = [name.partition("/")[0] for name in (*RUN_FILES, OLDER_RUNS, ".lock", "*.new", *more)]
    for path in sorted(Path(folder).iterdir()):
        if not any(fnmatch(path.name, name) for name in names):
            continue
        # Weights & Biases makes links of its own, and nothing is written to older runs.
        ours = path.is_dir() and not path.is_symlink() and path.name not in ("wandb", OLDER_RUNS)
        below = path.rglob("*") if ours else ()
        for found in (path, *below):
            if found.is_symlink():
                raise UserError(
                    f"{found} is a symbolic link: training would write where it leads. Put what it "
                    "leads to in its place, or choose another folder."
                )


def remove_all(paths: Iterable[Path]) -> None:
    """Delete files, links and whole folders."""
    for path in paths:
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def write_latest(run_folder: Path | str, epoch: int, checksums: list[int]) -> None:
    """Note which checkpoint is the newest, and the checksum of the file of each process."""
    content = dict(epoch=epoch, num_procs=len(checksums), checksums=checksums)
    content["checksum"] = zlib.crc32(json.dumps(content).encode())  # of this note itself
    write_json(Path(run_folder) / "checkpoint" / "latest", content)


def read_latest(run_folder: Path | str) -> dict | None:
    """Which epoch the newest whole checkpoint is of, and how many processes wrote it."""
    latest = _read_latest(run_folder)
    return latest and {key: latest[key] for key in ("epoch", "num_procs")}


def _read_latest(run_folder) -> dict | None:
    """The same with the checksum of each process's file; None if an earlier version wrote it."""
    path = Path(run_folder) / "checkpoint" / "latest"
    if not os.path.lexists(path):
        return None
    latest, found = read_json_and_bytes(path)
    if not all(type(latest.get(key)) is int and latest[key] > 0 for key in ("epoch", "num_procs")):
        raise UserError(f"{path} is damaged. {START_OVER}")
    if latest.keys() == {"epoch", "num_procs"}:
        return latest | dict(checksums=None)
    content = {key: latest.get(key) for key in ("epoch", "num_procs", "checksums")}
    noted = content | dict(checksum=zlib.crc32(json.dumps(content).encode()))
    if found != json_bytes(noted):  # every byte counts, also one that JSON ignores
        raise damaged(path)
    return content


_auto_resumed: set[Path] = set()  # folders in which this process resumes even without resume=True


def enable_auto_resume(folder: Path | str) -> None:
    """Let whatever is trained in `folder` and below resume from its checkpoint, if it has one.

    A job that is started again then resumes, whatever function it calls.
    """
    _auto_resumed.add(real_path(folder))


def auto_resumes(run_folder: Path | str) -> bool:
    """Whether training in this folder resumes without being asked to."""
    folder = real_path(run_folder)
    return not _auto_resumed.isdisjoint((folder, *folder.parents))


def setup_logger_kwargs(
    exp_name: str,
    seed: int | None = None,
    data_dir: Path | str | None = None,
    datestamp: bool = False,
    now: time.struct_time | None = None,
) -> dict:
    """Where a run is kept: `data_dir/exp_name/exp_name_s<seed>`, with the date before if asked.

    now: the time for the date, as `time.localtime()` gives it
    """
    if ".." in Path(str(exp_name)).parts or Path(str(exp_name)).is_absolute():
        raise UserError(
            f"exp_name {shown(exp_name)} leads out of the folder of all runs. Say where to keep "
            "them with data_dir, and in exp_name only what they are called."
        )
    now = time.localtime() if now is None else now
    datestamp = datestamp or user_config.FORCE_DATESTAMP
    day = time.strftime("%Y-%m-%d_", now) if datestamp else ""
    folder = Path(data_dir or user_config.DEFAULT_DATA_DIR) / f"{day}{exp_name}"
    if seed is not None:
        moment = time.strftime("%Y-%m-%d_%H-%M-%S-", now) if datestamp else ""
        folder = folder / f"{moment}{exp_name}_s{seed}"
    return dict(output_dir=str(folder), exp_name=exp_name)
