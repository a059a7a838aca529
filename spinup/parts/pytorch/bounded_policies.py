"""Policies in PyTorch whose actions lie within bounds: deterministic, and squashed Gaussian."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from gymnasium.spaces import Box
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.nn import functional as F

from spinup.parts.errors import UserError
from spinup.parts.pytorch import fast
from spinup.parts.pytorch.layers import (
    Flatten,
    apply_to_arrays,
    as_array,
    as_shape,
    mlp,
    observation_mlp,
)
from spinup.parts.pytorch.networks import HALF_LOG_2PI
from spinup.parts.pytorch.tensors import standard_normal

LOG_STD_MAX = 2
LOG_STD_MIN = -20


class ActionRange(nn.Module):
    """Maps (-1, 1) to the bounds of each action dimension."""

    scale: Tensor
    center: Tensor
    low: Tensor
    high: Tensor

    def __init__(self, act_limit: ArrayLike, act_center: ArrayLike = 0.0):
        super().__init__()
        half, center = np.array(act_limit, np.float64), np.array(act_center, np.float64)
        numbers = dict(scale=half, center=center, low=center - half, high=center + half)
        for name, number in numbers.items():
            # Not saved with the weights: they are the environment's, not learned.
            self.register_buffer(name, torch.tensor(number.astype(np.float32)), persistent=False)

    @property
    def act_limit(self) -> float | Tensor:
        """Half the width of the bounds: one number if they are ±act_limit in every dimension."""
        limit = self.scale.flatten()
        same = bool((self.center == 0).all() and (limit == limit[0]).all())
        return limit[0].item() if same else self.scale

    def forward(self, unit: Tensor) -> Tensor:
        return torch.addcmul(self.center, self.scale, unit)

    def clip(self, act: Tensor) -> Tensor:
        """The nearest actions within the bounds."""
        return torch.clamp(act, self.low, self.high)

    def numpy(self, unit: np.ndarray) -> np.ndarray:
        """The same as calling it, for an array."""
        return as_array(self, "center") + as_array(self, "scale") * unit

    def clip_numpy(self, act: np.ndarray) -> np.ndarray:
        """The same as `clip`, for an array."""
        return np.minimum(np.maximum(act, as_array(self, "low")), as_array(self, "high"))


def action_limits(space: Box) -> dict:
    """Half the width, and the middle, of each dimension of a bounded space."""
    if not space.is_bounded():
        raise UserError(
            f"This policy needs bounds for its actions, but they are {space}. "
            "Choose bounds, as gymnasium.wrappers.TransformAction(env, lambda a: a, "
            "gymnasium.spaces.Box(-1, 1, env.action_space.shape)) does, or use ppo."
        )
    low, high = space.low.astype(np.float64).ravel(), space.high.astype(np.float64).ravel()
    return dict(act_limit=(high - low) / 2, act_center=(high + low) / 2)


class MLPActor(nn.Module):
    """A deterministic policy: one action for each observation, squashed into the bounds."""

    def __init__(
        self,
        obs_dim: int | Sequence[int],
        act_dim: int,
        hidden_sizes: Sequence[int],
        activation: Callable,
        act_limit: ArrayLike,
        act_center: ArrayLike = 0.0,
    ):
        super().__init__()
        self.obs_dims = len(as_shape(obs_dim))
        self.pi = observation_mlp(obs_dim, [*hidden_sizes, act_dim], activation)
        self.range = ActionRange(act_limit, act_center)

    @property
    def act_limit(self) -> float | Tensor:
        return self.range.act_limit

    def forward(self, obs: Tensor) -> Tensor:
        return self.range(torch.tanh(self.pi(obs)))

    @fast.checked_once
    def act(self, obs: Tensor) -> np.ndarray:
        """The action for one observation or for each of a few, as an array."""
        single = obs.ndim == self.obs_dims
        unit = np.tanh(apply_to_arrays(self.pi, obs[None] if single else obs))
        a = self.range.numpy(unit)
        return a[0] if single else a


class SquashedGaussianMLPActor(nn.Module):
    """A Gaussian whose mean and width depend on the observation, squashed into the bounds."""

    def __init__(
        self,
        obs_dim: int | Sequence[int],
        act_dim: int,
        hidden_sizes: Sequence[int],
        activation: Callable,
        act_limit: ArrayLike,
        act_center: ArrayLike = 0.0,
    ):
        super().__init__()
        self.flat = Flatten(as_shape(obs_dim))
        self.net = mlp([self.flat.size, *hidden_sizes], activation, activation)
        self.mu_layer = nn.Linear(hidden_sizes[-1], act_dim)
        self.log_std_layer = nn.Linear(hidden_sizes[-1], act_dim)
        self.range = ActionRange(act_limit, act_center)

    @property
    def act_limit(self) -> float | Tensor:
        return self.range.act_limit

    def forward(
        self, obs: Tensor, deterministic: bool = False, with_logprob: bool = True
    ) -> tuple[Tensor, Tensor | None]:
        """Actions within the bounds and the log-probability of each (before it is scaled)."""
        mu, log_std = self._mu_and_log_std(obs)
        noise = torch.zeros_like(mu) if deterministic else torch.randn_like(mu)
        unit, logp = squash(mu, log_std, noise, LOG_STD_MIN, LOG_STD_MAX)
        return self.range(unit), logp if with_logprob else None

    @fast.checked_once
    def act(self, obs: Tensor, deterministic: bool = False) -> np.ndarray:
        """An action for one observation or for each of a few, as an array."""
        single = obs.ndim == self.flat.dims
        features = apply_to_arrays(self.net, self.flat(obs[None] if single else obs))
        u = apply_to_arrays(self.mu_layer, features)
        if not deterministic:
            log_std = apply_to_arrays(self.log_std_layer, features)
            std = np.exp(np.minimum(np.maximum(log_std, LOG_STD_MIN), LOG_STD_MAX))
            u = u + std * standard_normal(u.shape)
        a = self.range.numpy(np.tanh(u))
        return a[0] if single else a

    @fast.accelerated_by(fast.gaussian_heads)
    def _mu_and_log_std(self, obs):
        """The mean of the Gaussian, and the log of its standard deviation, not yet bounded."""
        features = self.net(self.flat(obs))
        return self.mu_layer(features), self.log_std_layer(features)


@fast.accelerated_by(fast.squash)
def squash(
    mu: Tensor, log_std: Tensor, noise: Tensor, low: float, high: float
) -> tuple[Tensor, Tensor]:
    """A sample of a Gaussian squashed by tanh, and its log-probability.

    The reparameterization trick: u = mu + exp(log_std) * noise is a differentiable function of mu
    and log_std.

    low, high: bounds of log_std
    """
    log_std = log_std.clamp(low, high)
    u = mu + log_std.exp() * noise
    return torch.tanh(u), squashed_log_prob(noise, log_std, u)


def squashed_log_prob(noise: Tensor, log_std: Tensor, u: Tensor) -> Tensor:
    """Log-probability of tanh(u), where u = mu + exp(log_std) * noise.

    That of the Gaussian, less the logarithm of tanh's derivative at u (change of variables), which
    is log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2u)) without the loss of digits.
    """
    log_slope = 2 * (math.log(2) - u - F.softplus(-2 * u))
    return (-0.5 * noise.square() - log_std - log_slope - HALF_LOG_2PI).sum(-1)
