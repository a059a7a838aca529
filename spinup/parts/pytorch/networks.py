"""Networks in PyTorch: policies and value functions, out of which each core.py builds."""

import math

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch import nn
from torch.autograd.function import once_differentiable
from torch.distributions import Categorical, Normal
from torch.nn import functional as F

from spinup.parts.envs import require_actions
from spinup.parts.pytorch.layers import (
    Flat,
    Normalizer,
    array_of,
    few_rows,
    image_encoder,
    is_image,
    mlp,
    observation_mlp,
    parameter_list,
    through_layers,
)
from spinup.utils.errors import UserError

LOG_STD_MAX = 2
LOG_STD_MIN = -20


class Actor(nn.Module):
    """A policy that knows the probability of what it does."""

    def _distribution(self, obs):
        raise NotImplementedError

    def _log_prob_from_distribution(self, pi, act):
        raise NotImplementedError

    def forward(self, obs, act=None):
        """The distribution over actions at `obs` and, given `act`, its log probability."""
        pi = self._distribution(obs)
        return pi, None if act is None else self._log_prob_from_distribution(pi, act)


class MLPCategoricalActor(Actor):
    """A probability for each of `act_dim` actions."""

    def __init__(self, obs_dim, act_dim, hidden_sizes, activation, features=None):
        super().__init__()
        self.logits_net = observation_mlp(obs_dim, [*hidden_sizes, act_dim], activation, features)

    def _distribution(self, obs):
        return Categorical(logits=self.logits_net(obs), validate_args=False)

    def _log_prob_from_distribution(self, pi, act):
        return pi.log_prob(act)

    def sample(self, obs):
        """An action for each of a few observations and its log probability, as arrays."""
        act, log_p = draw_actions(few_rows(self.logits_net, obs))
        return act, log_p[np.arange(len(act)), act]

    def mode(self, obs):
        """The most probable action."""
        return self.logits_net(obs).argmax(-1)


def draw_actions(logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """An action for each row of `logits`, and the log probability of every one, as arrays."""
    logits = logits - logits.max(-1, keepdims=True)
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    # The first action at which the summed probabilities pass a number drawn evenly from (0, 1).
    draw = torch.rand(len(log_p), 1).numpy()
    return (np.exp(log_p).cumsum(-1)[:, :-1] < draw).sum(-1), log_p


class MLPGaussianActor(Actor):
    """A bell curve for each of `act_dim` numbers; its width does not depend on the observation."""

    def __init__(self, obs_dim, act_dim, hidden_sizes, activation, features=None):
        super().__init__()
        self.log_std = nn.Parameter(torch.full((act_dim,), -0.5))
        self.minus_halves = np.full(act_dim, -0.5, np.float32)
        self.mu_net = observation_mlp(obs_dim, [*hidden_sizes, act_dim], activation, features)

    def _distribution(self, obs):
        return BellCurves(self.mu_net(obs), self.log_std)

    def _log_prob_from_distribution(self, pi, act):
        # Normal.log_prob written out: the width is one vector for the whole batch, so its
        # logarithm need not be taken once per row, and its inverse is what rows are multiplied by.
        z = (act - pi.loc) * torch.exp(-self.log_std)
        return -0.5 * z.square().sum(-1) - self.log_std.sum() - len(self.log_std) * HALF_LOG_2PI

    def sample(self, obs):
        """An action for each of a few observations and its log probability, as arrays."""
        mu, log_std = few_rows(self.mu_net, obs), array_of(self, "log_std")
        noise = torch.randn(mu.shape).numpy()
        logp = (noise * noise) @ self.minus_halves - (log_std.sum() + len(log_std) * HALF_LOG_2PI)
        return mu + np.exp(log_std) * noise, logp

    def mode(self, obs):
        """The middle of the bell curve."""
        return self.mu_net(obs)


HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


class BellCurves(Normal):
    """Independent bell curves whose widths are one vector for a whole batch."""

    def __init__(self, mu, log_std):
        super().__init__(mu, log_std.exp(), validate_args=False)
        self.log_std = log_std

    def entropy(self):
        # That of Normal, but the logarithm of a width need not be taken once per row.
        return (0.5 + HALF_LOG_2PI + self.log_std).expand_as(self.loc)


class MLPCritic(nn.Module):
    """The value of an observation."""

    def __init__(self, obs_dim, hidden_sizes, activation, features=None):
        super().__init__()
        self.v_net = observation_mlp(obs_dim, [*hidden_sizes, 1], activation, features)

    def forward(self, obs):
        return self.v_net(obs).squeeze(-1)  # (batch,), never (batch, 1), which would broadcast

    def value(self, obs):
        """The value of each of a few observations, as an array."""
        return few_rows(self.v_net, obs)[:, 0]


class MLPActorCritic(nn.Module):
    """A policy `pi` for discrete or continuous actions, and a value function `v`.

    Pictures go through convolutions first, of the policy's own and of the value's own. Other
    observations may be normalised first, by one module that both share.
    """

    def __init__(
        self, observation_space, action_space, hidden_sizes=(64, 64), activation=nn.Tanh,
        normalize=False,
    ):  # fmt: skip
        super().__init__()
        require_actions(
            action_space, (Box, Discrete), "This policy", "Make one number of them first."
        )
        if normalize and is_image(observation_space):
            raise UserError("The bytes of a picture are scaled anyway; leave normalize away.")
        self.obs_shape = obs_dim = observation_space.shape
        normalizer = Normalizer(obs_dim) if normalize else None
        pi_features, v_features = (normalizer or image_encoder(observation_space) for _ in "pv")
        if isinstance(action_space, Box):
            act_dim, kind = int(np.prod(action_space.shape)), MLPGaussianActor
        else:
            act_dim, kind = int(action_space.n), MLPCategoricalActor
        self.pi = kind(obs_dim, act_dim, hidden_sizes, activation, pi_features)
        self.v = MLPCritic(obs_dim, hidden_sizes, activation, v_features)

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


class MLPQFunction(nn.Module):
    """The value of an action at an observation."""

    def __init__(self, obs_dim, act_dim, hidden_sizes, activation):
        super().__init__()
        obs_dim = (obs_dim,) if np.isscalar(obs_dim) else obs_dim
        self.flat = Flat(obs_dim)
        self.q = mlp([int(np.prod(obs_dim)) + act_dim, *hidden_sizes, 1], activation)

    def forward(self, obs, act):
        return self.q(self.flat(obs), act).squeeze(-1)


class Ensemble(nn.Module):
    """Several critics of one shape whose products are made together, in one batched call.

    A small network on a CPU spends its time between the products; this halves their number.
    """

    def __init__(self, critics):
        super().__init__()
        self.flat, layers = critics[0].flat, [list(critic.q) for critic in critics]
        linear = [same for same in zip(*layers) if isinstance(same[0], nn.Linear)]
        self.weights = _stacked([[layer.weight.T for layer in same] for same in linear])
        self.biases = _stacked([[layer.bias[None] for layer in same] for same in linear])
        self.activations = nn.ModuleList([l for l in layers[0] if not isinstance(l, nn.Linear)])

    def __len__(self):
        return len(self.weights[0])

    def forward(self, obs, act, members=slice(None)):
        """One row of values per critic."""
        return self.outputs(self.flat(obs), members, act).squeeze(-1)

    def outputs(self, x, members, act=None):
        """What the last layers give, critic by critic."""
        params = [p for layer in zip(self.weights, self.biases) for p in layer]
        if members != slice(None):
            params = [p[members] for p in params]
        return through_layers(x, params, self.activations, act)


class MLPDiscreteQFunction(nn.Module):
    """The value of each of finitely many actions at an observation, or of one of them."""

    def __init__(self, obs_dim, act_dim, hidden_sizes, activation):
        super().__init__()
        obs_dim = (obs_dim,) if np.isscalar(obs_dim) else obs_dim
        self.flat = Flat(obs_dim)
        self.q = mlp([int(np.prod(obs_dim)), *hidden_sizes, act_dim], activation)

    def forward(self, obs, act=None):
        return _taken(self.q(self.flat(obs)), act)


class DiscreteEnsemble(Ensemble):
    """Several critics of finitely many actions whose products are made together."""

    def forward(self, obs, act=None, members=slice(None)):
        """One table of values per critic or, given actions, one row of values."""
        return _taken(self.outputs(self.flat(obs), members), act)


def _taken(q, act):
    """Of the values of every action those of `act`; all of them where there is none."""
    return q if act is None else q.gather(-1, act.expand(q.shape[:-1])[..., None]).squeeze(-1)


def _stacked(groups):
    return nn.ParameterList([nn.Parameter(torch.stack(same).detach().clone()) for same in groups])


class Member(nn.Module):
    """One critic of an ensemble, to be called like any other."""

    def __init__(self, ensemble, index):
        super().__init__()
        self.whole, self.index = (ensemble,), index  # in a tuple: its parameters stay its own

    def forward(self, obs, act=None):
        (whole,), member = self.whole, slice(self.index, self.index + 1)
        lead = obs.shape[: obs.ndim - whole.flat.dims]  # one observation, or a batch of any shape
        act = act if act is None else act.reshape(-1, *act.shape[len(lead) :])
        (q,) = whole(obs.reshape(-1, *obs.shape[len(lead) :]), act, member)
        return q.reshape(lead + q.shape[1:])

    def parameters(self, recurse=True):
        """Its part of each of the ensemble's parameters."""
        return (p[self.index] for p in self.whole[0].parameters())


def _shared_ensemble(ac):
    """The ensemble that both critics of `ac` are members of, or None: they may be a user's own."""
    q1, q2 = ac.q1, ac.q2
    together = isinstance(q1, Member) and isinstance(q2, Member) and q1.whole[0] is q2.whole[0]
    return q1.whole[0] if together else None


def q_values(ac, obs, *act):
    """What both critics of `ac` say, one row each; together where they are an ensemble.

    act: the actions to judge; critics of finitely many actions judge all of them without it
    """
    ensemble = _shared_ensemble(ac)
    if ensemble is not None:
        return ensemble(obs, *act)
    return torch.stack([ac.q1(obs, *act), ac.q2(obs, *act)])


def q_parameters(ac):
    """All that the critics of `ac` learn."""
    ensemble = _shared_ensemble(ac)
    if ensemble is not None:
        return parameter_list(ensemble)
    return [*parameter_list(ac.q1), *parameter_list(ac.q2)]


class ActionRange(nn.Module):
    """Maps (-1, 1) to the bounds of each action dimension."""

    def __init__(self, act_limit, act_center=0.0):
        super().__init__()
        half, center = np.array(act_limit, np.float64), np.array(act_center, np.float64)
        numbers = dict(scale=half, center=center, low=center - half, high=center + half)
        self.arrays = {name: number.astype(np.float32) for name, number in numbers.items()}
        for name, array in self.arrays.items():
            # Not saved with the weights: they are the environment's, not learned.
            self.register_buffer(name, torch.tensor(array), persistent=False)

    def forward(self, unit):
        return torch.addcmul(self.center, self.scale, unit)

    def clip(self, act):
        """The nearest actions within the bounds."""
        return torch.clamp(act, self.low, self.high)

    def of_array(self, unit):
        """The same as calling it, for an array."""
        return self.arrays["center"] + self.arrays["scale"] * unit

    def disturbed(self, act, noise):
        """Actions, an array, moved by so many half-widths, and the nearest within the bounds."""
        act = np.asarray(act) + self.arrays["scale"] * noise
        return np.minimum(np.maximum(act, self.arrays["low"]), self.arrays["high"])


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
    """One action for each observation, squashed into the bounds."""

    def __init__(self, obs_dim, act_dim, hidden_sizes, activation, act_limit, act_center=0.0):
        super().__init__()
        self.obs_dims = 1 if np.isscalar(obs_dim) else len(obs_dim)
        self.net = observation_mlp(obs_dim, [*hidden_sizes, act_dim], activation)
        self.range = ActionRange(act_limit, act_center)

    def forward(self, obs):
        return self.range(torch.tanh(self.net(obs)))

    def act(self, obs):
        """The action for one observation or for each of a few, as an array."""
        single = obs.ndim == self.obs_dims
        a = self.range.of_array(np.tanh(few_rows(self.net, obs[None] if single else obs)))
        return a[0] if single else a


class SquashedGaussianMLPActor(nn.Module):
    """A bell curve whose place and width depend on the observation, squashed into the bounds."""

    def __init__(self, obs_dim, act_dim, hidden_sizes, activation, act_limit, act_center=0.0):
        super().__init__()
        obs_dim = (obs_dim,) if np.isscalar(obs_dim) else obs_dim
        self.flat = Flat(obs_dim)
        self.net = mlp([int(np.prod(obs_dim)), *hidden_sizes], activation, activation)
        self.mu_layer = nn.Linear(hidden_sizes[-1], act_dim)
        self.log_std_layer = nn.Linear(hidden_sizes[-1], act_dim)
        self.range = ActionRange(act_limit, act_center)

    def forward(self, obs, deterministic=False, with_logprob=True):
        """Actions within the bounds and the log probability of each (before it is scaled)."""
        curves = self._curves(obs)
        mu = curves[..., : curves.shape[-1] // 2]
        noise = torch.zeros_like(mu) if deterministic else torch.randn_like(mu)
        if with_logprob:
            unit, logp = _SquashedSample.apply(curves, noise)
        else:
            unit, logp = torch.tanh(_bell_curves(curves, noise)[0]), None
        return self.range(unit), logp

    def act(self, obs, deterministic=False):
        """An action for one observation or for each of a few, as an array."""
        single = obs.ndim == self.flat.dims
        features = few_rows(self.net, self.flat(obs[None] if single else obs))
        u = few_rows(self.mu_layer, features)
        if not deterministic:
            log_std = few_rows(self.log_std_layer, features)
            width = np.exp(np.minimum(np.maximum(log_std, LOG_STD_MIN), LOG_STD_MAX))
            u = u + width * torch.randn(u.shape).numpy()
        a = self.range.of_array(np.tanh(u))
        return a[0] if single else a

    def _curves(self, obs):
        """The middle of each action's bell curve, then the logarithm of each width."""
        mu, log_std, layers = self.mu_layer, self.log_std_layer, tuple(self.net)
        params = [p for layer in layers[0::2] for p in (layer.weight, layer.bias)]
        params += [torch.cat([mu.weight, log_std.weight]), torch.cat([mu.bias, log_std.bias])]
        return through_layers(self.flat(obs), params, (*layers[1::2], nn.Identity()))


def _bell_curves(curves, noise):
    """The point at `noise` widths from the middle; the log width, and what it was before bounds."""
    mu, raw = curves.chunk(2, -1)
    log_std = raw.clamp(LOG_STD_MIN, LOG_STD_MAX)
    return torch.addcmul(mu, log_std.exp(), noise), log_std, raw


class _SquashedSample(torch.autograd.Function):
    """tanh(u) and its log probability, with the chain rule written out: a third of the steps."""

    @staticmethod
    def forward(ctx, curves, noise):
        u, log_std, raw = _bell_curves(curves, noise)
        unit = torch.tanh(u)
        ctx.save_for_backward(unit, log_std, raw, noise)
        return unit, squashed_log_prob(noise, log_std, u)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_unit, grad_logp):
        unit, log_std, raw, noise = ctx.saved_tensors
        grad_logp = grad_logp.unsqueeze(-1)
        # d tanh(u) / du = 1 - tanh(u)^2, and d logp / du = 2 tanh(u): see squashed_log_prob.
        grad_u = torch.addcmul(grad_unit, unit, 2 * grad_logp - unit * grad_unit)
        grad_log_std = grad_u * (log_std.exp() * noise) - grad_logp
        return torch.cat([grad_u, grad_log_std * (log_std == raw)], -1), None


def squashed_log_prob(noise, log_std, u):
    """Log probability of tanh(u), where u = mu + exp(log_std) * noise.

    The bell curve's, less the logarithm of tanh's slope at u, which is
    log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2u)) without the loss of digits.
    """
    log_slope = 2 * (math.log(2) - u - F.softplus(-2 * u))
    return (-0.5 * noise.square() - log_std - log_slope - HALF_LOG_2PI).sum(-1)
