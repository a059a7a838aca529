"""Operations on all parameters of a network at once: a step of Adam, clipping, a target's move.

Eager execution and replays use the very same functions, so that processes that train together have
the same weights to the last bit, even where one of them captures an update and another does not.
"""

from functools import partial

import numpy as np
import torch

from spinup.parts.mpi import mpi_sum, num_procs
from spinup.parts.pytorch.fast import private, switch
from spinup.parts.pytorch.fast.concurrency import note_writes, turn
from spinup.parts.pytorch.fast.context import is_capturing, opaque
from spinup.parts.pytorch.fast.numpy_kernels import MAX_NUMPY_NUMEL

VECTOR = 64  # numbers, a multiple of what any processor's instructions take at once


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
    def __call__(self, *args):
        self.prepared(*args, merge=False)()  # for one step it is not worth the search

    @staticmethod
    def prepared(live, params, grads, exp_avgs, exp_avg_sqs, counts, moved, merge=True):
        group, every = live.group, counts.detach().unbind()
        if not moved:
            return lambda: None
        array, one = counts.detach().numpy(), np.float32(1)
        if len(moved) == len(array):
            count_up = partial(np.add, array, one, out=array)
        else:
            count_up = partial(np.add.at, array, np.array(moved), one)
        params = [p.detach() for p in params]
        lists = params, grads, exp_avgs, exp_avg_sqs
        fixed = dict(zip(("beta1", "beta2"), group["betas"]), eps=group["eps"])
        fixed |= dict(weight_decay=0.0, amsgrad=False, maximize=False)
        apart = partial(private.fused_adam_, *lists, [], [every[i] for i in moved], **fixed)

        def step():
            count_up()
            apart(lr=float(group["lr"]))  # read now: a schedule may have changed it

        if not merge:
            return step
        *merged, firsts = _merged(*lists)
        counts_of = [every[moved[i]] for i in firsts]
        together = partial(private.fused_adam_, *merged, [], counts_of, **fixed)

        def step_together():
            count_up()
            alike = array.max() == array.min()  # else some have been stepped more often
            (together if alike else apart)(lr=float(group["lr"]))

        return step_together if len(firsts) < len(moved) else step


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


def _merged(*lists):
    """Tensors that lie next to each other in every one of the lists as one, for fewer are faster.

    Gives the lists with longer tensors in them, and the number of the first that is in each. Only
    what vector instructions take in whole is followed by another, so that bits stay the same.
    """
    rows = sorted(range(len(lists[0])), key=lambda i: lists[0][i].data_ptr())
    groups = []
    for i in rows:
        if groups and all(_follows(column[groups[-1][-1]], column[i]) for column in lists):
            groups[-1].append(i)
        else:
            groups.append([i])
    sizes = [sum(lists[0][i].numel() for i in group) for group in groups]
    found = []
    for column in lists:
        firsts = [column[group[0]].detach() for group in groups]
        found.append([t.as_strided((size,), (1,)) for t, size in zip(firsts, sizes)])
    return *found, [group[0] for group in groups]


def _follows(first, second) -> bool:
    """Whether a tensor lies right behind another one, in the same memory."""
    return (
        first.numel() % VECTOR == 0
        and first.is_contiguous()
        and second.is_contiguous()
        and first.data_ptr() + first.nbytes == second.data_ptr()
        and private.storage_id(first) == private.storage_id(second)
    )


class _MoveTowards(_Prepared):
    @staticmethod
    def prepared(targets, sources, weight):
        if all(t.is_contiguous() for t in (*targets, *sources)):
            targets, sources, _ = _merged(targets, sources)
        return partial(private.foreach_lerp_, targets, sources, weight)


class _Clip(_Prepared):
    @staticmethod
    def prepared(grads, max_norm):
        arrays = [grad.detach().numpy().reshape(-1) for grad in grads]

        def clip():
            norm = sum([float(array.dot(array)) for array in arrays]) ** 0.5
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
    plain = all(t.is_cpu and t.dtype == torch.float32 for t in (*targets, *sources))
    alike = all(t.shape == s.shape for t, s in zip(targets, sources))
    if not switch.enabled() or not targets or not plain or not alike:
        return None
    opaque(_move_towards, targets, sources, weight, writes=(0,))
    return True


def _average(x):
    if not is_capturing():  # the other processes may not be capturing now
        x.copy_(torch.from_numpy(mpi_sum(x.cpu().numpy())) / num_procs())


def average(x):
    """Replace `x` by its mean over all processes."""
    opaque(_average, x, writes=(0,))


_adam_step, _clip, _move_towards = _AdamStep(), _Clip(), _MoveTowards()
