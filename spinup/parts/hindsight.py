"""Hindsight experience replay: a replay buffer that replaces goals, and where the goals lie."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, MultiBinary, flatdim
from numpy.typing import ArrayLike

from spinup.parts.buffers import ReplayBuffer, Transitions
from spinup.parts.envs import VectorEnv
from spinup.parts.errors import UserError
from spinup.parts.settings import check

NOT_YET = np.iinfo(np.int64).max  # the last row of an episode that has not ended


class GoalLayout(NamedTuple):
    """Where the goals lie in a flat observation, and what reaching one is worth."""

    achieved: slice
    desired: slice
    rewards: Callable  # of a batch of goals achieved and of goals desired, one row each
    terminations: Callable | None  # the same: is the task over? None: goals do not decide that


def goal_layout(env: VectorEnv) -> GoalLayout:
    """The layout of a goal environment's observations; any other environment is refused."""
    first = env.envs[0]
    inner = first.env if isinstance(first, gym.wrappers.FlattenObservation) else first
    space = inner.observation_space
    spaces = space.spaces if isinstance(space, Dict) else {}
    known = {"observation", "achieved_goal", "desired_goal"} <= set(spaces)
    if not known or not first.has_wrapper_attr("compute_reward"):
        raise UserError(
            "her needs a goal environment: observations that are a dict of observation, "
            f"achieved_goal and desired_goal, and a method compute_reward. {first.unwrapped} is "
            "none; use sac, td3 or dqn for others."
        )
    _refuse_changed_rewards(first)
    goals = [spaces[name] for name in ("achieved_goal", "desired_goal")]
    if not all(isinstance(g, (Box, MultiBinary)) and g.shape == goals[0].shape for g in goals):
        raise UserError(f"Both goals should be arrays of one shape, but they are {goals}.")
    sizes = [flatdim(part) for part in spaces.values()]  # they lie in this order
    where = {name: slice(end - n, end) for name, n, end in zip(spaces, sizes, np.cumsum(sizes))}
    achieved, desired = where["achieved_goal"], where["desired_goal"]
    examples = env.obs[0][achieved], env.obs[0][desired]
    compute = first.get_wrapper_attr("compute_reward")
    rewards, terminations = _for_batches(compute, goals[0], *examples), None
    if first.has_wrapper_attr("compute_terminated"):
        with suppress(UserError):  # goals alone do not decide it; what was stored must do
            compute = first.get_wrapper_attr("compute_terminated")
            terminations = _for_batches(compute, goals[0], *examples)
    return GoalLayout(achieved, desired, rewards, terminations)


def _refuse_changed_rewards(env):
    while isinstance(env, gym.Wrapper):
        if isinstance(env, gym.RewardWrapper):
            raise UserError(
                f"{type(env).__name__} changes rewards where compute_reward does not see it. "
                "Change compute_reward itself instead."
            )
        env = env.env


def _for_batches(compute, goal: gym.Space, one, other) -> Callable:
    """`compute(achieved, desired, info)` for batches of flat goals, at once where that works.

    one, other: two goals to try it with
    """

    def shaped(flat):
        return flat.reshape(-1, *goal.shape).astype(goal.dtype)

    def at_once(achieved, desired):
        infos = [{} for _ in achieved]
        return np.asarray(compute(shaped(achieved), shaped(desired), infos), np.float32)

    def row_by_row(achieved, desired):
        pairs = zip(shaped(achieved), shaped(desired))
        return np.array([np.asarray(compute(a, d, {})).item() for a, d in pairs], np.float32)

    # More rows than a goal has numbers, so that one cannot be mistaken for the other.
    times = len(one) // 4 + 1
    trial = np.stack([one, one, other, other] * times), np.stack([one, other, one, other] * times)
    try:
        expected = row_by_row(*trial)
    except Exception as error:  # whatever a function does that counts on more than goals
        raise UserError(
            f"{compute.__qualname__} cannot tell from two goals and an empty info "
            f"({type(error).__name__}: {error}), which hindsight needs: infos are not kept."
        )
    try:
        found = at_once(*trial)
    except Exception:
        return row_by_row
    return at_once if found.shape == expected.shape and np.allclose(found, expected) else row_by_row


STRATEGIES = ("future", "final", "episode")


class HindsightBuffer(ReplayBuffer):
    """A replay buffer that replaces the desired goal by an achieved one in most rows it samples.

    Any off-policy algorithm can learn from it. `store` must be given `truncated`, or an episode
    that a time limit ended would seem to continue.
    """

    def __init__(
        self, goals: GoalLayout, *args: Any, strategy: str = "future", k: float = 4, **kwargs: Any
    ):
        """Allocate the buffer; further arguments are those of `ReplayBuffer`.

        strategy: the new goal is what was achieved by a row of the same episode: a random one
            from the row itself on ('future'), the last ('final'), or any ('episode')
        k: how many rows with a new goal there are, on average, for one with its own
        """
        super().__init__(*args, **kwargs)
        check(dict(strategy=strategy, k=k), strategy=STRATEGIES)
        self.goals, self.strategy, self.share = goals, strategy, k / (k + 1)
        # First and last row of each row's episode, counted since the start.
        self.bounds: dict[str, np.ndarray] | None = None

    def store(
        self,
        obs: ArrayLike,
        act: ArrayLike,
        rew: ArrayLike,
        next_obs: ArrayLike,
        done: ArrayLike,
        truncated: ArrayLike = False,
    ) -> slice | np.ndarray:
        """Add one transition, or one of each environment, always as many; gives where they are."""
        ring, bounds = self.ring, self._bounds()
        num_envs = np.size(rew)
        if ring.total and num_envs != self.num_envs:
            raise ValueError(f"{self.num_envs} environments stored before, now {num_envs}")
        rows = ring.total + np.arange(num_envs)
        before = rows - num_envs
        continues = ~self._over(before)  # rows that were never stored: goal_indices excludes them
        where = super().store(obs, act, rew, next_obs, done, truncated)
        slots = rows % ring.max_size
        bounds["first"][slots] = np.where(continues, bounds["first"][before % ring.max_size], rows)
        bounds["last"][slots] = NOT_YET
        for row in rows[self._over(rows)]:
            first = max(bounds["first"][row % ring.max_size], ring.total - ring.size)
            bounds["last"][np.arange(row, first - 1, -num_envs) % ring.max_size] = row
        return where

    def _over(self, rows):
        """Where an episode ended, for either reason."""
        slots, columns = rows % self.ring.max_size, self.ring.columns
        return (columns["terminated"][slots] > 0) | (columns["truncated"][slots] > 0)

    def _bounds(self) -> dict[str, np.ndarray]:
        """First and last row of episodes; computed from the rows if those were read from disk."""
        if self.bounds is None:
            ring, num_envs = self.ring, self.num_envs
            self.bounds = {name: np.zeros(ring.max_size, np.int64) for name in ("first", "last")}
            for i in range(min(num_envs, ring.size)):
                rows = np.arange(ring.total - ring.size + i, ring.total, num_envs)
                over, slots = self._over(rows), rows % ring.max_size
                begins = np.append(True, over[:-1])
                first = np.maximum.accumulate(np.where(begins, rows, 0))
                last = np.minimum.accumulate(np.where(over, rows, NOT_YET)[::-1])[::-1]
                self.bounds["first"][slots], self.bounds["last"][slots] = first, last
        return self.bounds

    def goal_indices(self, slots: np.ndarray) -> np.ndarray:
        """For each row, the row whose achieved goal it is given; both as places in the ring."""
        ring, num_envs, bounds = self.ring, self.num_envs, self._bounds()
        rows = slots + (ring.total - 1 - slots) // ring.max_size * ring.max_size
        # The part of the episode that is stored: neither overwritten nor still to come.
        oldest, end = ring.total - ring.size, ring.total - num_envs
        first = np.maximum(bounds["first"][slots], oldest + (rows - oldest) % num_envs)
        last = np.minimum(bounds["last"][slots], end + (rows - end) % num_envs)
        if self.strategy == "future":
            first = rows
        elif self.strategy == "final":
            first = last
        chosen = first + num_envs * self.rng.integers((last - first) // num_envs + 1)
        return chosen % ring.max_size

    def sample_batch(self, batch_size: int = 32) -> Transitions:
        """A batch of transitions, sampled uniformly, most of them with a hindsight goal.

        That goal replaces the desired one in obs and obs2. The reward follows from it, and
        `terminated` too where the environment has `compute_terminated`.
        """
        slots = self.sample_indices(batch_size)
        rows = self.ring.storage.take(slots)  # a copy: what is stored stays as it was
        new = np.flatnonzero(self.rng.random(batch_size) < self.share)
        if len(new):
            self._relabel(rows, new, self.goal_indices(slots[new]))
        return self.convert(Transitions(*(rows[name] for name in Transitions._fields)))

    def _relabel(self, rows, new, goal_indices):
        achieved, desired, rewards, terminations = self.goals
        goal = self.ring.columns["obs2"][:, achieved][goal_indices]
        reached = rows["obs2"][new, achieved]
        rows["obs"][new, desired] = rows["obs2"][new, desired] = goal
        rows["rew"][new] = rewards(reached, goal)
        if terminations is not None:
            rows["terminated"][new] = terminations(reached, goal)

    def load_state_dict(self, state: dict) -> None:
        super().load_state_dict(state)
        self.bounds = None  # the rows themselves are still to be read
