"""What PyTorch's algorithms share: a gradient step, a slow copy, and buffers that give tensors."""

import torch

from spinup.parts import buffers
from spinup.parts.buffers import Rollout
from spinup.parts.layers import Normalizer
from spinup.utils.mpi_pytorch import average_gradients


class Adam(torch.optim.Adam):
    """PyTorch's fused Adam without the bookkeeping around each step.

    For a small network that bookkeeping takes several times as long as the step itself.
    """

    def __init__(self, params, lr):
        super().__init__(list(params), lr=lr, fused=True)
        self.lists = None  # averages and counts of all parameters, gathered once

    def step(self):
        (group,) = self.param_groups
        params = group["params"]
        grads = [p.grad for p in params]
        if self.lists is None or any(grad is None for grad in grads):
            torch.optim.Adam.step(self)  # makes the averages, too
            if all(p in self.state for p in params):
                columns = ("exp_avg", "exp_avg_sq", "step")
                self.lists = [[self.state[p][column] for p in params] for column in columns]
            return
        exp_avgs, exp_avg_sqs, steps = self.lists
        torch._foreach_add_(steps, 1)
        torch._fused_adam_(
            params, grads, exp_avgs, exp_avg_sqs, [], steps,
            lr=group["lr"], beta1=group["betas"][0], beta2=group["betas"][1],
            weight_decay=0.0, eps=group["eps"], amsgrad=False, maximize=False,
        )  # fmt: skip

    step.hooked = True  # tells PyTorch to leave its own hooks away

    def load_state_dict(self, state):
        super().load_state_dict(state)
        self.lists = None


def gradient_step(optimizer, loss, max_grad_norm=None):
    """Descend `loss` in the optimizer's own parameters only; processes share their gradients.

    max_grad_norm: a longer gradient (over all parameters together) is shortened to this
    """
    params = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
    for p in params:
        p.grad = None
    loss.backward(inputs=params)
    average_gradients(params)
    if max_grad_norm is not None:
        shorten([p.grad for p in params if p.grad is not None], max_grad_norm)
    optimizer.step()


def shorten(grads, max_norm):
    """Scale gradients down together, if together they are longer than `max_norm`."""
    length = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads)))
    torch._foreach_mul_(grads, (max_norm / (length + 1e-6)).clamp(max=1))


@torch.no_grad()
def polyak_average(source, target, rho):
    """target <- rho * target + (1 - rho) * source, for lists of parameters, in one call."""
    torch._foreach_lerp_(list(target), list(source), 1 - rho)


def learn_statistics(network, obs):
    """Let what normalises observations in `network`, if anything does, take these in."""
    for module in network.modules():  # one that several networks share is here once
        if isinstance(module, Normalizer):
            module.see(obs)


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


def tensors_on(device):
    """What makes tensors on `device` of a batch of arrays, a named tuple of any kind."""

    def convert(batch):
        return type(batch)(*(to_tensor(column, device) for column in batch))

    return convert


class ReplayBuffer(buffers.ReplayBuffer):
    """A ring of transitions that gives batches of tensors."""

    def __init__(self, *args, device="cpu", **kwargs):
        super().__init__(*args, convert=tensors_on(device), **kwargs)


class GAEBuffer(buffers.GAEBuffer):
    """A rollout that gives tensors."""

    def __init__(self, *args, device="cpu", **kwargs):
        super().__init__(*args, **kwargs)
        self.device = device

    def get(self) -> Rollout:
        # Copied, for the buffer fills again while a caller may still hold the rollout.
        return Rollout(*(to_tensor(column, self.device).clone() for column in super().get()))
