"""HalfCheetah that notes when it is stepped first: `--env first_step:FirstStep-v0`.

The time is written to the file that the environment variable FIRST_STEP names.
"""

import os
import time
from pathlib import Path

import gymnasium as gym


def make(**kwargs):
    env = gym.make("HalfCheetah-v5", **kwargs).unwrapped
    step, noted = env.step, Path(os.environ["FIRST_STEP"])

    def first(action):
        noted.write_text(str(time.time()))
        env.step = step
        return step(action)

    env.step = first
    return env


gym.register("FirstStep-v0", entry_point=make, max_episode_steps=1000)
