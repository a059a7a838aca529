"""What PyTorch's algorithms share: a gradient step, minibatches, a target network."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice, repeat
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from spinup.parts.buffers import Rollout
from spinup.parts.mpi import mpi_avg
from spinup.parts.pytorch import fast
from spinup.parts.pytorch.earlier import unstacked
from spinup.parts.pytorch.mpi import average_gradients


class Adam:
    """Adam (Kingma and Ba, 2015): each number moves by a step that fits its own past gradients.

    `optimizer.lr`, which is `optimizer.param_groups[0]["lr"]`, is the learning rate; a schedule may
    change it at any time. PyTorch's own Adam keeps its steps in Python and cannot be captured; this
    one takes the same steps. It has no weight decay, and schedulers of `torch.optim` take only
    optimizers of `torch.optim`; both kinds train here, too, without being captured.
    """

    READ_AT_EVERY_STEP = ("param_groups",)  # see fast/dependencies.py
    SETTINGS = ("lr", "betas", "eps")  # in param_groups[0]
    LACKING = ("weight_decay", "amsgrad", "maximize")  # which PyTorch's has

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ):
        params = list(params)
        group: dict[str, Any] = dict(params=params, lr=lr, betas=betas, eps=eps)
        self.param_groups = [group]  # as in PyTorch's
        self.exp_avgs = tuple(torch.zeros_like(p) for p in params)
        self.exp_avg_sqs = tuple(torch.zeros_like(p) for p in params)
        self.counts = torch.zeros(len(params), device=params[0].device)  # steps taken, of each

    def __setattr__(self, name, value):
        """Refuse what would have no effect, such as `optimizer.betas = …`."""
        if type(self) is Adam and "counts" in vars(self) and not hasattr(self, name):
            raise AttributeError(
                f"Adam has no {name!r}. It has lr; and betas and eps, in param_groups[0]."
            )
        object.__setattr__(self, name, value)

    @property
    def lr(self) -> float:
        return self.param_groups[0]["lr"]

    @lr.setter
    def lr(self, value: float) -> None:
        if "param_groups" in vars(self):  # else __init__ is still to come, and is given it
            self.param_groups[0]["lr"] = value

    @torch.no_grad()
    def step(self) -> None:
        """Step along the gradients; a parameter that has none, or is frozen, stays as it is."""
        (group,) = self.param_groups
        if lacking := [name for name in self.LACKING if group.get(name)]:
            raise ValueError(f"Adam has no {lacking[0]} here; see torch.optim for one that has.")
        learned = [p.requires_grad and p.grad is not None for p in group["params"]]
        moved = [i for i, is_learned in enumerate(learned) if is_learned]
        columns = group["params"], self.exp_avgs, self.exp_avg_sqs
        params, ms, vs = ([column[i] for i in moved] for column in columns)
        grads = [p.grad for p in params]
        if fast.adam_step(group, params, grads, ms, vs, self.counts, moved) is None:
            lr, (beta1, beta2), eps = float(group["lr"]), group["betas"], group["eps"]
            for i, p, grad, m, v in zip(moved, params, grads, ms, vs):
                _adam(p, grad, m, v, self.counts[i], lr, beta1, beta2, eps)

    def state_dict(self) -> dict:
        return dict(
            exp_avgs=list(self.exp_avgs),
            exp_avg_sqs=list(self.exp_avg_sqs),
            counts=self.counts,
            **{name: self.param_groups[0][name] for name in self.SETTINGS},
        )

    def load_state_dict(self, state: dict) -> None:
        """Take over saved values, in place."""
        for name in ("exp_avgs", "exp_avg_sqs", "counts"):
            here, saved = getattr(self, name), state[name]
            if len(saved) != len(here):  # of critics that an earlier version kept stacked
                saved = [saved[0]] * len(here) if name == "counts" else unstacked(saved)
            for mine, value in zip(here, saved, strict=True):
                mine.copy_(torch.as_tensor(value))
        group = self.param_groups[0]
        kept = {name: state[name] for name in self.SETTINGS if name in state}  # not all did earlier
        group |= kept | (dict(betas=tuple(kept["betas"])) if "betas" in kept else {})


def _adam(p, grad, m, v, count, lr, beta1, beta2, eps):
    """One step of Adam: m and v are running means of the gradient and of its square."""
    count += 1
    m.lerp_(grad, 1 - beta1)
    v.lerp_(grad.square(), 1 - beta2)
    m_hat, v_hat = m / (1 - beta1**count), v / (1 - beta2**count)  # both began at 0
    p -= lr * m_hat / (v_hat.sqrt() + eps)


def gradient_step(optimizer: Any, loss: Tensor, max_grad_norm: float | None = None) -> None:
    """Descend `loss` in the optimizer's own parameters only; processes average their gradients.

    max_grad_norm: gradient-norm clipping, over all parameters together
    """
    _backward(optimizer, loss, max_grad_norm)
    optimizer.step()


def _backward(optimizer, loss, max_grad_norm):
    """Leave the gradient of `loss` in the parameters."""
    params = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
    given = set()
    for p, grad in zip(params, fast.gradients(loss, params)):
        # With the strides of its parameter, and its own, as PyTorch's backward() leaves it.
        same = grad is None or (grad.stride() == p.stride() and id(grad) not in given)
        given.add(id(grad))
        p.grad = grad if same else torch.empty_like(p).copy_(grad)
    average_gradients(params)
    if max_grad_norm is not None and fast.clip_gradients(params, max_grad_norm) is None:
        nn.utils.clip_grad_norm_(params, max_grad_norm)


def compute_gradient(
    optimizer: Any,
    compute_loss: Callable,
    ac: Any,
    batch: Any,
    max_grad_norm: float | None = None,
    **settings: Any,
) -> Any:
    """What `compute_loss(ac, batch, **settings)` gives; its gradient waits for `optimizer.step()`.

    compute_loss: gives a loss, or a loss and statistics
    """
    step, settings = _recorded_step(compute_loss, settings, take_step=False)
    return step(ac, batch, optimizer=optimizer, max_grad_norm=max_grad_norm, **settings)


def minimize(
    optimizer: Any,
    compute_loss: Callable,
    ac: Any,
    batch: Any,
    max_grad_norm: float | None = None,
    **settings: Any,
) -> Any:
    """The same with the step: one gradient step on a loss, which is computed for each batch."""
    step, settings = _recorded_step(compute_loss, settings, take_step=True)
    return step(ac, batch, optimizer=optimizer, max_grad_norm=max_grad_norm, **settings)


# Of each loss, with the optimizer's step and without.
_steps: WeakKeyDictionary = WeakKeyDictionary()


def _recorded_step(compute_loss, settings, take_step):
    """The recorded step on a loss, and its settings; those of a `partial` are among them."""
    if isinstance(compute_loss, partial) and not compute_loss.args:
        compute_loss, settings = compute_loss.func, compute_loss.keywords | settings
    known = _steps.setdefault(compute_loss, {})
    if take_step not in known:
        known[take_step] = _make_step(compute_loss, take_step)
    return known[take_step], settings


def _make_step(compute_loss, take_step):
    def step(ac, batch, *, optimizer, max_grad_norm, **settings):
        found = compute_loss(ac, batch, **settings)
        _backward(optimizer, found[0] if isinstance(found, tuple) else found, max_grad_norm)
        if take_step:
            optimizer.step()
        return detached(found)

    for name in ("__module__", "__qualname__"):  # which an object that can be called may lack
        setattr(step, name, getattr(compute_loss, name, getattr(type(compute_loss), name)))
    return fast.recorded(step)


def detached(found: Any) -> Any:
    """A loss, or a loss and statistics, without the graph that they came from."""
    if isinstance(found, dict):
        return {key: detached(value) for key, value in found.items()}
    if isinstance(found, (tuple, list)):
        return tuple(detached(value) for value in found)
    return found.detach() if torch.is_tensor(found) else found


MAX_TOGETHER = 64  # batches that are kept at once


def updates(
    update: Callable,
    learner: Any,
    batches: Iterable,
    per_call: Iterable[dict] | None = None,
    **settings: Any,
) -> list:
    """Update on each of many batches, one after the other; gives what each update gave.

    Up to 64 batches are sampled before the first of them is used. Nothing but the updates happens
    between two of these, so a recorded update checks what it depends on once for them all.

    per_call: further settings of each call, a dict for each batch
    """
    per_call = repeat({}) if per_call is None else per_call
    calls = ((batch, settings | own) for batch, own in zip(batches, per_call))
    found = []
    while some := list(islice(calls, MAX_TOGETHER)):
        if hasattr(update, "each"):
            found += update.each(learner, some)
        else:
            found += [update(learner, batch, **given) for batch, given in some]
    return found


@torch.no_grad()
def polyak_average(
    source: nn.Module | Iterable[Tensor], target: nn.Module | Iterable[Tensor], rho: float
) -> None:
    """target <- rho * target + (1 - rho) * source, for networks or lists of parameters."""
    source, target = (
        list(x.parameters()) if isinstance(x, nn.Module) else list(x) for x in (source, target)
    )
    if fast.move_towards(target, source, 1 - rho) is None:
        for mine, theirs in zip(target, source, strict=True):
            mine.lerp_(theirs, 1 - rho)


class Minibatches:
    """Go through a rollout so many times: whole, or in parts in a new random order each time.

    The orders are sampled when it is made, not while it is gone through: two loops may run at once.
    """

    def __init__(self, rollout: Rollout, times: int, size: int | None = None):
        self.rollout, self.times, self.size = rollout, times, size
        rows = len(rollout.ret)
        self.per_pass = 1 if size is None else -(-rows // size)
        self.seeds = None if size is None else torch.randint(2**63 - 1, (times,)).tolist()

    def __iter__(self) -> Iterator[tuple[int, Rollout]]:
        """Yield the number of the pass and a batch."""
        if self.size is None:
            yield from ((i, self.rollout) for i in range(self.times))
            return
        shuffle = torch.Generator()
        for i, seed in enumerate(self.seeds or ()):
            ret = self.rollout.ret
            order = torch.randperm(len(ret), generator=shuffle.manual_seed(seed))
            for indices in order.to(ret.device).split(self.size):
                yield i, Rollout(*(column[indices] for column in self.rollout))


def fit_value(
    learner: Any, compute_loss_v: Callable, batches: Minibatches, max_grad_norm: float | None = None
) -> dict[str, Tensor]:
    """A step of the value function's optimizer on each batch; gives the loss and its change."""
    step = partial(minimize, learner.vf_optimizer, compute_loss_v, learner.ac)
    losses = [step(batch, max_grad_norm) for _, batch in batches]
    if not losses:  # no steps: the loss as it is
        with torch.no_grad():
            losses = [compute_loss_v(learner.ac, batches.rollout)]
    return dict(LossV=losses[0], DeltaLossV=losses[-1] - losses[0])


class RecentMean:
    """The mean of the last `length` numbers, each averaged over all processes."""

    def __init__(self, length: int):
        self.numbers: deque[float] = deque(maxlen=length)

    def add(self, number: Tensor) -> float:
        """Take a number in; gives the mean with it, the same in every process."""
        self.numbers.append(mpi_avg(number.item()))
        return np.mean(self.numbers).item()
