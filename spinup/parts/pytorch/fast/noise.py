"""A few random numbers from PyTorch's stream, as an array.

They are drawn into a tensor that is kept, and copied: making a tensor takes longer than drawing.
"""

import threading

import numpy as np
import torch

from spinup.parts.pytorch.fast import switch

MOST_SHAPES = 64  # whose tensors are kept, in each thread


class _Kept(threading.local):
    def __init__(self):
        self.normal, self.uniform = {}, {}  # of each shape: what draws, and the array it draws to


_kept = _Kept()


def standard_normal(shape) -> np.ndarray | None:
    """Numbers as `torch.randn` gives them; None if this is switched off."""
    return _draw(_kept.normal, torch.Tensor.normal_, shape) if switch.enabled() else None


def uniform(shape) -> np.ndarray | None:
    """Numbers as `torch.rand` gives them; None if this is switched off."""
    return _draw(_kept.uniform, torch.Tensor.uniform_, shape) if switch.enabled() else None


def _draw(kept, draw, shape):
    if shape not in kept:
        if len(kept) >= MOST_SHAPES:
            kept.clear()
        tensor = torch.empty(shape, dtype=torch.float32, device="cpu")
        kept[shape] = tensor, tensor.numpy()
    tensor, array = kept[shape]
    draw(tensor)
    return array.copy()
