"""How much memory there is, and a sentence for settings that ask for more."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path

from spinup.parts.errors import UserError, shown

try:
    import resource
except ImportError:  # Windows has no such limits
    resource = None  # type: ignore[assignment]

# Settings that memory grows with, in the order in which to suspect them.
SIZES = [
    "replay_size",
    "steps_per_epoch",
    "num_envs",
    "batch_size",
    "minibatch_size",
    "n_steps",
    "ac_kwargs",
]
BYTES_PER_WEIGHT = 32  # in two networks: each weight, its gradient and Adam's two averages
BYTES_PER_PROCESS = 150 * 2**20  # Python with PyTorch imported, at least
OUT_OF_MEMORY = ("allocate memory", "out of memory", "storage size", "Storage size")  # by PyTorch


def total_memory() -> int | None:
    """The bytes this process can have at most; None where the system does not say."""
    limits = []
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        sizes = {name: int(rest.split()[0]) for name, _, rest in (x.partition(":") for x in lines)}
        limits.append((sizes["MemTotal"] + sizes.get("SwapTotal", 0)) * 1024)
    except (OSError, ValueError, KeyError, IndexError):  # not Linux
        pass
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            limits.append(int(Path(path).read_text()))  # of a container
        except (OSError, ValueError):
            continue
    if resource is not None:
        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        limits += [limit] if limit != resource.RLIM_INFINITY else []
    return min(limits, default=None)


def gigabytes(size: int) -> str:
    return f"{Decimal(size) / 10**9:.3g} GB"


def require_memory(size: int, what: str) -> None:
    """Refuse what asks for more memory than there is, before it is allocated.

    size: in bytes
    what: asks for it: the setting and its value
    """
    limit = total_memory()
    if limit is not None and size > limit:
        raise UserError(
            f"{what} asks for {gigabytes(size)} of memory, but there are {gigabytes(limit)}. "
            "Make it smaller."
        )


def check_sizes(settings: dict) -> None:
    """Refuse networks and processes that cannot fit into memory."""
    ac_kwargs = settings.get("ac_kwargs")
    sizes = ac_kwargs.get("hidden_sizes") if isinstance(ac_kwargs, dict) else None
    sizes = [sizes] if isinstance(sizes, int) else sizes
    if isinstance(sizes, (list, tuple)) and all(type(s) is int and s > 0 for s in sizes):
        weights = sum(a * b for a, b in zip(sizes, sizes[1:])) + sum(sizes)
        require_memory(weights * BYTES_PER_WEIGHT, f"hidden_sizes {shown(list(sizes))}")
    if type(processes := settings.get("num_cpu")) is int:
        require_memory(processes * BYTES_PER_PROCESS, f"num_cpu {shown(processes)}")


def is_out_of_memory(error: Exception) -> bool:
    """Whether an error means that memory could not be allocated: Python's, NumPy's, PyTorch's."""
    if isinstance(error, (MemoryError, OverflowError)):
        return isinstance(error, MemoryError)
    kinds = {kind.__name__ for kind in type(error).__mro__}
    told = isinstance(error, RuntimeError) and any(word in str(error) for word in OUT_OF_MEMORY)
    return told or "OutOfMemoryError" in kinds


@contextmanager
def explain_memory(settings: dict) -> Iterator[None]:
    """Within this, memory that cannot be had becomes a sentence naming the settings that ask."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise UserError(out_of_memory(error, settings))


def out_of_memory(error: Exception, settings: dict) -> str:
    """What to say of memory that could not be had.

    settings: those of the run, all of them; named are those that memory grows with
    """
    reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
    asked = [f"{name} {shown(settings[name], 60)}" for name in SIZES if settings.get(name)]
    what = f" Make one of these smaller: {', '.join(asked)}." if asked else ""
    return f"There is not enough memory ({reason}).{what}"


def finite(value: float) -> bool:
    """Whether a number can be computed with as a float."""
    try:
        return math.isfinite(float(value))
    except OverflowError:  # an integer beyond the largest float
        return False
