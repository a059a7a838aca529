"""Layers in PyTorch: fully connected ones made fast for small networks, and what goes before."""

from contextlib import contextmanager

import numpy as np
import torch
from torch import nn
from torch.autograd.function import once_differentiable

from spinup.utils.errors import UserError, did_you_mean

KNOWN_ACTIVATIONS = (*nn.modules.activation.__all__, "Identity")


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
