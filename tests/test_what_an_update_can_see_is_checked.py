"""Whatever an update can look at is checked before it is replayed: each case once slipped through.

Of two equal learners one is updated by replays and one eagerly; something that the update sees
changes after the capture is trusted, and both must still agree.
"""

import math
import types
from collections import deque
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any, NamedTuple

import pytest
import torch
from small_learner import Batch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook

from spinup.parts.pytorch import bounded_policies, fast, layers, learning
from spinup.parts.pytorch.critics import MLPQFunction, stack_values
from spinup.parts.pytorch.layers import MLP, mlp
from spinup.parts.pytorch.learning import Adam, gradient_step, minimize, polyak_average

SCALE = 1.0


@dataclass
class Learner:
    net: nn.Module
    optimizer: Any
    extra: Any = None


def error(learner, batch):
    return ((learner.net(batch.x).squeeze(-1) - batch.y) ** 2).mean()


def agree(update, change=None, make=None, optimizer=Adam, batch=Batch):
    """Ten calls, with the change after the fifth; then all weights and results are equal."""
    recorded, results = fast.recorded(update), []
    for call in (recorded, recorded.eager):
        globals()["SCALE"] = 1.0
        torch.manual_seed(0)
        net = make() if make else mlp([3, 8, 1], nn.Tanh)
        learner = Learner(net, optimizer(net.parameters(), 1e-2))
        found = []
        for number in range(10):
            if number == 5 and change:
                change(learner)
            data = torch.Generator().manual_seed(number)
            columns = torch.randn(8, 3, generator=data), torch.randn(8, generator=data)
            found.append(call(learner, batch(*columns)))
        results.append(([p.detach().clone() for p in net.parameters()], found, learner))
    (weights, found, learner), (expected, eager, twin) = results
    for p, q in zip(weights, expected, strict=True):
        torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-5)
    assert str(rounded(found)) == str(rounded(eager))
    return learner, twin, recorded.report(learner)


def rounded(tree):
    if isinstance(tree, dict):
        return {key: rounded(value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [rounded(value) for value in tree]
    return round(float(tree), 3) if torch.is_tensor(tree) else tree


def plain(learner, batch):
    loss = error(learner, batch)
    gradient_step(learner.optimizer, loss)
    return dict(loss=loss.detach())


def test_without_a_change_it_is_captured():
    _, _, report = agree(plain)
    assert report.replays == 10


class Decayed(Adam):
    """An optimizer of a student's own, which reads the learning rate itself."""

    def step(self):
        group = self.param_groups[0]
        with torch.no_grad():
            for p in group["params"]:
                p.mul_(1 - 10 * group["lr"])
        super().step()


def stop_learning(learner):
    learner.optimizer.param_groups[0]["lr"] = 0.0


def test_a_learning_rate_that_others_read():
    agree(plain, stop_learning, optimizer=Decayed)

    def told(learner, batch):
        return plain(learner, batch) | dict(lr=learner.optimizer.param_groups[0]["lr"])

    agree(told, stop_learning)
    _, _, report = agree(plain, stop_learning)
    assert report.replays == 10  # of our own Adam it is read at every step


def test_a_learning_rate_by_its_short_name():
    def halve(learner):
        learner.optimizer.lr *= 0.5

    learner, _, report = agree(plain, halve)
    assert learner.optimizer.param_groups[0]["lr"] == 5e-3 and report.replays == 10

    def anneal(learner, batch):
        learner.optimizer.lr *= 0.5
        return plain(learner, batch)

    learner, _, _ = agree(anneal)
    assert learner.optimizer.lr == 1e-2 / 2**10


class Scaled(torch.distributions.Normal):
    def __init__(self, mean):
        super().__init__(mean * SCALE, 1.0, validate_args=False)


def rescale(_):
    globals()["SCALE"] = 3.0


def test_what_is_read_while_an_object_is_made():
    def update(learner, batch):
        loss = -Scaled(learner.net(batch.x).squeeze(-1)).log_prob(batch.y).mean()
        gradient_step(learner.optimizer, loss)
        return dict(loss=loss.detach())

    agree(update, rescale)


def test_attributes_of_functions():
    def counted(learner, batch):
        counted.calls += 1
        return error(learner, batch) * (1 if counted.calls < 5 else 3)

    def update(learner, batch):
        gradient_step(learner.optimizer, counted(learner, batch))
        return {}

    for call in (fast.recorded(update), update):
        counted.calls = 0
        learner = Learner(net := mlp([3, 8, 1], nn.Tanh), Adam(net.parameters(), 1e-2))
        for _ in range(10):
            call(learner, Batch(torch.randn(8, 3), torch.randn(8)))
        assert counted.calls == 10


def test_a_running_maximum_in_a_tensor_of_one_number():
    def update(learner, batch):
        if learner.extra is None:
            learner.extra = torch.tensor(10.0)
        loss = error(learner, batch)
        gradient_step(learner.optimizer, loss)
        learner.extra = torch.maximum(learner.extra, loss.detach() * SCALE * 100)
        return dict(highest=learner.extra)

    agree(update, rescale)


RESULTS = {
    "a list": lambda loss: dict(losses=[loss]),
    "a tuple and nothing": lambda loss: dict(q=(loss, 2 * loss), info={}),
    "a nested dict": lambda loss: dict(a=dict(b=loss), c=loss),
}


@pytest.mark.parametrize("kind", RESULTS)
def test_results_keep_their_shape(kind):
    def update(learner, batch):
        loss = error(learner, batch)
        gradient_step(learner.optimizer, loss)
        return RESULTS[kind](loss.detach())

    agree(update)


def test_a_loss_that_is_given_back_keeps_its_graph():
    recorded = fast.recorded(error)
    learner = Learner(net := mlp([3, 8, 1], nn.Tanh), Adam(net.parameters(), 1e-2))
    for _ in range(4):
        recorded(learner, Batch(torch.randn(8, 3), torch.randn(8))).backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in net.parameters())


class Gain(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(3, 1)
        self.l.gain = 1.0

    def forward(self, x):
        return self.l.gain * self.l(x)


class Own(NamedTuple):
    x: Any
    y: Any

    def target(self):
        return self.y * SCALE


class Meter(dict):
    calls = 0


class Inherits(Gain):
    pass


CHANGES = {
    "an attribute of a layer": (lambda learner: setattr(learner.net.l, "gain", 5.0), Gain),
    "a new name in a class": (lambda _: setattr(Inherits, "forward", Gain.forward), Inherits),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_attributes_of_layers_and_classes(kind):
    change, make = CHANGES[kind]
    agree(plain, change, make)


def test_a_method_of_the_batch():
    def update(learner, batch):
        loss = ((learner.net(batch.x).squeeze(-1) - batch.target()) ** 2).mean()
        gradient_step(learner.optimizer, loss)
        return {}

    agree(update, rescale, batch=Own)


def test_a_class_derived_from_dict_counts():
    meter = Meter()

    def update(learner, batch):
        meter.calls += 1
        return plain(learner, batch)

    agree(update)
    assert meter.calls == 20


def test_default_arguments():
    def scaled(loss, factor=1.0):
        return loss * factor

    def update(learner, batch):
        gradient_step(learner.optimizer, scaled(error(learner, batch)))
        return {}

    def change(_):
        scaled.__defaults__ = (-3.0,)

    recorded, weights = fast.recorded(update), []
    for call in (recorded, update):
        scaled.__defaults__ = (1.0,)
        torch.manual_seed(0)
        learner = Learner(net := mlp([3, 8, 1], nn.Tanh), Adam(net.parameters(), 1e-2))
        for number in range(8):
            if number == 5:
                change(learner)
            call(learner, Batch(torch.ones(8, 3), torch.ones(8)))
        weights.append(net[0].weight.detach().clone())
    torch.testing.assert_close(*weights, rtol=1e-4, atol=1e-5)


def test_gradients_of_autograd_s_own_function():
    def update(learner, batch):
        torch.autograd.backward(error(learner, batch))
        learner.optimizer.step()
        return {}

    def forget(learner):
        for p in learner.net.parameters():
            p.grad = None

    agree(update, forget)


def test_twin_critics_that_are_no_longer_alike():
    class Times(nn.Module):
        dims = 1

        def forward(self, x):
            return 2 * x

    def update(learner, batch):
        loss = stack_values(learner.net, batch.x, batch.y[:, None]).square().mean()
        gradient_step(learner.optimizer, loss)
        return {}

    def make():
        return nn.ModuleList([MLPQFunction(3, 1, (8,), nn.ReLU) for _ in range(2)])

    agree(update, lambda learner: setattr(learner.net[1], "flat", Times()), make)


def test_twin_critics_that_were_stepped_unequally_often():
    """One step of Adam serves both while it is the step of the same number for both."""

    def update(learner, batch):
        loss = stack_values(learner.net, batch.x, batch.y[:, None]).square().mean()
        gradient_step(learner.optimizer, loss)
        return dict(loss=loss.detach().round(decimals=4))

    def make():
        return nn.ModuleList([MLPQFunction(3, 1, (64,), nn.ReLU) for _ in range(2)])

    def step_the_first(learner):
        for _ in range(3):
            value = learner.net[0](torch.ones(1, 3), torch.ones(1, 1))
            gradient_step(learner.optimizer, value.square().mean())

    learner, twin, report = agree(update, step_the_first, make)
    assert report.replays == 10 and report.reason is None
    counts = learner.optimizer.counts.tolist()
    assert counts == twin.optimizer.counts.tolist() == [13.0] * 4 + [10.0] * 4


def read_by_an_alias(learner, batch):
    loss = error(learner, batch) * learner.extra[0]["lr"]
    gradient_step(learner.optimizer, loss)
    return {}


def read_by_a_new_key(learner, batch):
    (group,) = learner.optimizer.param_groups
    gradient_step(learner.optimizer, error(learner, batch) + group.get("more", 0.0) * 3)
    return dict(more=group.get("more", 0.0))


def read_by_getattr(learner, batch):
    (group,) = getattr(learner.optimizer, "param_groups")  # noqa: B009
    gradient_step(learner.optimizer, error(learner, batch))
    return dict(lr=group["lr"])


def raise_learning_rate(learner):
    learner.optimizer.param_groups[0]["lr"] = 0.5


GROUPS = {
    "by an alias": (read_by_an_alias, raise_learning_rate),
    "by getattr": (read_by_getattr, raise_learning_rate),
    "a new key": (read_by_a_new_key, lambda l: l.optimizer.param_groups[0].update(more=2.0)),
}


@pytest.mark.parametrize("kind", GROUPS)
def test_parameter_groups_that_the_update_reads(kind, monkeypatch):
    class Aliased(Learner):
        def __init__(self, net, optimizer):
            super().__init__(net, optimizer, (optimizer.param_groups[0],))

    monkeypatch.setitem(globals(), "Learner", Aliased)
    agree(*GROUPS[kind])


def plain_update(learner, batch):
    loss = error(learner, batch)
    gradient_step(learner.optimizer, loss)
    return dict(loss=loss.detach().round(decimals=3))


def test_a_hook_on_all_modules():
    handles = []

    def hook(_):
        handles.append(register_module_forward_hook(lambda module, given, found: 1.5 * found))

    recorded, losses = fast.recorded(plain_update), []
    for call in (recorded, recorded.eager):
        torch.manual_seed(0)
        net = mlp([3, 8, 1], nn.Tanh)
        learner = Learner(net, Adam(net.parameters(), 1e-2))
        batch = Batch(torch.ones(4, 3), torch.ones(4))
        found = [call(learner, batch)["loss"] for _ in range(4)]
        hook(learner)
        try:
            losses.append([*found, *(call(learner, batch)["loss"] for _ in range(4))])
        finally:
            handles.pop().remove()
    assert losses[0] == losses[1]


class Doubled(MLP):
    def forward(self, x):
        return 2 * super().forward(x)


def become_another_class(learner):
    learner.net.__class__ = Doubled


def grow(learner):
    learner.net[2].append(nn.Linear(1, 1))
    learner.net[2][0].weight.data.fill_(3.0)


def freeze_free_and_freeze(learner):
    learner.net[0].weight.requires_grad_(False)


OTHERS = {
    "another class": (become_another_class, None),
    "an empty container that grows": (
        grow,
        lambda: nn.Sequential(nn.Linear(3, 1), nn.Tanh(), nn.Sequential()),
    ),
    "a weight frozen with an old gradient": (freeze_free_and_freeze, None),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_other_changes_of_networks(kind):
    change, make = OTHERS[kind]
    learner, _, _ = agree(plain_update, change, make)
    if change is freeze_free_and_freeze:
        before = learner.net[0].weight.detach().clone()
        plain_update(learner, Batch(torch.ones(4, 3), torch.ones(4)))
        assert torch.equal(before, learner.net[0].weight)


# --- Beside the capture ---


class Sum(nn.Module):
    def __init__(self):
        super().__init__()
        self.l, self.a = nn.Linear(3, 1), nn.Parameter(torch.zeros(1))
        self.b = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return self.l(x) + (self.a + self.b)


@pytest.mark.parametrize("switch", [True, False])
def test_a_gradient_that_two_parameters_share_is_clipped_once(switch):
    torch.manual_seed(0)
    net = Sum()
    twin, x = deepcopy(net), torch.randn(8, 3)
    context = fast.plain() if not switch else torch.enable_grad()
    with context:
        gradient_step(Adam(net.parameters(), 1e-2), net(x).square().mean(), max_grad_norm=0.01)
    twin(x).square().mean().backward()
    nn.utils.clip_grad_norm_(twin.parameters(), 0.01)
    for p, q in zip(net.parameters(), twin.parameters()):
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-3, atol=1e-7)


def test_critics_in_shared_memory_stay_there():
    net = nn.ModuleList([MLPQFunction(3, 1, (8,), nn.ReLU) for _ in range(2)]).share_memory()
    learner = Learner(net, Adam(net.parameters(), 1e-3))

    @fast.recorded
    def update(learner, batch):
        values = torch.stack([critic(batch.x, batch.y[:, None]) for critic in learner.net])
        gradient_step(learner.optimizer, values.square().mean())

    for _ in range(4):
        update(learner, Batch(torch.ones(4, 3), torch.ones(4)))
    assert all(p.is_shared() for p in net.parameters())


def test_forward_mode_goes_through_plain_layers():
    net, x = mlp([3, 8, 2], nn.Tanh), torch.randn(4, 3)
    tangent = torch.randn_like(x)
    with torch.autograd.forward_ad.dual_level(), torch.no_grad():
        out = net(torch.autograd.forward_ad.make_dual(x, tangent))
        found = torch.autograd.forward_ad.unpack_dual(out).tangent
    _, expected = torch.autograd.functional.jvp(lambda x: nn.Sequential(*net)(x), x, tangent)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_logits_may_be_masked_in_place():
    net, x = mlp([3, 8, 2], nn.Tanh), torch.randn(4, 3)
    logits = net(x)
    logits[:, 0] = -5.0
    logits.sum().backward()
    assert net[0].weight.grad.abs().sum() > 0


def test_target_networks_of_another_size_are_refused():
    with pytest.raises(ValueError):
        polyak_average(list(mlp([3, 8, 1], nn.Tanh).parameters()), [torch.zeros(8, 3)], 0.9)


def by_module(learner, batch):
    loss = error(learner, batch)
    learning.gradient_step(learner.optimizer, loss)
    return dict(loss=loss.detach())


def towards_samples(learner, batch):
    samples, log_prob = learner.net(batch.x, deterministic=True)
    loss = ((samples.squeeze(-1) - batch.y) ** 2).mean() + 0.1 * log_prob.mean()
    gradient_step(learner.optimizer, loss)
    return dict(loss=loss.detach())


def negated(self, x):
    return -nn.Sequential.forward(self, x)


def squashed_gaussian():
    return bounded_policies.SquashedGaussianMLPActor(3, 1, (8,), nn.ReLU, act_limit=1.0)


@pytest.mark.parametrize(
    "owner, name, value, update, make",
    [
        (bounded_policies, "LOG_STD_MAX", -3.0, towards_samples, squashed_gaussian),
        (learning.Adam, "step", lambda self: None, plain, None),
        (learning, "gradient_step", lambda optimizer, loss: None, by_module, None),
        (layers.MLP, "forward", negated, plain, None),
    ],
)
def test_names_of_spinup_s_own_modules_and_classes(owner, name, value, update, make, monkeypatch):
    """Whoever changes one of ours in a running program finds it changed."""

    def unchanged():
        monkeypatch.undo()
        return make() if make else mlp([3, 8, 1], nn.Tanh)

    agree(update, lambda _: monkeypatch.setattr(owner, name, value), unchanged)


def test_columns_of_a_table_are_taken_together_with_their_gaps():
    """Replay buffers give columns of wider rows; small products round in another way for those."""
    data = torch.randn(200, 64, 6, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    net = mlp([4, 8, 1], nn.Tanh)
    learner, update = Learner(net, Adam(net.parameters(), 1e-3)), fast.recorded(plain)
    for rows in data:
        update(learner, Batch(rows[:, 1:5], rows[:, 5]))
    report = update.report(learner)
    assert (report.replays, report.reason) == (len(data), None)


# --- What Python itself keeps out of sight ---


class Mode(Enum):
    ON = 1

    def factor(self):
        return SCALE


class Meta(type):
    @property
    def factor(cls):
        return SCALE


class WithMeta(metaclass=Meta):
    pass


class Once:
    def factor(self):
        return 1.0


class Thrice:
    def factor(self):
        return 3.0


class Child(Once):
    pass


def scaled(factor):
    """An update whose loss is scaled by `factor(learner)`."""

    def update(learner, batch):
        loss = factor(learner) * error(learner, batch)
        gradient_step(learner.optimizer, loss)
        return dict(loss=loss.detach())

    return update


def make_anew():
    """The network, and everything at the beginning of a run as it was."""
    globals().pop("pow", None)
    Child.__bases__ = (Once,)
    return mlp([3, 8, 1], nn.Tanh)


def hide_pow(_):
    globals()["pow"] = lambda x, n: 3 * x


def swap_bases(_):
    Child.__bases__ = (Thrice,)


def other_fields(learner):
    learner.__dict__ = dict(learner.__dict__, extra=3.0)


def another_activation(learner):
    learner.net[1].__class__ = nn.Identity


def moved_moment(learner):
    first = learner.optimizer.exp_avgs[0]
    first.data = torch.full_like(first, 0.5)


HIDDEN = {
    "a method of an Enum": (scaled(lambda _: Mode.ON.factor()), rescale),
    "a property of a metaclass": (scaled(lambda _: WithMeta.factor), rescale),
    "a built-in name that is hidden later": (scaled(lambda _: pow(1.0, 2)), hide_pow),
    "the classes that a class inherits from": (scaled(lambda _: Child().factor()), swap_bases),
    "another dict of the learner": (scaled(lambda learner: learner.extra or 1.0), other_fields),
    "another class of a layer": (plain, another_activation),
    "a moment that lies elsewhere": (plain, moved_moment),
}


@pytest.mark.parametrize("kind", HIDDEN)
def test_what_python_keeps_out_of_sight(kind):
    update, change = HIDDEN[kind]
    try:
        agree(update, change, make_anew)
    finally:
        make_anew()


def calls_agree(update, settings, batches=None, make_learner=None, change=None):
    """The same for calls with these settings, one after the other."""
    recorded, weights = fast.recorded(update), []
    for call in (update, recorded):
        torch.manual_seed(0)
        learner = Learner(net := mlp([3, 8, 1], nn.Tanh), Adam(net.parameters(), 1e-2))
        if make_learner:
            make_learner(learner)
        for number, given in enumerate(settings):
            if change and number == len(settings) // 2:
                change(learner)
            data = torch.Generator().manual_seed(number)
            batch = Batch(torch.randn(8, 3, generator=data), torch.randn(8, generator=data))
            call(learner, batches(number, batch, learner) if batches else batch, **given)
        weights.append([p.detach().clone() for p in net.parameters()])
    for mine, theirs in zip(*weights, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
    return recorded.report(learner)


@dataclass
class Config:
    name: str
    factor: float = field(default=1.0, compare=False)


SETTINGS = {
    "0.0 and -0.0": (0.0, -0.0, lambda x: math.copysign(2.0, x)),
    "1 and True in a list": ([1], [True], lambda x: 3.0 if x[0] is True else 1.0),
    "0.0 and -0.0 in a dict": (dict(a=0.0), dict(a=-0.0), lambda x: math.copysign(2.0, x["a"])),
    "what a config does not compare": (Config("a"), Config("a", 3.0), lambda x: x.factor),
}


@pytest.mark.parametrize("kind", SETTINGS)
def test_settings_that_are_equal_but_not_the_same(kind):
    first, second, factor = SETTINGS[kind]

    def update(learner, batch, *, setting):
        gradient_step(learner.optimizer, factor(setting) * error(learner, batch))

    calls_agree(update, [dict(setting=first)] * 4 + [dict(setting=second)] * 4)


def test_equal_settings_made_anew_are_the_same():
    def update(learner, batch, *, setting):
        gradient_step(learner.optimizer, setting["a"][0].factor * error(learner, batch))

    report = calls_agree(update, [dict(setting=dict(a=[Config("a", 2.0)])) for _ in range(6)])
    assert report.captures == 1


def test_lists_of_numbers_that_are_equal_but_not_the_same():
    def update(learner, batch):
        factor = 3.0 if learner.extra[0] is True else 1.0
        gradient_step(learner.optimizer, factor * error(learner, batch))

    def make(learner):
        learner.extra = [1]

    def change(learner):
        learner.extra[0] = True

    calls_agree(update, [{}] * 8, None, make, change)


def test_attributes_of_tensors_and_batches():
    def by_tensor(learner, batch):
        gradient_step(learner.optimizer, learner.extra.factor * error(learner, batch))

    def make(learner):
        learner.extra = torch.zeros(1)
        learner.extra.factor = 1.0

    def change(learner):
        learner.extra.factor = 3.0

    calls_agree(by_tensor, [{}] * 8, None, make, change)

    def by_column(learner, batch):
        gradient_step(learner.optimizer, batch.x.factor * error(learner, batch))

    def marked(number, batch, _):
        batch.x.factor = 1.0 + number
        return batch

    calls_agree(by_column, [{}] * 8, marked)

    class Marked(Batch):
        factor = 1.0

    def by_batch(learner, batch):
        gradient_step(learner.optimizer, batch.factor * error(learner, batch))

    def replaced(number, batch, _):
        batch = Marked(*batch)
        if number > 4:
            batch.factor = 3.0
        return batch

    calls_agree(by_batch, [{}] * 8, replaced)


def test_a_batch_that_lies_in_a_weight():
    def update(learner, batch):
        gradient_step(learner.optimizer, error(learner, batch))
        gradient_step(learner.optimizer, error(learner, batch))  # sees the weights just changed

    report = calls_agree(
        update, [{}] * 6, lambda _, batch, learner: batch._replace(x=learner.net[0].weight.data)
    )
    assert "memory of a weight" in report.reason


def test_hooks_on_what_autograd_keeps():
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: 2 * x)

    def update(learner, batch):
        gradient_step(learner.optimizer, (learner.net[0](batch.x) ** 3).mean())

    recorded, weights = fast.recorded(update), []
    for call in (recorded, update):
        torch.manual_seed(0)
        learner = Learner(net := mlp([3, 8, 1], nn.Tanh), Adam(net.parameters(), 1e-2))
        for number in range(8):
            batch = Batch(torch.randn(8, 3), torch.randn(8))
            with hooks if number > 4 else nullcontext():
                call(learner, batch)
        weights.append(net[0].weight.detach().clone())
    torch.testing.assert_close(*weights, rtol=1e-4, atol=1e-5)


# --- What an update makes, keeps and gives ---


class Measured:
    def __init__(self):
        self.factor = SCALE


class Outer:
    class Inner:
        def __init__(self):
            self.factor = SCALE


@dataclass
class Recipe:
    factor: float = field(default_factory=lambda: SCALE)


KINDS = dict(measured=Measured)


class WithKind(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.kind = nn.Linear(3, 1), Measured

    def forward(self, x):
        return self.layer(x) * self.kind().factor


MADE = {
    "of a class in a dict": (scaled(lambda _: KINDS["measured"]().factor), None),
    "of a class inside a class": (scaled(lambda _: Outer.Inner().factor), None),
    "of a class that a network holds": (plain, WithKind),
    "of a dataclass with a factory": (scaled(lambda _: Recipe().factor), None),
}


@pytest.mark.parametrize("kind", MADE)
def test_objects_that_an_update_makes(kind):
    update, make = MADE[kind]
    agree(update, rescale, make)


def test_gradients_that_somebody_keeps():
    """They stay as they were; and the next update still leaves its own."""
    recorded, kept = fast.recorded(plain), []
    for call in (recorded, plain):
        torch.manual_seed(0)
        learner = Learner(net := mlp([3, 8, 1], nn.Tanh), Adam(net.parameters(), 1e-2))
        gradients = []
        for number in range(8):
            call(learner, Batch(torch.randn(8, 3), torch.randn(8)))
            gradients.append([p.grad for p in net.parameters()])
            if number == 5:
                for p in net.parameters():
                    p.grad = None
        kept.append(gradients)
    for mine, theirs in zip(*kept, strict=True):
        for p, q in zip(mine, theirs, strict=True):
            torch.testing.assert_close(p, q, rtol=1e-3, atol=1e-5)


def test_a_full_deque_of_tensors():
    seen = deque([torch.zeros(())] * 3, maxlen=3)

    def update(learner, batch):
        loss = error(learner, batch)
        seen.append((batch.x > 2).float().mean())
        gradient_step(learner.optimizer, loss)

    agree(update)
    recorded = fast.recorded(update)
    learner = Learner(net := mlp([3, 8, 1], nn.Tanh), Adam(net.parameters(), 1e-2))
    for number in range(6):
        recorded(learner, Batch(torch.full((4, 3), float(number)), torch.zeros(4)))
    assert [float(share) for share in seen] == [1.0, 1.0, 1.0]


def test_a_stream_that_the_update_seeds():
    def update(learner, batch):
        loss = error(learner, batch)
        gradient_step(learner.optimizer, loss)
        torch.manual_seed(3)

    learner = Learner(net := mlp([3, 8, 1], nn.Tanh), Adam(net.parameters(), 1e-2))
    recorded, numbers = fast.recorded(update), []
    for _ in range(5):
        recorded(learner, Batch(torch.ones(4, 3), torch.zeros(4)))
        numbers.append(float(torch.rand(1)))
    assert len(set(numbers)) == 1


def test_functions_of_a_module_that_are_looked_up_by_name(capsys):
    module = types.ModuleType("of_a_student")
    exec("def talk(x):\n    print('talk')\n    return x", module.__dict__)

    def update(learner, batch):
        loss = getattr(module, "ta" + "lk")(error(learner, batch))
        gradient_step(learner.optimizer, loss)

    learner = Learner(net := mlp([3, 8, 1], nn.Tanh), Adam(net.parameters(), 1e-2))
    recorded = fast.recorded(update)
    for _ in range(6):
        recorded(learner, Batch(torch.ones(4, 3), torch.zeros(4)))
    assert capsys.readouterr().out.count("talk") == 6


def test_losses_that_are_no_plain_functions():
    def squared(net, batch, *, factor):
        return factor * ((net(batch.x).squeeze(-1) - batch.y) ** 2).mean()

    class Squared:
        def __call__(self, net, batch):
            return squared(net, batch, factor=2.0)

    losses = []
    for loss in (partial(squared, factor=2.0), Squared()):
        torch.manual_seed(0)
        net = mlp([3, 8, 1], nn.Tanh)
        optimizer = Adam(net.parameters(), 1e-2)
        batch = Batch(torch.ones(4, 3), torch.zeros(4))
        losses.append([float(minimize(optimizer, loss, net, batch)) for _ in range(5)])
    assert losses[0] == pytest.approx(losses[1], rel=1e-5) and losses[0][0] > losses[0][-1]


class Named(Adam):
    def __init__(self, params, lr):
        self.lr = lr
        super().__init__(params, lr)


def test_an_optimizer_that_knows_its_learning_rate_before_it_is_made():
    learner, _, report = agree(plain, optimizer=Named)
    assert learner.optimizer.lr == 1e-2 and report.replays == 10


def test_a_parameter_that_is_given_back_continues_to_change():
    def update(learner, batch):
        return plain(learner, batch) | dict(bias=learner.net[0].bias)

    learner = Learner(net := mlp([3, 8, 1], nn.Tanh), Adam(net.parameters(), 1e-2))
    recorded = fast.recorded(update)
    given = [recorded(learner, Batch(torch.ones(4, 3), torch.zeros(4)))["bias"] for _ in range(5)]
    assert all(bias is net[0].bias for bias in given)
    assert "tensor of its learner" in recorded.report(learner).reason
