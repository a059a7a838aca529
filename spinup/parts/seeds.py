"""Random streams: where each kind of randomness in a run starts, independent of all others."""

import contextlib
import random
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.random import SeedSequence

from spinup.parts.backend import Backend


class Seeds(NamedTuple):
    """One seed for each purpose in one process of a run.

    NumPy's SeedSequence hashes the run's seed, the process and the purpose as separate numbers,
    so that no two streams are the same: not of two purposes, not of two processes, and not of
    runs with two seeds, whatever these are. New purposes go at the end.
    """

    env: SeedSequence  # training environments, and the random actions taken in them
    test_env: SeedSequence  # evaluation environments
    buffer: SeedSequence  # which transitions are sampled from a replay buffer
    global_rng: SeedSequence  # the global streams of Python, of NumPy and of the framework


def run_seeds(seed: int, process: int) -> Seeds:
    """The seeds of a process; equal arguments give equal ones."""
    return Seeds(*(derive(int(seed), process, purpose) for purpose in range(len(Seeds._fields))))


def derive(seed: int | SeedSequence, *key: int) -> SeedSequence:
    """The seed that `key` selects below `seed`; unlike `spawn`, the same one at every call."""
    above = seed if isinstance(seed, SeedSequence) else SeedSequence(seed)
    return SeedSequence(above.entropy, spawn_key=(*above.spawn_key, *key))


def framework_seed(seed: int, process: int) -> int:
    """A seed for a framework's generator, of which PyTorch's reads 32 bits only.

    The first process has the run's seed itself, so seeds that differ stay different. The others
    have a hash with the highest bit set, which no first process has.
    """
    if process == 0:
        return int(seed)
    (word,) = run_seeds(seed, process).global_rng.generate_state(1)
    return int(word) | 1 << 31


def generator_state(seed: int | SeedSequence) -> dict:
    """The state of one of NumPy's usual generators at the start of the stream of `seed`."""
    return dict(np.random.default_rng(seed).bit_generator.state)


def rng_state(backend: Backend | None = None) -> dict:
    """The state of every global random generator: Python's, NumPy's, the framework's."""
    kind, keys, *rest = np.random.get_state()
    state = dict(numpy=[kind, keys, *rest], python=list(random.getstate()))
    return state if backend is None else state | backend.rng_state()


def set_rng_state(state: dict, backend: Backend | None = None) -> None:
    """Put back what `rng_state` gave."""
    np.random.set_state(tuple(state["numpy"]))
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    if backend is not None:
        backend.set_rng_state(state)


@contextlib.contextmanager
def preserve_rng(backend: Backend | None = None) -> Iterator[None]:
    """Whatever happens within moves no global random stream."""
    state = rng_state(backend)
    try:
        yield
    finally:
        set_rng_state(state, backend)
