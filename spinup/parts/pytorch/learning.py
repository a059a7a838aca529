"""What PyTorch's algorithms share: a gradient step, a slow copy, and buffers that give tensors."""

import numpy as np
import torch
from torch.utils._pytree import tree_map_only

from spinup.parts import buffers
from spinup.parts.buffers import Rollout
from spinup.parts.pytorch.fast.capture import recorded
from spinup.parts.pytorch.layers import Normalizer, gradients, parameter_list
from spinup.utils.mpi_pytorch import average_gradients


class Adam:
    """Adam (Kingma and Ba, 2015): each number moves by a step that fits its own past gradients."""

    def __init__(self, params, lr, betas=(0.9, 0.999), eps=1e-8):
        params = list(params)
        self.param_groups = [dict(params=params, lr=lr, betas=betas, eps=eps)]  # as in PyTorch's
        self.exp_avgs = [torch.zeros_like(p) for p in params]
        self.exp_avg_sqs = [torch.zeros_like(p) for p in params]
        self.counts = torch.zeros(len(params), device=params[0].device)  # steps taken, of each

    @torch.no_grad()
    def step(self):
        """Step along the gradients; a parameter that has none stays where it is."""
        (group,) = self.param_groups
        columns = group["params"], self.exp_avgs, self.exp_avg_sqs, self.counts.unbind()
        moved = [i for i, p in enumerate(group["params"]) if p.grad is not None]
        if len(moved) == len(self.counts):
            self.counts += 1
        else:
            columns = [[column[i] for i in moved] for column in columns]
            torch._foreach_add_(columns[-1], 1)
        params, exp_avgs, exp_avg_sqs, counts = map(list, columns)
        torch._fused_adam_(
            params, [p.grad for p in params], exp_avgs, exp_avg_sqs, [], counts,
            lr=group["lr"], beta1=group["betas"][0], beta2=group["betas"][1], eps=group["eps"],
            weight_decay=0.0, amsgrad=False, maximize=False,
        )  # fmt: skip

    def state_dict(self):
        return dict(exp_avgs=self.exp_avgs, exp_avg_sqs=self.exp_avg_sqs, counts=self.counts)

    def load_state_dict(self, state):
        """Take over saved values, in place: a recorded update knows where they are."""
        for name, here in self.state_dict().items():
            for mine, saved in zip(here, state[name], strict=True):
                mine.copy_(torch.as_tensor(saved))


def gradient_step(optimizer, loss, max_grad_norm=None):
    """Descend `loss` in the optimizer's own parameters only; processes share their gradients.

    max_grad_norm: a longer gradient (over all parameters together) is shortened to this
    """
    _leave_gradient(optimizer, loss, max_grad_norm)
    optimizer.step()


def _leave_gradient(optimizer, loss, max_grad_norm):
    """Leave the gradient of `loss` in the parameters."""
    params = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
    for p, grad in zip(params, gradients(loss, params)):
        p.grad = grad
    average_gradients(params)
    if max_grad_norm is not None:
        shorten([p.grad for p in params if p.grad is not None], max_grad_norm)


def find_gradient(optimizer, compute_loss, ac, batch, max_grad_norm=None, **settings):
    """What `compute_loss(ac, batch, **settings)` gives; its gradient waits for `optimizer.step()`.

    compute_loss: gives a loss, or a loss and statistics
    """
    call = dict(optimizer=optimizer, compute_loss=compute_loss, max_grad_norm=max_grad_norm)
    return _gradient(ac, batch, step=False, **call, **settings)


def descend(optimizer, compute_loss, ac, batch, max_grad_norm=None, **settings):
    """The same with the step: one gradient step on a loss, which is found anew for each batch."""
    call = dict(optimizer=optimizer, compute_loss=compute_loss, max_grad_norm=max_grad_norm)
    return _gradient(ac, batch, step=True, **call, **settings)


@recorded
def _gradient(ac, batch, *, step, optimizer, compute_loss, max_grad_norm, **settings):
    found = compute_loss(ac, batch, **settings)
    _leave_gradient(optimizer, found[0] if isinstance(found, tuple) else found, max_grad_norm)
    if step:
        optimizer.step()
    return tree_map_only(torch.Tensor, torch.Tensor.detach, found)  # lets go of the graph


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


def learn_scales(network, obs):
    """Let what normalises observations in `network`, if anything does, take these in."""
    for module in network.modules():  # one that several networks share is here once
        if isinstance(module, Normalizer):
            module.see(obs)


KEPT = {torch.float32, torch.int64}


def to_tensor(x, device="cpu"):
    """An array as a tensor: whole numbers that choose an action stay whole, all else is float."""
    if device == "cpu" and isinstance(x, np.ndarray):
        x = torch.from_numpy(x)  # quicker
    else:
        x = torch.as_tensor(x, device=device)
    return x if x.dtype in KEPT else x.float()


def passes(rollout: Rollout, times, minibatch_size=None):
    """Go through a rollout so many times: at once, or in parts in a new random order each time."""
    if minibatch_size is None:
        return ((i, rollout) for i in range(times))
    # Drawn now, and not when they are asked for: two loops may run side by side.
    seeds = torch.randint(2**63 - 1, (times,)).tolist()
    return _in_parts(rollout, seeds, minibatch_size)


def _in_parts(rollout, seeds, minibatch_size):
    shuffle = torch.Generator()
    for i, seed in enumerate(seeds):
        order = torch.randperm(len(rollout.ret), generator=shuffle.manual_seed(seed))
        for rows in order.to(rollout.ret.device).split(minibatch_size):
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
