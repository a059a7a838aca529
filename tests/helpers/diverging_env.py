"""An environment that diverges: at a step of its choice it gives NaN or infinity."""

import gymnasium as gym
import numpy as np

from spinup.parts.mpi import proc_id


class Diverging(gym.Env):
    """Random observations, their sum as the reward, episodes of 20 steps.

    at: the step, counted over all episodes, at which it breaks; None: never
    what: observation, reward, or reset (the first observation of the next episode)
    rank: break only in this process of several
    """

    def __init__(self, at=None, what="reward", value="nan", discrete=False, rank=None, length=20):
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (3,))
        self.action_space = gym.spaces.Discrete(2) if discrete else gym.spaces.Box(-1, 1, (2,))
        self.at = at if rank in (None, proc_id()) else None
        self.what, self.value, self.length, self.count = what, float(value), length, 0

    def _breaks(self, what):
        return what == self.what and self.at is not None and self.count == self.at

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.full(3, self.value if self._breaks("reset") else 0.1, np.float32), {}

    def step(self, action):
        self.t, self.count = self.t + 1, self.count + 1
        obs = self.np_random.normal(size=3).astype(np.float32)
        reward = self.value if self._breaks("reward") else float(obs.sum())
        if self._breaks("observation"):
            obs[1] = self.value
        return obs, reward, self.t == self.length, False, {}


gym.register("Diverging-v0", Diverging)
