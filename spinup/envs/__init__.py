"""Small environments of our own, to learn with; `--env spinup/BitFlip-v0` finds them."""

import gymnasium as gym

gym.register("spinup/BitFlip-v0", "spinup.envs.goals:BitFlip")
gym.register("spinup/Reach-v0", "spinup.envs.goals:Reach", max_episode_steps=50)
