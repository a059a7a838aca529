"""Layers in PyTorch: fully connected ones made fast for small networks, and what goes before."""

from contextlib import contextmanager
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from spinup.utils.errors import UserError, did_you_mean

KNOWN_ACTIVATIONS = (*nn.modules.activation.__all__, "Identity")


def mlp(sizes, activation, output_activation=nn.Identity):
    """Fully connected layers of these sizes, with `activation` after each but the last."""
    activation, output_activation = (
        FastTanh if kind is nn.Tanh else kind for kind in (activation, output_activation)
    )
    layers = []
    for i, (size_in, size_out) in enumerate(zip(sizes[:-1], sizes[1:])):
        last = i == len(sizes) - 2
        layers += [nn.Linear(size_in, size_out), output_activation() if last else activation()]
    return MLP(*layers)


class MLP(nn.Sequential):
    """Linear layers and activations in turn."""

    def forward(self, x):
        layers = tuple(self._modules.values())
        if any(type(layer) is not nn.Linear for layer in layers[0::2]):  # a user's own insertion
            return super().forward(x)
        params = [p for layer in layers[0::2] for p in (layer.weight, layer.bias)]
        return through_layers(x, params, layers[1::2])


def through_layers(x, params, activations):
    """Rows of `x` through a network; one step for autograd where its layers are of a usual kind.

    params: weight and bias of each layer in turn, as `nn.Linear` has them; or stacked, inputs
        first, of several networks of one shape: then `x` is a stack of tables as well
    activations: what comes after each layer
    """
    stacked = params[0].ndim == 3
    *hidden, last = [type(activation) for activation in activations]
    kind = _USUAL.get(hidden[0]) if last is nn.Identity and len(set(hidden)) == 1 else None
    if kind is None or x.ndim != 2 + stacked or not x.is_cpu or _SECOND_DERIVATIVES:
        for i, activation in enumerate(activations):
            weight, bias = params[2 * i : 2 * i + 2]
            x = torch.baddbmm(bias, x, weight) if stacked else F.linear(x, weight, bias)
            x = activation(x)
        return x
    if not torch.is_grad_enabled():
        return _layer_outputs(x, kind, params)[-1]
    return _FusedLayers.apply(x, kind, *params)


_SECOND_DERIVATIVES = []  # not empty: keep to operations that can be differentiated twice
_WANTED = []  # not empty: the ids of those parameters whose gradients are being computed, and None


@contextmanager
def second_derivatives():
    """Within this, networks can be differentiated twice, and are a little slower."""
    _SECOND_DERIVATIVES.append(True)
    try:
        yield
    finally:
        _SECOND_DERIVATIVES.pop()


def gradients(loss, params):
    """The gradient of `loss` in each of `params`; None where it does not depend on one.

    The fused layers are told which are wanted, for autograd does not tell them: a policy's loss
    goes through the critics, but their weights need no gradient there.
    """
    _WANTED.append({None, *map(id, params)})  # None: a weight that was made of parameters
    try:
        return torch.autograd.grad(loss, params, allow_unused=True)
    finally:
        _WANTED.pop()


def _layer_outputs(x, kind, params):
    """What goes into each layer, then the result."""
    outputs = [x]
    for i in range(0, len(params), 2):
        if x.ndim == 2:
            y = torch.addmm(params[i + 1], outputs[-1], params[i].t())
        else:
            y = torch.baddbmm(params[i + 1], outputs[-1], params[i])
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
        ctx.ids = [id(p) if p.is_leaf else None for p in params]
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        n, learned = ctx.layers, ctx.needs_input_grad
        inputs, weights = ctx.saved_tensors[:n], ctx.saved_tensors[n:]
        grads = [None] * (2 + 2 * n)
        stacked = grad.ndim == 3
        product = torch.bmm if stacked else torch.mm
        for i in reversed(range(n)):
            if learned[2 + 2 * i] and (not _WANTED or ctx.ids[2 * i] in _WANTED[-1]):
                left, right = (inputs[i], grad) if stacked else (grad, inputs[i])
                grads[2 + 2 * i] = product(left.mT, right)
                grads[3 + 2 * i] = grad.sum(-2, keepdim=stacked)
            if i > 0 or learned[0]:
                weight = weights[i].mT if stacked else weights[i]
                grad = grad * weight if grad.shape[-1] == 1 else product(grad, weight)
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


_USUAL = {nn.ReLU: "relu", FastTanh: "tanh"}  # the activations that fused layers know


_parameter_lists = WeakKeyDictionary()


def parameter_list(module) -> list:
    """The parameters of a network; asked for once, for PyTorch looks for them at every call."""
    if module not in _parameter_lists:
        _parameter_lists[module] = list(module.parameters())
    return _parameter_lists[module]


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
