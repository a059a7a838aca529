"""Layers in PyTorch: fully connected ones made fast for small networks, and what goes before."""

from contextlib import contextmanager
from contextvars import ContextVar
from weakref import WeakKeyDictionary

import numpy as np
import torch
from gymnasium.spaces import Box
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from spinup.utils.errors import UserError, did_you_mean
from spinup.utils.mpi_tools import mpi_sum

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

    def forward(self, x, more=None):
        """What comes of `x`, of which `more` are further columns."""
        layers = tuple(self._modules.values())
        in_turn = all(type(layer) is nn.Linear for layer in layers[0::2]) and len(layers) % 2 == 0
        if not in_turn:  # a user has put in something else
            return super().forward(x if more is None else torch.cat([x, more], -1))
        params = [p for layer in layers[0::2] for p in (layer.weight, layer.bias)]
        return through_layers(x, params, layers[1::2], more)


def through_layers(x, params, activations, more=None):
    """Rows of `x` through a network; one step for autograd where its layers are of a usual kind.

    params: weight and bias of each layer in turn, as `nn.Linear` has them; or stacked, inputs
        first, of several networks of one shape, of which each gets the same rows
    activations: what comes after each layer
    more: further columns of `x`; apart, for often only these want a gradient
    """
    stacked = params[0].ndim == 3
    *hidden, last = [type(activation) for activation in activations]
    kind = _USUAL.get(hidden[0]) if last is nn.Identity and len(set(hidden)) == 1 else None
    if kind is None or x.ndim != 2 or not x.is_cpu or _TWICE.get():
        x = x if more is None else torch.cat([x, more], -1)
        for i, activation in enumerate(activations):
            weight, bias = params[2 * i : 2 * i + 2]
            if stacked:
                x = torch.baddbmm(bias, x.expand(len(weight), *x.shape[-2:]), weight)
            else:
                x = F.linear(x, weight, bias)
            x = activation(x)
        return x
    if not torch.is_grad_enabled():
        return _layer_outputs(x, more, kind, params)[-1]
    return _FusedLayers.apply(x, more, kind, *params)


# Each thread has its own: a policy and a value may be learned side by side.
_TWICE = ContextVar("whether operations must be such as can be differentiated twice", default=False)
_WANTED = ContextVar("ids of the parameters whose gradients are computed, and None", default=None)


@contextmanager
def second_derivatives():
    """Within this, networks can be differentiated twice, and are a little slower."""
    before = _TWICE.set(True)
    try:
        yield
    finally:
        _TWICE.reset(before)


def gradients(loss, params):
    """The gradient of `loss` in each of `params`; None where it does not depend on one.

    The fused layers are told which are wanted, for autograd does not tell them: a policy's loss
    goes through the critics, but their weights need no gradient there.
    """
    before = _WANTED.set({None, *map(id, params)})  # None: a weight that was made of parameters
    try:
        return torch.autograd.grad(loss, params, allow_unused=True)
    finally:
        _WANTED.reset(before)


def _layer_outputs(x, more, kind, params):
    """What goes into each layer, then the result."""
    stacked = params[0].ndim == 3
    x = x if more is None else torch.cat([x, more], -1)
    outputs = [x.expand(len(params[0]), *x.shape) if stacked else x]
    for i in range(0, len(params), 2):
        if stacked:
            y = torch.baddbmm(params[i + 1], outputs[-1], params[i])
        else:
            y = torch.addmm(params[i + 1], outputs[-1], params[i].t())
        if i + 2 < len(params):
            y.relu_() if kind == "relu" else numpy_tanh_(y)
        outputs.append(y)
    return outputs


def _tanh_(x):
    array = x.detach().numpy()
    np.tanh(array, out=array)


# In NumPy a hyperbolic tangent takes a sixth of the time that it takes in PyTorch. It is made an
# operation of PyTorch's own kind so that a recorded update contains it: see recording.py.
_library = torch.library.Library("spinup", "FRAGMENT")
_library.define("tanh_(Tensor(a!) x) -> ()")
_library.impl("tanh_", _tanh_, "CPU")
numpy_tanh_ = torch.ops.spinup.tanh_.default


def _owner(p):
    """The id of the parameter that `p` is, or is a part of; None where it was made of several."""
    whole = p._base if p._is_view() else p
    return id(whole) if whole.is_leaf else None


class _FusedLayers(torch.autograd.Function):
    """The chain rule for a whole network at once: a fifth of autograd's steps, fewer copies."""

    @staticmethod
    def forward(ctx, x, more, kind, *params):
        *inputs, y = _layer_outputs(x, more, kind, params)
        ctx.save_for_backward(*inputs, *params[0::2])
        ctx.kind, ctx.columns = kind, x.shape[-1]  # those of x come before those of more
        ctx.ids = [_owner(p) for p in params]
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        n = len(ctx.saved_tensors) // 2
        inputs, weights = ctx.saved_tensors[:n], ctx.saved_tensors[n:]
        of_x, of_more, _, *learned = ctx.needs_input_grad
        grads, wanted = [None] * (2 * n), _WANTED.get()
        stacked = grad.ndim == 3
        product = torch.bmm if stacked else torch.mm
        for i in reversed(range(n)):
            if learned[2 * i] and (wanted is None or ctx.ids[2 * i] in wanted):
                left, right = (inputs[i], grad) if stacked else (grad, inputs[i])
                grads[2 * i] = product(left.mT, right)
                grads[2 * i + 1] = grad.sum(-2, keepdim=stacked)
            if i > 0:
                weight = weights[i].mT if stacked else weights[i]
                grad = grad * weight if grad.shape[-1] == 1 else product(grad, weight)
                slope = _SLOPES[ctx.kind]
                slope(grad, inputs[i], grad_input=grad)
        first, parts = weights[0].mT if stacked else weights[0], [None, None]
        columns = slice(None, ctx.columns), slice(ctx.columns, None)
        for i in [i for i, asked in enumerate((of_x, of_more)) if asked]:
            part = product(grad, first[..., columns[i]])
            parts[i] = part.sum(0) if stacked else part
        return *parts, None, *grads


# What a gradient is multiplied by on its way back through an activation, in place.
_SLOPES = {
    "relu": lambda grad, y, grad_input: torch.ops.aten.threshold_backward.grad_input(
        grad, y, 0, grad_input=grad_input
    ),
    "tanh": torch.ops.aten.tanh_backward.grad_input,
}


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
        self.dims, self.size = len(shape), int(np.prod(shape))

    def forward(self, obs):
        return obs.reshape(*obs.shape[: obs.ndim - self.dims], -1)


class Normalizer(Flat):
    """Shifts and scales each number of an observation by the mean and the spread of all seen.

    It learns by `see`, not by gradient. What it has seen is saved with the weights, so a loaded
    network cannot lack it. At first it only clips.
    """

    LIMIT = 10.0  # in standard deviations; what lies further out counts as this far
    LEAST_SPREAD = 1e-7  # of the mean: less than single precision can tell from a constant

    def __init__(self, shape):
        super().__init__((shape,) if np.isscalar(shape) else shape)
        nothing = dict(count=np.zeros(()), mean=np.zeros(self.size), var=np.ones(self.size))
        for name, start in nothing.items():
            self.register_buffer(name, torch.as_tensor(start))  # in double precision
        # The same as the network uses them: one subtraction and one product.
        self.register_buffer("shift", torch.zeros(self.size))
        self.register_buffer("scale", torch.ones(self.size))

    def forward(self, obs):
        x = (super().forward(obs) - self.shift) * self.scale
        return x.clamp(-self.LIMIT, self.LIMIT)

    @torch.no_grad()
    def see(self, obs):
        """Take a batch of observations, of every process, into the statistics.

        Mean and squared deviations are those of the batch first, and merged then: sums of squares
        would lose all digits where the mean is far from zero.
        """
        x = super().forward(obs).double().cpu().numpy()
        n, *total = mpi_sum(np.append(float(len(x)), x.sum(0)))
        mean = np.array(total) / n
        squares = mpi_sum(((x - mean) ** 2).sum(0))
        before, old_mean, old_var = (b.cpu().numpy() for b in (self.count, self.mean, self.var))
        count, apart = before + n, mean - old_mean
        new_mean = old_mean + apart * (n / count)
        new_var = (old_var * before + squares + apart**2 * (before * n / count)) / count
        spread = np.sqrt(new_var)
        # A number that has never changed is only shifted.
        scale = 1 / np.where(spread > self.LEAST_SPREAD * np.abs(new_mean), spread, 1)
        new = dict(count=count, mean=new_mean, var=new_var, shift=new_mean, scale=scale)
        for name, value in new.items():
            getattr(self, name).copy_(torch.as_tensor(value))


SMALLEST_PICTURE = 10  # pixels in height and in width
FULL_KERNELS = ((32, 8, 4, 0), (64, 4, 2, 0), (64, 3, 1, 0))  # channels, kernel, stride, padding
FULL_KERNELS_FROM = 60  # pixels, below which those would leave little of where things are
SMALL_KERNELS = ((16, 3, 2, 1), (32, 3, 2, 1), (32, 3, 1, 1))


def is_image(space) -> bool:
    """Whether observations are pictures: bytes up to 255 in two dimensions or three.

    A fourth dimension, frames one after the other, is a picture too.
    """
    if not isinstance(space, Box) or space.dtype != np.uint8 or not 2 <= len(space.shape) <= 4:
        return False
    _, height, width, _ = picture_layout(space.shape)
    return min(height, width) >= SMALLEST_PICTURE and bool((space.high == 255).all())


def picture_layout(shape):
    """Channels (of all frames), height, width, and whether the channels of a frame come last.

    The shape tells: of (4, 84, 84) and (84, 84, 3), the smaller end counts the channels.
    """
    frames, picture = (shape[:-3], shape[-3:]) if len(shape) > 2 else ((), (1, *shape))
    last = picture[-1] < picture[0]
    height, width = picture[:2] if last else picture[1:]
    channels = int(np.prod(frames)) * (picture[-1] if last else picture[0])
    return channels, height, width, last


class ImageEncoder(nn.Module):
    """Three convolutions that make a vector of a picture; its bytes are scaled to 0..1 first.

    For pictures of 60 pixels and more they are those of Mnih and others (2015), for smaller ones
    they have fewer channels and look at 3 x 3 pixels at a time.
    """

    def __init__(self, shape):
        super().__init__()
        self.dims = len(shape)
        channels, height, width, self.channels_last = picture_layout(shape)
        self.picture = (channels, height, width)
        layers = []
        full = min(height, width) >= FULL_KERNELS_FROM
        for made, kernel, stride, padding in FULL_KERNELS if full else SMALL_KERNELS:
            layers += [nn.Conv2d(channels, made, kernel, stride, padding), nn.ReLU()]
            channels = made
            height, width = ((n + 2 * padding - kernel) // stride + 1 for n in (height, width))
        self.net = nn.Sequential(*layers)
        self.size = channels * height * width

    def forward(self, obs):
        lead = obs.shape[: obs.ndim - self.dims]
        x = obs.movedim(-1, -3) if self.channels_last else obs
        x = x.reshape(-1, *self.picture).float() / 255
        return self.net(x).reshape(*lead, self.size)


def image_encoder(space):
    """A new encoder where observations are pictures; None where an mlp takes them as they are."""
    return ImageEncoder(space.shape) if is_image(space) else None


def observation_mlp(obs_dim, sizes, activation, features=None):
    """An mlp on observations of `obs_dim`: a number of features, or a shape to be flattened.

    features: a module that makes `features.size` numbers of each observation for the mlp
    """
    shape = (obs_dim,) if np.isscalar(obs_dim) else obs_dim
    if features is None and len(shape) != 1:
        features = Flat(shape)
    layers = mlp([features.size if features else shape[0], *sizes], activation)
    return nn.Sequential(features, layers) if features else layers


NUMPY_ACTIVATIONS = {
    FastTanh: lambda x: np.tanh(x, out=x),
    nn.ReLU: lambda x: np.maximum(x, 0, out=x),
    nn.Identity: lambda x: x,
}


def few_rows(net: nn.Module, obs) -> np.ndarray:
    """What `net` gives for a few observations, a tensor or an array, as an array.

    They are multiplied in NumPy: asking one observation at a time, PyTorch takes longer to be
    called than to compute. The arrays are views of the weights, so they see every update.
    """
    first, place, arrays, room = net.__dict__.get("numpy_views") or (None,) * 4
    if first is None or first.data_ptr() != place:  # new, or its weights lie elsewhere now
        first, place, arrays, room = net.__dict__["numpy_views"] = (*_numpy_views(net), {})
    rows = obs.shape[0]
    if arrays is None or rows > 64:
        with torch.no_grad():
            return net(torch.as_tensor(obs)).cpu().numpy()
    before, layers = arrays
    if rows not in room:
        room[rows] = [np.empty((rows, bias.size), bias.dtype) for _, bias, _ in layers]
    x = obs if isinstance(obs, np.ndarray) else obs.numpy()
    x = x if x.ndim == 2 else x.reshape(rows, -1)
    for shift, scale in before:
        x = np.minimum(np.maximum((x - shift) * scale, -Normalizer.LIMIT), Normalizer.LIMIT)
    x = x.astype(layers[0][1].dtype, copy=False)
    for (weight, bias, activation), y in zip(layers, room[rows]):
        np.dot(x, weight, y)
        np.add(y, bias, y)
        x = activation(y)
    return x.copy()


def array_of(module, name) -> np.ndarray:
    """A parameter or buffer of a module as an array; on a CPU it is a view, looked for once."""
    tensor, views = getattr(module, name), module.__dict__.setdefault("array_views", {})
    place, array = views.get(name, (None, None))
    if place != tensor.data_ptr():
        array = tensor.detach().cpu().numpy()
        if tensor.is_cpu:
            views[name] = tensor.data_ptr(), array
    return array


def _numpy_views(net):
    """The first weights, where they lie, and all layers as arrays; None where NumPy cannot help."""
    first = next(net.parameters())
    if isinstance(net, nn.Linear):
        layers, before = [net, nn.Identity()], ()
    else:
        layers, before = (net[-1], net[:-1]) if isinstance(net[-1], MLP) else (net, ())
    linear, activations = list(layers)[0::2], list(layers)[1::2]
    known = all(isinstance(module, Flat) for module in before) and all(
        type(layer) is nn.Linear and layer.weight.is_cpu for layer in linear
    )
    if (
        not known
        or len(linear) != len(activations)
        or not all(type(a) in NUMPY_ACTIVATIONS for a in activations)
    ):
        return first, first.data_ptr(), None
    arrays = (
        [(m.shift.numpy(), m.scale.numpy()) for m in before if isinstance(m, Normalizer)],
        [
            (l.weight.detach().numpy().T, l.bias.detach().numpy()[None], NUMPY_ACTIVATIONS[type(a)])
            for l, a in zip(linear, activations)
        ],
    )
    return first, first.data_ptr(), arrays
