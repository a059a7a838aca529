"""`VectorEnv`: n copies of an environment stepped together, each reset when its episode ends."""

import copy
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import ArrayLike

from spinup.parts.adapted_env import five_values, obs_and_info
from spinup.parts.divergence import DivergenceCheck, all_finite, first_not_finite, kind_of
from spinup.parts.errors import UserError
from spinup.parts.seeds import SeedSequence, derive, generator_state
from spinup.parts.spaces import clip_to_space
from spinup.parts.standardize import refuse_shared, reward_number, standardize

LARGEST = float(np.finfo(np.float32).max)  # a reward beyond it would be infinite as float32


class Episode(NamedTuple):
    """What is recorded of an episode that has ended."""

    ret: float  # its return, undiscounted: the sum of its rewards
    length: int
    success: float | None = None  # whether the goal was reached, of environments that say so


class Step(NamedTuple):
    """One joint step of all environments; every array has one row per environment."""

    obs2: np.ndarray  # the true successor, also where an episode ended
    rew: np.ndarray
    terminated: np.ndarray  # the task is over: the value of the successor is zero
    truncated: np.ndarray  # only a time limit was reached: the value of the successor counts
    ended: list[int]  # the environments whose episode ended here, for either reason
    episodes: list[Episode]  # those episodes


class VectorEnv:
    """`n` environments that step together. Act on `obs`; learn from what `step` returns.

    What it promises:

    - `obs` is what to act on next, one row per environment. Where an episode ended, it is the
      first observation of the next one; the environment has been reset already.
    - `step` returns the true successor `obs2`, also where an episode ended.
    - `terminated` and `truncated` are kept apart. The task of a terminated episode is over, so
      the value of its successor is zero. A truncated one only reached a time limit, its own or
      `max_ep_len`, so the value of its successor counts.
    - Equal seeds give equal episodes. Each episode of each environment has a seed of its own.
    - Actions are given as a policy has them, flat and counted from zero, and reach the
      environment in the form and within the bounds of its space. Observations are arrays: float32,
      or uint8 where the space is.
    - The current state can be saved whatever simulator is inside. The seed of an episode and its
      actions determine it, so `state_dict` holds those, and `load_state_dict` replays them.
    """

    def __init__(
        self,
        env_fn: Callable,
        n: int = 1,
        seed: int | SeedSequence = 0,
        max_ep_len: int | None = None,
        apart_from: "VectorEnv | None" = None,
    ):
        """Make `n` environments and begin an episode in each.

        apart_from: environments that are in use; `env_fn` must not give one of them again
        """
        n = int(n)  # for it may be 2.0, or NumPy's
        self.envs = [standardize(env_fn()) for _ in range(n)]
        refuse_shared(self.envs, apart_from.envs if apart_from else ())
        first: Any = self.envs[0]
        self.observation_space: Box = first.observation_space
        # A copy: its random stream is ours alone.
        self.action_space: Any = copy.deepcopy(first.action_space)
        self.max_ep_len = np.inf if max_ep_len is None else max_ep_len
        self.is_uint8 = self.observation_space.dtype == np.uint8  # kept so, a quarter of the size
        self.obs_dtype = np.dtype(np.uint8 if self.is_uint8 else np.float32)
        self.obs_shape = self.observation_space.shape
        self.seeds = [np.random.default_rng(derive(seed, 0, i)) for i in range(n)]
        self.action_space.np_random.bit_generator.state = generator_state(derive(seed, 1))
        self.divergence_check = DivergenceCheck()  # a checkpoint puts that of the run in its place
        self.reset()

    def __len__(self):
        return len(self.envs)

    def reset(self) -> None:
        """Begin a new episode everywhere."""
        self.obs = np.empty((len(self), *self.observation_space.shape), self.obs_dtype)
        self.episode_seeds = [0] * len(self)
        self.actions: list[list[np.ndarray]] = [[] for _ in self.envs]
        self.returns, self.lengths = [0.0] * len(self), [0] * len(self)
        for i in range(len(self)):
            self._begin_episode(i)

    def _begin_episode(self, i):
        # A seed for every episode, not one for all: then also a simulator that keeps its
        # randomness to itself begins an episode the same way twice.
        self.episode_seeds[i] = int(self.seeds[i].integers(2**31))
        self.obs[i] = self._reset(i)
        self.actions[i], self.returns[i], self.lengths[i] = [], 0.0, 0
        if not all_finite(self.obs[i]):
            kind = kind_of(self.obs[i])
            self.divergence_check.stop_for_environment(
                f"the first observation of environment {i} is {kind}", self
            )

    def _reset(self, i):
        """The first observation of the episode that this environment's seed stands for."""
        env = self.envs[i]
        try:
            found = env.reset(seed=self.episode_seeds[i])
        except TypeError as error:
            if "unexpected keyword argument 'seed'" not in str(error):
                raise
            raise UserError(
                f"{env.unwrapped} does not take reset(seed=…), but a wrapper of Gymnasium around "
                "it gives it a seed. Take the wrapper off, or add seed=None and options=None to "
                "reset."
            )
        return self._observation(obs_and_info(env, found)[0])

    def _observation(self, obs):
        """An observation in the shape of its space; NumPy would spread too few numbers silently."""
        obs = np.asarray(obs)
        if self.is_uint8 and obs.dtype != np.uint8:
            self._require_bytes(obs)
        if obs.shape == self.obs_shape:
            return obs
        if obs.size != np.prod(self.obs_shape):
            raise UserError(
                f"{self.envs[0].unwrapped} gave an observation of shape {obs.shape}, but its "
                f"observation_space says {self.obs_shape}. Make them agree."
            )
        return obs.reshape(self.obs_shape)

    def _require_bytes(self, obs):
        """Refuse numbers that a byte cannot hold: NaN, fractions, or anything outside 0 to 255."""
        with np.errstate(invalid="ignore"):
            lost = obs != obs.astype(np.uint8)
        if lost.any():
            raise UserError(
                f"{self.envs[0].unwrapped} gave an observation with {obs[lost][0]} in it, but its "
                "observation_space is of uint8, integers from 0 to 255. Make them agree."
            )

    def sample_actions(self) -> np.ndarray:
        """A random action for each environment: a number counted from 0, or a flat vector."""
        samples = np.array([self.action_space.sample() for _ in self.envs])
        if isinstance(self.action_space, Box):
            return samples.reshape(len(self), -1)
        return samples - self.action_space.start

    def step(self, actions: ArrayLike) -> Step:
        """Step every environment; a continuous action outside its bounds is moved to them."""
        n, actions = len(self), self._within_space(np.asarray(actions))
        obs2 = np.empty((n, *self.obs_shape), self.obs_dtype)
        rew, terminated = np.empty(n, np.float32), np.empty(n, bool)
        truncated, ended, episodes = np.empty(n, bool), [], []
        kept = actions.copy()  # for an environment may write into its own
        for i, env in enumerate(self.envs):
            self.lengths[i] += 1
            self.actions[i].append(kept[i])
            result = env.step(actions[i])
            if len(result) != 5:
                result = five_values(env, result)
            obs, reward, over, timeout, info = result
            obs2[i], reward = self._observation(obs), reward_number(env, reward)
            if not -LARGEST <= reward <= LARGEST:  # NaN is neither
                self._stop_for_reward(i, reward)
            rew[i], terminated[i] = reward, over
            truncated[i] = timeout or self.lengths[i] >= self.max_ep_len
            self.returns[i] += reward
            if terminated[i] or truncated[i]:
                ended.append(i)
                episodes.append(Episode(self.returns[i], self.lengths[i], _success(info)))
        if not all_finite(obs2):
            self._stop_for_observation(obs2)
        self.obs = obs2
        if ended:
            self.obs = obs2.copy()
            for i in ended:
                self._begin_episode(i)
        return Step(obs2, rew, terminated, truncated, ended, episodes)

    def _within_space(self, actions: np.ndarray) -> np.ndarray:
        if not all_finite(actions):
            rows = actions.reshape(len(self), -1)
            i = first_not_finite(rows)
            what = f"the action for environment {i} is {kind_of(rows[i])}"
            self.divergence_check.stop_for_action(what, self)
        return clip_to_space(self.action_space, actions)

    def _stop_for_reward(self, i, reward):
        kind = "NaN" if reward != reward else "infinite"
        what = f"the reward of environment {i} is {kind}"
        self.divergence_check.stop_for_environment(what, self)

    def _stop_for_observation(self, obs2):
        i = first_not_finite(obs2)
        what = f"the observation of environment {i} is {kind_of(obs2[i])}"
        self.divergence_check.stop_for_environment(what, self)

    def close(self) -> None:
        for env in self.envs:
            env.close()

    def state_dict(self) -> dict:
        return dict(
            seeds=[rng.bit_generator.state for rng in self.seeds],
            sampler=self.action_space.np_random.bit_generator.state,
            episode_seeds=list(self.episode_seeds),
            actions=[np.array(actions) for actions in self.actions],
            obs=self.obs,
            returns=np.array(self.returns),
            lengths=np.array(self.lengths),
        )

    def load_state_dict(self, state: dict) -> None:
        self.action_space.np_random.bit_generator.state = state["sampler"]
        self.obs = np.empty_like(self.obs)
        for i, env in enumerate(self.envs):
            self.seeds[i].bit_generator.state = state["seeds"][i]
            self.episode_seeds[i], self.actions[i] = state["episode_seeds"][i], []
            self.returns[i] = float(state["returns"][i])
            self.lengths[i] = int(state["lengths"][i])
            if not self._replay(i, state["actions"][i], state["obs"][i], state["returns"][i]):
                print(
                    f"Environment {i} did not come back to where it was when its actions were "
                    "played again, for it has hidden state or randomness of its own. It begins a "
                    "new episode; from here on the run differs from one never stopped."
                )
                self._begin_episode(i)

    def _replay(self, i, actions, obs, ep_ret) -> bool:
        """Play an episode again up to where it was; tells whether that led to the same place."""
        self.obs[i], over, total = self._reset(i), False, 0.0
        for action in actions:
            if over:
                return False
            self.actions[i].append(action)
            result = five_values(self.envs[i], self.envs[i].step(action.copy()))
            found, reward, terminated, truncated, _ = result
            self.obs[i] = self._observation(found)
            total += reward_number(self.envs[i], reward)
            over = terminated or truncated
        return not over and total == ep_ret and self.obs[i].tobytes() == obs.tobytes()


def _success(info) -> float | None:
    """Whether an episode reached its goal; simulators have two names for it."""
    info = info or {}  # of some environments without a base class it is None
    told = info.get("is_success", info.get("success"))
    return None if told is None else float(told)


def evaluate(env: VectorEnv, policy: Callable, episodes: int) -> Iterator[Episode]:
    """Yield `episodes` whole episodes (`Episode`) of `policy` from fresh starts."""
    episodes = int(episodes)
    if episodes:
        env.reset()
    while episodes > 0:
        for episode in env.step(policy(env.obs)).episodes[:episodes]:
            episodes -= 1
            yield episode
