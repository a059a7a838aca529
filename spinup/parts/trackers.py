"""Trackers show the table of a run besides progress.txt: TensorBoard, and Weights & Biases.

A run that resumes writes all rows of its table to them again. So they hold every row once, at
whatever instant it was killed, and also rows from before the user asked for a tracker.
"""

import json
import math
import os
import secrets
import shutil
import socket
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from spinup.parts.backend import Backend
from spinup.parts.config_entries import keys_with
from spinup.parts.errors import UserError
from spinup.parts.progress import STEPS
from spinup.parts.run_folder import EVENTS, WANDB_RUNS
from spinup.parts.seeds import preserve_rng
from spinup.parts.settings import flatten_settings

NO_SETTINGS = keys_with(tracked=False)  # of config.json
TIMEOUT = 30  # seconds to wait for a server


def require(**wanted: bool) -> None:
    """Say what to install, if the package of a tracker that the user asks for is missing."""
    with preserve_rng():
        for package in (name for name, on in wanted.items() if on):
            try:
                import_module(package)
            except ImportError:
                how = f"pip install 'spinup[{package}]'"
                raise UserError(f"--{package} needs a package that is not installed: {how}")
        if wanted.get("wandb"):
            _wandb_mode()


class TensorBoard:
    """Rows as scalars in an event file, which `tensorboard --logdir` shows.

    TensorBoard's own writers (`EventFileWriter`, under `tensorboard.summary.Writer` and PyTorch's
    `SummaryWriter`) load TensorFlow where it is installed, write from a thread, and name files by
    the second: two starts within one would be read in the wrong order. Its RecordWriter does not.
    """

    def __init__(self, folder: Path):
        from tensorboard.compat.proto.event_pb2 import SessionLog
        from tensorboard.summary.writer.record_writer import RecordWriter

        self.older = list(folder.glob(EVENTS))
        # TensorBoard reads the files of a folder in the order of their names.
        name = f"events.out.tfevents.{time.time():.6f}.{socket.gethostname()}.{os.getpid()}.spinup"
        self.writer = RecordWriter(open(folder / name, "xb"))
        self._event(file_version="brain.Event:2")
        # TensorBoard drops the rows of earlier starts.
        self._event(session_log=SessionLog(status=SessionLog.START), step=0)

    def _event(self, wall_time=None, **content):
        from tensorboard.compat.proto.event_pb2 import Event

        event = Event(wall_time=wall_time or time.time(), **content)
        self.writer.write(event.SerializeToString())
        self.writer.flush()

    def settings(self, config: dict) -> None:
        from tensorboard.plugins.hparams import summary_v2

        self._event(summary=summary_v2.hparams_pb(dict(_one_by_one(config))))

    def row(self, step: int, numbers: dict, when: float) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=key, simple_value=x) for key, x in numbers.items()]
        self._event(when, step=step, summary=Summary(value=values))

    def drop_stale(self) -> None:
        """Delete what was written before the run resumed."""
        for path in self.older:
            path.unlink(missing_ok=True)

    def close(self) -> None:
        self.writer.close()


def _one_by_one(config):
    """Settings as TensorBoard takes them: each a number, a boolean or a string."""
    for key, value in flatten_settings(config).items():
        if key.partition(":")[0] not in NO_SETTINGS:
            yield key, value if isinstance(value, (bool, int, float, str)) else json.dumps(value)


class WandB:
    """Rows and settings for Weights & Biases; kept in files for later where it is not reached.

    This run is separate from any that the script starts itself with wandb.init.
    """

    def __init__(self, folder: Path, exp_name: str | None):
        found = sorted(folder.glob(WANDB_RUNS), key=lambda path: path.name.partition("run-")[2])
        number = found[-1].name.rpartition("-")[2] if found else _new_id()
        self.older = [_set_aside(path) for path in found if not path.name.startswith("run-")]
        about = dict(dir=folder, id=number, name=folder.name, group=exp_name, reinit="create_new")
        if "WANDB_PROJECT" not in os.environ:
            about["project"] = "spinup"
        self.run = _start_wandb(_wandb_mode(), about)
        self.next_step = self.run.step  # after the last row of a run that the server knows already

    def settings(self, config: dict) -> None:
        self.run.config.update(config, allow_val_change=True)

    def row(self, step: int, numbers: dict, when: float) -> None:
        if step >= self.next_step:
            self.run.log(numbers | dict(_timestamp=when), step=step, commit=True)

    def drop_stale(self) -> None:
        """Delete what was written before the run resumed, if the new file has all of it."""
        if self.run.offline:
            for path in self.older:
                shutil.rmtree(path, ignore_errors=True)

    def close(self) -> None:
        self.run.finish()


def _wandb_mode() -> str:
    """What WANDB_MODE says; if it is not set, offline where there is no account."""
    import wandb

    asked = os.environ.get("WANDB_MODE")
    known = wandb.api.api_key or os.environ.get("WANDB_IDENTITY_TOKEN_FILE")
    if asked in ("online", "run", "shared") and not known:
        raise UserError(
            f"WANDB_MODE is {asked}, but Weights & Biases does not know you here: wandb login, "
            "or WANDB_MODE=offline"
        )
    return asked or ("online" if known else "offline")


def is_offline() -> bool:
    """Whether Weights & Biases would only write files, and send nothing."""
    try:
        return _wandb_mode() in ("offline", "dryrun", "disabled")
    except (UserError, ImportError):
        return False


def _set_aside(path):
    """Rename what is kept offline, or a run that starts in the same second would write into it."""
    aside = path.with_name("former-" + path.name.partition("-")[2])
    if path != aside:
        shutil.rmtree(aside, ignore_errors=True)
        path.rename(aside)
    return aside


def _new_id() -> str:
    return f"spinup{secrets.token_hex(6)}"


def _start_wandb(mode, about):
    import wandb

    options = dict(console="off", silent=True, symlink=False, disable_git=True, save_code=False)
    settings = wandb.Settings(**options, init_timeout=TIMEOUT)
    resume = None if mode in ("offline", "dryrun", "disabled") else "allow"
    before = set(about["dir"].glob(WANDB_RUNS))
    try:
        return wandb.init(**about, mode=mode, resume=resume, settings=settings)
    except wandb.errors.Error as error:
        if "WANDB_MODE" in os.environ:
            raise UserError(
                f"Weights & Biases could not be started ({error}). WANDB_MODE=offline does without."
            )
        print(f"Weights & Biases cannot be reached ({error}); the run is kept offline for it.")
    for path in set(about["dir"].glob(WANDB_RUNS)) - before:
        shutil.rmtree(path, ignore_errors=True)  # left by the attempt; its id cannot be used again
    return wandb.init(**about | dict(id=_new_id()), mode="offline", settings=settings)


def open_trackers(
    folder: Path,
    exp_name: str | None,
    tensorboard: bool,
    wandb: bool,
    backend: Backend | None = None,
) -> list:
    """Start the trackers that are asked for, in the run folder."""
    opened: list[TensorBoard | WandB] = []
    with preserve_rng(backend):
        if tensorboard:
            opened.append(TensorBoard(folder))
        if wandb:
            opened.append(WandB(folder, exp_name))
    return opened


def log_row(
    trackers: list, row: dict, count: int, start_time: float, backend: Backend | None = None
) -> None:
    """Write a row to each tracker.

    row: a value for each column, which may be a string of the table
    count: how many rows there are with this one; its step where no column gives the steps
    start_time: when the run would have started, had it never been stopped
    """
    numbers = {key: x for key, value in row.items() if (x := _number(value)) is not None}
    places = (numbers.get(key, math.nan) for key in (STEPS, "Epoch"))
    step = next((int(place) for place in places if math.isfinite(place)), count)
    when = start_time + numbers["Time"] if "Time" in numbers else time.time()
    call_all(trackers, "row", step, numbers, when, backend=backend)


def call_all(trackers: list, method: str, *arguments: Any, backend: Backend | None = None) -> None:
    """Call a method of every tracker; one that fails gets no more calls, and the run continues.

    Nothing is lost: when the run resumes, the tracker gets all rows of the table again.

    backend: the framework whose random generator must not change
    """
    with preserve_rng(backend):
        for tracker in list(trackers):
            try:
                getattr(tracker, method)(*arguments)
            except Exception as error:  # whatever a package of others may raise
                trackers.remove(tracker)
                print(f"{type(tracker).__name__} gets no more rows of this run ({error!r}).")


def _number(value):
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):  # a string, or an array
        return None
