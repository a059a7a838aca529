"""The process that runs a case: small, without root's rights, its training soon over."""

import contextlib
import ctypes
import functools
import json
import os
import random
import resource
import signal
import sys
import traceback
from importlib import import_module
from pathlib import Path

from fuzzing.cases import Case

TRAINING = 0.3  # seconds it may then train
MEMORY, LARGEST_FILE = 12 * 2**30, 2**28  # bytes that a case may ask for, and write to one file


class TrainingBegan(BaseException):
    """The command has passed all checks, and would now do what takes long."""


def prepare_child(report):
    """Make this process harmless: small, without root's rights, its training soon over.

    report: called with training=True when training begins
    """
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE, LARGEST_FILE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    give_up_rights()
    end_training_early(report)
    leave_out_what_takes_long()


def stop(*args, **kwargs):
    raise TrainingBegan


def end_training_early(report):
    """Let training last TRAINING seconds, in this process alone."""
    from spinup.experiments import jobs, processes, ray_jobs, train
    from spinup.parts.checkpoint import Checkpoint

    original = Checkpoint.epochs

    def epochs(self, *args):
        for epoch in original(self, *args):
            report(training=True)
            if signal.getitimer(signal.ITIMER_REAL)[0] == 0:
                signal.setitimer(signal.ITIMER_REAL, TRAINING)
            yield epoch

    def fork(n, *args, **kwargs):
        if n > 1:
            stop()

    signal.signal(signal.SIGALRM, stop)
    Checkpoint.epochs, train.mpi_fork = epochs, fork
    processes.start_process = jobs.start_process = ray_jobs.run_on_ray = stop


def leave_out_what_takes_long():
    """Export nothing, draw one figure in ten, send nothing to wandb, look up the version once."""
    from spinup.parts import logger, provenance
    from spinup.results import export

    open_trackers = logger.open_trackers
    logger.open_trackers = lambda folder, name, tensorboard, wandb, backend: open_trackers(
        folder, name, tensorboard, False, backend
    )
    figure = import_module("matplotlib.figure").Figure
    savefig = figure.savefig
    figure.savefig = lambda *args, **kwargs: random.random() < 0.1 and savefig(*args, **kwargs)
    provenance.version = functools.cache(provenance.version)
    export.to_onnx = stop


def die_with_parent():
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def give_up_rights():
    """Let root's files be closed to root as to anybody else (Linux)."""
    if os.name == "posix" and sys.platform == "linux" and os.getuid() == 0:
        header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # capabilities, third version; this process
        none = (ctypes.c_uint32 * 6)()
        ctypes.CDLL(None).capset(header, none)


def send(pipe: int, **what):
    """Tell the worker that watches how it goes."""
    os.write(pipe, json.dumps(what).encode() + b"\n")


def snapshot(folder: Path) -> dict:
    """The files of runs, and what they hold; without those that any command may write."""
    found = {}
    for root, _, names in os.walk(folder):
        for name in names:
            path = Path(root, name)
            if name != ".lock":
                try:
                    regular = path.is_file() and not path.is_symlink()
                    found[str(path)] = path.read_bytes() if regular else os.lstat(path).st_mode
                except OSError as error:
                    found[str(path)] = error.errno
    return found


def run_child(case: Case, where: Path, report):
    """Run the commands of a case, one after the other, and tell what became of each."""
    from spinup import user_config
    from spinup.cli import ls

    os.chdir(where)
    user_config.DEFAULT_DATA_DIR = ls.DEFAULT_DATA_DIR = str(where / "data")
    # Most updates run eagerly: capturing them first takes longer than all else.
    user_config.FAST = random.Random(case.name).random() < 0.1
    keep = case.run is not None
    for number, words in enumerate(case.commands):
        report(command=number)
        before = snapshot(where / "data") if keep else {}
        redirect_output(where, number)
        code, trace, stopped = run_command(words)
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()
        refused = keep and code == 2 and "--overwrite" not in words
        lost = lost_files(before, snapshot(where / "data")) if refused else []
        report(ended=number, code=code, trace=trace[-6000:], stopped=stopped, lost=lost)


def redirect_output(where: Path, number: int):
    """Write what the command of this number prints to files."""
    for stream, name in ((1, "stdout"), (2, "stderr")):
        file = os.open(where / f"{number}.{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, stream)
        os.close(file)
    sys.stdout, sys.stderr = (
        open(stream, "w", encoding="utf-8", errors=errors, closefd=False)
        for stream, errors in ((1, "strict"), (2, "backslashreplace"))
    )


def run_command(words: list[str]) -> tuple[int, str, bool]:
    """The exit code and the traceback of a command, and whether its training was stopped."""
    import torch

    from spinup.run import main

    torch.set_grad_enabled(True)  # a command that was stopped may have left it off
    code, trace, stopped = 0, "", False
    sys.argv = ["spinup", *words]
    try:
        main(list(words))
    except TrainingBegan:
        stopped = True
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        trace, code = traceback.format_exc(), -1
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return 0 if code is None else code if isinstance(code, int) else 1, trace, stopped


def lost_files(before: dict, after: dict) -> list[str]:
    return sorted(path for path, data in before.items() if after.get(path) != data)


def be_child(cases, wheres, pipe):
    """Run cases, in the process that was forked for them, and end it."""
    report, code = functools.partial(send, pipe), 1
    try:
        os.setsid()
        die_with_parent()
        prepare_child(report)
        for case, where in zip(cases, wheres):
            run_child(case, where, report)
            report(case_ended=True)
        code = 0
    except BaseException:
        report(broken=traceback.format_exc())
    finally:
        os._exit(code)
