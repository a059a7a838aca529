"""A few random numbers from PyTorch's stream, as an array.

They are sampled into a tensor that is kept, and copied: making one takes longer than sampling.
"""

import threading

import numpy as np
import torch

from spinup.parts.pytorch.fast import switch

MAX_SHAPES = 64  # whose tensors are kept, in each thread


class _Kept(threading.local):
    def __init__(self):
        self.normal, self.uniform = {}, {}  # of each shape: a tensor, and its memory as an array


_kept = _Kept()


def standard_normal(shape) -> np.ndarray | None:
    """Numbers as `torch.randn` gives them; None if this is switched off."""
    return _sample(_kept.normal, torch.Tensor.normal_, shape) if switch.enabled() else None


def uniform(shape) -> np.ndarray | None:
    """Numbers as `torch.rand` gives them; None if this is switched off."""
    return _sample(_kept.uniform, torch.Tensor.uniform_, shape) if switch.enabled() else None


def _sample(kept, fill, shape):
    shape = shape if isinstance(shape, tuple) else tuple(shape)
    if shape not in kept:
        if len(kept) >= MAX_SHAPES:
            kept.clear()
        with torch.inference_mode(False):  # else it could not be used outside of that
            tensor = torch.empty(shape, dtype=torch.float32, device="cpu")
        kept[shape] = tensor, tensor.numpy()
    tensor, array = kept[shape]
    fill(tensor)
    return array.copy()
