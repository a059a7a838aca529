"""The processes of a run: their environment variables, their start, their output."""

import codecs
import contextlib
import os
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, BinaryIO

from spinup.parts.imports import STARTED_IN, start_without_current_folder
from spinup.parts.mpi import THREADS, die_with_parent
from spinup.parts.plain_text import without_colors

# Variables that libraries read when they start.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def process_env(at_once: int, num_cpu: int) -> dict:
    """The environment variables of a run's processes: where modules are, and how many threads.

    Variables for threads that the user has set stay as they are.
    """
    pythons = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib"))
    found = [os.path.abspath(path) for path in sys.path if not path.endswith(".zip")]
    paths = dict.fromkeys(path for path in found if not path.startswith(pythons))
    variables = os.environ | {"PYTHONPATH": os.pathsep.join(paths), STARTED_IN: os.getcwd()}
    if at_once > 1 and not any(name in os.environ for name in THREAD_VARIABLES):
        threads = str(max(1, cores() // max(at_once, num_cpu)))
        variables |= dict.fromkeys((*THREAD_VARIABLES, THREADS), threads)
    return variables


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def start_process(
    job: bytes, variables: dict, output: IO | int, folder: Path | None = None
) -> subprocess.Popen:
    """Start a run; it ends when this process does, whatever ends that.

    job: what cloudpickle makes of a Job
    output: an open file, or what else subprocess takes, for all that the run prints
    folder: where to keep the run, instead of the job's own folder
    """
    handle, name = tempfile.mkstemp(prefix="spinup-job-")  # readable by this user alone
    with open(handle, "wb") as file:
        file.write(job)
    words = [name] if folder is None else [name, str(folder)]
    started_in = variables.get(STARTED_IN)
    return subprocess.Popen(
        [*start_without_current_folder("spinup.experiments.entrypoint"), *words],
        env=variables,
        cwd=started_in if started_in and os.path.isdir(started_in) else None,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # so that Ctrl-C reaches us alone, and we pass it on once
        preexec_fn=die_with_parent if sys.platform == "linux" else None,
    )


def forget_job_file(process: subprocess.Popen) -> None:
    """Remove the file with a run's job, if the run ended before it could do so itself."""
    place = len(start_without_current_folder(""))
    assert isinstance(process.args, list)  # as start_process gives them
    Path(process.args[place]).unlink(missing_ok=True)


def open_pty() -> tuple[int, int]:
    """Two ends of a pipe, to read and to write a run's output; a terminal, if we have one."""
    try:
        import pty

        if not (sys.stdout.isatty() and sys.stderr.isatty()):
            return os.pipe()
        import fcntl
        import termios

        listening, speaking = pty.openpty()
        size = fcntl.ioctl(sys.stdout.fileno(), termios.TIOCGWINSZ, bytes(8))
        fcntl.ioctl(speaking, termios.TIOCSWINSZ, size)
        return listening, speaking
    except (ImportError, OSError):
        return os.pipe()


def tee(listening: int, kept: BinaryIO) -> None:
    """Print what a run prints, and write each whole line to a file as it looks in the end.

    listening: the end of the pipe to read
    kept: the file
    """
    decode, line = codecs.getincrementaldecoder("utf-8")(errors="replace").decode, ""
    with kept, contextlib.suppress(OSError), open(listening, "rb", buffering=0) as heard:
        while said := heard.read(65536):  # a terminal that was hung up raises OSError
            text = decode(said)
            sys.stdout.write(text)
            sys.stdout.flush()
            *lines, line = (line + text).replace("\r\n", "\n").split("\n")
            plain = map(without_colors, lines)
            kept.writelines(f"{one.rpartition(chr(13))[2]}\n".encode() for one in plain)
            kept.flush()


@contextlib.contextmanager
def catch_interrupts() -> Iterator[list[float]]:
    """A list that gets an entry for every Ctrl-C; SIGTERM ends us, and our runs with us."""
    heard: list[float] = []
    if threading.current_thread() is not threading.main_thread():
        yield heard
        return

    def ended(*_):
        sys.exit(128 + signal.SIGTERM)

    previous = {
        signal.SIGINT: signal.signal(signal.SIGINT, lambda *_: heard.append(time.time())),
        signal.SIGTERM: signal.signal(signal.SIGTERM, ended),
    }
    try:
        yield heard
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
