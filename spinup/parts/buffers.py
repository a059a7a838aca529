"""Experience in NumPy: past transitions or segments (off-policy) and one rollout (on-policy)."""

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from spinup.parts.errors import UserError, shown
from spinup.parts.memory import require_memory
from spinup.parts.mpi import mpi_statistics_scalar
from spinup.parts.prioritized import Priorities
from spinup.parts.replay_log import ReplayLog


def _item(record, key):
    """Ask a batch by a column's name, `batch["obs"]`, as scripts for the original do."""
    if isinstance(key, str):
        return getattr(record, {"done": "terminated"}.get(key, key))
    return tuple.__getitem__(record, key)


class Transitions(NamedTuple):
    """A batch of (s, a, r, s', over); one row each, arrays or the tensors of a backend."""

    obs: Any
    act: Any
    rew: Any
    obs2: Any
    terminated: Any  # 1 where the task ended, so that nothing is to be bootstrapped
    __getitem__ = _item


class NStepTransitions(NamedTuple):
    """A batch of (s, a, what k steps brought, the state after them, over), k from 1 to n."""

    obs: Any
    act: Any
    rew: Any  # the rewards of the k steps, each discounted for its delay
    obs2: Any
    terminated: Any  # 1 where the task ended with the last of them
    discount: Any  # gamma ** k, what a reward after them is worth
    weight: Any  # the share of the row in the loss; 1 / batch size where all were drawn alike
    indices: Any  # where in the buffer the first of the k steps stands
    __getitem__ = _item


class Segments(NamedTuple):
    """Runs of consecutive steps of one environment, one run behind the other; one row per step."""

    obs: Any
    act: Any
    rew: Any
    obs2: Any  # the true successor: where an episode ended, the next row is not it
    terminated: Any
    truncated: Any
    logp: Any  # log probability of *every* action when act was chosen
    __getitem__ = _item


class Rollout(NamedTuple):
    """On-policy experience with its advantages; one row per step."""

    obs: Any
    act: Any
    ret: Any  # the discounted rewards that followed
    adv: Any  # how much better the action was than the policy's average, normalised
    logp: Any  # log probability of act when it was taken
    __getitem__ = _item


def combined_shape(length, shape=None):
    """The shape of `length` things of shape `shape` (a number, a tuple, or None for numbers)."""
    if shape is None:
        return (length,)
    return (length, shape) if np.isscalar(shape) else (length, *shape)


def discount_cumsum(x, discount):
    """At each place, the sum of what stands there and later, each step later worth `discount`."""
    total, out = 0.0, []
    for value in reversed(np.asarray(x, np.float64).tolist()):
        total = value + discount * total
        out.append(total)
    return np.array(out[::-1])


class Ring:
    """A table of the last `size` rows, which is saved by appending what is new.

    Rows lie one behind the other with their fields side by side, so that drawing a batch of them
    touches memory once per row, and writing them to disk is one call.
    """

    def __init__(self, size, **fields):
        """Make room for rows.

        fields: the shape (a number, a tuple, or None for numbers) and the type of each
        """
        shaped = [(name, t, combined_shape(1, shape)[1:]) for name, (shape, t) in fields.items()]
        row = np.dtype(shaped, align=True)
        require_memory(int(size) * row.itemsize, f"replay_size {shown(size)}")
        self.storage = np.zeros(int(size), row)
        self.columns = {name: self.storage[name] for name in fields}  # views of the same memory
        self.total, self.max_size, self.log = 0, int(size), None  # total: rows since the start
        self.checksums = None  # of the files of a log that is still to be read

    @property
    def size(self) -> int:
        """How many rows there are now."""
        return min(self.total, self.max_size)

    def store(self, n: int, *values) -> slice | np.ndarray:
        """Remember `n` rows, given field by field; tells where they now are."""
        first = self.total % self.max_size
        if first + n <= self.max_size:
            where = slice(first, first + n)
        else:
            where = np.arange(first, first + n) % self.max_size
        for column, new in zip(self.columns.values(), values):
            column[where] = new
        self.total += n
        return where

    def state_dict(self):
        checksums = None if self.log is None else dict(self.log.checksums)
        return dict(total=self.total, max_size=self.max_size, checksums=checksums)

    def load_state_dict(self, state):
        self.checksums = state.get("checksums")  # the version before had none
        if state["max_size"] != self.max_size:
            raise UserError(
                f"The run was saved with replay_size {state['max_size']}, not {self.max_size}."
            )
        self.total = state["total"]

    def append_log(self, folder: Path):
        """Write the rows that are new since the last call; what was written stays as it is."""
        self.log = self.log or ReplayLog(folder, self.storage.dtype, self.max_size)
        first = max(self.log.total, self.total - self.max_size)
        # As plain bytes: copied field by field, the gaps between fields would hold anything.
        whole = self.storage.view(np.dtype((np.void, self.storage.dtype.itemsize)))
        self.log.append(first, whole[np.arange(first, self.total) % self.max_size])

    def read_log(self, folder: Path):
        """Fetch back every row that a run had when it was saved."""
        self.log = ReplayLog(folder, self.storage.dtype, self.max_size)
        for first, saved in self.log.read(self.total, self.checksums):
            self.storage[np.arange(first, first + len(saved)) % self.max_size] = saved


class ReplayBuffer:
    """The last `size` transitions of one environment or of many."""

    def __init__(
        self, obs_dim, act_dim, size, seed=0, obs_dtype=np.float32, act_dtype=np.float32,
        convert=lambda batch: batch,
    ):  # fmt: skip
        """Make room for transitions.

        obs_dim, act_dim: the shape of one observation and of one action; None for numbers
        size: how many transitions to keep before the oldest is overwritten
        convert: turns a batch of arrays into what a backend wants
        """
        number = (None, np.float32)
        self.ring = Ring(
            size, obs=(obs_dim, obs_dtype), act=(act_dim, act_dtype), rew=number,
            obs2=(obs_dim, obs_dtype), terminated=number, truncated=number,
        )  # fmt: skip
        self.num_envs = 1  # environments that store together: their rows take turns
        self.rng, self.convert = np.random.default_rng(seed), convert

    @property
    def size(self) -> int:
        """How many transitions there are now."""
        return self.ring.size

    def __len__(self):
        return self.size

    def store(self, obs, act, rew, next_obs, done, truncated=False) -> slice | np.ndarray:
        """Remember one transition, or one per environment; tells where they now are.

        done: the task terminated there
        truncated: only the clock ran out; for those who ask which rows follow each other
        """
        self.num_envs = 1 if np.ndim(rew) == 0 else len(rew)
        return self.ring.store(self.num_envs, obs, act, rew, next_obs, done, truncated)

    def sample_indices(self, batch_size) -> np.ndarray:
        """Rows drawn evenly, with repetition, from all that are filled."""
        return self.rng.integers(self.size, size=batch_size)

    def sample_batch(self, batch_size=32) -> Transitions:
        """A batch of transitions drawn evenly from all that are stored."""
        rows = self.ring.storage.take(self.sample_indices(batch_size))
        return self.convert(Transitions(*(rows[name] for name in Transitions._fields)))

    def state_dict(self):
        rng = self.rng.bit_generator.state
        return dict(ring=self.ring.state_dict(), stride=self.num_envs, rng=rng)

    def load_state_dict(self, state):
        self.ring.load_state_dict(state["ring"])
        self.num_envs, self.rng.bit_generator.state = state["stride"], state["rng"]


class NStepReplayBuffer(ReplayBuffer):
    """A replay buffer whose transitions span up to n steps and are drawn evenly or by priority."""

    def __init__(self, *args, n_step=1, gamma=0.99, priority_exponent=None, **kwargs):
        """Make room for transitions, as a ReplayBuffer does.

        n_step: how many steps a transition spans, if its episode lasts so long
        gamma: what a reward one step later is worth
        priority_exponent: how much more often to draw a row of large error; None: no more often
        """
        super().__init__(*args, **kwargs)
        self.n_step, self.gamma, self.priorities = n_step, float(gamma), None
        self.one_step = np.asarray(gamma, np.float32)  # the discount of them all, where n_step is 1
        if priority_exponent is not None:
            self.priorities = Priorities(self.ring.max_size, priority_exponent)

    def store(self, *transition, **truncated) -> slice | np.ndarray:
        where = super().store(*transition, **truncated)
        if self.priorities is not None:
            rows = np.arange(where.start, where.stop) if isinstance(where, slice) else where
            self.priorities.add(rows, self.size)
        return where

    def sample_batch(self, batch_size=32, importance_exponent=1.0) -> NStepTransitions:
        """A batch of n-step transitions.

        importance_exponent: how far to make up for drawing some rows more often than others, by
            counting them less in the loss: 0 not at all, 1 fully
        """
        if self.priorities is None:
            rows = self.sample_indices(batch_size)
            weight = np.empty(batch_size, np.float32)
            weight.fill(1 / batch_size)
        else:
            rows, probability = self.priorities.sample(batch_size, self.rng)
            weight = (self.size * probability) ** -importance_exponent
            weight /= weight.max() * batch_size
        return self.convert(NStepTransitions(*self.n_step_returns(rows), weight, rows))

    def update_priorities(self, rows, errors):
        """Note the errors that an update has found in the rows of its batch."""
        self.priorities.update(np.asarray(rows), np.asarray(errors))

    def n_step_returns(self, rows) -> tuple:
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
            # A resumed run may begin an episode anew without having marked the end of the old one.
            joined = (column["obs2"][here] == column["obs"][there]).reshape(len(rows), -1).all(1)
            # Where a row goes no further now, the next turn finds the same: it stays there.
            go_on = ~over & (number + self.num_envs < total) & joined
            number = number + self.num_envs * go_on
            rew += go_on * discount * column["rew"][there]
            discount = np.where(go_on, discount * self.gamma, discount)
        last = self.ring.storage.take(number % size)
        return first["obs"], first["act"], rew, last["obs2"], last["terminated"], discount

    def state_dict(self):
        # Priorities of old rows change, so the log, which is only appended to, cannot keep them:
        # they are saved whole, at four bytes a row.
        priorities = None if self.priorities is None else self.priorities.state_dict()
        return dict(super().state_dict(), priorities=priorities)

    def load_state_dict(self, state):
        super().load_state_dict(state)
        if self.priorities is not None:
            self.priorities.load_state_dict(state["priorities"])


class SegmentBuffer:
    """The last `size` steps of `num_envs` environments, kept and drawn `n_steps` in a row."""

    def __init__(
        self, obs_dim, num_actions, size, n_steps, num_envs=1, seed=0, obs_dtype=np.float32,
        convert=lambda batch: batch,
    ):  # fmt: skip
        """Make room for segments.

        size: how many steps to keep before the oldest segment is overwritten
        convert: turns a batch of arrays into what a backend wants
        """
        num_envs = int(num_envs)
        if size < n_steps * num_envs:
            raise UserError(
                f"replay_size is {size}, but one segment of every environment is already "
                f"{n_steps * num_envs} steps. Make it at least that, or n_steps smaller."
            )
        obs, number = (combined_shape(n_steps, obs_dim), obs_dtype), (n_steps, np.float32)
        fields = dict(
            obs=obs, act=(n_steps, np.int64), rew=number, obs2=obs, terminated=number,
            truncated=number, logp=((n_steps, num_actions), np.float32),
        )  # fmt: skip
        self.ring = Ring(size // n_steps, **fields)  # a row is a whole segment
        self.pending = {
            name: np.zeros(combined_shape(num_envs, shape), dtype)
            for name, (shape, dtype) in fields.items()
        }
        self.steps = 0  # how many of the segments just begun there are
        self.n_steps, self.num_envs = n_steps, num_envs
        self.rng, self.convert = np.random.default_rng(seed), convert

    @property
    def size(self) -> int:
        """How many steps there are now in whole segments."""
        return self.ring.size * self.n_steps

    def __len__(self):
        return self.size

    def store(self, obs, act, rew, next_obs, terminated, truncated, logp) -> bool:
        """Remember one step of every environment; tells whether that completes their segments."""
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
        """Whole segments drawn evenly, with repetition, from all that are stored."""
        return self._batch(self.rng.integers(self.ring.size, size=segments))

    def _batch(self, rows):
        rows = self.ring.storage.take(rows % self.ring.max_size)
        columns = (rows[name] for name in Segments._fields)
        return self.convert(Segments(*(c.reshape(-1, *c.shape[2:]) for c in columns)))

    def state_dict(self):
        rng = self.rng.bit_generator.state
        return dict(ring=self.ring.state_dict(), begun=self.pending, steps=self.steps, rng=rng)

    def load_state_dict(self, state):
        self.ring.load_state_dict(state["ring"])
        self.steps, self.rng.bit_generator.state = state["steps"], state["rng"]
        for name, column in self.pending.items():
            column[:] = state["begun"][name]


class GAEBuffer:
    """One rollout of one environment or of many, and its generalised advantages (GAE-lambda)."""

    def __init__(
        self, obs_dim, act_dim, size, gamma=0.99, lam=0.95, num_envs=1,
        obs_dtype=np.float32, act_dtype=np.float32,
    ):  # fmt: skip
        """Make room for a rollout.

        size: how many steps of each environment
        """
        kinds = dict(obs=(obs_dim, obs_dtype), act=(act_dim, act_dtype))
        kinds |= dict.fromkeys(("rew", "val", "logp", "adv", "ret"), ((), np.float32))
        for name, (shape, dtype) in kinds.items():
            shape = combined_shape(int(num_envs), shape)
            each = math.prod(shape) * np.dtype(dtype).itemsize
            require_memory(size * each, f"steps_per_epoch of {shown(size * num_envs)}")
            setattr(self, f"{name}_buf", np.zeros(combined_shape(size, shape), dtype))
        self.gamma, self.lam = float(gamma), float(lam)  # NumPy's float32 would round with them
        self.max_size, self.num_envs = size, int(num_envs)
        self.ptr, self.path_start = 0, [0] * int(num_envs)

    def store(self, obs, act, rew, val, logp):
        """Remember one step of every environment."""
        if self.ptr >= self.max_size:
            raise IndexError("the rollout is full: call get() before storing more")
        self.obs_buf[self.ptr], self.act_buf[self.ptr] = obs, act
        self.rew_buf[self.ptr], self.val_buf[self.ptr], self.logp_buf[self.ptr] = rew, val, logp
        self.ptr += 1

    def finish_path(self, last_val=0, env=0):
        """Compute the advantages of the path of environment `env` that ends here.

        last_val: the value of the state the path led to; 0 if the task terminated there. Where
            only the clock ran out, or the rollout, it stands for the rewards that were cut off.
        """
        path = slice(self.path_start[env], self.ptr), env
        rew, val = (np.append(x[path], last_val) for x in (self.rew_buf, self.val_buf))
        delta = rew[:-1] + self.gamma * val[1:] - val[:-1]
        self.adv_buf[path] = discount_cumsum(delta, self.gamma * self.lam)
        self.ret_buf[path] = discount_cumsum(rew, self.gamma)[:-1]
        self.path_start[env] = self.ptr

    def get(self) -> Rollout:
        """The whole rollout, advantages normalised over all processes; empties the buffer."""
        if self.ptr < self.max_size or set(self.path_start) != {self.max_size}:
            raise IndexError("the rollout is not complete: store every step, finish every path")
        self.ptr, self.path_start = 0, [0] * self.num_envs
        mean, std = mpi_statistics_scalar(self.adv_buf)
        self.adv_buf[:] = (self.adv_buf - mean) / (std + 1e-8)
        columns = (self.obs_buf, self.act_buf, self.ret_buf, self.adv_buf, self.logp_buf)
        return Rollout(*(c.reshape(-1, *c.shape[2:]) for c in columns))
