"""Two parts of an update at once, each on a thread of its own.

Small products are hard to share between threads, so a policy and a value function that are fitted
side by side are done sooner than if both took turns in using two threads. The numbers must not
depend on it. So the parts run one after the other first, with one thread each as later. Two threads
are used from then on if both did nothing but replay captures, none of these samples random
numbers, and none reads or changes a parameter or buffer that the other changes.
"""

import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field

import torch

from spinup.parts.mpi import num_procs
from spinup.parts.pytorch.fast import private, switch

_NOTHING = nullcontext()


class _Local(threading.local):
    lock, locks, notes = _NOTHING, None, None


_local = _Local()
_capture_lock = threading.Lock()
_safe = weakref.WeakKeyDictionary()  # of networks: whether two threads may fit what is in them
# Functions whose parts run one after the other in this run, by name, and why; and those of which a
# checkpoint says so, so that a resumed run goes the way of the one that was stopped.
serial: dict[str, str] = {}
restored: dict[str, str] = {}


def turn():
    """Held while a thread changes something; while another captures an update, it waits."""
    return _local.lock


@contextmanager
def exclusive():
    """Held while an update is captured, which must not be disturbed by the other thread."""
    with _capture_lock, ExitStack() as held:
        for lock in _local.locks or ():
            held.enter_context(lock)
        yield


@dataclass
class _Notes:
    """What one of two parts has done so far."""

    reads: set = field(default_factory=set)
    writes: set = field(default_factory=set)
    why: str | None = None  # it must not run beside the other


def note_call(capture):
    """Note how a call of a recorded update was answered: by this capture, or (None) eagerly."""
    notes = _local.notes
    if notes is None:
        return
    if capture is None or capture.samples:
        notes.why = "it samples random numbers" if capture else "it runs eagerly"
    else:
        notes.reads |= capture.reads
        notes.writes |= capture.writes


def note_writes(tensors):
    """Note that a thread changes these outside of a recorded update."""
    notes = _local.notes
    if notes is not None:
        notes.writes |= set(map(private.storage_id, tensors))


def run_concurrently(network, first, second):
    """The statistics that `first()` and `second()` give; both at once, if that is safe and helps.

    network: what they fit parts of
    """
    threads, name = torch.get_num_threads(), f"{first.__module__}.{first.__qualname__}"
    alone = threads < 2 or num_procs() > 1 or not switch.enabled() or private.modes_active()
    if alone or name in restored or not _safe.get(network, True):
        return first() | second()
    notes = _Notes(), _Notes()
    torch.set_num_threads(1)
    try:
        run = _on_two_threads if network in _safe else _one_by_one
        return run(first, second, notes)
    finally:
        torch.set_num_threads(threads)
        why = _why_not(*notes)
        _safe[network] = why is None
        if why is not None:
            serial[name] = why


def _why_not(one, other) -> str | None:
    """Why two parts must not run at once; None where they may."""
    shared = one.writes & (other.reads | other.writes) or other.writes & one.reads
    return one.why or other.why or ("they share parameters or buffers" if shared else None)


def _one_by_one(first, second, notes):
    found = {}
    try:
        for part, _local.notes in zip((first, second), notes):
            found |= part()
    finally:
        _local.notes = None
    return found


def _on_two_threads(first, second, notes):
    locks = threading.Lock(), threading.Lock()

    def begin(number):
        torch.set_num_threads(1)
        _local.lock, _local.locks, _local.notes = locks[number], locks, notes[number]

    with ThreadPoolExecutor(1, initializer=begin, initargs=(1,)) as other:
        from_second = other.submit(second)
        begin(0)
        try:
            return first() | from_second.result()
        finally:
            _local.lock, _local.locks, _local.notes = _NOTHING, None, None
