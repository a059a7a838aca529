"""TD3's networks: a policy that gives one action, within bounds, and two critics."""

import numpy as np
import torch
from gymnasium.spaces import Box
from torch import nn

from spinup.parts.buffers import combined_shape
from spinup.parts.pytorch.architecture import records_architecture
from spinup.parts.pytorch.bounded_policies import MLPActor, action_limits
from spinup.parts.pytorch.critics import MLPQFunction, q_parameters, q_values
from spinup.parts.pytorch.layers import count_vars, mlp
from spinup.parts.spaces import refuse_images, require_actions


@records_architecture
class MLPActorCritic(nn.Module):
    """A policy `pi` and two critics, `q1` and `q2`."""

    def __init__(
        self, observation_space, action_space, hidden_sizes=(256, 256), activation=nn.ReLU
    ):
        super().__init__()
        refuse_images(observation_space, "td3")
        require_actions(action_space, (Box,), "td3", "For discrete actions use dqn or ppo.")
        obs_dim, act_dim = observation_space.shape, int(np.prod(action_space.shape))
        self.pi = MLPActor(
            obs_dim, act_dim, hidden_sizes, activation, **action_limits(action_space)
        )
        self.q1 = MLPQFunction(obs_dim, act_dim, hidden_sizes, activation)
        self.q2 = MLPQFunction(obs_dim, act_dim, hidden_sizes, activation)

    def act(self, obs, deterministic=True):
        """The policy's action, as an array; noise is the training loop's business."""
        return self.pi.act(obs)
