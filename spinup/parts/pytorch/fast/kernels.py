"""How a recorded operation is carried out again: by NumPy where it is tiny, else by PyTorch.

Both write into memory that is already there. NumPy is called in a third of a microsecond, PyTorch
in two to three; on large arrays PyTorch is faster, and uses several threads.
"""

from functools import partial

import numpy as np
import torch
from torch.utils._pytree import tree_flatten, tree_map_only

from spinup.parts.pytorch.layers import numpy_tanh_

aten = torch.ops.aten
TINY = 32_768  # numbers in an array; beyond, PyTorch uses several threads
TINIER = 4096  # the same for what PyTorch computes much faster
SMALL_PRODUCT = 2**19  # multiplications; beyond, a second thread helps
LARGE_TRANSPOSED = 2**15  # numbers in a matrix
SHORT_ROW, MOST_ROWS = 32, 64  # numbers in a row; rows that are gone through at once
IN_NUMPY = (torch.float32, torch.bool, torch.int64)


def again(operation, args, kwargs, result, threads=1):
    """A call without arguments that writes `result` again, or what the operation overwrites.

    threads: how many PyTorch would use
    """
    tensors = [leaf for leaf in tree_flatten((args, kwargs, result))[0] if torch.is_tensor(leaf)]
    way = _ALWAYS.get(operation) or _NUMPY.get(operation)
    most = TINIER if operation in _BETTER_IN_TORCH else TINY
    small = operation in _ALWAYS or all(t.numel() <= most for t in tensors)
    if way is not None and small and all(t.dtype in IN_NUMPY for t in tensors):
        out, here, named = tree_map_only(torch.Tensor, torch.Tensor.numpy, (result, args, kwargs))
        more = dict(threads=threads) if operation in _ALWAYS else {}
        call = way(out, *here, **named, **more)
        if call is not None:
            return call
    return _in_torch(operation, args, kwargs, result)


def _in_torch(operation, args, kwargs, result):
    if result is None or operation._schema.is_mutable:
        return partial(_FASTER_NAMES.get(operation, operation), *args, **kwargs)
    if operation in _WITH_OUT:
        return partial(_WITH_OUT[operation], *args, out=result, **kwargs)
    if operation in _RANDOM:
        return partial(_RANDOM[operation], result)
    return partial(_copied, operation, args, kwargs, tree_flatten(result)[0])


def _copied(operation, args, kwargs, places):
    """For what PyTorch does not write where it is told to."""
    for place, new in zip(places, tree_flatten(operation(*args, **kwargs))[0]):
        if place is not None:
            place.copy_(new)


def _mean_of_all(x, *, out):
    return torch.mean(x, dim=tuple(range(x.ndim)), out=out)


_RANDOM = {
    aten.randn_like.default: torch.Tensor.normal_, aten.randn.default: torch.Tensor.normal_,
    aten.rand_like.default: torch.Tensor.uniform_, aten.rand.default: torch.Tensor.uniform_,
}  # fmt: skip
# PyTorch's functions that take `out`. By these names they are called faster than as operations.
_WITH_OUT = {
    aten.mm.default: torch.mm, aten.bmm.default: torch.bmm, aten.addmm.default: torch.addmm,
    aten.baddbmm.default: torch.baddbmm, aten.cat.default: torch.cat,
    aten.add.Tensor: torch.add, aten.sub.Tensor: torch.sub, aten.mul.Tensor: torch.mul,
    aten.div.Tensor: torch.div, aten.neg.default: torch.neg, aten.exp.default: torch.exp,
    aten.log.default: torch.log, aten.tanh.default: torch.tanh, aten.abs.default: torch.abs,
    aten.sigmoid.default: torch.sigmoid, aten.pow.Tensor_Scalar: torch.pow,
    aten.expm1.default: torch.expm1, aten.clamp.default: torch.clamp,
    aten.minimum.default: torch.minimum, aten.maximum.default: torch.maximum,
    aten.addcmul.default: torch.addcmul, aten.sum.dim_IntList: torch.sum,
    aten.amin.default: torch.amin, aten.amax.default: torch.amax, aten.gather.default: torch.gather,
    aten.scatter_add.default: torch.scatter_add, aten.stack.default: torch.stack,
    aten.where.self: torch.where, aten.mul.Scalar: torch.mul, aten.div.Scalar: torch.div,
    aten.mean.default: _mean_of_all,
    aten._log_softmax.default: aten._log_softmax.out, aten._softmax.default: aten._softmax.out,
    aten.linalg_vector_norm.default: torch.linalg.vector_norm,
    aten.threshold_backward.default: lambda *args, out: _threshold_backward(*args, grad_input=out),
    aten.tanh_backward.default: lambda *args, out: _tanh_backward(*args, grad_input=out),
}  # fmt: skip
_threshold_backward, _tanh_backward = (
    aten.threshold_backward.grad_input, aten.tanh_backward.grad_input,
)  # fmt: skip
_FASTER_NAMES = {
    aten.relu_.default: torch.relu_, aten.mul_.Tensor: torch.Tensor.mul_,
    aten.add_.Tensor: torch.Tensor.add_, aten.sub_.Tensor: torch.Tensor.sub_,
    aten.sigmoid_.default: torch.sigmoid_, aten._fused_adam_.default: torch._fused_adam_,
    aten._foreach_lerp_.Scalar: torch._foreach_lerp_,
}  # fmt: skip


def _number(x):
    """A plain number as NumPy takes it fastest."""
    return x if isinstance(x, np.ndarray) else np.asarray(x, np.float32)


def _unary(ufunc):
    return lambda out, x: partial(ufunc, x, out=out)


def _binary(ufunc):
    return lambda out, x, y: _row_by_row(ufunc, x, _number(y), out)


def _row_by_row(ufunc, x, y, out):
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
        count = next((n for n in range(MOST_ROWS, 1, -1) if len(out) % n == 0), 1)
        if count > 1:
            rows = np.empty((count, len(row)), row.dtype)
            wide = [a.reshape(-1, rows.size) for a in (other, out)]
            given = (wide[0], rows.reshape(-1)) if same is y else (rows.reshape(-1), wide[0])
            return _in_turn(partial(np.copyto, rows, row), partial(ufunc, *given, out=wide[1]))
    return partial(ufunc, x, y, out=out)


def _in_place(ufunc):
    return lambda out, x, y, alpha=1: partial(ufunc, x, _number(y), out=x) if alpha == 1 else None


def _in_turn(*calls):
    """One call that makes several."""

    def call():
        for each in calls:
            each()

    return call


def _scaled(ufunc):
    """x + alpha y, or x - alpha y."""

    def way(out, x, y, alpha=1):
        if alpha == 1:
            return _row_by_row(ufunc, x, _number(y), out)
        if np.ndim(y) == 0 and not isinstance(y, np.ndarray):
            return partial(ufunc, x, _number(alpha * y), out=out)
        part = np.empty_like(out)
        scaled = partial(np.multiply, y, _number(alpha), out=part)
        return _in_turn(scaled, partial(ufunc, x, part, out=out))

    return way


def _rsub(out, x, y, alpha=1):
    return partial(np.subtract, _number(y), x, out=out) if alpha == 1 else None


def _pow(out, x, exponent):
    if exponent in (1, 2):
        return partial(np.square, x, out=out) if exponent == 2 else partial(np.copyto, out, x)
    return partial(np.power, x, _number(exponent), out=out)


def _clamp(out, x, least=None, most=None):
    calls = []
    if least is not None:
        calls.append(partial(np.maximum, x, _number(least), out=out))
    if most is not None:
        calls.append(partial(np.minimum, out if calls else x, _number(most), out=out))
    return calls[0] if len(calls) == 1 else _in_turn(*calls)


def _addcmul(out, x, y, z, value=1):
    part = np.empty(np.broadcast_shapes(y.shape, z.shape), np.float32)
    calls = [partial(np.multiply, y, z, out=part), partial(np.add, x, part, out=out)]
    if value != 1:
        calls.insert(1, partial(np.multiply, part, _number(value), out=part))
    return _in_turn(*calls)


def _sum(out, x, axes=None, keepdim=False, *, threads=1):
    """Along one of the last two axes, a product with ones: that is several times as fast."""
    if x.size > TINY and (threads > 1 or axes is None):
        return None
    axes = tuple(range(x.ndim)) if axes is None else tuple(axis % x.ndim for axis in axes)
    plain = x.dtype == out.dtype == np.float32 and x.ndim > 1
    if plain and axes == (x.ndim - 1,):
        ones = np.ones((x.shape[-1], 1), np.float32)
        return partial(np.matmul, x, ones, out.reshape(*x.shape[:-1], 1))
    if plain and axes == (x.ndim - 2,):
        ones = np.ones((1, x.shape[-2]), np.float32)
        return partial(np.matmul, ones, x, out.reshape(*x.shape[:-2], 1, x.shape[-1]))
    return partial(np.add.reduce, x, axes, None, out, keepdim) if x.size <= TINY else None


def _mean(out, x, axes=None, keepdim=False):
    if axes is None and not keepdim:  # what is the same along an axis counts once
        x = x[tuple(slice(1) if stride == 0 else slice(None) for stride in x.strides)]
    count = _number(x.size / max(out.size, 1))
    return _in_turn(_sum(out, x, axes, keepdim), partial(np.divide, out, count, out=out))


def _reduce(ufunc):
    def way(out, x, axes=(), keepdim=False):
        return partial(ufunc.reduce, x, tuple(axes) or None, None, out, keepdim)

    return way


def _argmax(out, x, axis=None, keepdim=False):
    return partial(np.argmax, x, axis, out, keepdims=keepdim)


def _cat(out, arrays, axis=0):
    return partial(np.concatenate, arrays, axis, out)


def _stack(out, arrays, axis=0):
    places = [np.moveaxis(out, axis, 0)[i : i + 1] for i in range(len(arrays))]
    return _in_turn(*(partial(np.copyto, p, a) for p, a in zip(places, arrays)))


def _softplus(out, x, beta=1, threshold=20):
    """max(x, 0) + log(1 + exp(-|x|)), which never grows too large on the way."""
    if beta != 1:
        return None
    part, zero = np.empty_like(out), _number(0)
    return _in_turn(
        partial(np.abs, x, out=part), partial(np.negative, part, out=part),
        partial(np.exp, part, out=part), partial(np.log1p, part, out=part),
        partial(np.maximum, x, zero, out=out), partial(np.add, out, part, out=out),
    )  # fmt: skip


def _sigmoid(out, x):
    """By the hyperbolic tangent, which NumPy computes fast and without overflow."""
    half, one = _number(0.5), _number(1)
    return _in_turn(
        partial(np.multiply, x, half, out=out), partial(np.tanh, out, out=out),
        partial(np.add, out, one, out=out), partial(np.multiply, out, half, out=out),
    )  # fmt: skip


def _threshold(out, grad, x, threshold):
    part = np.empty(x.shape, bool)
    at = _number(threshold)
    return _in_turn(partial(np.greater, x, at, out=part), partial(np.multiply, grad, part, out=out))


def _of_tanh(out, grad, y):
    part, one = np.empty_like(out), _number(1)
    return _in_turn(
        partial(np.square, y, out=part), partial(np.subtract, one, part, out=part),
        partial(np.multiply, grad, part, out=out),
    )  # fmt: skip


def _smooth_l1(out, x, y, reduction=1, beta=1.0):
    """With z = |x - y| and m = min(z, beta), m (z - m / 2) / beta is both of its branches."""
    if reduction != 0:
        return None
    z, m, half = np.empty_like(out), np.empty_like(out), _number(0.5)
    return _in_turn(
        partial(np.subtract, x, y, out=z), partial(np.abs, z, out=z),
        partial(np.minimum, z, _number(beta), out=m), partial(np.multiply, m, half, out=out),
        partial(np.subtract, z, out, out=out), partial(np.multiply, out, m, out=out),
        partial(np.divide, out, _number(beta), out=out),
    )  # fmt: skip


def _of_smooth_l1(out, grad, x, y, reduction, beta):
    if reduction != 0:
        return None
    return _in_turn(
        partial(np.subtract, x, y, out=out), partial(np.divide, out, _number(beta), out=out),
        _clamp(out, out, -1, 1), partial(np.multiply, out, grad, out=out),
    )  # fmt: skip


def _norms(out, arrays, order=2):
    if order != 2:
        return None
    return _in_turn(
        *(partial(np.dot, a.reshape(-1), a.reshape(-1), o) for a, o in zip(arrays, out)),
        *(partial(np.sqrt, o, out=o) for o in out),
    )


def _norm(out, x, order=2, axes=None, keepdim=False, dtype=None):
    if order != 2 or x.ndim != 1 or out.ndim:
        return None
    return _in_turn(partial(np.dot, x, x, out), partial(np.sqrt, out, out=out))


def _each_times(out, arrays, factor):
    return _in_turn(*(partial(np.multiply, a, factor, out=a) for a in arrays))


def _each_moved(out, arrays, others, weight):
    """x + weight (y - x) for each pair."""
    calls, weight = [], _number(weight)
    for x, y in zip(arrays, others):
        part = np.empty_like(x)
        calls.append(partial(np.subtract, y, x, out=part))
        calls.append(partial(np.multiply, part, weight, out=part))
        calls.append(partial(np.add, x, part, out=x))
    return _in_turn(*calls)


def _where(out, condition, x, y):
    return _in_turn(partial(np.copyto, out, y), partial(np.copyto, out, x, "same_kind", condition))


def _masked_fill_(out, x, mask, value):
    return partial(np.putmask, x, mask, np.float32(value))


def _copy(out, x, **_):
    return partial(np.copyto, out, x, "unsafe")


def _product(out, x, y, *, threads):
    """NumPy's library is the quicker on one core, above all where a side is short.

    Left to PyTorch are large products where there are several cores, and those with a large
    transposed matrix.
    """
    large = x.size * y.shape[-1] > SMALL_PRODUCT and min(y.shape[-1], x.shape[-2]) > 1
    transposed = y.strides[-1] > y.strides[-2] and y.shape[-1] * y.shape[-2] >= LARGE_TRANSPOSED
    return None if large and (threads > 1 or transposed) else partial(np.matmul, x, y, out)


def _product_plus(out, bias, x, y, beta=1, alpha=1, *, threads):
    """PyTorch adds the bias on the way, which counts where a product is large and not thin."""
    if x.size * y.shape[-1] > SMALL_PRODUCT and y.shape[-1] >= SHORT_ROW:
        return None
    product = _product(out, x, y, threads=threads)
    if product is None or beta != 1 or alpha != 1:
        return None
    return _in_turn(product, _row_by_row(np.add, out, bias, out))


def _tanh_(out, x, *, threads):
    return partial(np.tanh, x, out=x)


# These decide by themselves; the others are for tiny arrays.
_ALWAYS = {
    aten.mm.default: _product, aten.bmm.default: _product,
    aten.addmm.default: _product_plus, aten.baddbmm.default: _product_plus,
    numpy_tanh_: _tanh_, aten.sum.dim_IntList: _sum,
}  # fmt: skip
_BETTER_IN_TORCH = {
    aten.relu_.default, aten.threshold_backward.default, aten.threshold_backward.grad_input,
}  # fmt: skip
_NUMPY = {
    aten.add.Tensor: _scaled(np.add), aten.sub.Tensor: _scaled(np.subtract),
    aten.add.Scalar: _scaled(np.add), aten.sub.Scalar: _scaled(np.subtract),
    aten.mul.Tensor: _binary(np.multiply), aten.mul.Scalar: _binary(np.multiply),
    aten.div.Tensor: _binary(np.divide), aten.div.Scalar: _binary(np.divide),
    aten.rsub.Scalar: _rsub, aten.pow.Tensor_Scalar: _pow,
    aten.minimum.default: _binary(np.minimum), aten.maximum.default: _binary(np.maximum),
    aten.where.self: _where, aten.masked_fill_.Scalar: _masked_fill_,
    aten.eq.Tensor: _binary(np.equal), aten.ne.Tensor: _binary(np.not_equal),
    aten.gt.Scalar: _binary(np.greater), aten.lt.Scalar: _binary(np.less),
    aten.gt.Tensor: _binary(np.greater), aten.lt.Tensor: _binary(np.less),
    aten.ge.Tensor: _binary(np.greater_equal), aten.le.Tensor: _binary(np.less_equal),
    aten.logical_and_.default: _in_place(np.logical_and),
    aten.ge.Scalar: _binary(np.greater_equal), aten.le.Scalar: _binary(np.less_equal),
    aten.neg.default: _unary(np.negative), aten.exp.default: _unary(np.exp),
    aten.log.default: _unary(np.log), aten.tanh.default: _unary(np.tanh),
    aten.abs.default: _unary(np.abs), aten.sqrt.default: _unary(np.sqrt),
    aten.reciprocal.default: _unary(np.reciprocal), aten.expm1.default: _unary(np.expm1),
    aten.sigmoid.default: _sigmoid, aten.softplus.default: _softplus,
    aten.clamp.default: _clamp, aten.clamp.Tensor: _clamp, aten.addcmul.default: _addcmul,
    aten.sum.default: _sum,
    aten.mean.default: _mean, aten.mean.dim: _mean,
    aten.amin.default: _reduce(np.minimum), aten.amax.default: _reduce(np.maximum),
    aten.argmax.default: _argmax, aten.cat.default: _cat, aten.stack.default: _stack,
    aten.threshold_backward.default: _threshold, aten.tanh_backward.default: _of_tanh,
    aten.threshold_backward.grad_input: lambda _, *args, grad_input: _threshold(grad_input, *args),
    aten.tanh_backward.grad_input: lambda _, *args, grad_input: _of_tanh(grad_input, *args),
    aten.smooth_l1_loss.default: _smooth_l1, aten.smooth_l1_loss_backward.default: _of_smooth_l1,
    aten.dot.default: lambda out, x, y: partial(np.dot, x, y, out),
    aten._foreach_norm.Scalar: _norms, aten.linalg_vector_norm.default: _norm,
    aten._to_copy.default: _copy, aten.clone.default: _copy,
    aten.relu_.default: lambda out, x: partial(np.maximum, x, _number(0), out=x),
    aten.sigmoid_.default: lambda out, x: _sigmoid(x, x),
    aten.mul_.Tensor: _in_place(np.multiply), aten.add_.Tensor: _in_place(np.add),
    aten.sub_.Tensor: _in_place(np.subtract),
    aten.copy_.default: lambda out, x, y, *_: partial(np.copyto, x, y, "unsafe"),
    aten._foreach_mul_.Tensor: _each_times, aten._foreach_lerp_.Scalar: _each_moved,
}  # fmt: skip
