"""PPO's networks: a policy and a value function."""

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch import nn

from spinup.parts.buffers import combined_shape, discount_cumsum
from spinup.parts.envs import require_actions
from spinup.parts.networks import (
    Actor,
    MLPCategoricalActor,
    MLPCritic,
    MLPGaussianActor,
    count_vars,
    mlp,
)

__all__ = [
    "Actor", "MLPActorCritic", "MLPCategoricalActor", "MLPCritic", "MLPGaussianActor",
    "combined_shape", "count_vars", "discount_cumsum", "mlp",
]  # fmt: skip


class MLPActorCritic(nn.Module):
    """A policy `pi` for discrete or continuous actions, and a value function `v`."""

    def __init__(self, observation_space, action_space, hidden_sizes=(64, 64), activation=nn.Tanh):
        super().__init__()
        require_actions(action_space, (Box, Discrete), "ppo", "Make one number of them first.")
        self.obs_shape = obs_dim = observation_space.shape
        if isinstance(action_space, Box):
            act_dim = int(np.prod(action_space.shape))
            self.pi = MLPGaussianActor(obs_dim, act_dim, hidden_sizes, activation)
        else:
            self.pi = MLPCategoricalActor(obs_dim, int(action_space.n), hidden_sizes, activation)
        self.v = MLPCritic(obs_dim, hidden_sizes, activation)

    def step(self, obs):
        """An action, the value of `obs`, and the log probability of the action, as arrays."""
        single = obs.ndim == len(self.obs_shape)  # one observation, not a batch of them
        batch = obs[None] if single else obs
        (a, logp_a), v = self.pi.sample(batch), self.v.value(batch)
        return (a[0], v[0], logp_a[0]) if single else (a, v, logp_a)

    @torch.no_grad()
    def act(self, obs, deterministic=False):
        """An action drawn from the policy, or the one it deems best."""
        a = self.pi.mode(obs) if deterministic else self.pi._distribution(obs).sample()
        return a.cpu().numpy()
