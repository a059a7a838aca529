"""Networks in PyTorch that on-policy algorithms share: stochastic policies and a value function."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor, nn
from torch.distributions import Categorical, Distribution, Normal

from spinup.parts.errors import UserError
from spinup.parts.pytorch import fast
from spinup.parts.pytorch.architecture import records_architecture
from spinup.parts.pytorch.layers import (
    RunningNormalizer,
    apply_to_arrays,
    as_array,
    image_encoder,
    observation_mlp,
)
from spinup.parts.pytorch.tensors import standard_normal, uniform
from spinup.parts.spaces import is_image, require_actions


class Actor(nn.Module):
    """A policy that knows the probability of what it does."""

    def _distribution(self, obs):
        raise NotImplementedError

    def _log_prob_from_distribution(self, pi, act):
        raise NotImplementedError

    def forward(self, obs: Tensor, act: Tensor | None = None) -> tuple[Distribution, Tensor | None]:
        """The distribution over actions at `obs` and, given `act`, its log probability."""
        pi = self._distribution(obs)
        return pi, None if act is None else self._log_prob_from_distribution(pi, act)


class MLPCategoricalActor(Actor):
    """A probability for each of `act_dim` actions."""

    def __init__(
        self,
        obs_dim: int | Sequence[int],
        act_dim: int,
        hidden_sizes: Sequence[int],
        activation: Callable,
        features: nn.Module | None = None,
    ):
        super().__init__()
        self.logits_net = observation_mlp(obs_dim, [*hidden_sizes, act_dim], activation, features)

    def _distribution(self, obs):
        return Categorical(logits=self.logits_net(obs), validate_args=False)

    def _log_prob_from_distribution(self, pi, act):
        return pi.log_prob(act)

    def sample(self, obs: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """An action for each of a few observations and its log probability, as arrays."""
        act, log_p = sample_categorical(apply_to_arrays(self.logits_net, obs))
        return act, log_p[np.arange(len(act)), act]

    def mode(self, obs: Tensor) -> Tensor:
        """The most probable action."""
        return self.logits_net(obs).argmax(-1)


def sample_categorical(logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """An action for each row of `logits`, and the log probability of every one, as arrays."""
    logits = logits - logits.max(-1, keepdims=True)
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    # The first action at which the summed probabilities pass a uniform random number.
    sample = uniform((len(log_p), 1))
    return (np.exp(log_p).cumsum(-1)[:, :-1] < sample).sum(-1), log_p


class MLPGaussianActor(Actor):
    """A diagonal Gaussian over `act_dim` numbers; its width does not depend on the observation."""

    def __init__(
        self,
        obs_dim: int | Sequence[int],
        act_dim: int,
        hidden_sizes: Sequence[int],
        activation: Callable,
        features: nn.Module | None = None,
    ):
        super().__init__()
        self.log_std = nn.Parameter(torch.full((act_dim,), -0.5))
        self.mu_net = observation_mlp(obs_dim, [*hidden_sizes, act_dim], activation, features)

    def _distribution(self, obs):
        return DiagonalGaussian(self.mu_net(obs), self.log_std)

    def _log_prob_from_distribution(self, pi, act):
        # Normal.log_prob written out: the width is one vector for the whole batch, so its
        # logarithm need not be taken once per row, and its inverse is what rows are multiplied by.
        z = (act - pi.loc) * torch.exp(-self.log_std)
        return -0.5 * z.square().sum(-1) - self.log_std.sum() - len(self.log_std) * HALF_LOG_2PI

    def sample(self, obs: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """An action for each of a few observations and its log probability, as arrays."""
        mu, log_std = apply_to_arrays(self.mu_net, obs), as_array(self, "log_std")
        noise = standard_normal(mu.shape)
        constant = np.add.reduce(log_std) + len(log_std) * HALF_LOG_2PI
        logp = -0.5 * np.add.reduce(noise * noise, -1) - constant
        return mu + np.exp(log_std) * noise, logp

    def mode(self, obs: Tensor) -> Tensor:
        """The mean of the Gaussian."""
        return self.mu_net(obs)


HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


class DiagonalGaussian(Normal):
    """Independent Gaussians whose standard deviations are one vector for a whole batch."""

    def __init__(self, mu: Tensor, log_std: Tensor):
        super().__init__(mu, log_std.exp(), validate_args=False)
        self.log_std = log_std

    def entropy(self) -> Tensor:
        # That of Normal, but the logarithm of a width need not be taken once per row.
        return (0.5 + HALF_LOG_2PI + self.log_std).expand_as(self.loc)


class MLPCritic(nn.Module):
    """The value of an observation."""

    def __init__(
        self,
        obs_dim: int | Sequence[int],
        hidden_sizes: Sequence[int],
        activation: Callable,
        features: nn.Module | None = None,
    ):
        super().__init__()
        self.v_net = observation_mlp(obs_dim, [*hidden_sizes, 1], activation, features)

    def forward(self, obs: Tensor) -> Tensor:
        return self.v_net(obs).squeeze(-1)  # (batch,), never (batch, 1), which would broadcast

    def value(self, obs: Tensor) -> np.ndarray:
        """The value of each of a few observations, as an array."""
        return apply_to_arrays(self.v_net, obs)[:, 0]


@records_architecture
class MLPActorCritic(nn.Module):
    """A policy `pi` for discrete or continuous actions, and a value function `v`.

    Images go through convolutions first, of the policy's own and of the value's own. Other
    observations may be normalised first, by one module that both share.
    """

    def __init__(
        self,
        observation_space: Any,
        action_space: Any,
        hidden_sizes: Sequence[int] = (64, 64),
        activation: Callable = nn.Tanh,
        normalize: bool = False,
    ):
        super().__init__()
        require_actions(
            action_space, (Box, Discrete), "This policy", "Make one number of them first."
        )
        if normalize and is_image(observation_space):
            raise UserError("The bytes of an image are scaled anyway; leave normalize away.")
        self.obs_shape = obs_dim = observation_space.shape
        normalizer = RunningNormalizer(obs_dim) if normalize else None
        pi_features, v_features = (normalizer or image_encoder(observation_space) for _ in "pv")
        kind: type[Actor]
        if isinstance(action_space, Box):
            act_dim, kind = int(np.prod(action_space.shape)), MLPGaussianActor
        else:
            act_dim, kind = int(action_space.n), MLPCategoricalActor
        self.pi = kind(obs_dim, act_dim, hidden_sizes, activation, pi_features)
        self.v = MLPCritic(obs_dim, hidden_sizes, activation, v_features)

    @fast.checked_once
    def step(self, obs: Tensor) -> tuple:
        """An action, the value of `obs`, and the log probability of the action, as arrays."""
        single = obs.ndim == len(self.obs_shape)  # one observation, not a batch of them
        batch = obs[None] if single else obs
        (a, logp_a), v = self.pi.sample(batch), self.v.value(batch)
        return (a[0], v[0], logp_a[0]) if single else (a, v, logp_a)

    @torch.no_grad()
    def act(self, obs: Tensor, deterministic: bool = False) -> np.ndarray:
        """An action sampled from the policy, or the most probable one."""
        a = self.pi.mode(obs) if deterministic else self.pi._distribution(obs).sample()
        return a.cpu().numpy()
