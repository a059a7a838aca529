"""Tasks with a goal that changes from episode to episode and a reward that only says: there.

Observations are dicts of `observation`, `achieved_goal` and `desired_goal`; `compute_reward` tells
what any goal would have paid, for one pair of goals or for a batch, one row each.
"""

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary

PAPER, INK, GOAL = (250, 248, 243), (52, 64, 88), (214, 84, 60)  # the colours of an image


class BitFlip(gym.Env):
    """A row of `n` bits; each action flips one, and they should equal another row.

    Each step costs 1, the last one nothing if the bits are right then. There are as many steps as
    bits, and 2^n rows: for 40 bits, nobody flipping at random ever sees a reward.
    """

    metadata = dict(render_modes=["rgb_array"], render_fps=4)

    def __init__(self, n=8, render_mode=None):
        bits = MultiBinary(n)
        self.observation_space = Dict(observation=bits, achieved_goal=bits, desired_goal=bits)
        self.action_space = Discrete(n)
        self.n, self.render_mode = n, render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.bits, self.goal = self.np_random.integers(2, size=(2, self.n), dtype=np.int8)
        if np.array_equal(self.bits, self.goal):  # nothing to do: let one bit be wrong
            self.bits[self.np_random.integers(self.n)] ^= 1
        self.steps = 0
        return self._observation(), {}

    def step(self, action):
        self.bits[action] ^= 1
        self.steps += 1
        reward = float(self.compute_reward(self.bits, self.goal, {}))
        done = bool(self.compute_terminated(self.bits, self.goal, {}))
        info = dict(is_success=done)
        return self._observation(), reward, done, self.steps >= self.n and not done, info

    def compute_reward(self, achieved_goal, desired_goal, info):
        return self.compute_terminated(achieved_goal, desired_goal, info) - np.float32(1)

    def compute_terminated(self, achieved_goal, desired_goal, info):
        return (achieved_goal == desired_goal).all(-1)

    def _observation(self):
        bits = self.bits.copy()
        return dict(observation=bits, achieved_goal=bits, desired_goal=self.goal.copy())

    def render(self):
        """The bits as they are above the bits as they should be."""
        rows = np.stack([self.bits, self.goal]).astype(bool)
        tiles = np.where(rows[..., None], [[INK], [GOAL]], PAPER)
        image = tiles.repeat(32, 0).repeat(32, 1).astype(np.uint8)
        image[::32] = image[:, ::32] = 200
        return image


class Reach(gym.Env):
    """An arm of two links in the plane, whose tip should come to a point and stay there.

    Actions turn the two joints. Each step costs 1, unless the tip is within `tolerance` of the
    point. Nothing ends the task but the clock.
    """

    metadata = dict(render_modes=["rgb_array"], render_fps=20)
    LINKS = np.array([0.5, 0.5])
    TURN = 0.2  # radians in a step, at most

    def __init__(self, tolerance=0.1, render_mode=None):
        point = Box(-1.0, 1.0, (2,), np.float64)
        pose = Box(-1.0, 1.0, (4,), np.float64)  # cosine and sine of both angles
        self.observation_space = Dict(observation=pose, achieved_goal=point, desired_goal=point)
        self.action_space = Box(-1.0, 1.0, (2,), np.float32)
        self.tolerance, self.render_mode = tolerance, render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.angles, there = self.np_random.uniform(-np.pi, np.pi, (2, 2))
        self.goal = self._joints(there)[-1]  # a point that some pose reaches
        return self._observation(), {}

    def step(self, action):
        self.angles = self.angles + self.TURN * np.clip(action, -1, 1)
        obs = self._observation()
        reward = float(self.compute_reward(obs["achieved_goal"], self.goal, {}))
        return obs, reward, False, False, dict(is_success=reward == 0)

    def compute_reward(self, achieved_goal, desired_goal, info):
        distance = np.linalg.norm(achieved_goal - desired_goal, axis=-1)
        return (distance <= self.tolerance) - np.float32(1)

    def compute_terminated(self, achieved_goal, desired_goal, info):
        return np.zeros(np.shape(achieved_goal)[:-1], bool)

    def _joints(self, angles):
        """Where the elbow and the tip are; the second angle is counted from the first link."""
        turned = np.cumsum(angles)
        links = self.LINKS[:, None] * np.stack([np.cos(turned), np.sin(turned)], -1)
        return np.cumsum(links, 0)

    def _observation(self):
        pose = np.concatenate([np.cos(self.angles), np.sin(self.angles)])
        tip = self._joints(self.angles)[-1]
        return dict(observation=pose, achieved_goal=tip, desired_goal=self.goal.copy())

    def render(self, size=240):
        """The arm, and a disc of the size of the tolerance where its tip should be."""
        ticks = np.linspace(-1.15, 1.15, size)
        pixels = np.stack(np.meshgrid(ticks, -ticks), -1)
        image = np.full((size, size, 3), PAPER, np.uint8)
        image[np.linalg.norm(pixels - self.goal, axis=-1) <= self.tolerance] = GOAL
        elbow, tip = self._joints(self.angles)
        for start, end in ((np.zeros(2), elbow), (elbow, tip)):
            link = end - start
            along = np.clip((pixels - start) @ link / (link @ link), 0, 1)
            nearest = start + along[..., None] * link
            image[np.linalg.norm(pixels - nearest, axis=-1) < 0.035] = INK
        return image
