"""Operations of PyTorch carried out by NumPy, into memory that is already there.

A builder below is called once per operation of a capture, with the arguments and the memory of the
result as arrays, and gives a call without arguments. It gives None, or raises a TypeError or a
ValueError, where it is not made for such arguments; then PyTorch's own operation is used.
"""

from functools import partial

import numpy as np
import torch
from scipy.special import expit

from spinup.parts.pytorch.fast import private
from spinup.parts.pytorch.fast.private import tree_flatten, tree_map_only

aten = torch.ops.aten
MAX_NUMPY_NUMEL = 32_768  # numbers in an array; beyond, PyTorch uses several threads
TINY_PRODUCT = 2**18  # multiplications; beyond, it counts that a bias is added on the way
SMALL_PRODUCT = 2**19  # the same; beyond, a second thread helps
LARGE_TRANSPOSED = 2**15  # numbers in a matrix
SHORT_ROW, MAX_TILE = 32, 64  # numbers in a row; rows that are gone through at once


def numpy_kernel(operation, args, kwargs, result, threads):
    """The kernel for these arguments; None where there is none."""
    build = _SIZE_AWARE.get(operation) or _NUMPY.get(operation)
    tensors = [leaf for leaf in tree_flatten((args, kwargs, result))[0] if torch.is_tensor(leaf)]
    if build is None or not _dtypes_fit(operation, tensors):
        return None
    most = _FASTER_IN_TORCH.get(operation, MAX_NUMPY_NUMEL)
    if operation not in _SIZE_AWARE and any(t.numel() > most for t in tensors):
        return None
    out, here, named = tree_map_only(torch.Tensor, torch.Tensor.numpy, (result, args, kwargs))
    extra = dict(threads=threads) if operation in _SIZE_AWARE else {}
    try:
        return build(out, *here, **named, **extra)
    except (TypeError, ValueError):  # arguments that the kernel does not have
        return None


def _dtypes_fit(operation, tensors) -> bool:
    allowed = _OTHER_DTYPES.get(operation, {torch.float32})
    return all(t.dtype in allowed for t in tensors)


def _number(x):
    """A plain number as NumPy takes it fastest."""
    return x if isinstance(x, np.ndarray) else np.asarray(x, np.float32)


def _unary(ufunc):
    return lambda out, x: partial(ufunc, x, out=out)


def _binary(ufunc):
    return lambda out, x, y: _tiled(ufunc, x, _number(y), out)


def _tiled(ufunc, x, y, out):
    """ufunc(x, y), several short rows at once where one of the two is the same row for all.

    NumPy goes through a row in a nanosecond a number, but takes ten to begin the next.
    """
    for same, other in ((y, x), (x, y)):
        row = same.reshape(-1, same.shape[-1])[0] if same.ndim and same.size else same
        alike = same.ndim == 1 or same.ndim == 2 and same.strides[0] == 0
        full = other.ndim == out.ndim == 2 and other.shape == out.shape
        if not (full and alike and 1 < len(row) < SHORT_ROW and other is not same):
            continue
        if not (other.flags.c_contiguous and out.flags.c_contiguous):
            continue
        if not np.shares_memory(row, same):  # a copy would never change again
            continue
        count = next((n for n in range(MAX_TILE, 1, -1) if len(out) % n == 0), 1)
        if count > 1:
            rows = np.empty((count, len(row)), row.dtype)
            wide = [a.reshape(-1, rows.size) for a in (other, out)]
            given = (wide[0], rows.reshape(-1)) if same is y else (rows.reshape(-1), wide[0])
            return _sequence(partial(np.copyto, rows, row), partial(ufunc, *given, out=wide[1]))
    return partial(ufunc, x, y, out=out)


def _in_place(ufunc):
    return lambda out, x, y, alpha=1: partial(ufunc, x, _number(y), out=x) if alpha == 1 else None


def _sequence(*calls):
    """One call that makes several."""
    if None in calls:
        return None

    def call():
        for each in calls:
            each()

    return call


def _scaled(ufunc):
    """x + alpha y, or x - alpha y."""

    def build(out, x, y, alpha=1):
        if alpha == 1:
            return _tiled(ufunc, x, _number(y), out)
        if np.ndim(y) == 0 and not isinstance(y, np.ndarray):
            return partial(ufunc, x, _number(alpha * y), out=out)
        part = np.empty_like(y)
        scaled = partial(np.multiply, y, _number(alpha), out=part)
        return _sequence(scaled, partial(ufunc, x, part, out=out))

    return build


def _rsub(out, x, y, alpha=1):
    return partial(np.subtract, _number(y), x, out=out) if alpha == 1 else None


def _pow(out, x, exponent):
    if exponent in (1, 2):
        return partial(np.square, x, out=out) if exponent == 2 else partial(np.copyto, out, x)
    return None


def _clamp(out, x, least=None, most=None):
    calls = []
    if least is not None:
        calls.append(partial(np.maximum, x, _number(least), out=out))
    if most is not None:
        calls.append(partial(np.minimum, out if calls else x, _number(most), out=out))
    return calls[0] if len(calls) == 1 else _sequence(*calls)


def _addcmul(out, x, y, z, value=1):
    part = np.empty(np.broadcast_shapes(y.shape, z.shape), np.float32)
    calls = [partial(np.multiply, y, z, out=part), partial(np.add, x, part, out=out)]
    if value != 1:
        calls.insert(1, partial(np.multiply, part, _number(value), out=part))
    return _sequence(*calls)


def _sum(out, x, axes=None, keepdim=False, *, threads=1):
    """Along one of the last two axes, a product with ones: that is several times as fast."""
    axes = tuple(range(x.ndim)) if not axes else tuple(axis % x.ndim for axis in axes)
    if x.size > MAX_NUMPY_NUMEL and (threads > 1 or len(axes) > 1):
        return None
    plain = x.ndim > 1 and x.dtype == out.dtype == np.float32
    if plain and axes == (x.ndim - 1,):
        ones, place = np.ones((x.shape[-1], 1), np.float32), out.reshape(*x.shape[:-1], 1)
        return _dot(x, ones, place) if np.shares_memory(place, out) else None
    if plain and axes == (x.ndim - 2,):
        ones = np.ones((1, x.shape[-2]), np.float32)
        place = out.reshape(*x.shape[:-2], 1, x.shape[-1])
        return _dot(ones, x, place) if np.shares_memory(place, out) else None
    small = x.size <= MAX_NUMPY_NUMEL
    return partial(np.add.reduce, x, axes, None, out, keepdim) if small else None


def _sum_of_all(out, x):
    return _sum(out, x)


def _mean(out, x, axes=None, keepdim=False):
    if x.ndim and not axes and not keepdim:  # what is the same along an axis counts once
        x = x[tuple(slice(1) if stride == 0 else slice(None) for stride in x.strides)]
    if not x.size:
        return None
    count = _number(x.size / max(out.size, 1))
    return _sequence(_sum(out, x, axes, keepdim), partial(np.divide, out, count, out=out))


def _reduce(ufunc):
    def build(out, x, axes=(), keepdim=False):
        return partial(ufunc.reduce, x, tuple(axes) or None, None, out, keepdim)

    return build


def _argmax(out, x, axis=None, keepdim=False):
    return partial(x.argmax, axis, out, keepdims=keepdim)


def _cat(out, arrays, axis=0):
    if len({a.ndim for a in arrays}) > 1:  # PyTorch passes over empty vectors
        return None
    return partial(np.concatenate, arrays, axis, out)


def _stack(out, arrays, axis=0):
    places = [np.moveaxis(out, axis, 0)[i : i + 1] for i in range(len(arrays))]
    return _sequence(*(partial(np.copyto, p, a) for p, a in zip(places, arrays)))


def _softplus(out, x, beta=1, threshold=20):
    """max(x, 0) + log(1 + exp(-|x|)), which never grows too large on the way."""
    if beta != 1:
        return None
    part, zero = np.empty_like(out), _number(0)
    return _sequence(
        partial(np.abs, x, out=part),
        partial(np.negative, part, out=part),
        partial(np.exp, part, out=part),
        partial(np.log1p, part, out=part),
        partial(np.maximum, x, zero, out=out),
        partial(np.add, out, part, out=out),
    )


def _threshold(out, grad, x, threshold):
    """The gradient where x is above the threshold, else 0; even where the gradient is infinite.

    The bits of the gradient are kept by a mask of ones, or cleared by one of zeros.
    """
    if np.shares_memory(out, x):
        return None
    below, at = np.empty(x.shape, bool), _number(threshold)
    narrow, mask = below.view(np.int8), np.empty(x.shape, np.int32)
    bits, new_bits = grad.view(np.int32), out.view(np.int32)
    return _sequence(
        partial(np.less_equal, x, at, out=below),  # not "greater": NaN lets the gradient pass
        partial(np.subtract, narrow, np.int8(1), out=narrow),  # 0 is to be -1: all bits
        partial(np.copyto, mask, narrow),
        partial(np.bitwise_and, bits, mask, out=new_bits),
    )


def _tanh_backward_kernel(out, grad, y):
    part, one = np.empty_like(y), _number(1)
    return _sequence(
        partial(np.square, y, out=part),
        partial(np.subtract, one, part, out=part),
        partial(np.multiply, grad, part, out=out),
    )


def _smooth_l1(out, x, y, reduction=1, beta=1.0):
    """With z = |x - y| and m = min(z, beta), m (z - m / 2) / beta is both of its branches."""
    if reduction != 0 or not beta > 0:
        return None
    z, m, half = np.empty_like(out), np.empty_like(out), _number(0.5)
    return _sequence(
        partial(np.subtract, x, y, out=z),
        partial(np.abs, z, out=z),
        partial(np.minimum, z, _number(beta), out=m),
        partial(np.multiply, m, half, out=out),
        partial(np.subtract, z, out, out=out),
        partial(np.multiply, out, m, out=out),
        partial(np.divide, out, _number(beta), out=out),
    )


def _smooth_l1_backward(out, grad, x, y, reduction, beta):
    if reduction != 0 or not beta > 0:
        return None
    return _sequence(
        partial(np.subtract, x, y, out=out),
        partial(np.divide, out, _number(beta), out=out),
        _clamp(out, out, -1, 1),
        partial(np.multiply, out, grad, out=out),
    )


def _where(out, condition, x, y):
    return _sequence(partial(np.copyto, out, y), partial(np.copyto, out, x, "same_kind", condition))


def _masked_fill_(out, x, mask, value):
    if mask.shape != x.shape:  # putmask does not broadcast
        return None
    return partial(np.putmask, x, mask, np.float32(value))


def _copy(out, x, **_):
    return partial(np.copyto, out, x) if np.can_cast(x.dtype, out.dtype, "same_kind") else None


def _copy_(out, x, y, *_):
    return _copy(x, y)


def _matmul(out, x, y, *, threads):
    """NumPy's library is the quicker on one core, above all where a side is short.

    Left to PyTorch are large products where there are several cores, and those with a large
    transposed matrix.
    """
    large = x.size * y.shape[-1] > SMALL_PRODUCT and min(y.shape[-1], x.shape[-2]) > 1
    transposed = y.strides[-1] > y.strides[-2] and y.shape[-1] * y.shape[-2] >= LARGE_TRANSPOSED
    if large and (threads > 1 or transposed):
        return None
    return _dot(x, y, out)


def _dot(x, y, out):
    if x.ndim == y.ndim == 2 and out.flags.c_contiguous:
        return partial(x.dot, y, out)  # called faster
    return partial(np.matmul, x, y, out)


def _addmm(out, bias, x, y, beta=1, alpha=1, *, threads):
    """PyTorch adds the bias on the way, which counts where a product is not tiny and not thin."""
    if x.size * y.shape[-1] > TINY_PRODUCT and y.shape[-1] >= SHORT_ROW:
        return None
    product = _matmul(out, x, y, threads=threads)
    if product is None or beta != 1 or alpha != 1:
        return None
    return _sequence(product, _tiled(np.add, out, bias, out))


def _tanh(out, x, *, threads):
    return partial(np.tanh, x, out=out)


# These decide by themselves; the others are for tiny arrays.
_SIZE_AWARE = {
    aten.mm.default: _matmul,
    aten.bmm.default: _matmul,
    aten.addmm.default: _addmm,
    aten.baddbmm.default: _addmm,
    aten.tanh.default: _tanh,
    aten.sum.dim_IntList: _sum,
}
# The same limit for what PyTorch computes much faster.
_FASTER_IN_TORCH = {
    aten.relu_.default: 1024,
    aten.threshold_backward.default: 4096,
    aten.threshold_backward.grad_input: 4096,
}
_COMPARISONS = {
    aten.eq.Tensor: _binary(np.equal),
    aten.ne.Tensor: _binary(np.not_equal),
    aten.gt.Scalar: _binary(np.greater),
    aten.lt.Scalar: _binary(np.less),
    aten.gt.Tensor: _binary(np.greater),
    aten.lt.Tensor: _binary(np.less),
    aten.ge.Tensor: _binary(np.greater_equal),
    aten.le.Tensor: _binary(np.less_equal),
    aten.ge.Scalar: _binary(np.greater_equal),
    aten.le.Scalar: _binary(np.less_equal),
}
_NUMPY = _COMPARISONS | {
    aten.add.Tensor: _scaled(np.add),
    aten.sub.Tensor: _scaled(np.subtract),
    aten.add.Scalar: _scaled(np.add),
    aten.sub.Scalar: _scaled(np.subtract),
    aten.mul.Tensor: _binary(np.multiply),
    aten.mul.Scalar: _binary(np.multiply),
    aten.div.Tensor: _binary(np.divide),
    aten.div.Scalar: _binary(np.divide),
    aten.rsub.Scalar: _rsub,
    aten.pow.Tensor_Scalar: _pow,
    aten.minimum.default: _binary(np.minimum),
    aten.maximum.default: _binary(np.maximum),
    aten.where.self: _where,
    aten.masked_fill_.Scalar: _masked_fill_,
    aten.logical_and_.default: _in_place(np.logical_and),
    aten.neg.default: _unary(np.negative),
    aten.exp.default: _unary(np.exp),
    aten.log.default: _unary(np.log),
    aten.abs.default: _unary(np.abs),
    aten.sqrt.default: _unary(np.sqrt),
    aten.reciprocal.default: _unary(np.reciprocal),
    aten.expm1.default: _unary(np.expm1),
    aten.sigmoid.default: _unary(expit),
    aten.softplus.default: _softplus,
    aten.clamp.default: _clamp,
    aten.clamp.Tensor: _clamp,
    aten.addcmul.default: _addcmul,
    aten.sum.default: _sum_of_all,
    aten.mean.default: _mean,
    aten.mean.dim: _mean,
    aten.amin.default: _reduce(np.minimum),
    aten.amax.default: _reduce(np.maximum),
    aten.argmax.default: _argmax,
    aten.cat.default: _cat,
    aten.stack.default: _stack,
    aten.threshold_backward.default: _threshold,
    aten.tanh_backward.default: _tanh_backward_kernel,
    aten.threshold_backward.grad_input: lambda _, *args, grad_input: _threshold(grad_input, *args),
    aten.tanh_backward.grad_input: lambda _, *args, grad_input: _tanh_backward_kernel(
        grad_input, *args
    ),
    aten.smooth_l1_loss.default: _smooth_l1,
    aten.smooth_l1_loss_backward.default: _smooth_l1_backward,
    aten.dot.default: lambda out, x, y: partial(x.dot, y, out),
    private.to_copy: _copy,
    aten.clone.default: _copy,
    aten.relu_.default: lambda out, x: partial(np.maximum, x, _number(0), out=x),
    aten.mul_.Tensor: _in_place(np.multiply),
    aten.add_.Tensor: _in_place(np.add),
    aten.sub_.Tensor: _in_place(np.subtract),
    aten.copy_.default: _copy_,
}
# What a kernel takes besides float32.
_OTHER_DTYPES = dict.fromkeys(_COMPARISONS, {torch.float32, torch.bool}) | {
    aten.where.self: {torch.float32, torch.bool},
    aten.masked_fill_.Scalar: {torch.float32, torch.bool},
    aten.logical_and_.default: {torch.bool},
    aten.argmax.default: {torch.float32, torch.int64},
    private.to_copy: {torch.float32, torch.bool},
    aten.mul.Tensor: {torch.float32, torch.bool},
    aten.div.Tensor: {torch.float32, torch.int64},
    aten.sum.dim_IntList: {torch.float32, torch.bool, torch.int64},
}
