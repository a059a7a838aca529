"""Operations on all parameters of a network at once: a step of Adam, clipping, a target's move.

Eager execution and replays use the very same functions, so that processes that train together have
the same weights to the last bit, even where one of them captures an update and another does not.
"""

from functools import partial

import numpy as np
import torch

from spinup.parts.pytorch.fast import private, switch
from spinup.parts.pytorch.fast.concurrency import note_writes, turn
from spinup.parts.pytorch.fast.tracing import is_capturing, opaque
from spinup.utils.mpi_tools import mpi_sum, num_procs

MAX_NUMPY_NUMEL = 32_768  # numbers in an array; beyond, PyTorch uses several threads


def _in_numpy(tensors) -> bool:
    """Whether NumPy is quicker: it is called in a tenth of the time, but has one thread."""
    return all(
        t.dtype == torch.float32 and t.is_cpu and t.is_contiguous() and t.numel() <= MAX_NUMPY_NUMEL
        for t in tensors
    )


class _Prepared:
    """A function that is looked up once and called often."""

    def __call__(self, *args):
        self.prepared(*args)()


class _Live:
    """Keeps a dict of an optimizer as the dict that it is, not as the values in it."""

    def __init__(self, group):
        self.group = group


class _AdamStep(_Prepared):
    @staticmethod
    def prepared(live, params, grads, exp_avgs, exp_avg_sqs, counts, moved):
        group, every = live.group, counts.detach().unbind()
        if not moved:
            return lambda: None
        array, one = counts.detach().numpy(), np.float32(1)
        if len(moved) == len(array):
            count_up = partial(np.add, array, one, out=array)
        else:
            count_up = partial(np.add.at, array, np.array(moved), one)
        params = [p.detach() for p in params]
        lists = params, grads, exp_avgs, exp_avg_sqs, [], [every[i] for i in moved]
        fixed = dict(zip(("beta1", "beta2"), group["betas"]), eps=group["eps"])
        fixed |= dict(weight_decay=0.0, amsgrad=False, maximize=False)
        move = partial(private.fused_adam_, *lists, **fixed)

        def step():
            count_up()
            move(lr=float(group["lr"]))  # read now: a schedule may have changed it

        return step


def adam_step(group, params, grads, exp_avgs, exp_avg_sqs, counts, moved):
    """Step of Adam for these parameters; None where the plain one must do it.

    counts: the steps taken, of all parameters of the optimizer
    moved: the places among them of those that are stepped now
    """
    tensors = (*params, *grads, *exp_avgs, *exp_avg_sqs, counts)
    fits = all(t.is_cpu and t.is_contiguous() and t.dtype == torch.float32 for t in tensors)
    if not switch.enabled() or not fits:
        return None
    note_writes((*params, *exp_avgs, *exp_avg_sqs))
    moments = exp_avgs, exp_avg_sqs, counts
    with turn():
        opaque(_adam_step, _Live(group), params, grads, *moments, moved, writes=(1, 3, 4, 5))
    return True


class _Clip(_Prepared):
    @staticmethod
    def prepared(grads, max_norm):
        arrays = [grad.detach().numpy().reshape(-1) for grad in grads]

        def clip():
            norm = sum(map(float, map(np.dot, arrays, arrays))) ** 0.5
            factor = max_norm / (norm + 1e-6)
            if not factor >= 1:  # also where it is not a number
                factor = np.float32(factor)
                for array in arrays:
                    np.multiply(array, factor, out=array)

        return clip


def clip_gradients(params, max_norm):
    """Clip the norm of all gradients together; None where the plain function must do it."""
    grads = [p.grad for p in params if p.grad is not None]
    if not switch.enabled() or not _in_numpy(grads):
        return None
    opaque(_clip, grads, max_norm, writes=(0,))
    return True


def move_towards(targets, sources, weight):
    """target += weight (source - target) for each pair; None where plain code must do it."""
    if len(targets) != len(sources):
        raise ValueError(f"{len(targets)} target parameters do not fit {len(sources)} others")
    pairs = [t.is_cpu and t.dtype == torch.float32 for t in (*targets, *sources)]
    if not switch.enabled() or not all(pairs):
        return None
    opaque(private.foreach_lerp_, targets, sources, weight, writes=(0,))
    return True


def _average(x):
    if not is_capturing():  # the other processes may not be capturing now
        x.copy_(torch.from_numpy(mpi_sum(x.cpu().numpy())) / num_procs())


def average(x):
    """Replace `x` by its mean over all processes."""
    opaque(_average, x, writes=(0,))


_adam_step, _clip = _AdamStep(), _Clip()
