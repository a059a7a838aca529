"""SAC's networks: a policy within bounds, two critics, and the price of randomness."""

import math

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch import nn
from torch.distributions import Categorical

from spinup.parts.buffers import combined_shape
from spinup.parts.envs import refuse_images, require_actions
from spinup.parts.pytorch.layers import count_vars, is_image, mlp
from spinup.parts.pytorch.networks import (
    LOG_STD_MAX,
    LOG_STD_MIN,
    MLPCategoricalActor,
    MLPDiscreteQFunction,
    MLPQFunction,
    SquashedGaussianMLPActor,
    action_limits,
    q_parameters,
    q_values,
)

__all__ = [
    "LOG_STD_MAX", "LOG_STD_MIN", "MLPActorCritic", "MLPQFunction", "SquashedGaussianMLPActor",
    "Temperature", "combined_shape", "count_vars", "mlp", "q_parameters", "q_values", "soft_value",
    "target_entropy",
]  # fmt: skip
# Of the entropy of a coin or dice, how much a learned temperature wants a discrete policy to keep.
SHARE_OF_ENTROPY = 0.5


class MLPActorCritic(nn.Module):
    """A policy `pi` and two critics, `q1` and `q2`."""

    def __init__(
        self, observation_space, action_space, hidden_sizes=(256, 256), activation=nn.ReLU
    ):
        super().__init__()
        refuse_images(observation_space, is_image, "sac")
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
        """An action drawn from the policy, or its middle or most probable one, as an array."""
        if isinstance(self.pi, SquashedGaussianMLPActor):
            return self.pi.act(obs, deterministic)
        if deterministic:
            return self.pi.mode(obs).cpu().numpy()
        lead = obs.shape[: obs.ndim - len(self.obs_shape)]
        return self.pi.sample(obs.reshape(-1, *self.obs_shape))[0].reshape(lead)


def soft_value(ac, critics, obs, *, alpha):
    """What `obs` is worth under the policy, its entropy paid for; and the mean of log pi there.

    Of finitely many actions this is the exact mean over all of them, each by its probability. Of
    continuous ones a single action, drawn anew, stands for the mean.
    """
    a, logp = ac.pi(obs)
    if isinstance(a, Categorical):
        logp = a.logits
        with torch.no_grad():  # the policy learns through p; no action passes on a slope
            q = q_values(critics, obs).amin(0)
        p = logp.exp()
        return (p * (q - alpha * logp)).sum(-1), (p * logp).sum(-1)
    return q_values(critics, obs, a).amin(0) - alpha * logp, logp


def target_entropy(action_space):
    """The entropy that a learned temperature aims at."""
    if isinstance(action_space, Discrete):
        return SHARE_OF_ENTROPY * math.log(action_space.n)
    return -float(np.prod(action_space.shape))


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
