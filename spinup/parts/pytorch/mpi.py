"""MPI with PyTorch: equal weights at the start, averaged gradients, threads per process."""

import os

import torch
from threadpoolctl import ThreadpoolController
from torch import nn

from spinup.parts.mpi import THREADS, broadcast, num_procs
from spinup.parts.pytorch import fast

WORTH_SHARING = 2_000_000  # multiplications in the largest product of a gradient step
_all_threads = torch.get_num_threads()  # as many as PyTorch finds useful here


def setup_pytorch_for_mpi(largest_product: int = WORTH_SHARING) -> None:
    """Divide the cores of a machine among the processes on it, unless the user has done so.

    largest_product: how many multiplications the largest matrix product of a training has; for a
        small one, a second thread costs more than it brings
    """
    if "OPENBLAS_NUM_THREADS" not in os.environ:
        # NumPy has only small arrays here; its threads would slow PyTorch's down.
        ThreadpoolController().select(internal_api="openblas").limit(limits=1)
    if THREADS in os.environ:
        share = int(os.environ[THREADS])
    elif "OMP_NUM_THREADS" in os.environ:
        return
    else:
        here = int(os.environ.get("MPI_LOCALNRANKS", num_procs()))  # those on this host
        share = max(1, _all_threads // here)
    torch.set_num_threads(share if largest_product >= WORTH_SHARING else 1)


def mpi_avg_grads(module: nn.Module) -> None:
    """Average the gradients of `module` over all processes."""
    average_gradients(list(module.parameters()))


def average_gradients(params: list[torch.Tensor]) -> None:
    """Replace each gradient by its mean over all processes; one exchange for all of them."""
    if num_procs() == 1:
        return
    grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in params]
    flat = torch.cat([grad.reshape(-1) for grad in grads])
    fast.average(flat)
    for p, grad in zip(params, _split(flat, grads)):
        p.grad = grad


def sync_params(module: nn.Module) -> None:
    """Give every process the weights (and buffers) that the first one has."""
    if num_procs() == 1:
        return
    tensors = [t.data for t in (*module.parameters(), *module.buffers())]
    for dtype in dict.fromkeys(t.dtype for t in tensors):  # in the same order everywhere
        same = [t for t in tensors if t.dtype == dtype]
        flat = torch.cat([t.reshape(-1) for t in same]).cpu().numpy()
        broadcast(flat)
        for t, part in zip(same, _split(torch.from_numpy(flat), same)):
            t.copy_(part)


def _split(flat, like):
    """Cut one flat tensor into tensors of the shapes of `like`."""
    parts = flat.split([t.numel() for t in like])
    return [part.view(t.shape) for part, t in zip(parts, like)]
