"""DDPG's networks: a policy that gives one action, within bounds, and a critic."""

import numpy as np
import torch
from gymnasium.spaces import Box
from torch import nn

from spinup.parts.buffers import combined_shape
from spinup.parts.pytorch.architecture import records_architecture
from spinup.parts.pytorch.bounded_policies import MLPActor, action_limits
from spinup.parts.pytorch.critics import MLPQFunction
from spinup.parts.pytorch.layers import count_vars, mlp
from spinup.parts.spaces import refuse_images, require_actions


@records_architecture
class MLPActorCritic(nn.Module):
    """A policy `pi` and a critic `q`."""

    def __init__(
        self, observation_space, action_space, hidden_sizes=(256, 256), activation=nn.ReLU
    ):
        super().__init__()
        refuse_images(observation_space, "ddpg")
        require_actions(action_space, (Box,), "ddpg", "For discrete actions use dqn or ppo.")
        obs_dim, act_dim = observation_space.shape, int(np.prod(action_space.shape))
        self.pi = MLPActor(
            obs_dim, act_dim, hidden_sizes, activation, **action_limits(action_space)
        )
        self.q = MLPQFunction(obs_dim, act_dim, hidden_sizes, activation)

    def act(self, obs, deterministic=True):
        """The policy's action, as an array; noise is the training loop's business."""
        return self.pi.act(obs)
