"""A network applied to a few observations, in NumPy.

Asked about one observation at a time, PyTorch takes longer to be called than to compute. The arrays
are views of the weights, so they see every update. Before each use it is checked that the network
still consists of the same layers, whose weights lie where they lay, and that nobody hooks into it.
"""

from operator import attrgetter
from weakref import finalize

import numpy as np
import torch
from torch import nn

from spinup.parts.pytorch.fast import private, switch

MAX_ROWS = 64  # beyond, PyTorch is faster
NUMPY_ACTIVATIONS = {
    nn.Tanh: lambda x: np.tanh(x, out=x),
    nn.ReLU: lambda x: np.maximum(x, 0, out=x),
    nn.Identity: lambda x: x,
}
_plans, _views = {}, {}  # by the ids of networks that are alive
_data_ptr, _strides = torch.Tensor.data_ptr, torch.Tensor.stride


class _Plan:
    """A network as arrays, and what must stay as it is for that to be true."""

    def __init__(self, net):
        modules = list(net.modules())
        groups = [m.__dict__[name] for m in modules for name in private.HELD]
        self.containers = [group for group in groups if group]
        self.copies = [dict(group) for group in self.containers]
        self.sized = [m.__dict__ for m in modules]
        self.sizes = list(map(len, self.sized))
        self.tensors = [*net.parameters(), *net.buffers()]
        self.matrices = [t for t in self.tensors if t.ndim > 1]
        self.places = list(map(_data_ptr, self.tensors))
        self.strides = list(map(_strides, self.matrices))
        self.scratch, self.hooks_made = {}, private.hooks_made()
        hooked = any(map(private.has_hooks, modules))
        self.before, self.layers = (None, None) if hooked else _as_arrays(net)

    def intact(self) -> bool:
        try:
            return (
                self.hooks_made == private.hooks_made()
                and self.containers == self.copies
                and list(map(len, self.sized)) == self.sizes
                and list(map(_data_ptr, self.tensors)) == self.places
                and list(map(_strides, self.matrices)) == self.strides
            )
        except RuntimeError:  # tensors that are others now cannot be compared
            return False


def _plan(net):
    plan = _plans.get(id(net))
    if plan is None:
        finalize(net, _plans.pop, id(net), None)
    if plan is None or not plan.intact():
        plan = _plans[id(net)] = _Plan(net)
    return plan


def numpy_forward(net, obs):
    """What `net` gives for a few observations, as an array; None where PyTorch must do it."""
    rows = obs.shape[0]
    if rows > MAX_ROWS or not switch.enabled() or private.hooked_everywhere():
        return None
    plan = _plan(net)
    if plan.layers is None:
        return None
    if rows not in plan.scratch:
        plan.scratch[rows] = [np.empty((rows, b.size), b.dtype) for _, b, _ in plan.layers]
    x = obs if isinstance(obs, np.ndarray) else obs.numpy()
    x = x if x.ndim == 2 else x.reshape(rows, -1)
    for shift, scale, limit in plan.before:
        x = np.minimum(np.maximum((x - shift) * scale, -limit), limit)
    x = x.astype(plan.layers[0][1].dtype, copy=False)
    for (weight, bias, activation), y in zip(plan.layers, plan.scratch[rows]):
        np.dot(x, weight, y)
        np.add(y, bias, y)
        x = activation(y)
    return x.copy()


def numpy_view(module, name):
    """A parameter as an array that sees its updates; None where plain code must do it."""
    tensor = getattr(module, name)
    if not switch.enabled() or not tensor.is_cpu:
        return None
    if id(module) not in _views:
        _views[id(module)] = {}
        finalize(module, _views.pop, id(module), None)
    views, now = _views[id(module)], (tensor.data_ptr(), tensor.stride())
    place, array = views.get(name, (None, None))
    if place != now:
        array = tensor.detach().numpy()
        views[name] = now, array
    return array


def _as_arrays(net):
    """What comes before the linear layers, and these, as arrays; None where that is not all."""
    if type(net) is nn.Linear:
        before, layers = (), [net, nn.Identity()]
    elif type(net) is nn.Sequential and len(net) == 2 and _says(net[1], "LAYERS_IN_TURN"):
        before, layers = net[:1], list(net[1])
    elif _says(net, "LAYERS_IN_TURN"):
        before, layers = (), list(net)
    else:
        return None, None
    shifts = [_shift(module) for module in before]
    linear, activations = layers[0::2], layers[1::2]
    tensors = [*net.parameters(), *net.buffers()]
    fits = (
        None not in shifts
        and len(linear) == len(activations)
        and all(type(l) is nn.Linear and l.bias is not None for l in linear)
        and all(type(a) in NUMPY_ACTIVATIONS for a in activations)
        and all(t.is_cpu and type(t) in private.TENSOR_TYPES for t in tensors)
        and len({p.dtype for p in net.parameters()}) == 1
        and not any("forward" in m.__dict__ for m in net.modules())
    )
    if not fits:
        return None, None
    arrays = [
        (l.weight.detach().numpy().T, l.bias.detach().numpy()[None], NUMPY_ACTIVATIONS[type(a)])
        for l, a in zip(linear, activations)
    ]
    return [shift for shift in shifts if shift], arrays


def _says(module, what) -> bool:
    """Whether the class of a module says so itself: a class derived from it may do otherwise."""
    return what in vars(type(module))


_limits = attrgetter("shift", "scale", "LIMIT")


def _shift(module):
    """How a module shifts and scales observations, () if not at all, None if nobody knows."""
    if _says(module, "FLATTENS_ONLY"):
        return ()
    if _says(module, "CONSTANT_IN_UPDATES"):
        shift, scale, limit = _limits(module)
        return shift.numpy(), scale.numpy(), limit
    return None
