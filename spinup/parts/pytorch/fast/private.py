"""PyTorch's private names, all of them, looked up once.

PyTorch may rename them in any release. If one is missing, `MISSING` says which, and the library
runs plain code only (see `enabled` in switch.py).
"""

import threading
from operator import attrgetter

import torch

MISSING: list[str] = []


def _find(path: str):
    """What `path` names inside torch; None, and noted, where this PyTorch lacks it."""
    found = torch
    for name in path.split("."):
        found = getattr(found, name, None)
        if found is None:
            MISSING.append(f"torch.{path}")
            return None
    return found


def _import(module: str, name: str):
    try:
        return getattr(__import__(module, fromlist=[name]), name)
    except (ImportError, AttributeError):
        MISSING.append(f"{module}.{name}")
        return object  # something that a class can be derived from


_TorchDispatchMode = _import("torch.utils._python_dispatch", "TorchDispatchMode")
tree_flatten = _import("torch.utils._pytree", "tree_flatten")
tree_unflatten = _import("torch.utils._pytree", "tree_unflatten")
tree_map_only = _import("torch.utils._pytree", "tree_map_only")
_guards = getattr(torch._C, "_dynamo", None) and getattr(torch._C._dynamo, "guards", None)
_dict_version = getattr(_guards, "dict_version", None)  # without these two, checks take longer
_TensorGuards = getattr(_guards, "TensorGuards", None)
_Handle = _find("utils.hooks.RemovableHandle")  # one is made for each hook, and numbered
fused_adam_ = _find("_fused_adam_")
foreach_copy_, foreach_lerp_ = _find("_foreach_copy_"), _find("_foreach_lerp_")
DisableTorchFunction = _find("_C.DisableTorchFunction")
_dispatch_modes = _find("_C._len_torch_dispatch_stack")
_function_modes = _find("_C._len_torch_function_stack")
_storage_use_count = _find("_C._storage_Use_Count")
_saving_hooks = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)
_functorch_level = _find("_C._functorch.maybe_current_level")
_global_hooks = [
    _import("torch.nn.modules.module", name)
    for name in (
        "_global_forward_hooks",
        "_global_forward_pre_hooks",
        "_global_backward_hooks",
        "_global_backward_pre_hooks",
    )
]
# The tensors that a plain module holds; PyTorch 2.4 has no Buffer yet.
TENSOR_TYPES = (
    torch.Tensor,
    torch.nn.Parameter,
    getattr(torch.nn.parameter, "Buffer", torch.nn.Parameter),
)
# Where a module keeps its parameters, its buffers and the modules inside it.
HELD = ("_parameters", "_buffers", "_modules")
parameters, layers = attrgetter("_parameters"), attrgetter("_modules")
gradient_hooks = attrgetter("_backward_hooks")  # of a tensor
schema = attrgetter("_schema")  # of an operator: the names and kinds of its arguments
# Operators below softmax, log_softmax and Tensor.to.
softmax, softmax_out = _find("ops.aten._softmax.default"), _find("ops.aten._softmax.out")
log_softmax = _find("ops.aten._log_softmax.default")
log_softmax_out = _find("ops.aten._log_softmax.out")
to_copy = _find("ops.aten._to_copy.default")
# Where a module keeps its hooks.
HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
)


class DispatchMode(_TorchDispatchMode):
    """Sees every operation below autograd."""

    @classmethod
    def _should_skip_dynamo(cls):
        return False  # else PyTorch loads its compiler, for a second and a half, to tell it so


def is_operator(function) -> bool:
    """Whether it is an operator of PyTorch, not a function that a capture keeps whole."""
    return hasattr(function, "_schema")


def modes_active() -> bool:
    """Whether a mode of PyTorch's sees each operation, so that all must be carried out."""
    return bool(
        _dispatch_modes()
        or _function_modes()
        or hooked_everywhere()
        or torch.is_anomaly_enabled()
        or saving_hooked()
        or torch.is_autocast_enabled("cpu")
        or torch.is_inference_mode_enabled()
        or in_transform()
    )


def _versions_tell() -> bool:
    """Whether the version of a dict grows with every change in this Python, tried out."""

    class Holder:
        pass

    if _dict_version is None:
        return False
    holder = Holder()
    own = vars(holder)
    versions = []
    for i in range(100):  # so often that Python has specialised its bytecode
        holder.value = float(i)
        versions.append(_dict_version(own))
    changes = own.clear, lambda: own.update({"value": 1}), own.popitem, lambda: own.setdefault(1, 2)
    for change in changes:  # an empty dict is filled from another one in a way of its own
        change()
        versions.append(_dict_version(own))
    return all(before < after for before, after in zip(versions, versions[1:]))


VERSIONS_TELL = _versions_tell()


def _guards_tell() -> bool:
    """Whether TensorGuards tells tensors apart, tried out on what matters most."""
    try:
        weight, column = torch.zeros(2, 2), torch.zeros(4, 2)
        guards = _TensorGuards(
            weight,
            column,
            dynamic_dims_sizes=[[2, 2], [4, 2]],
            dynamic_dims_strides=[[2, 1], [None, None]],
        )
        alike = (weight, column), (weight, torch.zeros(4, 4)[:, ::2])
        learns = torch.zeros(2, 2, requires_grad=True)
        others = (weight[:1], column), (weight.t(), column), (learns, column), (weight, column[1:])
        return all(guards.check(*pair) for pair in alike) and not any(
            guards.check(*pair) for pair in others
        )
    except Exception:  # another PyTorch, with other arguments
        return False


GUARDS_TELL = _TensorGuards is not None and _guards_tell()


def changes_of(dicts) -> int | None:
    """A number that grows with every change of one of the dicts; None where there is none.

    The version of a dict never gets smaller, so neither does the sum.
    """
    return sum(map(_dict_version, dicts)) if VERSIONS_TELL else None


def tensor_check(tensors, batch=()):
    """A function that tells of tensors whether they are like these, in one call.

    It compares type, shape, strides, dtype, device and requires_grad, and whether PyTorch's modes
    are as now, except those in `modes_guards_miss`.

    batch: further tensors, whose strides do not matter
    """
    everything = (*tensors, *batch)
    if GUARDS_TELL and len(set(map(id, everything))) == len(everything):
        strides = [list(t.stride()) for t in tensors] + [[None] * t.ndim for t in batch]
        sizes = [list(t.shape) for t in everything]
        guards = _TensorGuards(*everything, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides)
        return guards.check
    count = len(tensors)
    before = list(map(_layout_of, everything)), [t.stride() for t in tensors]

    def check(*given):
        now = list(map(_layout_of, given)), [t.stride() for t in given[:count]]
        return now == before and not modes_active()

    return check


def modes_guards_miss() -> bool:
    """Whether a mode sees operations that `tensor_check` does not notice."""
    return bool(_function_modes() or torch.is_anomaly_enabled() or saving_hooked())


def saving_hooked() -> bool:
    """Whether somebody hooks into what autograd keeps for the backward pass."""
    return _entered.hooks > 0 if _saving_hooks is None else _saving_hooks(False) is not None


class _Entered(threading.local):
    hooks = 0  # contexts of such hooks that this thread is in


_entered = _Entered()
if _saving_hooks is None:  # before PyTorch 2.7 it cannot be asked, so it is counted

    def _counted(kind, name, by):
        method = getattr(kind, name)

        def counting(self, *args):
            _entered.hooks += by
            return method(self, *args)

        setattr(kind, name, counting)

    _counted(torch.autograd.graph.saved_tensors_hooks, "__enter__", 1)
    _counted(torch.autograd.graph.saved_tensors_hooks, "__exit__", -1)


def _layout_of(tensor):
    return type(tensor), tensor.shape, tensor.dtype, tensor.device, tensor.requires_grad


def hooks_made() -> int:
    """How many hooks of any kind have been made so far."""
    return _Handle.next_id


def hooked_everywhere() -> bool:
    """Whether somebody has hooked into all modules at once."""
    return any(_global_hooks)


def in_transform() -> bool:
    """Whether a transform of torch.func is at work."""
    return _functorch_level() is not None


def in_forward_ad() -> bool:
    """Whether forward-mode differentiation is at work."""
    return getattr(torch.autograd.forward_ad, "_current_level", -1) >= 0


def has_hooks(module) -> bool:
    """Whether somebody has hooked into a module."""
    own = module.__dict__
    return any(own[name] for name in HOOKS)


def tensor_hooks(tensor) -> bool:
    return bool(tensor._backward_hooks or getattr(tensor, "_post_accumulate_grad_hooks", None))


def storage_id(tensor) -> int:
    """What is the same for all views of one memory, and for nothing else that is alive."""
    with DisableTorchFunction():
        return tensor.untyped_storage()._cdata


def is_only_user(tensor) -> bool:
    """Whether no other tensor and no array looks at the memory of `tensor`."""
    storage = tensor.untyped_storage()
    if storage.is_shared():  # with another process
        return False
    return _storage_use_count(storage._cdata) <= 2  # the tensor's own, and the one asked here
