"""Goals: where they lie in an observation, and a replay buffer that changes them in hindsight."""

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

NOT_YET = np.iinfo(np.int64).max  # the last row of an episode that is still going on


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
    """A replay buffer that pretends, for most of what it gives, that what was reached was meant.

    Any off-policy algorithm can learn from it. It must tell `store` where the clock ran out
    (`truncated`), or episodes would seem to go on.
    """

    def __init__(
        self, goals: GoalLayout, *args: Any, strategy: str = "future", k: float = 4, **kwargs: Any
    ):
        """Make room for transitions; further arguments are those of `ReplayBuffer`.

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
        """Remember one transition, or one of each environment, always as many; tells where."""
        ring, bounds = self.ring, self._bounds()
        stride = np.size(rew)
        if ring.total and stride != self.num_envs:
            raise ValueError(f"{self.num_envs} environments stored before, now {stride}")
        rows = ring.total + np.arange(stride)
        before = rows - stride
        goes_on = ~self._over(before)  # or never began: no matter, goal_indices asks what is there
        where = super().store(obs, act, rew, next_obs, done, truncated)
        slots = rows % ring.max_size
        bounds["first"][slots] = np.where(goes_on, bounds["first"][before % ring.max_size], rows)
        bounds["last"][slots] = NOT_YET
        for row in rows[self._over(rows)]:
            first = max(bounds["first"][row % ring.max_size], ring.total - ring.size)
            bounds["last"][np.arange(row, first - 1, -stride) % ring.max_size] = row
        return where

    def _over(self, rows):
        """Where an episode ended, for either reason."""
        slots, columns = rows % self.ring.max_size, self.ring.columns
        return (columns["terminated"][slots] > 0) | (columns["truncated"][slots] > 0)

    def _bounds(self) -> dict[str, np.ndarray]:
        """What is known of episodes; found out from the rows again when those were read back."""
        if self.bounds is None:
            ring, stride = self.ring, self.num_envs
            self.bounds = {name: np.zeros(ring.max_size, np.int64) for name in ("first", "last")}
            for i in range(min(stride, ring.size)):
                rows = np.arange(ring.total - ring.size + i, ring.total, stride)
                over, slots = self._over(rows), rows % ring.max_size
                begins = np.append(True, over[:-1])
                first = np.maximum.accumulate(np.where(begins, rows, 0))
                last = np.minimum.accumulate(np.where(over, rows, NOT_YET)[::-1])[::-1]
                self.bounds["first"][slots], self.bounds["last"][slots] = first, last
        return self.bounds

    def goal_indices(self, slots: np.ndarray) -> np.ndarray:
        """For each row the one whose achieved goal it is given; both as places in the ring."""
        ring, stride, bounds = self.ring, self.num_envs, self._bounds()
        rows = slots + (ring.total - 1 - slots) // ring.max_size * ring.max_size
        # What of an episode there is: not what has been overwritten, nor what is still to come.
        oldest, end = ring.total - ring.size, ring.total - stride
        first = np.maximum(bounds["first"][slots], oldest + (rows - oldest) % stride)
        last = np.minimum(bounds["last"][slots], end + (rows - end) % stride)
        if self.strategy == "future":
            first = rows
        elif self.strategy == "final":
            first = last
        chosen = first + stride * self.rng.integers((last - first) // stride + 1)
        return chosen % ring.max_size

    def sample_batch(self, batch_size: int = 32) -> Transitions:
        """A batch of transitions drawn evenly, most of them with a goal of hindsight.

        That goal takes the place of the desired one, before and after; the reward, and where the
        environment can tell whether the task is over, follow from it.
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
