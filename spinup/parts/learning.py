"""What PyTorch's algorithms share: a gradient step, a slow copy, and buffers that give tensors."""

import numpy as np
import torch

from spinup.parts import buffers
from spinup.parts.buffers import Rollout
from spinup.parts.layers import Normalizer, gradients, parameter_list
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
            self._plain_step(params)
            return
        exp_avgs, exp_avg_sqs, steps = self.lists
        torch._foreach_add_(list(dict.fromkeys(steps)), 1)
        torch._fused_adam_(
            params, grads, exp_avgs, exp_avg_sqs, [], steps,
            lr=group["lr"], beta1=group["betas"][0], beta2=group["betas"][1],
            weight_decay=0.0, eps=group["eps"], amsgrad=False, maximize=False,
        )  # fmt: skip

    def _plain_step(self, params):
        """PyTorch's own step, which makes the averages and leaves out what has no gradient."""
        for state in self.state.values():
            state["step"] = state["step"].clone()  # it may have been common to all
        torch.optim.Adam.step(self)
        if any(p not in self.state for p in params):
            return
        states = [self.state[p] for p in params]
        if all(state["step"] == states[0]["step"] for state in states):
            for state in states:
                state["step"] = states[0]["step"]  # one count for all, to be raised once
        columns = ("exp_avg", "exp_avg_sq", "step")
        self.lists = [[state[column] for state in states] for column in columns]

    step.hooked = True  # tells PyTorch to leave its own hooks away

    def load_state_dict(self, state):
        super().load_state_dict(state)
        self.lists = None


def gradient_step(optimizer, loss, max_grad_norm=None):
    """Descend `loss` in the optimizer's own parameters only; processes share their gradients.

    max_grad_norm: a longer gradient (over all parameters together) is shortened to this
    """
    params = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
    for p, grad in zip(params, gradients(loss, params)):
        p.grad = grad
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
    """target <- rho * target + (1 - rho) * source, for networks or lists of parameters."""
    source, target = (
        parameter_list(x) if isinstance(x, torch.nn.Module) else list(x) for x in (source, target)
    )
    torch._foreach_lerp_(target, source, 1 - rho)


def learn_statistics(network, obs):
    """Let what normalises observations in `network`, if anything does, take these in."""
    for module in network.modules():  # one that several networks share is here once
        if isinstance(module, Normalizer):
            module.see(obs)


def to_tensor(x, device="cpu"):
    """An array as a tensor: whole numbers that choose an action stay whole, all else is float."""
    here = device == "cpu" and isinstance(x, np.ndarray)
    x = torch.from_numpy(x) if here else torch.as_tensor(x, device=device)  # the first is quicker
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


class SegmentBuffer(buffers.SegmentBuffer):
    """A ring of segments that gives batches of tensors."""

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
