"""SAC's networks: a policy within bounds, two critics, and the price of randomness."""

import math

import numpy as np
import torch
from gymnasium.spaces import Box
from torch import nn

from spinup.parts.buffers import combined_shape
from spinup.parts.envs import require_actions
from spinup.parts.layers import count_vars, mlp
from spinup.parts.networks import (
    LOG_STD_MAX,
    LOG_STD_MIN,
    Ensemble,
    Member,
    MLPQFunction,
    SquashedGaussianMLPActor,
    action_limits,
    q_parameters,
    q_values,
)

__all__ = [
    "LOG_STD_MAX", "LOG_STD_MIN", "MLPActorCritic", "MLPQFunction", "SquashedGaussianMLPActor",
    "Temperature", "combined_shape", "count_vars", "mlp", "q_parameters", "q_values",
]  # fmt: skip


class MLPActorCritic(nn.Module):
    """A policy `pi` and two critics, `q1` and `q2`, which are made in one batched product."""

    def __init__(
        self, observation_space, action_space, hidden_sizes=(256, 256), activation=nn.ReLU
    ):
        super().__init__()
        require_actions(action_space, (Box,), "sac", "For discrete actions use dqn or ppo.")
        obs_dim, act_dim = observation_space.shape, int(np.prod(action_space.shape))
        self.pi = SquashedGaussianMLPActor(
            obs_dim, act_dim, hidden_sizes, activation, **action_limits(action_space)
        )
        self.q = Ensemble(
            [MLPQFunction(obs_dim, act_dim, hidden_sizes, activation) for _ in range(2)]
        )
        self.q1, self.q2 = Member(self.q, 0), Member(self.q, 1)

    @torch.no_grad()
    def act(self, obs, deterministic=False):
        """An action drawn from the policy, or the middle of its bell curve, as an array."""
        a, _ = self.pi(obs, deterministic, with_logprob=False)
        return a.cpu().numpy()


class Temperature(nn.Module):
    """How much a nat of entropy is worth in reward: a fixed number, or 'auto' to learn it."""

    def __init__(self, alpha):
        super().__init__()
        self.learned = alpha == "auto"
        start = 1.0 if self.learned else alpha
        log_alpha = torch.tensor(math.log(start) if start else -math.inf)
        self.log_alpha = nn.Parameter(log_alpha, requires_grad=self.learned)

    def forward(self):
        return self.log_alpha.detach().exp()
