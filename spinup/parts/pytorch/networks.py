"""Networks in PyTorch: policies and value functions, out of which each core.py builds."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.distributions import Categorical, Distribution, Normal
from torch.nn import functional as F

from spinup.parts.errors import UserError
from spinup.parts.pytorch import fast
from spinup.parts.pytorch.architecture import records_architecture
from spinup.parts.pytorch.layers import (
    Flatten,
    RunningNormalizer,
    apply_to_arrays,
    as_shape,
    image_encoder,
    mlp,
    observation_mlp,
)
from spinup.parts.pytorch.tensors import standard_normal, uniform
from spinup.parts.spaces import is_image, require_actions

LOG_STD_MAX = 2
LOG_STD_MIN = -20


def as_array(module: nn.Module, name: str) -> np.ndarray:
    """A parameter or buffer of a module as an array."""
    view = fast.numpy_view(module, name)
    return getattr(module, name).detach().cpu().numpy() if view is None else view


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


class MLPQFunction(nn.Module):
    """The value of an action at an observation."""

    STACKABLE = True  # critics of exactly this class, by fast/fused_critics.py

    def __init__(
        self,
        obs_dim: int | Sequence[int],
        act_dim: int,
        hidden_sizes: Sequence[int],
        activation: Callable,
    ):
        super().__init__()
        self.flat = Flatten(as_shape(obs_dim))
        self.q = mlp([self.flat.size + act_dim, *hidden_sizes, 1], activation)

    @fast.accelerated_by(fast.critic_forward)
    def forward(self, obs: Tensor, act: Tensor) -> Tensor:
        return self.values(self.q(torch.cat(self.columns(obs, act), -1)))

    def columns(self, obs: Tensor, act: Tensor) -> tuple[Tensor, ...]:
        """What goes into the layers, side by side."""
        return self.flat(obs), act

    def values(self, outputs: Tensor, act: Tensor | None = None) -> Tensor:
        """The values, from what comes out of the layers."""
        return outputs.squeeze(-1)  # (batch,), never (batch, 1), which would broadcast


class MLPDiscreteQFunction(nn.Module):
    """The value of each of finitely many actions at an observation, or of one of them."""

    STACKABLE = True  # critics of exactly this class, by fast/fused_critics.py

    def __init__(
        self,
        obs_dim: int | Sequence[int],
        act_dim: int,
        hidden_sizes: Sequence[int],
        activation: Callable,
    ):
        super().__init__()
        self.flat = Flatten(as_shape(obs_dim))
        self.q = mlp([self.flat.size, *hidden_sizes, act_dim], activation)

    def forward(self, obs: Tensor, act: Tensor | None = None) -> Tensor:
        return self.values(self.q(*self.columns(obs)), act)

    def columns(self, obs: Tensor, act: Tensor | None = None) -> tuple[Tensor, ...]:
        """What goes into the layers."""
        return (self.flat(obs),)

    def values(self, outputs: Tensor, act: Tensor | None = None) -> Tensor:
        """The value of every action, or of `act`."""
        if act is None:
            return outputs
        return outputs.gather(-1, act.expand(outputs.shape[:-1])[..., None]).squeeze(-1)


class Ensemble(nn.ModuleList):
    """Several critics of one shape; gives one row of values per critic."""

    def forward(self, obs: Tensor, *act: Tensor) -> Tensor:
        return stack_values(self, obs, *act)


def stack_values(critics: Iterable[Any], obs: Tensor, *act: Tensor) -> Tensor:
    """What several critics say, one row each."""
    critics = list(critics)
    if fast.enabled() and len(critics) > 1 and all("STACKABLE" in vars(type(c)) for c in critics):
        outputs = fast.stacked_forward(critics, critics[0].columns(obs, *act))
        if outputs is not None:
            return critics[0].values(outputs, *act)
    return torch.stack([critic(obs, *act) for critic in critics])


def q_values(ac: Any, obs: Tensor, *act: Tensor) -> Tensor:
    """What both critics of `ac` say, one row each.

    act: the actions to evaluate; without it, critics of finitely many actions evaluate them all
    """
    return stack_values((ac.q1, ac.q2), obs, *act)


def q_parameters(ac: Any) -> list[nn.Parameter]:
    """All that the critics of `ac` learn."""
    return [*ac.q1.parameters(), *ac.q2.parameters()]


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
