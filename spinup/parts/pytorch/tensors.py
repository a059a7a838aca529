"""Arrays as tensors, on the device where the networks are."""

import numpy as np
import torch

KEPT = {torch.float32, torch.int64}


def to_tensor(x, device="cpu"):
    """An array as a tensor: whole numbers that choose an action stay whole, all else is float."""
    if device == "cpu" and isinstance(x, np.ndarray):
        x = torch.from_numpy(x)  # quicker
    else:
        x = torch.as_tensor(x, device=device)
    return x if x.dtype in KEPT else x.float()


def as_tensors(device):
    """What makes tensors on `device` of a batch of arrays, a named tuple of any kind."""

    def convert(batch):
        return type(batch)(*(to_tensor(column, device) for column in batch))

    return convert
