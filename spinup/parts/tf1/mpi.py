"""MPI with TensorFlow: equal variables at the start, averaged gradients, threads per process."""

import os
from collections.abc import Iterable
from typing import Any

import numpy as np

from spinup.parts.mpi import THREADS, allreduce, broadcast, num_procs
from spinup.parts.tf1.framework import tf


def flat_concat(xs: Iterable) -> Any:
    """All elements of tensors in one flat tensor."""
    return tf.concat([tf.reshape(x, (-1,)) for x in xs], axis=0)


def assign_params_from_flat(x: Any, params: Iterable) -> Any:
    """An operation that gives variables the values in the flat tensor `x`, one after the other."""
    params = list(params)
    parts = split_like(x, params)
    return tf.group([tf.assign(param, part) for param, part in zip(params, parts)])


def split_like(flat: Any, like: Iterable) -> list:
    """Cut one flat tensor into tensors of the shapes of `like`."""
    shapes = [x.shape.as_list() for x in like]
    parts = tf.split(flat, [int(np.prod(shape)) for shape in shapes])
    return [tf.reshape(part, shape) for part, shape in zip(parts, shapes)]


def sync_params(params: Iterable) -> Any:
    """An operation that gives every process the values that the first one has."""
    params = list(params)
    if num_procs() == 1 or not params:
        return tf.no_op()
    flat = flat_concat(params)
    received = tf.numpy_function(_broadcast, [flat], flat.dtype)
    received.set_shape(flat.shape)
    return assign_params_from_flat(received, params)


def sync_all_params() -> Any:
    """An operation that gives every process the floating-point variables of the first one."""
    floats = [variable for variable in tf.global_variables() if variable.dtype.is_floating]
    kinds = dict.fromkeys(variable.dtype.base_dtype for variable in floats)
    done: list = []
    for kind in kinds:  # in the same order everywhere
        same = [variable for variable in floats if variable.dtype.base_dtype == kind]
        with tf.control_dependencies(done):
            done = [sync_params(same)]
    return tf.group(done)


def mpi_mean(x: Any) -> Any:
    """The mean of a tensor over all processes."""
    if num_procs() == 1:
        return x
    mean = tf.numpy_function(_mean, [x], x.dtype)
    mean.set_shape(x.shape)
    return mean


def _broadcast(values):
    values = np.array(values)  # TensorFlow's own memory is not to be written to
    broadcast(values)
    return values


def _mean(values):
    values, received = np.ascontiguousarray(values), np.empty_like(values)
    allreduce(values, received)
    return (received / num_procs()).astype(values.dtype)


class MpiAdamOptimizer(tf.train.AdamOptimizer):
    """TensorFlow's Adam, with gradients that are averaged over all processes in one exchange."""

    def __init__(
        self, learning_rate: Any = 0.001, *args: Any, max_grad_norm: Any = None, **kwargs: Any
    ):
        """Make the optimizer.

        max_grad_norm: gradient-norm clipping, over all variables together
        """
        super().__init__(learning_rate, *args, **kwargs)
        self.max_grad_norm = max_grad_norm

    def compute_gradients(self, loss: Any, var_list: Any = None, **kwargs: Any) -> list:
        """The gradient of `loss` by each variable that it depends on, the same everywhere."""
        pairs = super().compute_gradients(loss, var_list, **kwargs)
        grads, variables = map(list, zip(*[pair for pair in pairs if pair[0] is not None]))
        if num_procs() > 1:
            grads = split_like(mpi_mean(flat_concat(grads)), variables)
        if self.max_grad_norm is not None:
            grads, _ = tf.clip_by_global_norm(grads, self.max_grad_norm)
        return list(zip(grads, variables))

    def apply_gradients(
        self, grads_and_vars: Any, global_step: Any = None, name: str | None = None
    ) -> Any:
        """An operation that takes a step, after which every process has the same variables."""
        grads_and_vars = list(grads_and_vars)
        step = super().apply_gradients(grads_and_vars, global_step, name)
        if num_procs() == 1:
            return step
        with tf.control_dependencies([step]):
            return sync_params([variable for _, variable in grads_and_vars])


def threads() -> int:
    """How many threads this process may have: its part of the cores, unless the user says."""
    for name in (THREADS, "OMP_NUM_THREADS"):
        if os.environ.get(name, "").isdigit():
            return max(1, int(os.environ[name]))
    here = int(os.environ.get("MPI_LOCALNRANKS", num_procs()))  # processes on this host
    return max(1, (os.cpu_count() or 1) // here)
