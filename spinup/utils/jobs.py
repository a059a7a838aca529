"""Many runs: each in processes of its own, some side by side, and all of them restartable."""

import codecs
import contextlib
import inspect
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from spinup.parts.imports import STARTED_IN, start_without_current_folder
from spinup.parts.plain_text import printable, say, without_colors
from spinup.parts.run_folder import JOB_FILE
from spinup.utils.errors import UserError
from spinup.utils.logx import colorize, remove_all, run_files
from spinup.utils.ls import PERFORMANCE, read_table
from spinup.utils.mpi_tools import THREADS, die_with_parent
from spinup.utils.serialization_utils import convert_json, write_json

OUTPUT_FILE = "output.txt"  # what a run says, in its folder
LAST_LINES = 8  # of a run that failed
# What the libraries that a run may use read when they start.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
STOPPED_CODES = (130, -signal.SIGINT)
COLOR = dict(done="green", running="cyan", failed="red", diverged="red", stopped="yellow")


@dataclass
class Job:
    """One run of an experiment: what to call and with what, in how many processes."""

    exp_name: str
    thunk: Callable  # a training function, or any function that takes these keywords
    kwargs: dict  # settings, with seed, env_name (and env_kwargs) or env_fn, and logger_kwargs
    num_cpu: int = 1
    overwrite: bool = False  # start over, deleting what the folder holds


@dataclass
class Run:
    """A job on its way."""

    job: Job
    state: str = "queued"  # then running, then done, failed, diverged or stopped
    began: float = 0.0
    said_before: int = 0  # the bytes that output.txt held before this start
    process: subprocess.Popen | None = None
    talk: threading.Thread | None = None  # shows what the run says
    why: str = ""  # it failed, where the run itself could not say it


class JobsFailed(Exception):
    """Some runs failed or diverged; `failures` has their names and folders. The others are done."""

    def __init__(self, message: str, failures: list[tuple[str, Path]]):
        super().__init__(message)
        self.failures = failures


def run_jobs(jobs: list[Job], at_once: int = 1, ray_address: str | None = None) -> None:
    """Run jobs, so many at once, each in processes of its own.

    What is finished is left alone, what is not is resumed, and a job whose folder holds a run
    with other settings is refused. One that fails does not stop the others; in the end JobsFailed
    tells of it. Ctrl-C lets those that run finish their epoch and save, and starts no other.

    at_once: how many processes may train side by side; a job counts with its num_cpu
    ray_address: None for this machine, 'local' for a Ray of our own here, else HOST:PORT
    """
    if at_once < 1:
        raise UserError(f"{at_once} jobs at once is none at all; ask for 1 or more.")
    from spinup.utils.run_utils import check_jobs

    jobs = _without_doubles(jobs)
    check_jobs(jobs)
    for job in jobs:
        check_call(job)
    runs = [Run(job) for job in jobs]
    refused = [error for run in runs if (error := _look_before(run))]
    if refused and len(refused) == len(runs):
        raise refused[0] if len(runs) == 1 else UserError("\n".join(map(str, refused)))
    board = Board(runs, live=(at_once > 1 or bool(ray_address)) and sys.stdout.isatty())
    for run in runs:
        tell(board, run)
    with _interrupts() as interrupts:
        if ray_address is None:
            _run_here(board, at_once, interrupts)
        else:
            from spinup.utils.ray_jobs import run_on_ray

            run_on_ray(board, ray_address, interrupts)
    _conclude(runs, interrupts)


def _conclude(runs, interrupts):
    """Raise what there is to say of runs that are not done."""
    count = {state: sum(run.state == state for run in runs) for state in _states(runs)}
    failed = [run for run in runs if run.state in ("failed", "diverged")]
    told = "\n\n".join(_failure(run) for run in failed)
    if interrupts:
        saved = "; ".join(f"{number} {state}" for state, number in count.items())
        raise KeyboardInterrupt(
            f"{told}\n\nStopped ({saved}). The same command again goes on from here.".lstrip()
        )
    if failed:
        rest, many = len(runs) - len(failed), f"of {len(runs)} runs"
        how = [f"{count[s]} {many} {s}" for s in ("failed", "diverged") if s in count]
        later = " Runs that diverged are left alone." if "diverged" in count else ""
        others = f"; the other {rest} {'is' if rest == 1 else 'are'} done" if rest else ""
        raise JobsFailed(
            f"{told}\n\n{', '.join(how)}{others}. "
            f"The same command again tries only what is not done.{later}",
            [(run.job.exp_name, folder_of(run.job)) for run in failed],
        )


def _failure(run) -> str:
    """A failed run's folder and its last words, or the sentence of one that diverged."""
    lines = [run.why] if run.why else []
    if run.state == "diverged":
        return f"{run.job.exp_name} diverged: {folder_of(run.job)}\n    {run.why}"
    path = folder_of(run.job) / OUTPUT_FILE
    if path.exists() and run.began:
        said = path.read_bytes()[run.said_before :].decode(errors="replace").rstrip().splitlines()
        lines = [*map(without_colors, said[-LAST_LINES:]), *lines]
    told = "".join(f"\n    {line}" for line in lines)
    return f"{run.job.exp_name} failed: {folder_of(run.job)}{told}"


# --- What is to be done ---


def folder_of(job: Job) -> Path:
    """The job's run folder."""
    return Path(job.kwargs["logger_kwargs"]["output_dir"])


def in_folder(job: Job, folder) -> Job:
    """The same job, kept in another folder."""
    where = job.kwargs["logger_kwargs"] | dict(output_dir=str(folder))
    return replace(job, kwargs=job.kwargs | dict(logger_kwargs=where))


def note(job: Job, state: str):
    """Write down, beside the run, what the job is and its state.

    A state is 'started', 'finished', 'failed' or 'diverged'.
    For a function that is no algorithm of ours, this alone tells whether it is through.
    """
    name = convert_json(job.thunk)
    write_json(
        folder_of(job) / JOB_FILE, _settings(job) | dict(job=dict(state=state, function=name))
    )


def _settings(job) -> dict:
    kwargs = {key: value for key, value in job.kwargs.items() if key != "logger_kwargs"}
    return convert_json(kwargs | dict(num_procs=job.num_cpu))


def _without_doubles(jobs) -> list[Job]:
    """Each job once; two different ones for the same folder are a mistake."""
    known = {}
    for job in jobs:
        first = known.setdefault(folder_of(job).absolute(), job)
        if first is not job and _settings(first) != _settings(job):
            raise UserError(
                f"Two variants would be kept in {folder_of(job)}, for their names are the same. "
                "Give the settings in which they differ a place in the name."
            )
    return list(known.values())


def check_call(job: Job):
    """Refuse settings that the job's function does not take."""
    from spinup.utils.run_utils import with_env_fn

    try:
        inspect.signature(job.thunk).bind(**with_env_fn(job.kwargs))
    except TypeError as error:
        function = convert_json(job.thunk)
        raise UserError(f"{job.exp_name}: {function} cannot be called with its settings: {error}.")
    except ValueError:  # a function that does not tell what it takes
        return


def _todo(job: Job) -> str:
    """Whether to 'start' or to 'resume' the job; or it is 'finished' or 'diverged'."""
    from spinup.utils.run_utils import what_to_do

    return what_to_do(job.thunk, job.kwargs, job.num_cpu, job.overwrite)


def _look_before(run) -> UserError | None:
    """See how the job stands; what is finished, diverged or refused is settled here."""
    from spinup.parts.divergence import explain_diverged

    try:
        todo = _todo(run.job)
        run.state = dict(finished="done", diverged="diverged").get(todo, "queued")
        run.why = explain_diverged(folder_of(run.job)) if todo == "diverged" else ""
    except UserError as error:
        run.state, run.why = "failed", str(error)
        return error


def make_room(job: Job):
    """Ready the job's folder: what cannot be gone on from is deleted."""
    from spinup.parts.checkpoint import claim, release

    folder = folder_of(job)
    todo = _todo(job)
    claim(folder)
    try:
        for path in run_files(folder) if todo == "start" else ():
            remove_all([path])
    finally:
        release(folder)


# --- Processes ---


def environment(at_once: int, num_cpu: int) -> dict:
    """The environment variables of a run's processes: where modules are, and threads shared out.

    What the user has said about threads holds.
    """
    pythons = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib"))
    paths = [os.path.abspath(path) for path in sys.path if not path.endswith(".zip")]
    paths = dict.fromkeys(path for path in paths if not path.startswith(pythons))
    variables = os.environ | {"PYTHONPATH": os.pathsep.join(paths), STARTED_IN: os.getcwd()}
    if at_once > 1 and not any(name in os.environ for name in THREAD_VARIABLES):
        share = str(max(1, cores() // max(at_once, num_cpu)))
        variables |= dict.fromkeys((*THREAD_VARIABLES, THREADS), share)
    return variables


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def start_process(job: bytes, variables: dict, output, folder=None) -> subprocess.Popen:
    """Start a run; it ends when this process does, whatever ends that.

    job: what cloudpickle makes of a Job
    output: an open file, or what else subprocess takes, for all that the run says
    folder: where to keep it instead of in its own folder
    """
    handle, name = tempfile.mkstemp(prefix="spinup-job-")  # readable by this user alone
    with open(handle, "wb") as file:
        file.write(job)
    words = [name] if folder is None else [name, str(folder)]
    started_in = variables.get(STARTED_IN)
    return subprocess.Popen(
        [*start_without_current_folder("spinup.utils.run_entrypoint"), *words],
        env=variables,
        cwd=started_in if started_in and os.path.isdir(started_in) else None,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # so that Ctrl-C reaches us alone, and we pass it on once
        preexec_fn=die_with_parent if sys.platform == "linux" else None,
    )


def forget_job_file(process: subprocess.Popen):
    """Remove what a run was told, if it ended before it could do so itself."""
    started = len(start_without_current_folder(""))
    Path(process.args[started]).unlink(missing_ok=True)


def _start(run, at_once):
    """Start a run here; its words go to its folder, and to the terminal if it runs alone."""
    import cloudpickle

    job, folder = run.job, folder_of(run.job)
    make_room(job)
    output = open(folder / OUTPUT_FILE, "ab")
    run.said_before, run.began = output.tell(), time.time()
    variables = environment(at_once, job.num_cpu)
    listening, speaking = (None, output) if at_once > 1 else _line()
    run.process = start_process(cloudpickle.dumps(job), variables, speaking)
    run.state = "running"
    if listening is None:
        output.close()
    else:
        os.close(speaking)
        run.talk = threading.Thread(target=_show_and_keep, args=(listening, output), daemon=True)
        run.talk.start()


def _line() -> tuple[int, int]:
    """Two ends of a line, to hear a run and to let it speak; a terminal to it if we have one."""
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


def _show_and_keep(listening, kept):
    """Pass on what a run says, and keep its whole lines as they look in the end."""
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
def _interrupts():
    """A list that gets an entry for every Ctrl-C; SIGTERM ends us, and our runs with us."""
    heard = []
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


def _run_here(board, at_once, interrupts):
    """Start runs as places get free, and see them through."""
    passed_on = 0
    try:
        while True:
            running = [run for run in board.runs if run.state == "running"]
            waiting = [run for run in board.runs if run.state == "queued" and not interrupts]
            if not running and not waiting:
                break
            busy = sum(run.job.num_cpu for run in running)
            if waiting and (not running or busy + waiting[0].job.num_cpu <= at_once):
                _try_to_start(board, waiting[0], at_once)
                continue
            for _ in interrupts[passed_on:]:
                passed_on += 1
                if at_once > 1:  # one alone says it itself
                    say_interrupted(board)
                for run in running:
                    run.process.send_signal(signal.SIGINT)
            for run in running:
                if run.process.poll() is not None:
                    _finish(board, run, interrupts)
            redraw(board)
            time.sleep(0.1)
    finally:
        for run in board.runs:
            if run.state == "running":
                run.process.kill()
                run.process.wait()
                forget_job_file(run.process)
    redraw(board, last=True)


def _try_to_start(board, run, at_once):
    try:
        _start(run, at_once)
    except (UserError, OSError) as error:  # somebody else trains there, or the disk is full
        run.state, run.why = "failed", str(error)
    tell(board, run)


def _finish(board, run, interrupts):
    """Take note of how a run's process ended."""
    if run.talk is not None:
        run.talk.join(timeout=5)  # something that the run has left behind may still hold the line
    forget_job_file(run.process)
    ended(run, run.process.returncode, interrupts)
    tell(board, run)


def ended(run: Run, code: int, interrupts: list):
    """Say how a run stands whose process ended with `code`."""
    from spinup.parts.divergence import read_divergence

    if code == 0:
        run.state = "done"
    elif interrupts and code in STOPPED_CODES:
        run.state = "stopped"
    elif (diverged := read_divergence(folder_of(run.job))) is not None:
        run.state, run.why = "diverged", diverged.sentence
        with contextlib.suppress(OSError):
            note(run.job, "diverged")
    else:
        run.state = "failed"
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        run.why = f"(it ended with {how})"
        with contextlib.suppress(OSError):  # the disk that is full is told of by the run itself
            note(run.job, "failed")


# --- What is seen of it ---


@dataclass
class Board:
    """How all runs stand, for a terminal or as plain lines."""

    runs: list[Run]
    live: bool  # a table that is drawn again and again
    height: int = 0  # of the table that is there now
    drawn: float = 0.0


def _states(runs) -> list[str]:
    order = ("done", "running", "queued", "stopped", "failed", "diverged")
    return [state for state in order if any(run.state == state for run in runs)]


def tell(board: Board, run: Run):
    """Say on a line that a run's state is another; a table shows it by itself."""
    if board.live or run.state == "queued":
        return
    through = sum(run.state in ("done", "failed", "diverged", "stopped") for run in board.runs)
    told = dict(running="started", done="done" if run.began else "finished before")
    state = told.get(run.state, run.state)
    say(f"[{through}/{len(board.runs)}] {_name(run)}: {state}{_how(run)}")


def say_interrupted(board: Board):
    """Answer a Ctrl-C, below the table."""
    print(
        "\nCtrl-C: what is running finishes its epoch and saves; nothing else is started. "
        "Press it again to stop at once and lose the epoch.",
        file=sys.stderr,
        flush=True,
    )
    board.height = 0


def _name(run) -> str:
    """What a run is called: its folder, which has the seed in its name."""
    return printable(folder_of(run.job).name)


def _how(run) -> str:
    """How far a run is, how well it does, and how long it will take or took."""
    from tqdm import tqdm

    if run.state == "queued":
        return ""
    table = read_table(folder_of(run.job) / "progress.txt")
    epochs, seconds = run.job.kwargs.get("epochs"), table.last.get("Time")
    words = [f"epoch {table.rows}" + (f"/{epochs}" if epochs else "")] if table.rows else []
    if run.state != "diverged":
        results = [table.last[name] for name in PERFORMANCE if name in table.last]
        words += [f"return {result:.5g}" for result in results[:1]]
    if run.state == "running" and seconds and epochs:
        left = seconds / table.rows * max(0, epochs - table.rows)
        words.append(f"{tqdm.format_interval(left)} left")
    if run.why and not table.rows:
        words.append(printable(run.why))
    return f"  {', '.join(words)}" if words else ""


def redraw(board: Board, last: bool = False):
    """Draw the table where it was drawn before; at the end, with all that there is to see."""
    if not board.live or not (last or time.time() - board.drawn > 0.5):
        return
    size = shutil.get_terminal_size()
    lines = table(board.runs, size.columns - 1, len(board.runs) + 2 if last else size.lines - 2)
    up = f"\x1b[{board.height}F" if board.height else ""
    sys.stdout.write(up + "\x1b[J" + "".join(f"{line}\n" for line in lines))
    sys.stdout.flush()
    board.height, board.drawn = len(lines), time.time()


def table(runs: list[Run], width: int, height: int) -> list[str]:
    """The lines of the table; where not all runs fit, those that are at work or failed come first.

    width, height: how much room there is
    """
    count = ", ".join(f"{sum(r.state == s for r in runs)} {s}" for s in _states(runs))
    order = ("running", "failed", "diverged", "stopped", "queued", "done")
    first = sorted(runs, key=lambda run: order.index(run.state))
    shown = first if len(runs) < height else first[: max(0, height - 2)]
    longest = max((len(_name(run)) for run in shown), default=0)
    lines = [f"{len(runs)} runs: {count}"[:width]]
    for run in runs:
        if any(run is one for one in shown):
            line = f"  {run.state:8} {_name(run):{longest}} {_how(run)}"[:width].rstrip()
            painted = run.state in COLOR
            lines.append(colorize(line, COLOR[run.state]) if painted else line)
    hidden = len(runs) - len(shown)
    return lines + ([f"  … and {hidden} more"] if hidden else [])
