"""A point on a line, to be moved to the middle: a task that is learned in seconds."""

import gymnasium as gym
import numpy as np


class Point(gym.Env):
    """The observation is the place, the action a move, the reward minus the distance left."""

    observation_space = gym.spaces.Box(-10, 10, (1,), np.float32)
    action_space = gym.spaces.Box(-2, 2, (1,), np.float32)

    def _obs(self):
        return np.array([self.place], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.np_random.uniform(2, 4) * self.np_random.choice([-1, 1])
        return self._obs(), {}

    def step(self, action):
        assert self.action_space.contains(np.asarray(action, np.float32)), action
        self.place = float(np.clip(self.place + action[0], -10, 10))
        return self._obs(), -abs(self.place), False, False, {}


gym.register("Point-v0", Point, max_episode_steps=20, disable_env_checker=True)
