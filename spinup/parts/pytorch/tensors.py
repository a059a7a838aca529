"""Arrays as tensors, on the device where the networks are; and random numbers as arrays."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from spinup.parts.pytorch import fast

KEPT = {torch.float32, torch.int64}
ON_CPU: dict[str, Any] = dict(dtype=torch.float32, device="cpu")


def to_tensor(x: Any, device: str = "cpu") -> torch.Tensor:
    """An array as a tensor: integers, which choose an action, stay so; all else is float."""
    if device == "cpu" and isinstance(x, np.ndarray):
        x = torch.from_numpy(x)  # quicker
    else:
        x = torch.as_tensor(x, device=device)
    return x if x.dtype in KEPT else x.float()


def as_tensors(device: str) -> Callable:
    """What makes tensors on `device` of a batch of arrays, a named tuple of any kind."""

    def convert(batch):
        if device == "cpu":
            columns = map(torch.from_numpy, batch)
        else:
            columns = (torch.as_tensor(column, device=device) for column in batch)
        return type(batch)(*[x if x.dtype in KEPT else x.float() for x in columns])

    return convert


def standard_normal(shape: Sequence[int]) -> np.ndarray:
    """Numbers from the standard normal distribution, from PyTorch's random stream."""
    sampled = fast.standard_normal(shape)
    return torch.randn(shape, **ON_CPU).numpy() if sampled is None else sampled


def uniform(shape: Sequence[int]) -> np.ndarray:
    """Numbers sampled uniformly from [0, 1), from PyTorch's random stream."""
    sampled = fast.uniform(shape)
    return torch.rand(shape, **ON_CPU).numpy() if sampled is None else sampled
