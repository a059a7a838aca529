"""Experience in NumPy: past transitions or segments (off-policy) and one rollout (on-policy)."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from spinup.parts.batches import NStepTransitions, Rollout, Segments, Transitions
from spinup.parts.errors import UserError, shown
from spinup.parts.memory import require_memory
from spinup.parts.mpi import mpi_statistics_scalar
from spinup.parts.prioritized import Priorities
from spinup.parts.ring import Ring, combined_shape

__all__ = [
    "GAEBuffer",
    "NStepReplayBuffer",
    "NStepTransitions",
    "ReplayBuffer",
    "Rollout",
    "SegmentBuffer",
    "Segments",
    "Transitions",
    "combined_shape",
    "discount_cumsum",
]


def _unchanged(batch: Any) -> Any:
    return batch


def _column(name: str) -> Any:
    """An attribute of a buffer: a view of one of its columns; what is assigned is copied there."""

    def read(buffer):
        return buffer._column(name)

    def write(buffer, values):
        buffer._column(name)[...] = values

    return property(read, write, doc=f"The column {name!r}, as a view of the memory of the buffer.")


def discount_cumsum(x: ArrayLike, discount: float) -> np.ndarray:
    """For each step, the sum of it and all later steps, discounted by `discount` per step."""
    total, out = 0.0, []
    for value in reversed(np.asarray(x, np.float64).tolist()):
        total = value + discount * total
        out.append(total)
    return np.array(out[::-1])


class ReplayBuffer:
    """The last `size` transitions of one environment or of many.

    `obs_buf`, `act_buf`, `rew_buf`, `obs2_buf` and `done_buf` are views, one row per transition: a
    script may change them in place. A checkpoint saves a row once, so it does not see changes to
    rows that an earlier checkpoint has saved.
    """

    def __init__(
        self,
        obs_dim: Any,
        act_dim: Any,
        size: float,
        seed: Any = 0,
        obs_dtype: Any = np.float32,
        act_dtype: Any = np.float32,
        convert: Callable = _unchanged,
    ):
        """Allocate the buffer.

        obs_dim, act_dim: the shape of one observation and of one action; None for numbers
        size: how many transitions to keep before the oldest is overwritten
        convert: turns a batch of arrays into what a backend needs
        """
        number, obs = (None, np.float32), (obs_dim, obs_dtype)
        columns = dict(obs=obs, act=(act_dim, act_dtype), rew=number, obs2=obs)
        self.ring = Ring(size, **columns, terminated=number, truncated=number)
        self.own_ptr: int | None = None  # set by a script that has yet to set `size` to match
        self.num_envs = 1  # environments that store together: their rows take turns
        self.rng, self.convert = np.random.default_rng(seed), convert

    obs_buf, act_buf, rew_buf = _column("obs"), _column("act"), _column("rew")
    obs2_buf, done_buf = _column("obs2"), _column("terminated")

    def _column(self, name):
        return self.ring.columns[name]

    @property
    def max_size(self) -> int:
        """How many transitions the buffer holds when it is full."""
        return self.ring.max_size

    @property
    def size(self) -> int:
        """How many transitions there are now; a script that fills the columns itself sets it."""
        return self.ring.size

    @size.setter
    def size(self, size: int) -> None:
        if not 0 <= size <= self.max_size:
            raise ValueError(f"size must be from 0 to max_size {self.max_size}, not {size}")
        ptr = self.ptr
        if size != self.size:  # a full buffer stays full, whatever has been overwritten
            self.ring.move_to(size if size < self.max_size else self.max_size + ptr)
        self.own_ptr = None if ptr == self.ring.ptr else ptr

    @property
    def ptr(self) -> int:
        """Where the next transition is going to stand; equal to `size` until the buffer is full."""
        return self.ring.ptr if self.own_ptr is None else self.own_ptr

    @ptr.setter
    def ptr(self, ptr: int) -> None:
        if not 0 <= ptr < self.max_size:
            raise ValueError(f"ptr must be from 0 to max_size - 1 ({self.max_size - 1}), not {ptr}")
        if self.size == self.max_size:
            self.ring.move_to(self.ring.total + (ptr - self.ring.ptr) % self.max_size)
        self.own_ptr = None if ptr == self.ring.ptr else ptr

    def __len__(self) -> int:
        return self.size

    def store(
        self,
        obs: ArrayLike,
        act: ArrayLike,
        rew: ArrayLike,
        next_obs: ArrayLike,
        done: ArrayLike,
        truncated: ArrayLike = False,
    ) -> slice | np.ndarray:
        """Add one transition, or one per environment; gives where they now are.

        done: the task terminated there
        truncated: a time limit ended the episode there, so the next row does not follow this one
        """
        if self.own_ptr is not None:
            raise ValueError(
                f"ptr is {self.ptr} and size {self.size}, but they are equal until a buffer is "
                "full. Set both."
            )
        self.num_envs = 1 if np.ndim(rew) == 0 else np.shape(rew)[0]
        return self.ring.store(self.num_envs, obs, act, rew, next_obs, done, truncated)

    def sample_indices(self, batch_size: int) -> np.ndarray:
        """Rows sampled uniformly, with replacement, from all that are filled."""
        return self.rng.integers(self.size, size=batch_size)

    def sample_batch(self, batch_size: int = 32) -> Transitions:
        """A batch of transitions, sampled uniformly from all that are stored."""
        rows = self.ring.storage.take(self.sample_indices(batch_size))
        return self.convert(Transitions(*(rows[name] for name in Transitions._fields)))

    def state_dict(self) -> dict:
        rng = self.rng.bit_generator.state
        return dict(ring=self.ring.state_dict(), num_envs=self.num_envs, rng=rng)

    def load_state_dict(self, state: dict) -> None:
        self.ring.load_state_dict(state["ring"])
        self.num_envs = state["num_envs"] if "num_envs" in state else state["stride"]  # as earlier
        self.rng.bit_generator.state = state["rng"]


class NStepReplayBuffer(ReplayBuffer):
    """A replay buffer with n-step transitions, sampled uniformly or by priority."""

    def __init__(
        self,
        *args: Any,
        n_step: int = 1,
        gamma: float = 0.99,
        priority_exponent: float | None = None,
        **kwargs: Any,
    ):
        """Allocate the buffer as a ReplayBuffer does.

        n_step: how many steps a transition spans, if its episode lasts so long
        gamma: discount factor, what a reward one step later is worth
        priority_exponent: how far the TD error decides how often a row is sampled: 0 not at all,
            1 in proportion to it; None samples uniformly
        """
        super().__init__(*args, **kwargs)
        self.n_step, self.gamma = int(n_step), float(gamma)
        self.priorities: Priorities | None = None
        self.one_step = np.asarray(gamma, np.float32)  # the discount of them all, where n_step is 1
        if priority_exponent is not None:
            self.priorities = Priorities(self.ring.max_size, priority_exponent)

    def store(self, *transition: Any, **truncated: Any) -> slice | np.ndarray:
        where = super().store(*transition, **truncated)
        if self.priorities is not None:
            rows = np.arange(where.start, where.stop) if isinstance(where, slice) else where
            self.priorities.add(rows, self.size)
        return where

    def sample_batch(  # type: ignore[override]  # a batch with more columns
        self, batch_size: int = 32, importance_exponent: float = 1.0
    ) -> NStepTransitions:
        """A batch of n-step transitions.

        importance_exponent: how far importance weights make up for sampling some rows more often
            than others, by counting them less in the loss: 0 not at all, 1 fully
        """
        weight: np.ndarray
        if self.priorities is None:
            rows = self.sample_indices(batch_size)
            weight = np.empty(batch_size, np.float32)
            weight.fill(1 / batch_size)
        else:
            rows, probability = self.priorities.sample(batch_size, self.rng)
            weight = (self.size * probability) ** -importance_exponent
            weight /= weight.max() * batch_size
        columns = *self.n_step_returns(rows), weight, rows
        return self.convert(NStepTransitions(*columns))

    def update_priorities(self, rows: ArrayLike, errors: ArrayLike) -> None:
        """Set the priorities of the rows of a batch by the TD errors that an update found."""
        if self.priorities is None:
            raise ValueError("This buffer has no priorities; make it with priority_exponent.")
        self.priorities.update(np.asarray(rows), np.asarray(errors))

    def n_step_returns(self, rows: np.ndarray) -> tuple:
        """The transitions that begin at `rows`: obs, act, rew, obs2, terminated, discount."""
        first = self.ring.storage.take(rows)
        if self.n_step == 1:
            return *(first[name] for name in Transitions._fields), self.one_step
        size, total, column = self.ring.max_size, self.ring.total, self.ring.columns
        number = total - 1 - (total - 1 - rows) % size  # in the order in which they were stored
        rew, discount = first["rew"].astype(np.float64), np.full(len(rows), float(self.gamma))
        for _ in range(self.n_step - 1):
            here, there = number % size, (number + self.num_envs) % size
            over = (column["terminated"][here] > 0) | (column["truncated"][here] > 0)
            # A resumed run may start a new episode without having marked the end of the old one.
            joined = (column["obs2"][here] == column["obs"][there]).reshape(len(rows), -1).all(1)
            # Where a row stops here, the next pass of this loop finds the same, and stops again.
            continues = ~over & (number + self.num_envs < total) & joined
            number = number + self.num_envs * continues
            rew += continues * discount * column["rew"][there]
            discount = np.where(continues, discount * self.gamma, discount)
        last = self.ring.storage.take(number % size)
        return first["obs"], first["act"], rew, last["obs2"], last["terminated"], discount

    def state_dict(self) -> dict:
        # Priorities of old rows change, so the log, which is only appended to, cannot keep them:
        # they are saved whole, at four bytes a row.
        priorities = None if self.priorities is None else self.priorities.state_dict()
        return dict(super().state_dict(), priorities=priorities)

    def load_state_dict(self, state: dict) -> None:
        super().load_state_dict(state)
        if self.priorities is not None:
            self.priorities.load_state_dict(state["priorities"])


class SegmentBuffer:
    """The last `size` steps of `num_envs` environments, kept and sampled `n_steps` in a row."""

    def __init__(
        self,
        obs_dim: Any,
        num_actions: int,
        size: int,
        n_steps: int,
        num_envs: int = 1,
        seed: Any = 0,
        obs_dtype: Any = np.float32,
        convert: Callable = _unchanged,
    ):
        """Allocate the buffer.

        size: how many steps to keep before the oldest segment is overwritten
        convert: turns a batch of arrays into what a backend needs
        """
        n_steps, num_envs = int(n_steps), int(num_envs)
        if size < n_steps * num_envs:
            raise UserError(
                f"replay_size is {size}, but one segment of every environment is already "
                f"{n_steps * num_envs} steps. Make it at least that, or n_steps smaller."
            )
        obs, number = (combined_shape(n_steps, obs_dim), obs_dtype), (n_steps, np.float32)
        fields = dict(obs=obs, act=(n_steps, np.int64), rew=number, obs2=obs, terminated=number)
        fields |= dict(truncated=number, logp=((n_steps, num_actions), np.float32))
        self.ring = Ring(size // n_steps, **fields)  # a row is a whole segment
        self.pending = {
            name: np.zeros(combined_shape(num_envs, shape), dtype)
            for name, (shape, dtype) in fields.items()
        }
        self.steps = 0  # how many steps the pending segments have so far
        self.n_steps, self.num_envs = n_steps, num_envs
        self.rng, self.convert = np.random.default_rng(seed), convert

    @property
    def size(self) -> int:
        """How many steps there are now in whole segments."""
        return self.ring.size * self.n_steps

    def __len__(self) -> int:
        return self.size

    def store(
        self,
        obs: ArrayLike,
        act: ArrayLike,
        rew: ArrayLike,
        next_obs: ArrayLike,
        terminated: ArrayLike,
        truncated: ArrayLike,
        logp: ArrayLike,
    ) -> bool:
        """Add one step of every environment; gives whether that completes their segments."""
        values = (obs, act, rew, next_obs, terminated, truncated, logp)
        for column, new in zip(self.pending.values(), values):
            column[:, self.steps] = new
        self.steps = (self.steps + 1) % self.n_steps
        if self.steps == 0:
            self.ring.store(self.num_envs, *self.pending.values())
        return self.steps == 0

    def latest(self) -> Segments:
        """The segments completed last, one of each environment."""
        return self._batch(np.arange(self.ring.total - self.num_envs, self.ring.total))

    def sample_batch(self, segments: int) -> Segments:
        """Whole segments, sampled uniformly, with replacement, from all that are stored."""
        return self._batch(self.rng.integers(self.ring.size, size=int(segments)))

    def _batch(self, rows):
        rows = self.ring.storage.take(rows % self.ring.max_size)
        columns = (rows[name] for name in Segments._fields)
        return self.convert(Segments(*(c.reshape(-1, *c.shape[2:]) for c in columns)))

    def state_dict(self) -> dict:
        rng = self.rng.bit_generator.state
        return dict(ring=self.ring.state_dict(), pending=self.pending, steps=self.steps, rng=rng)

    def load_state_dict(self, state: dict) -> None:
        self.ring.load_state_dict(state["ring"])
        self.steps, self.rng.bit_generator.state = state["steps"], state["rng"]
        pending = state["pending"] if "pending" in state else state["begun"]  # as earlier
        for name, column in self.pending.items():
            column[:] = pending[name]


class GAEBuffer:
    """One rollout of one environment or of many, and its advantages (GAE-lambda).

    `obs_buf`, `rew_buf`, `adv_buf` and so on are views that a script may change in place: one row
    per step, of one environment as in the original, of several with an axis for the environment.
    """

    def __init__(
        self,
        obs_dim: Any,
        act_dim: Any,
        size: int,
        gamma: float = 0.99,
        lam: float = 0.95,
        num_envs: int = 1,
        obs_dtype: Any = np.float32,
        act_dtype: Any = np.float32,
        convert: Callable = _unchanged,
    ):
        """Allocate the buffer.

        size: how many steps of each environment
        convert: turns a rollout of arrays into what a backend needs
        """
        self.convert = convert
        kinds = dict(obs=(obs_dim, obs_dtype), act=(act_dim, act_dtype))
        kinds |= dict.fromkeys(("rew", "val", "logp", "adv", "ret"), ((), np.float32))
        self.columns = {}  # by step and environment
        for name, (shape, dtype) in kinds.items():
            shape = combined_shape(int(num_envs), shape)
            each = math.prod(shape) * np.dtype(dtype).itemsize
            require_memory(size * each, f"steps_per_epoch of {shown(size * num_envs)}")
            self.columns[name] = np.zeros(combined_shape(size, shape), dtype)
        self.gamma, self.lam = float(gamma), float(lam)  # NumPy's float32 would round with them
        self.max_size, self.num_envs = size, int(num_envs)
        self.ptr, self.path_starts = 0, [0] * int(num_envs)

    obs_buf, act_buf, rew_buf = _column("obs"), _column("act"), _column("rew")
    adv_buf, ret_buf = _column("adv"), _column("ret")
    val_buf, logp_buf = _column("val"), _column("logp")

    def _column(self, name):
        return self.columns[name][:, 0] if self.num_envs == 1 else self.columns[name]

    @property
    def path_start_idx(self) -> int | list[int]:
        """Where the path under way began; of several environments, a list of these."""
        return self.path_starts[0] if self.num_envs == 1 else self.path_starts

    @path_start_idx.setter
    def path_start_idx(self, start: int | list[int]) -> None:
        self.path_starts = [start] if isinstance(start, (int, np.integer)) else list(start)

    def store(
        self, obs: ArrayLike, act: ArrayLike, rew: ArrayLike, val: ArrayLike, logp: ArrayLike
    ) -> None:
        """Add one step of every environment."""
        if self.ptr >= self.max_size:
            raise IndexError("the rollout is full: call get() before storing more")
        values = dict(obs=obs, act=act, rew=rew, val=val, logp=logp)
        for name, value in values.items():
            self.columns[name][self.ptr] = value
        self.ptr += 1

    def finish_path(self, last_val: ArrayLike = 0, env: int = 0) -> None:
        """Compute the advantages of the path of environment `env` that ends here.

        last_val: the value of the state the path led to; 0 if the task terminated there. Where a
            time limit or the end of the rollout cut the path off, it stands for later rewards.
        """
        path, columns = (slice(self.path_starts[env], self.ptr), env), self.columns
        rew, val = (np.append(columns[name][path], last_val) for name in ("rew", "val"))
        delta = rew[:-1] + self.gamma * val[1:] - val[:-1]
        columns["adv"][path] = discount_cumsum(delta, self.gamma * self.lam)
        columns["ret"][path] = discount_cumsum(rew, self.gamma)[:-1]
        self.path_starts[env] = self.ptr

    def get(self) -> Rollout:
        """The whole rollout, advantages normalised over all processes; empties the buffer."""
        if self.ptr < self.max_size or set(self.path_starts) != {self.max_size}:
            raise IndexError("the rollout is not complete: store every step, finish every path")
        self.ptr, self.path_starts = 0, [0] * self.num_envs
        adv = self.columns["adv"]
        mean, std = mpi_statistics_scalar(adv)
        adv[:] = (adv - mean) / (std + 1e-8)
        columns = (self.columns[name] for name in Rollout._fields)
        # Copied, for the buffer fills again while a caller may still hold the rollout.
        return self.convert(Rollout(*(c.reshape(-1, *c.shape[2:]).copy() for c in columns)))
