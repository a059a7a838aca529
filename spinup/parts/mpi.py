"""Several processes that train one policy together, under MPI.

A process belongs to a job only if an MPI launcher started it (`mpiexec`, or our own `mpi_fork`).
Otherwise each function below acts as for a job of one process, and MPI is not imported.
"""

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike

from spinup.parts.errors import UserError
from spinup.parts.imports import OURS, SAFE_PATH
from spinup.parts.plain_text import paragraph

# Set by the launchers: MPICH and those derived from it, PMIx, Open MPI.
LAUNCHER_VARIABLES = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK")
FORKED = "SPINUP_FORKED"  # set in processes that mpi_fork has started
# The threads that each process may have, where runs side by side share the cores.
THREADS = "SPINUP_THREADS"
HOW_TO_INSTALL = "Several processes need MPI: pip install mpi4py mpich"


def under_launcher() -> bool:
    """Whether an MPI launcher started this process."""
    return any(name in os.environ for name in LAUNCHER_VARIABLES)


@cache
def _world():
    """The communicator of all processes; None where there is only this one."""
    if not under_launcher():
        return None
    try:
        from mpi4py import MPI
    except ImportError:
        raise UserError(f"mpiexec started this process, but mpi4py is missing. {HOW_TO_INSTALL}")
    if MPI.COMM_WORLD.Get_size() == 1:
        return None
    sys.excepthook = _abort_job
    return MPI.COMM_WORLD


def _abort_job(kind, error, trace):
    """A failing process ends the others too: they would wait for it forever."""
    traceback.print_exception(kind, error, trace)
    abort(130 if issubclass(kind, KeyboardInterrupt) else 1)


def abort(code: int, message: str = "", agreed: bool = False) -> NoReturn:
    """End every process of the job with `code`, saying why.

    agreed: all processes do so; then only the first one prints, and each ends by itself
    """
    if not agreed:
        time.sleep(0.5 * (proc_id() > 0))  # the first process may be about to say the same
    flush_output()
    if message and (proc_id() == 0 or not agreed):
        print(paragraph(message), file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    if _world() is not None and not agreed:
        time.sleep(0.3)  # for mpiexec, which drops what it has not read yet when it ends all
        _world().Abort(code)
    sys.exit(code)


def flush_output() -> OSError | None:
    """Write out what was printed; where that fails, gives the error, and output goes nowhere."""
    try:
        sys.stdout.flush()
    except OSError as error:
        with contextlib.suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())  # else Python complains when it ends
        return error
    return None


def on_first_process(work: Callable[[], Any]) -> Any:
    """What `work()` gives in the first process, in all of them; what it raises, too.

    If the first process raised alone, the others would wait for it forever.
    """
    result, error = None, None
    if proc_id() == 0:
        try:
            result = work()
        except Exception as raised:
            error = raised
    result, error = broadcast_object((result, error))
    if error is not None:
        raise error
    return result


def mpiexec() -> str:
    """Where the launcher is: beside this Python if it came with it, else on the path."""
    beside = shutil.which("mpiexec", path=str(Path(sys.executable).parent))
    found = beside or shutil.which("mpiexec") or shutil.which("mpirun")
    if not found:
        raise UserError(f"There is no mpiexec on this machine. {HOW_TO_INSTALL}")
    try:
        import mpi4py  # noqa: F401  (imported by name only: MPI itself must not start here)
    except ImportError:
        raise UserError(f"There is an mpiexec, but mpi4py is missing. {HOW_TO_INSTALL}")
    return found


def mpi_fork(n: int, bind_to_core: bool = False, handed_over: str = "") -> None:
    """Start this very program again as `n` processes, wait for them, and exit as they do.

    Returns at once where there is nothing to do: for one process, and inside the processes
    it has started itself or that the user has started with mpiexec.

    handed_over: a string that the processes find in the environment variable FORKED
    """
    if n <= 1 or under_launcher():
        return
    command = [mpiexec(), "-n", str(n)] + ["-bind-to", "core"] * bind_to_core
    threads = str(max(1, (os.cpu_count() or 1) // n))
    environment = {"OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}
    environment |= os.environ | {FORKED: handed_over}
    if environment.get(SAFE_PATH) == OURS:  # our own program may lie in the current folder
        del environment[SAFE_PATH]
    job = subprocess.Popen(
        [*command, sys.executable, *sys.orig_argv[1:]],
        env=environment,
        stdin=subprocess.DEVNULL,
        start_new_session=True,  # so that Ctrl-C reaches us alone, and we pass it on once
        preexec_fn=die_with_parent if sys.platform == "linux" else None,
    )
    interrupts = []

    def pass_on(*_):
        # mpiexec ends its job at the first interrupt; this signal it hands down, and a process
        # of ours takes it for the same wish: finish the epoch, save, stop.
        interrupts.append(job.send_signal(signal.SIGUSR1))

    signal.signal(signal.SIGINT, pass_on)
    signal.signal(signal.SIGTERM, lambda *_: job.terminate())
    code = job.wait()
    sys.exit(130 if interrupts and code else code)


def die_with_parent() -> None:
    """Runs in a new process before its program: it must not outlive us, whatever ends us."""
    parent_death_signal = 1
    ctypes.CDLL(None).prctl(parent_death_signal, signal.SIGKILL)


def listen_for_interrupts() -> None:
    """Take Ctrl-C as `mpi_fork` passes it on, from the start; a checkpoint takes over later."""
    if FORKED in os.environ:
        signal.signal(signal.SIGUSR1, signal.default_int_handler)


def msg(m: object, string: str = "") -> None:
    """Print `m` with the number of the process it comes from."""
    print(f"Message from {proc_id()}: {string} \t {m}", flush=True)


def proc_id() -> int:
    """The number of this process in its job, from 0."""
    return 0 if _world() is None else _world().Get_rank()


def num_procs() -> int:
    """How many processes train together."""
    return 1 if _world() is None else _world().Get_size()


def barrier() -> None:
    """Wait until every process is here."""
    if _world() is not None:
        _world().Barrier()


def allreduce(*args: Any, **kwargs: Any) -> None:
    """MPI's own Allreduce of two arrays, as mpi4py has it."""
    if _world() is not None:
        _world().Allreduce(*args, **kwargs)
    else:
        sent, received = args[:2]
        received[...] = sent


def broadcast(x: np.ndarray, root: int = 0) -> None:
    """Overwrite the array `x` in every process with that of `root`."""
    if _world() is not None:
        _world().Bcast(x, root=root)


def broadcast_object(value: Any, root: int = 0) -> Any:
    """The plain value (a number, a string, a dict of them) that `root` has, in every process."""
    return value if _world() is None else _world().bcast(value, root=root)


def mpi_op(x: Any, op: Any) -> Any:
    """Combine `x` (a number or an array) over all processes; None for `op` means the sum."""
    single = np.isscalar(x)
    x = np.atleast_1d(np.asarray(x, dtype=np.float64 if single else None))
    if _world() is not None:
        received = np.zeros_like(x)
        _world().Allreduce(np.ascontiguousarray(x), received, **({} if op is None else {"op": op}))
        x = received
    return x[0] if single else x


def mpi_sum(x: Any) -> Any:
    """The sum of `x` over all processes."""
    return mpi_op(x, None)


def mpi_avg(x: Any) -> Any:
    """The mean of `x` over all processes."""
    return mpi_sum(x) / num_procs()


def mpi_max(x: Any) -> Any:
    """The largest `x` of all processes."""
    if _world() is None:
        return x
    from mpi4py import MPI

    return mpi_op(x, MPI.MAX)


def mpi_statistics_scalar(x: ArrayLike, with_min_and_max: bool = False) -> tuple[float, ...]:
    """Mean and standard deviation (then the least and the greatest) of all values everywhere.

    No value at all, in any process, gives NaN.
    """
    x = np.asarray(x, dtype=np.float64).reshape(-1)
    total, count = mpi_sum(np.array([x.sum(), x.size]))
    mean = total / count if count else np.nan
    std = np.sqrt(mpi_sum(float(np.sum((x - mean) ** 2))) / count) if count else np.nan
    if not with_min_and_max:
        return mean, std
    least = -mpi_max(float(-x.min()) if x.size else -np.inf)
    greatest = mpi_max(float(x.max()) if x.size else -np.inf)
    return (mean, std, least, greatest) if count else (mean, std, np.nan, np.nan)
