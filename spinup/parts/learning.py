"""What PyTorch's algorithms share: a gradient step, a slow copy, and buffers that give tensors."""

import torch

from spinup.parts import buffers
from spinup.parts.buffers import Rollout, Transitions
from spinup.utils.mpi_pytorch import average_gradients


def adam(params, lr):
    """Adam in one fused call for all parameters."""
    return torch.optim.Adam(list(params), lr=lr, fused=True)


def gradient_step(optimizer, loss, max_grad_norm=None):
    """Descend `loss` in the optimizer's own parameters only; processes share their gradients.

    max_grad_norm: a longer gradient (over all parameters together) is shortened to this
    """
    params = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
    optimizer.zero_grad()
    loss.backward(inputs=params)
    average_gradients(params)
    if max_grad_norm is not None:
        torch.nn.utils.clip_grad_norm_(params, max_grad_norm)
    optimizer.step()


@torch.no_grad()
def polyak_average(source, target, rho):
    """target <- rho * target + (1 - rho) * source, for lists of parameters, in one call."""
    torch._foreach_lerp_(list(target), list(source), 1 - rho)


def to_tensor(x, device="cpu"):
    """An array as a tensor: whole numbers that choose an action stay whole, all else is float."""
    x = torch.as_tensor(x, device=device)
    return x if x.dtype in (torch.float32, torch.int64) else x.float()


def passes(rollout: Rollout, times, minibatch_size=None):
    """Go through a rollout so many times: at once, or in parts in a new random order each time."""
    for i in range(times):
        if minibatch_size is None:
            yield i, rollout
        else:
            order = torch.randperm(len(rollout.ret)).to(rollout.ret.device)
            for rows in order.split(minibatch_size):
                yield i, Rollout(*(column[rows] for column in rollout))


class ReplayBuffer(buffers.ReplayBuffer):
    """A ring of transitions that gives batches of tensors."""

    def __init__(self, *args, device="cpu", **kwargs):
        super().__init__(*args, **kwargs)
        self.device = device
        self.tensors = Transitions(*(torch.from_numpy(column) for column in self.columns))

    def sample_batch(self, batch_size=32) -> Transitions:
        rows = torch.from_numpy(self.sample_rows(batch_size))
        batch = (column.index_select(0, rows) for column in self.tensors)
        return Transitions(*(to_tensor(column, self.device) for column in batch))


class GAEBuffer(buffers.GAEBuffer):
    """A rollout that gives tensors."""

    def __init__(self, *args, device="cpu", **kwargs):
        super().__init__(*args, **kwargs)
        self.device = device

    def get(self) -> Rollout:
        # Copied, for the buffer fills again while a caller may still hold the rollout.
        return Rollout(*(to_tensor(column, self.device).clone() for column in super().get()))
