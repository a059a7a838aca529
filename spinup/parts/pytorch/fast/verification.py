"""Whether what a capture gives equals what eager execution gave, to the last bit or to rounding."""

import numpy as np
import torch

from spinup.parts.pytorch.fast.kernels import tolerance
from spinup.parts.pytorch.fast.trace import overwritten, tensors_in
from spinup.parts.pytorch.fast.trusted import NotCapturable

CLOSE = 1e-2  # what results may differ by, as a share of the greatest


def same_bits(found, expected) -> bool:
    """Whether two results are the same to the last bit; not-a-number equals itself."""
    if not torch.is_tensor(expected) or not torch.is_tensor(found):
        return found is expected or found == expected
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return False
    return bool(
        torch.eq(found, expected).logical_or_(found.ne(found) & expected.ne(expected)).all()
    )


def results_agree(results, expected) -> bool:
    """Whether results are close to those at the end of an outcome, so far as they are numbers."""
    for found, b in zip(results, expected[-len(results) :] if results else []):
        found = torch.as_tensor(found) if isinstance(found, np.ndarray) else found
        if torch.is_tensor(found) and found.is_floating_point() and found.numel():
            a, b = found.detach(), b.detach()
            if a.shape != b.shape:
                return False
            allowed = CLOSE * (b.abs().max() + 1e-3)
            if not ((a - b).abs() <= allowed).logical_or(a.isnan() | (a == b)).all():
                return False
    return True


def check_step(step, operation, args, kwargs, result):
    """Carry out a step, then PyTorch's own operation in its place, and compare the two."""
    stream = torch.get_rng_state()
    written = overwritten(operation, args, kwargs)
    places = written if written else tensors_in(result)
    before = [t.clone() for t in written]
    step()
    found = [t.clone() for t in places]
    for tensor, value in zip(written, before):
        tensor.copy_(value)
    torch.set_rng_state(stream)
    given = operation(*args, **kwargs)
    if not written:
        for place, new in zip(places, tensors_in(given)):
            place.copy_(new)
    bound = tolerance(operation, before or None, args, kwargs)
    for a, b in zip(found, places):
        if not _within(a, b, bound):
            raise NotCapturable(f"the fast version of {operation} gives other numbers than PyTorch")


def _within(found, expected, bound) -> bool:
    if not expected.is_floating_point():
        return bool((found == expected).all())
    allowed = bound(expected)
    close = (found.double() - expected.double()).abs() <= allowed
    same = (found == expected) | (found.isnan() & expected.isnan())
    return bool((close | same).all())
