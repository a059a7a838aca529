"""Networks applied to a few observations, in NumPy.

Asked about one observation at a time, PyTorch takes longer to be called than to compute. The arrays
are views of the weights, so they see every update. Before each use it is checked that the network
still consists of the same layers, whose weights lie where they lay, and that nobody hooks into it.
"""

import threading
from functools import wraps
from weakref import finalize

import numpy as np
from torch import nn

from spinup.parts.pytorch.fast import private, switch
from spinup.parts.pytorch.fast.guards import Unchanged

MAX_ROWS = 64  # beyond, PyTorch is faster
NUMPY_ACTIVATIONS = {
    nn.Tanh: lambda x: np.tanh(x, out=x),
    nn.ReLU: lambda x: np.maximum(x, 0, out=x),
    nn.Identity: lambda x: x,
}
_plans = {}  # by the ids of modules that are alive


class _Current(threading.local):
    plan = None  # the one that was checked for the policy call now running


_current = _Current()


class _Plan:
    """The networks and numbers inside a module as arrays, while it is as it was."""

    def __init__(self, root):
        modules = list(root.modules())
        self.inside = set(map(id, modules))
        dicts = [m.__dict__ for m in modules]
        dicts += [own[name] for own in dicts for name in private.HELD if own[name]]
        tensors = *root.parameters(), *root.buffers()
        self.unchanged = Unchanged(dicts, tensors, modules)
        self.hooks_made, self.hooked = private.hooks_made(), any(map(private.has_hooks, modules))
        self.networks, self.views = {}, {}  # by the ids of modules inside
        # Code that we do not know may change a network while a policy is being asked.
        self.known = all(map(_is_known, modules))

    def intact(self) -> bool:
        return self.hooks_made == private.hooks_made() and self.unchanged.intact()

    def network(self, net):
        """What comes before the layers of `net`, and these."""
        if id(net) not in self.networks:
            self.networks[id(net)] = (None, None) if self.hooked else _as_arrays(net)
        return self.networks[id(net)]

    def view(self, module, name):
        """A parameter or buffer as an array; None where it is not on the CPU."""
        key = id(module), name
        if key not in self.views:
            own = module.__dict__  # only what it holds itself: what it computes changes
            tensor = own[private.HELD[0]].get(name, own[private.HELD[1]].get(name))
            usable = type(tensor) in private.TENSOR_TYPES and tensor.is_cpu
            self.views[key] = tensor.detach().numpy() if usable else None
        return self.views[key]


def _plan(module):
    """The plan of a module, or of one around it that was just checked; None for plain code."""
    plan = _current.plan
    if plan is not None and id(module) in plan.inside:
        return plan
    if not switch.enabled() or private.hooked_everywhere():
        return None
    plan = _plans.get(id(module))
    if plan is None:
        finalize(module, _plans.pop, id(module), None)
    if plan is None or not plan.intact():
        try:
            plan = _plans[id(module)] = _Plan(module)
        except Exception:  # tensors of a kind that cannot be looked at: plain code does it
            return None
    return plan


def _is_known(module) -> bool:
    """Whether only code of PyTorch and of ours runs when a module is asked."""
    own = (type(module).__module__ or "").startswith(("torch.nn.", "spinup."))
    return own and not any(
        callable(value) and not isinstance(value, nn.Module) for value in vars(module).values()
    )


def checked_once(method):
    """Let a method that asks several networks of its module check them once, not one by one."""

    @wraps(method)
    def checked(self, *args, **kwargs):
        before, plan = _current.plan, _plan(self)
        if plan is None or not plan.known:
            return method(self, *args, **kwargs)
        _current.plan = plan
        try:
            return method(self, *args, **kwargs)
        finally:
            _current.plan = before

    return checked


def numpy_forward(net, obs):
    """What `net` gives for a few observations, as an array; None where PyTorch must do it."""
    rows = obs.shape[0]
    if rows > MAX_ROWS:
        return None
    plan = _plan(net)
    before, layers = (None, None) if plan is None else plan.network(net)
    if layers is None:
        return None
    x = obs if isinstance(obs, np.ndarray) else obs.numpy()
    x = x if x.ndim == 2 else x.reshape(rows, -1)
    for shift, scale, normalizer in before:
        limit = normalizer.LIMIT  # of its class, which may be given another
        x = np.minimum(np.maximum((x - shift) * scale, -limit), limit)
    dtype = layers[0][1].dtype
    if x.dtype != dtype:
        x = x.astype(dtype)
    for weight, bias, activation in layers:
        x = x.dot(weight)  # the method: np.dot takes twice as long to be called
        x += bias
        x = activation(x)
    return x


def numpy_view(module, name):
    """A parameter as an array that sees its updates; None where plain code must do it."""
    plan = _plan(module)
    return None if plan is None else plan.view(module, name)


def _as_arrays(net):
    """What comes before the linear layers, and these, as arrays; None where that is not all."""
    if type(net) is nn.Linear:
        before, layers = (), [net, nn.Identity()]
    elif type(net) is nn.Sequential and len(net) == 2 and _says(net[1], "IS_MLP"):
        before, layers = net[:1], list(net[1])
    elif _says(net, "IS_MLP"):
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


def _shift(module):
    """How a module shifts and scales observations, () if not at all, None if nobody knows."""
    if _says(module, "IS_FLATTEN"):
        return ()
    if _says(module, "IS_NORMALIZER"):
        return module.shift.numpy(), module.scale.numpy(), module
    return None
