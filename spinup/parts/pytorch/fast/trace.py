"""Writing down the operations of an update: what PyTorch carries out below autograd.

`Trace` sees every operation and keeps it with its arguments and its result. `HostReadGuard` refuses
what would take numbers out of PyTorch, where a trace cannot follow them.
"""

import torch
from torch.overrides import TorchFunctionMode

from spinup.parts.pytorch.fast import private
from spinup.parts.pytorch.fast.private import tree_flatten
from spinup.parts.pytorch.fast.trusted import NotCapturable

aten = torch.ops.aten
_Tensor = torch.Tensor
# What lets numbers, memory or Python functions pass between PyTorch and the rest of a program.
HOST_READS = {
    _Tensor.numpy,
    _Tensor.__array__,
    _Tensor.tolist,
    _Tensor.item,
    _Tensor.__bool__,
    _Tensor.__float__,
    _Tensor.__int__,
    _Tensor.__index__,
    _Tensor.__complex__,
    _Tensor.__repr__,
    _Tensor.__format__,
    _Tensor.__contains__,
    _Tensor.__dlpack__,
    _Tensor.data_ptr,
    _Tensor.storage,
    _Tensor.untyped_storage,
    _Tensor.backward,
    _Tensor.register_hook,
    _Tensor.retain_grad,
    _Tensor.apply_,
    _Tensor.map_,
    _Tensor.set_,
    _Tensor.__deepcopy__,
    _Tensor.__reduce_ex__,
    _Tensor.data.__set__,
    _Tensor.requires_grad_,
    _Tensor.requires_grad.__set__,
}


class HostReadGuard(TorchFunctionMode):
    """Refuses what would let numbers out of PyTorch's sight."""

    def __init__(self):
        super().__init__()
        self.refused = None  # kept, for an update may catch every exception

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function in HOST_READS:
            self.refused = NotCapturable(f"it uses {_name_of(function)} on a tensor")
            raise self.refused
        return function(*args, **(kwargs or {}))


def _name_of(function) -> str:
    """What a reader calls one of HOST_READS; and what to use instead, where there is something."""
    owner = getattr(function, "__self__", None)  # of a property's setter: the property
    name = getattr(owner if owner is not None else function, "__name__", str(function))
    return "backward (gradient_step can be captured)" if name == "backward" else name


class Opaque:
    """A function that a capture keeps as one operation; it gives nothing back."""

    tags = ()

    def __init__(self, function, writes):
        self.function, self.writes = function, writes

    def __call__(self, *args):
        return self.function(*args)


class Trace(private.DispatchMode):
    """Writes down every operation below autograd."""

    def __init__(self):
        super().__init__()
        self.calls, self.made, self.written, self.paused = [], set(), set(), False
        self.graded = set()  # ids of the parameters whose gradients gradient_step has set
        self.literals = set()  # tensors made of numbers that stand in the code
        self.refused = None

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if self.paused:
            return operation(*args, **kwargs)
        try:
            _refuse(operation, args, kwargs)
        except NotCapturable as why:
            self.refused = why
            raise
        given = storages_in((args, kwargs))
        if operation is aten.lift_fresh.default:
            self.literals |= given
        self.written |= storages_in(overwritten(operation, args, kwargs))
        with private.DisableTorchFunction():  # how an operation works inside is its own affair
            result = operation(*args, **kwargs)
        self.calls.append((operation, args, kwargs, result))
        for tensor in tensors_in((args, kwargs, result)):
            if not tensor.is_cpu or tensor.layout != torch.strided:
                self.refused = NotCapturable(f"it has a tensor on {tensor.device}, {tensor.layout}")
                raise self.refused
        self.made |= storages_in(result) - given
        return result

    def opaque(self, function, args, writes):
        self.written |= storages_in([args[i] for i in writes])
        self.paused = True
        try:
            with private.DisableTorchFunction():
                result = function(*args)
        finally:
            self.paused = False
        self.calls.append((Opaque(function, writes), args, {}, result))
        return result


def _refuse(operation, args, kwargs):
    """Refuse operations whose replay could do something else than they do now."""
    if operation.namespace == "profiler":
        raise NotCapturable("it uses an optimizer of torch.optim or a profiler's label")
    if torch.Tag.inplace_view in operation.tags:
        raise NotCapturable(f"{operation} changes the shape of a tensor in place")
    if kwargs.get("generator") is not None or any(isinstance(a, torch.Generator) for a in args):
        raise NotCapturable("it samples from a random generator of its own")
    if operation is aten.index.Tensor:  # integer indices are fine, boolean masks are not
        by_truth = any(t.dtype in (torch.bool, torch.uint8) for t in tensors_in(args[1]))
    else:
        tags = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
        by_truth = bool(tags & set(operation.tags))
    if by_truth:
        raise NotCapturable(
            f"the shape of what {operation} gives depends on the data, as with boolean masks"
        )


def tensors_in(tree) -> list:
    return [leaf for leaf in tree_flatten(tree)[0] if torch.is_tensor(leaf)]


def storages_in(tree) -> set:
    return {private.storage_id(tensor) for tensor in tensors_in(tree)}


def overwritten(operation, args, kwargs) -> list:
    """The tensors that an operation changes."""
    if isinstance(operation, Opaque):
        # By place, for the same lists with other tensors in them stand for them in a capture.
        return tensors_in([args[i] for i in operation.writes])
    if not private.schema(operation).is_mutable:
        return []
    given = zip(private.schema(operation).arguments, args)
    named = [(a, kwargs[a.name]) for a in private.schema(operation).arguments if a.name in kwargs]
    changed = [x for a, x in (*given, *named) if a.alias_info is not None and a.alias_info.is_write]
    return tensors_in(changed)


def is_view(operation, args, kwargs, result) -> bool:
    """Whether the result is only another look at an argument, and nothing was computed."""
    if isinstance(operation, Opaque) or private.schema(operation).is_mutable:
        return False
    results = tensors_in(result)
    return bool(results) and storages_in(results) <= storages_in((args, kwargs))
