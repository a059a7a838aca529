"""Networks in PyTorch: layers, policies and value functions, out of which each core.py builds."""

import math
from contextlib import contextmanager

import numpy as np
import torch
from gymnasium.spaces import Box
from torch import nn
from torch.autograd.function import once_differentiable
from torch.distributions import Categorical, Normal
from torch.nn import functional as F

from spinup.parts.buffers import combined_shape, discount_cumsum
from spinup.utils.errors import UserError, did_you_mean

__all__ = ["combined_shape", "discount_cumsum"]  # NumPy's, but looked for among the networks

KNOWN_ACTIVATIONS = (*nn.modules.activation.__all__, "Identity")
LOG_STD_MAX = 2
LOG_STD_MIN = -20


def mlp(sizes, activation, output_activation=nn.Identity):
    """Fully connected layers of these sizes, with `activation` after each but the last."""
    activation = FastTanh if activation is nn.Tanh else activation
    layers = []
    for i, (size_in, size_out) in enumerate(zip(sizes[:-1], sizes[1:])):
        last = i == len(sizes) - 2
        layers += [nn.Linear(size_in, size_out), output_activation() if last else activation()]
    return MLP(*layers)


class MLP(nn.Sequential):
    """Linear layers and activations, as one step for autograd where they are of a usual kind."""

    def forward(self, x):
        linear, activations = list(self)[0::2], list(self)[1::2]
        kind = _usual_kind(activations)
        usual = kind and x.ndim == 2 and all(type(layer) is nn.Linear for layer in linear)
        if not usual or not x.is_cpu or _SECOND_DERIVATIVES:
            return super().forward(x)
        params = [p for layer in linear for p in (layer.weight, layer.bias)]
        if not torch.is_grad_enabled():
            return _layer_outputs(x, kind, params)[-1]
        return _FusedLayers.apply(x, kind, *params)


_SECOND_DERIVATIVES = []  # not empty: keep to operations that can be differentiated twice


@contextmanager
def second_derivatives():
    """Within this, networks can be differentiated twice, and are a little slower."""
    _SECOND_DERIVATIVES.append(True)
    try:
        yield
    finally:
        _SECOND_DERIVATIVES.pop()


def _usual_kind(activations):
    """'relu' or 'tanh' if that is the activation after each layer but the last; else None."""
    *hidden, last = [type(a) for a in activations]
    if last is not nn.Identity or len(set(hidden)) != 1:
        return None
    return {nn.ReLU: "relu", FastTanh: "tanh"}.get(hidden[0])


def _layer_outputs(x, kind, params):
    """What goes into each layer, then the result; params: weight and bias of each in turn."""
    outputs = [x]
    for i in range(0, len(params), 2):
        y = torch.addmm(params[i + 1], outputs[-1], params[i].t())
        if i + 2 < len(params):
            y = y.relu_() if kind == "relu" else y.mul_(2).sigmoid_().mul_(2).sub_(1)
        outputs.append(y)
    return outputs


class _FusedLayers(torch.autograd.Function):
    """The chain rule for a whole network at once: a fifth of autograd's steps, fewer copies."""

    @staticmethod
    def forward(ctx, x, kind, *params):
        *inputs, y = _layer_outputs(x, kind, params)
        ctx.save_for_backward(*inputs, *params[0::2])
        ctx.kind, ctx.layers = kind, len(inputs)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        n, learned = ctx.layers, ctx.needs_input_grad
        inputs, weights = ctx.saved_tensors[:n], ctx.saved_tensors[n:]
        grads = [None] * (2 + 2 * n)
        for i in reversed(range(n)):
            if learned[2 + 2 * i]:
                grads[2 + 2 * i], grads[3 + 2 * i] = torch.mm(grad.t(), inputs[i]), grad.sum(0)
            if i > 0 or learned[0]:
                grad = torch.mm(grad, weights[i])
            if i > 0 and ctx.kind == "relu":
                grad = torch.ops.aten.threshold_backward(grad, inputs[i], 0)
            elif i > 0:
                grad = torch.ops.aten.tanh_backward(grad, inputs[i])
        grads[0] = grad if learned[0] else None
        return tuple(grads)


class FastTanh(nn.Tanh):
    """The hyperbolic tangent by way of the logistic function, 2 s(2x) - 1.

    PyTorch computes that six times as fast on a CPU, and full-batch updates of small networks
    spend a third of their time here. The last digits differ.
    """

    def forward(self, x):
        return _FastTanh.apply(x) if x.device.type == "cpu" else torch.tanh(x)


class _FastTanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.sigmoid(2 * x).mul_(2).sub_(1)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad):
        return torch.ops.aten.tanh_backward(grad, *ctx.saved_tensors)


def count_vars(module):
    """How many numbers a network learns."""
    return sum(p.numel() for p in module.parameters())


def activation_by_name(name):
    """The activation that a name like 'torch.nn.ELU', 'nn.ELU' or 'ELU' means; others are kept."""
    if not isinstance(name, str):
        if not callable(name):
            raise UserError(f"{name!r} is no activation. Try torch.nn.Tanh or torch.nn.ReLU.")
        return name
    prefix, _, short = name.rpartition(".")
    if short not in KNOWN_ACTIVATIONS or prefix not in ("", "nn", "torch.nn"):
        raise UserError(
            f"{name!r} is not an activation of torch.nn.{did_you_mean(short, KNOWN_ACTIVATIONS)} "
            "Try torch.nn.Tanh, torch.nn.ReLU or torch.nn.ELU."
        )
    return getattr(nn, short)


class Flat(nn.Module):
    """Makes one vector of each observation, whatever its shape."""

    def __init__(self, shape):
        super().__init__()
        self.dims = len(shape)

    def forward(self, obs):
        return obs.reshape(*obs.shape[: obs.ndim - self.dims], -1)


def observation_mlp(obs_dim, sizes, activation):
    """An mlp on observations of `obs_dim`: a number of features, or a shape to be flattened."""
    if np.isscalar(obs_dim):
        return mlp([obs_dim, *sizes], activation)
    layers = mlp([int(np.prod(obs_dim)), *sizes], activation)
    return layers if len(obs_dim) == 1 else nn.Sequential(Flat(obs_dim), layers)


NUMPY_ACTIVATIONS = {
    FastTanh: np.tanh,
    nn.ReLU: lambda x: np.maximum(x, 0, out=x),
    nn.Identity: lambda x: x,
}
SMALL_LAYER = 9000  # weights; for larger ones NumPy's own threads would fight with PyTorch's


def few_rows(net: nn.Sequential, obs) -> np.ndarray:
    """What `net` gives for a few observations, as an array.

    Small layers are multiplied in NumPy: asking one observation at a time, PyTorch takes longer
    to be called than to compute. The arrays are views of the weights, so they see every update.
    """
    views = net.__dict__.get("numpy_views")
    if views is None or views[0] != next(net.parameters()).data_ptr():
        views = net.__dict__["numpy_views"] = _numpy_views(net)
    if views[1] is None or len(obs) > 64:
        with torch.no_grad():
            return net(obs).cpu().numpy()
    x = obs.numpy().reshape(len(obs), -1)
    for weight, bias, activation in views[1]:
        x = activation(x @ weight + bias)
    return x


def _numpy_views(net):
    """Where the first weight lies, and the layers as arrays; None for what NumPy should not do."""
    place = next(net.parameters()).data_ptr()
    layers = list(net[-1] if isinstance(net[-1], MLP) else net)  # what comes before is flattening
    linear, activations = layers[0::2], layers[1::2]
    known = all(
        type(layer) is nn.Linear and layer.weight.is_cpu and layer.weight.numel() < SMALL_LAYER
        for layer in linear
    )
    if not known or not all(type(a) in NUMPY_ACTIVATIONS for a in activations):
        return place, None
    return place, [
        (l.weight.detach().numpy().T, l.bias.detach().numpy(), NUMPY_ACTIVATIONS[type(a)])
        for l, a in zip(linear, activations)
    ]


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

    def __init__(self, obs_dim, act_dim, hidden_sizes, activation):
        super().__init__()
        self.logits_net = observation_mlp(obs_dim, [*hidden_sizes, act_dim], activation)

    def _distribution(self, obs):
        return Categorical(logits=self.logits_net(obs), validate_args=False)

    def _log_prob_from_distribution(self, pi, act):
        return pi.log_prob(act)

    def sample(self, obs):
        """An action for each of a few observations and its log probability, as arrays."""
        logits = few_rows(self.logits_net, obs)
        logits = logits - logits.max(-1, keepdims=True)
        log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        # The first action at which the summed probabilities pass a number drawn evenly from (0, 1).
        draw = torch.rand(len(log_p), 1).numpy()
        act = (np.exp(log_p).cumsum(-1)[:, :-1] < draw).sum(-1)
        return act, log_p[np.arange(len(act)), act]

    def mode(self, obs):
        """The most probable action."""
        return self.logits_net(obs).argmax(-1)


class MLPGaussianActor(Actor):
    """A bell curve for each of `act_dim` numbers; its width does not depend on the observation."""

    def __init__(self, obs_dim, act_dim, hidden_sizes, activation):
        super().__init__()
        self.log_std = nn.Parameter(torch.full((act_dim,), -0.5))
        self.mu_net = observation_mlp(obs_dim, [*hidden_sizes, act_dim], activation)

    def _distribution(self, obs):
        return Normal(self.mu_net(obs), self.log_std.exp(), validate_args=False)

    def _log_prob_from_distribution(self, pi, act):
        # Normal.log_prob written out: the width is one vector for the whole batch, so its
        # logarithm need not be taken once per row.
        z = (act - pi.loc) / pi.scale
        return -0.5 * z.square().sum(-1) - self.log_std.sum() - len(self.log_std) * HALF_LOG_2PI

    def sample(self, obs):
        """An action for each of a few observations and its log probability, as arrays."""
        mu, log_std = few_rows(self.mu_net, obs), self.log_std.detach().cpu().numpy()
        noise = torch.randn(mu.shape).numpy()
        logp = -0.5 * (noise * noise).sum(-1) - log_std.sum() - len(log_std) * HALF_LOG_2PI
        return mu + np.exp(log_std) * noise, logp

    def mode(self, obs):
        """The middle of the bell curve."""
        return self.mu_net(obs)


HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


class MLPCritic(nn.Module):
    """The value of an observation."""

    def __init__(self, obs_dim, hidden_sizes, activation):
        super().__init__()
        self.v_net = observation_mlp(obs_dim, [*hidden_sizes, 1], activation)

    def forward(self, obs):
        return self.v_net(obs).squeeze(-1)  # (batch,), never (batch, 1), which would broadcast

    def value(self, obs):
        """The value of each of a few observations, as an array."""
        return few_rows(self.v_net, obs)[:, 0]


class MLPQFunction(nn.Module):
    """The value of an action at an observation."""

    def __init__(self, obs_dim, act_dim, hidden_sizes, activation):
        super().__init__()
        obs_dim = (obs_dim,) if np.isscalar(obs_dim) else obs_dim
        self.flat = Flat(obs_dim)
        self.q = mlp([int(np.prod(obs_dim)) + act_dim, *hidden_sizes, 1], activation)

    def forward(self, obs, act):
        return self.q(torch.cat([self.flat(obs), act], dim=-1)).squeeze(-1)


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
        x = torch.cat([self.flat(obs), act], dim=-1).expand(len(self), -1, -1)[members]
        for weight, bias, activation in zip(self.weights, self.biases, self.activations):
            x = activation(torch.baddbmm(bias[members], x, weight[members]))
        return x.squeeze(-1)


def _stacked(groups):
    return nn.ParameterList([nn.Parameter(torch.stack(same).detach().clone()) for same in groups])


class Member(nn.Module):
    """One critic of an ensemble, to be called like any other."""

    def __init__(self, ensemble, index):
        super().__init__()
        self.whole, self.index = (ensemble,), index  # in a tuple: its parameters stay its own

    def forward(self, obs, act):
        lead = act.shape[:-1]
        obs = obs.reshape(-1, *obs.shape[len(lead) :])
        member = slice(self.index, self.index + 1)
        return self.whole[0](obs, act.reshape(-1, act.shape[-1]), member).reshape(lead)

    def parameters(self, recurse=True):
        """Its part of each of the ensemble's parameters."""
        return (p[self.index] for p in self.whole[0].parameters())


def _shared_ensemble(ac):
    """The ensemble that both critics of `ac` are members of, or None: they may be a user's own."""
    q1, q2 = ac.q1, ac.q2
    together = isinstance(q1, Member) and isinstance(q2, Member) and q1.whole[0] is q2.whole[0]
    return q1.whole[0] if together else None


def q_values(ac, obs, act):
    """What both critics of `ac` say, one row each; together where they are an ensemble."""
    ensemble = _shared_ensemble(ac)
    if ensemble is not None:
        return ensemble(obs, act)
    return torch.stack([ac.q1(obs, act), ac.q2(obs, act)])


def q_parameters(ac):
    """All that the critics of `ac` learn."""
    ensemble = _shared_ensemble(ac)
    return list((ensemble or nn.ModuleList([ac.q1, ac.q2])).parameters())


class ActionRange(nn.Module):
    """Maps (-1, 1) to the bounds of each action dimension."""

    def __init__(self, act_limit, act_center=0.0):
        super().__init__()
        # Not saved with the weights: they are the environment's, not learned.
        as_tensor = lambda x: torch.as_tensor(np.array(x), dtype=torch.float32)  # noqa: E731
        self.register_buffer("scale", as_tensor(act_limit), persistent=False)
        self.register_buffer("center", as_tensor(act_center), persistent=False)

    def forward(self, unit):
        return torch.addcmul(self.center, self.scale, unit)


def action_limits(space: Box) -> dict:
    """Half the width, and the middle, of each dimension of a bounded space."""
    if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        raise UserError(
            f"This policy needs bounds for its actions, but they are {space}. "
            "Wrap the environment in gymnasium.wrappers.RescaleAction, or use ppo."
        )
    low, high = space.low.astype(np.float64).ravel(), space.high.astype(np.float64).ravel()
    return dict(act_limit=(high - low) / 2, act_center=(high + low) / 2)


class SquashedGaussianMLPActor(nn.Module):
    """A bell curve whose place and width depend on the observation, squashed into the bounds."""

    def __init__(self, obs_dim, act_dim, hidden_sizes, activation, act_limit, act_center=0.0):
        super().__init__()
        self.net = nn.Sequential(
            observation_mlp(obs_dim, list(hidden_sizes), activation), activation()
        )
        self.mu_layer = nn.Linear(hidden_sizes[-1], act_dim)
        self.log_std_layer = nn.Linear(hidden_sizes[-1], act_dim)
        self.range = ActionRange(act_limit, act_center)

    def forward(self, obs, deterministic=False, with_logprob=True):
        """Actions within the bounds and the log probability of each (before it is scaled)."""
        features = self.net(obs)
        mu = self.mu_layer(features)
        log_std = self.log_std_layer(features).clamp(LOG_STD_MIN, LOG_STD_MAX)
        noise = torch.zeros_like(mu) if deterministic else torch.randn_like(mu)
        u = mu + log_std.exp() * noise
        logp = squashed_log_prob(noise, log_std, u) if with_logprob else None
        return self.range(torch.tanh(u)), logp


def squashed_log_prob(noise, log_std, u):
    """Log probability of tanh(u), where u = mu + exp(log_std) * noise.

    The bell curve's, less the logarithm of tanh's slope at u, which is
    log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2u)) without the loss of digits.
    """
    log_slope = 2 * (math.log(2) - u - F.softplus(-2 * u))
    return (-0.5 * noise.square() - log_std - log_slope - HALF_LOG_2PI).sum(-1)
