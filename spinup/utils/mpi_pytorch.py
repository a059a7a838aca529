"""What processes that train together exchange: weights at the start, then gradients."""

import numpy as np
import torch

from spinup.utils.mpi_tools import broadcast, mpi_sum, num_procs


def setup_pytorch_for_mpi():
    """Share the cores out: each process gets its part of PyTorch's threads."""
    threads = max(1, torch.get_num_threads() // num_procs())
    if threads != torch.get_num_threads():
        torch.set_num_threads(threads)


def mpi_avg_grads(module):
    """Average the gradients of `module` over all processes."""
    average_gradients(list(module.parameters()))


def average_gradients(params):
    """Replace each gradient by its mean over all processes; one exchange for all of them."""
    if num_procs() == 1:
        return
    grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in params]
    mean = mpi_sum(torch.cat([grad.reshape(-1) for grad in grads]).cpu().numpy()) / num_procs()
    for p, grad in zip(params, _split(mean, grads)):
        p.grad = grad.to(p.device)


def sync_params(module):
    """Give every process the weights (and buffers) that the first one has."""
    if num_procs() == 1:
        return
    tensors = [t.data for t in (*module.parameters(), *module.buffers())]
    for dtype in dict.fromkeys(t.dtype for t in tensors):  # in the same order everywhere
        same = [t for t in tensors if t.dtype == dtype]
        flat = torch.cat([t.reshape(-1) for t in same]).cpu().numpy()
        broadcast(flat)
        for t, part in zip(same, _split(flat, same)):
            t.copy_(part)


def _split(flat: np.ndarray, like):
    """Cut one flat array into tensors of the shapes of `like`."""
    parts = torch.as_tensor(flat).split([t.numel() for t in like])
    return [part.view(t.shape) for part, t in zip(parts, like)]
