"""ACER's networks: a policy, and the value of every action."""

import numpy as np
import torch
from gymnasium.spaces import Discrete
from torch import nn

from spinup.parts.pytorch.architecture import records_architecture
from spinup.parts.pytorch.layers import apply_to_arrays, count_vars, mlp, observation_mlp
from spinup.parts.pytorch.networks import sample_categorical
from spinup.parts.spaces import refuse_images, require_actions


@records_architecture
class MLPActorCritic(nn.Module):
    """`pi(obs)` gives the policy's logit of each action, `q(obs)` the value of each."""

    def __init__(self, observation_space, action_space, hidden_sizes=(64, 64), activation=nn.Tanh):
        super().__init__()
        refuse_images(observation_space, "acer")
        require_actions(action_space, (Discrete,), "acer", "For continuous actions use sac or ppo.")
        sizes = [*hidden_sizes, int(action_space.n)]
        self.pi = observation_mlp(observation_space.shape, sizes, activation)
        self.q = observation_mlp(observation_space.shape, sizes, activation)

    def step(self, obs):
        """An action sampled from the policy, and the log probability of every action, as arrays."""
        return sample_categorical(apply_to_arrays(self.pi, obs))

    def act(self, obs, deterministic=False):
        """An action sampled from the policy, or the most probable one."""
        return apply_to_arrays(self.pi, obs).argmax(-1) if deterministic else self.step(obs)[0]
