"""SAC's networks: a squashed Gaussian policy, two critics, and the temperature."""

import math

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch import nn
from torch.distributions import Categorical

from spinup.parts.buffers import combined_shape
from spinup.parts.pytorch import critics
from spinup.parts.pytorch.architecture import records_architecture
from spinup.parts.pytorch.bounded_policies import (
    LOG_STD_MAX,
    LOG_STD_MIN,
    SquashedGaussianMLPActor,
    action_limits,
)
from spinup.parts.pytorch.critics import MLPDiscreteQFunction, MLPQFunction, q_parameters
from spinup.parts.pytorch.layers import count_vars, mlp
from spinup.parts.pytorch.networks import MLPCategoricalActor
from spinup.parts.spaces import refuse_images, require_actions

# A learned temperature aims at this fraction of the largest entropy of a discrete policy.
ENTROPY_FRACTION = 0.5


@records_architecture
class MLPActorCritic(nn.Module):
    """A policy `pi` and two critics, `q1` and `q2`."""

    def __init__(
        self, observation_space, action_space, hidden_sizes=(256, 256), activation=nn.ReLU
    ):
        super().__init__()
        refuse_images(observation_space, "sac")
        require_actions(action_space, (Box, Discrete), "sac", "Make one number of them first.")
        self.obs_shape = obs_dim = observation_space.shape
        if isinstance(action_space, Box):
            sizes = obs_dim, int(np.prod(action_space.shape)), hidden_sizes, activation
            self.pi = SquashedGaussianMLPActor(*sizes, **action_limits(action_space))
            self.q1, self.q2 = MLPQFunction(*sizes), MLPQFunction(*sizes)
        else:
            sizes = obs_dim, int(action_space.n), hidden_sizes, activation
            self.pi = MLPCategoricalActor(*sizes)
            self.q1, self.q2 = MLPDiscreteQFunction(*sizes), MLPDiscreteQFunction(*sizes)

    @torch.no_grad()
    def act(self, obs, deterministic=False):
        """An action sampled from the policy, or its mean or most probable one, as an array."""
        if isinstance(self.pi, SquashedGaussianMLPActor):
            return self.pi.act(obs, deterministic)
        if deterministic:
            return self.pi.mode(obs).cpu().numpy()
        lead = obs.shape[: obs.ndim - len(self.obs_shape)]
        return self.pi.sample(obs.reshape(-1, *self.obs_shape))[0].reshape(lead)


def sample(pi, obs):
    """An action of the policy at each observation, and its log-probability.

    Discrete actions: the distribution over all of them, and the log-probability of each.
    """
    a, logp = pi(obs)
    return (a, a.logits) if isinstance(a, Categorical) else (a, logp)


def q_values(ac, obs, a):
    """The values of both critics, one row each: of the action `a`, or of all of a Categorical."""
    return critics.q_values(ac, obs, *([] if isinstance(a, Categorical) else [a]))


def expectation(a, x):
    """The mean of `x` over the policy's actions.

    Discrete actions: the exact mean, each action weighted by its probability. Continuous ones: one
    sampled action stands for it.
    """
    return (a.logits.exp() * x).sum(-1) if isinstance(a, Categorical) else x


def target_entropy(action_space):
    """The entropy that a learned temperature aims at."""
    if isinstance(action_space, Discrete):
        return ENTROPY_FRACTION * math.log(action_space.n)
    return -float(np.prod(action_space.shape))


class Temperature(nn.Module):
    """The temperature alpha, the weight of entropy: a number, or 'auto' to learn it."""

    def __init__(self, alpha):
        super().__init__()
        self.learned = isinstance(alpha, str)  # 'auto'
        start = 1.0 if self.learned else alpha
        log_alpha = torch.tensor(math.log(start) if start else -math.inf)
        self.log_alpha = nn.Parameter(log_alpha, requires_grad=self.learned)

    def forward(self):
        return self.log_alpha.detach().exp()
