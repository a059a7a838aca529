"""How a captured operation is carried out again: by NumPy where it is tiny, else by PyTorch.

Both write into memory that is already there. NumPy is called in a third of a microsecond, PyTorch
in two to three; on large arrays PyTorch is faster, and uses several threads.

A kernel is built once per operation of a capture. Before a capture is trusted, every kernel is
compared with PyTorch's operation on the numbers at hand, within `tolerance`.
"""

from functools import partial

import torch

from spinup.parts.pytorch.fast import private
from spinup.parts.pytorch.fast.numpy_kernels import numpy_kernel
from spinup.parts.pytorch.fast.private import tree_flatten, tree_map_only

aten = torch.ops.aten


def replay_kernel(operation, args, kwargs, result, threads=1):
    """A call without arguments that writes `result` again, or what the operation overwrites.

    threads: how many PyTorch would use
    """
    if not private.is_operator(operation):  # a function of ours, kept whole
        prepared = getattr(operation.function, "prepared", None)
        return prepared(*args) if prepared else partial(operation.function, *args)
    kernel = numpy_kernel(operation, args, kwargs, result, threads)
    return kernel or _in_torch(operation, args, kwargs, result)


def _in_torch(operation, args, kwargs, result):
    if result is None or private.schema(operation).is_mutable:
        return partial(_FASTER_NAMES.get(operation, operation), *args, **kwargs)
    if operation in _WITH_OUT and torch.is_tensor(result):
        return partial(_WITH_OUT[operation], *args, out=result, **kwargs)
    if operation in _RANDOM and torch.is_tensor(result) and result.is_contiguous():
        return partial(_RANDOM[operation], result)
    return partial(_copied, operation, args, kwargs, tree_flatten(result)[0])


def _copied(operation, args, kwargs, places):
    """For what PyTorch does not write where it is told to."""
    for place, new in zip(places, tree_flatten(operation(*args, **kwargs))[0]):
        if torch.is_tensor(place):
            place.copy_(new)


def tolerance(operation, before, args, kwargs):
    """How far a kernel may be from PyTorch's operation, given the numbers that it works on.

    before: what the operation has overwritten; None where it has not
    """
    if operation in _SUMS:
        # Where terms cancel, what rounding leaves is a share of their sizes, not of the sum.
        sizes = tree_map_only(torch.Tensor, lambda t: t.double().abs(), (args, kwargs))
        scale = operation(*sizes[0], **sizes[1])
        return lambda expected: 1e-4 * scale + 1e-30
    if operation in _RELATIVE:
        return lambda expected: 1e-4 * expected.double().abs() + 1e-37
    given = [t for t in tree_flatten((args, kwargs, before))[0] if torch.is_tensor(t)]
    sizes = [t.double().abs().nan_to_num(0, 0, 0).max() for t in given if t.numel()]
    most = max(sizes, default=0.0)
    return lambda expected: 1e-5 * (expected.double().abs() + most)


_RANDOM = {
    aten.randn_like.default: torch.Tensor.normal_,
    aten.randn.default: torch.Tensor.normal_,
    aten.rand_like.default: torch.Tensor.uniform_,
    aten.rand.default: torch.Tensor.uniform_,
}
# PyTorch's functions that take `out`. By these names they are called faster than as operations.
_WITH_OUT = {
    aten.mm.default: torch.mm,
    aten.bmm.default: torch.bmm,
    aten.addmm.default: torch.addmm,
    aten.baddbmm.default: torch.baddbmm,
    aten.cat.default: torch.cat,
    aten.add.Tensor: torch.add,
    aten.sub.Tensor: torch.sub,
    aten.mul.Tensor: torch.mul,
    aten.div.Tensor: torch.div,
    aten.neg.default: torch.neg,
    aten.exp.default: torch.exp,
    aten.log.default: torch.log,
    aten.tanh.default: torch.tanh,
    aten.abs.default: torch.abs,
    aten.sigmoid.default: torch.sigmoid,
    aten.pow.Tensor_Scalar: torch.pow,
    aten.expm1.default: torch.expm1,
    aten.clamp.default: torch.clamp,
    aten.minimum.default: torch.minimum,
    aten.maximum.default: torch.maximum,
    aten.addcmul.default: torch.addcmul,
    aten.sum.dim_IntList: torch.sum,
    aten.amin.default: torch.amin,
    aten.amax.default: torch.amax,
    aten.gather.default: torch.gather,
    aten.scatter_add.default: torch.scatter_add,
    aten.stack.default: torch.stack,
    aten.where.self: torch.where,
    aten.mul.Scalar: torch.mul,
    aten.div.Scalar: torch.div,
    private.log_softmax: private.log_softmax_out,
    private.softmax: private.softmax_out,
    aten.linalg_vector_norm.default: torch.linalg.vector_norm,
    aten.threshold_backward.default: lambda *args, out: _threshold_backward(*args, grad_input=out),
    aten.tanh_backward.default: lambda *args, out: _tanh_backward(*args, grad_input=out),
}
_threshold_backward = aten.threshold_backward.grad_input
_tanh_backward = aten.tanh_backward.grad_input
_FASTER_NAMES = {
    aten.relu_.default: torch.relu_,
    aten.mul_.Tensor: torch.Tensor.mul_,
    aten.add_.Tensor: torch.Tensor.add_,
    aten.sub_.Tensor: torch.Tensor.sub_,
    aten.sigmoid_.default: torch.sigmoid_,
}
# Sums of products: what rounding leaves of them depends on their terms.
_SUMS = {
    aten.mm.default,
    aten.bmm.default,
    aten.addmm.default,
    aten.baddbmm.default,
    aten.dot.default,
    aten.sum.dim_IntList,
    aten.sum.default,
    aten.mean.default,
    aten.mean.dim,
}
# Functions of one number, whose smallest values count too.
_RELATIVE = {
    aten.exp.default,
    aten.log.default,
    aten.tanh.default,
    aten.sigmoid.default,
    aten.softplus.default,
    aten.expm1.default,
    aten.sqrt.default,
    aten.reciprocal.default,
}
