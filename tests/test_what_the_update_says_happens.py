"""What the code of an update says is what happens, captured or not.

Each test is one way in which a captured update could silently do something else than its code
says. `test_captured_updates_equal_eager_ones.py` looks for more at random, and
`test_networks_do_what_their_modules_say.py` for the same in networks that act.
"""

import io
import random
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from small_learner import assert_close
from torch import nn
from torch.nn import functional as F

from spinup import user_config
from spinup.algos.pytorch.dqn import core as dqn_core
from spinup.algos.pytorch.ppo import core as ppo_core
from spinup.algos.pytorch.ppo import ppo
from spinup.parts.buffers import Rollout
from spinup.parts.pytorch.fast import recorded
from spinup.parts.pytorch.layers import mlp
from spinup.parts.pytorch.learning import Adam, gradient_step, polyak_average


class Batch(NamedTuple):
    x: Any
    y: Any
    extra: Any = None


@dataclass
class Learner:
    net: Any
    optimizer: Any
    target: Any = None
    scale: float = 1.0
    updates: int = 0
    flipped: bool = False
    config: Any = None
    history: list = field(default_factory=list)


def make_learner(net=None, optimizer=lambda params: Adam(params, 1e-2, eps=1e-3), **values):
    torch.manual_seed(0)
    net = mlp([3, 8, 2], nn.Tanh) if net is None else net()
    return Learner(net, optimizer(list(net.parameters())), **values)


def make_batch(i, rows=8):
    g = torch.Generator().manual_seed(i)
    return Batch(torch.randn(rows, 3, generator=g), torch.randn(rows, generator=g))


def loss_of(learner, batch):
    return (learner.net(batch.x).sum(-1) - batch.y).square().mean()


def numbers(learner) -> torch.Tensor:
    """All weights, buffers and gradients of a learner in a row."""
    found = []
    for net in (learner.net, learner.target):
        if net is not None:
            found += [*net.parameters(), *net.buffers()]
            found += [p.grad for p in net.parameters() if p.grad is not None]
    return torch.cat([t.detach().double().reshape(-1) for t in found])


def seed_all(seed):
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


def agree(update, make=make_learner, batch_of=make_batch, between=None, calls=8, settings=None):
    """Drive a learner by `update` and a twin by `update.eager`; both must stay equal.

    between: what is done with a learner before the fourth call, when a capture is trusted, and
        before each later one: between(learner, i)
    settings: gives the keywords of the i-th call
    """
    learner, twin = make(), make()
    for i in range(calls):
        found = []
        for who, function in ((twin, update.eager), (learner, update)):
            seed_all(1000 + i)
            if between is not None and i > 2:
                between(who, i)
            seed_all(i)
            found.append(function(who, batch_of(i), **(settings(i) if settings else {})))
        expected, result = found
        for key in expected:
            assert_close(result[key], expected[key])
        assert_close(numbers(learner), numbers(twin))
        for p, q in zip(learner.net.parameters(), twin.net.parameters(), strict=True):
            assert (p.grad is None) == (q.grad is None)
        histories = [list(map(float, who.history)) for who in (learner, twin)]
        assert histories[0] == pytest.approx(histories[1], rel=1e-3)
        assert (learner.updates, learner.flipped) == (twin.updates, twin.flipped)
        assert learner.scale == pytest.approx(twin.scale)
    return learner, update.report(learner)


@recorded
def plain_update(learner, batch, **settings):
    loss = loss_of(learner, batch)
    gradient_step(learner.optimizer, loss)
    return dict(loss=loss.detach())


def test_a_plain_update_is_captured_and_replayed():
    _, report = agree(plain_update)
    assert report.reason is None
    assert (report.captures, report.replays) == (1, 8)
    assert report.eager_calls == 0


def test_with_the_switch_off_nothing_is_captured(monkeypatch):
    monkeypatch.setattr(user_config, "FAST", False)
    _, report = agree(plain_update)
    assert (report.captures, report.replays) == (0, 0)


def test_the_switch_may_be_turned_between_two_calls(monkeypatch):
    learner, twin = make_learner(), make_learner()
    for i in range(9):
        monkeypatch.setattr(user_config, "FAST", i % 3 != 1)
        plain_update(learner, make_batch(i))
        plain_update.eager(twin, make_batch(i))
    assert_close(numbers(learner), numbers(twin))


# --- Gradients of any layout ---


class ImageNet(nn.Module):
    """Takes images with channels last, as environments give them."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(3, 6, 3, stride=2), nn.ReLU(), nn.Conv2d(6, 6, 3), nn.ReLU(), nn.Flatten()
        )
        self.head = mlp([6 * 9, 16, 2], nn.ReLU)

    def forward(self, images):
        return self.head(self.conv(images.float().div(255).permute(0, 3, 1, 2)))


def image_batch(i):
    """Images in which a bright stripe says what the answer is."""
    g = torch.Generator().manual_seed(i % 20)
    rows = torch.randint(11, (8,), generator=g)
    images = torch.randint(60, (8, 11, 11, 3), generator=g, dtype=torch.uint8)
    images[torch.arange(8), rows] = 255
    return Batch(images, rows / 5.0 - 1)


@recorded
def huber_update(learner, batch, *, max_grad_norm=None):
    loss = F.huber_loss(learner.net(batch.x).sum(-1), batch.y)
    gradient_step(learner.optimizer, loss, max_grad_norm)
    return dict(loss=loss.detach())


@pytest.mark.parametrize("max_grad_norm", [None, 0.05])
def test_images_with_channels_last_are_learned_from(max_grad_norm):
    def adam(params):
        return Adam(params, 1e-3)

    learner, twin = make_learner(ImageNet, adam), make_learner(ImageNet, adam)
    losses = []
    for i in range(400):
        batch = image_batch(i)
        losses.append(huber_update(learner, batch, max_grad_norm=max_grad_norm)["loss"])
        expected = huber_update.eager(twin, batch, max_grad_norm=max_grad_norm)["loss"]
    assert huber_update.report(learner).replays > 300
    first, last = torch.stack(losses[:20]).mean(), torch.stack(losses[-20:]).mean()
    assert last < 0.2 * first
    assert losses[-1] == pytest.approx(expected.item(), rel=0.1, abs=1e-3)
    # 400 steps of Adam let rounding grow; a scrambled gradient would leave nothing in common.
    assert_close(numbers(learner)[:-1], numbers(twin)[:-1], 0.02)


def test_dqn_learns_from_images_with_channels_last():
    def make():
        spaces = Box(0, 255, (36, 36, 3), np.uint8), Discrete(2)
        return make_learner(lambda: dqn_core.MLPQNetwork(*spaces, hidden_sizes=(16,)))

    @recorded
    def update(learner, batch):
        loss = F.huber_loss(learner.net.q(batch.x).sum(-1), batch.y)
        gradient_step(learner.optimizer, loss, 1.0)
        return dict(loss=loss.detach())

    def images(i):
        g = torch.Generator().manual_seed(i)
        x = torch.randint(256, (4, 36, 36, 3), generator=g, dtype=torch.uint8)
        return Batch(x, torch.randn(4, generator=g))

    _, report = agree(update, make, images, calls=4)
    assert report.replays > 0


LAYOUTS = {
    "transposed": lambda w, x: x @ w.T.reshape(3, 2),
    "transposed twice": lambda w, x: (w.reshape(2, 3) @ x.T).T,
    "expanded": lambda w, x: w.reshape(2, 3).mean(0).expand(len(x), 3) * x,
    "a sum": lambda w, x: w.sum() * x,
    "einsum": lambda w, x: torch.einsum("ni,oi->no", x, w.reshape(2, 3)),
    "einsum, turned": lambda w, x: torch.einsum("ni,io->no", x, w.reshape(3, 2)),
    "permuted": lambda w, x: x @ w.reshape(1, 2, 3).permute(2, 0, 1).reshape(3, 2),
}


class Weight(nn.Module):
    def __init__(self, layout):
        super().__init__()
        self.layout, self.weight = layout, nn.Parameter(torch.randn(2, 3))

    def forward(self, x):
        return LAYOUTS[self.layout](self.weight, x)


@pytest.mark.parametrize("max_grad_norm", [None, 0.1])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradients_of_any_strides(layout, max_grad_norm):
    @recorded
    def update(learner, batch):
        loss = loss_of(learner, batch)
        gradient_step(learner.optimizer, loss, max_grad_norm)
        return dict(loss=loss.detach(), norm=learner.net.weight.grad.norm())

    agree(update, lambda: make_learner(lambda: Weight(layout)))


# --- What changes between two calls takes effect ---


def set_lr(learner, i):
    learner.optimizer.param_groups[0]["lr"] = 1e-2 / (1 + i)


def assign_data(learner, i):
    p = next(learner.net.parameters())
    p.data = 0.5 * p.data


def assign_vector(learner, i):
    vector = nn.utils.parameters_to_vector(learner.net.parameters()).detach()
    nn.utils.vector_to_parameters(0.5 * vector, learner.net.parameters())


def assign_state(learner, i):
    state = {k: 0.5 * v for k, v in learner.net.state_dict().items()}
    learner.net.load_state_dict(state, assign=True)
    learner.optimizer = Adam(learner.net.parameters(), 1e-2, eps=1e-3)


def replace_network(learner, i):
    if i == 4:
        learner.net = mlp([3, 8, 2], nn.Tanh)
        learner.optimizer = Adam(learner.net.parameters(), 1e-2, eps=1e-3)


def replace_layer(learner, i):
    if i == 4:
        learner.net[0] = nn.Linear(3, 8)


def replace_optimizer(learner, i):
    if i == 4:
        learner.optimizer = Adam(learner.net.parameters(), 0.1, eps=1e-3)


def freeze(learner, i):
    next(learner.net.parameters()).requires_grad_(i % 3 == 0)


CHANGES = dict(
    lr=set_lr,
    data=assign_data,
    vector=assign_vector,
    assigned=assign_state,
    network=replace_network,
    layer=replace_layer,
    optimizer=replace_optimizer,
    frozen=freeze,
)


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_between_two_calls_takes_effect(change):
    learner, _ = agree(plain_update, between=CHANGES[change])
    untouched, _ = agree(plain_update)
    other = numbers(learner)
    assert len(other) != len(numbers(untouched)) or (other - numbers(untouched)).norm() > 1e-3


def test_a_learning_rate_of_zero_stops_learning():
    learner = make_learner()
    for i in range(4):
        plain_update(learner, make_batch(i))
    learner.optimizer.param_groups[0]["lr"] = 0.0
    before = [p.detach().clone() for p in learner.net.parameters()]
    plain_update(learner, make_batch(5))
    assert all(map(torch.equal, before, learner.net.parameters()))


def test_the_learning_rate_of_either_optimizer_of_ppo_takes_effect():
    spaces = Box(-1, 1, (3,), np.float32), Box(-1, 1, (1,), np.float32)
    g = torch.Generator().manual_seed(0)
    rows = dict.fromkeys(Rollout._fields)
    for name in rows:
        shape = dict(obs=(16, 3), act=(16, 1)).get(name, (16,))
        rows[name] = torch.randn(shape, generator=g)
    for name in ("pi_optimizer", "vf_optimizer"):
        torch.manual_seed(0)
        ac = ppo_core.MLPActorCritic(*spaces, hidden_sizes=(8,))
        learner = ppo.make_learner(ac, 1e-2, 1e-2)
        own = list((ac.pi if name == "pi_optimizer" else ac.v).parameters())
        settings = dict(clip_ratio=0.2, target_kl=None, train_pi_iters=3, train_v_iters=3)
        for _ in range(3):
            before = [p.detach().clone() for p in own]
            ppo.update(learner, Rollout(**rows), **settings)
            assert not all(map(torch.equal, before, own))
        getattr(learner, name).param_groups[0]["lr"] = 0.0
        before = [p.detach().clone() for p in own]
        ppo.update(learner, Rollout(**rows), **settings)
        assert all(map(torch.equal, before, own))


@recorded
def scaled_update(learner, batch):
    loss = loss_of(learner, batch) * learner.scale * (-1 if learner.flipped else 1)
    gradient_step(learner.optimizer, loss)
    return dict(loss=loss.detach())


def test_a_float_on_the_learner():
    def halve(learner, i):
        learner.scale = 0.5**i

    agree(scaled_update, between=halve)


def test_a_flag_on_the_learner():
    def flip(learner, i):
        learner.flipped = i % 3 == 0

    agree(scaled_update, between=flip)


def test_a_counter_that_the_update_advances():
    @recorded
    def update(learner, batch):
        learner.updates += 1
        loss = loss_of(learner, batch) * (3.0 if learner.updates % 2 else 1.0)
        gradient_step(learner.optimizer, loss)
        return dict(loss=loss.detach())

    learner, _ = agree(update)
    assert learner.updates == 8


def test_a_schedule_inside_the_update():
    """What a student adds who copies an algorithm: a learning rate that falls."""

    @recorded
    def update(learner, batch):
        learner.updates += 1
        learner.optimizer.param_groups[0]["lr"] = 1e-2 * max(0.0, 1 - learner.updates / 5)
        loss = loss_of(learner, batch)
        gradient_step(learner.optimizer, loss)
        return dict(loss=loss.detach())

    learner, _ = agree(update)
    before = [p.detach().clone() for p in learner.net.parameters()]
    update(learner, make_batch(9))
    assert all(map(torch.equal, before, learner.net.parameters()))


class Gain(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.gain, self.calls = nn.Linear(3, 2), 1.0, 0

    def forward(self, x):
        return self.layer(x) * self.gain


def test_a_float_in_a_module():
    def change(learner, i):
        learner.net.gain = 1.0 + i // 3

    agree(plain_update, lambda: make_learner(Gain), between=change)


class Counting(Gain):
    def forward(self, x):
        self.calls += 1
        return self.layer(x) * (1 + self.calls % 2)


def test_a_counter_in_a_module():
    learner, _ = agree(plain_update, lambda: make_learner(Counting))
    assert learner.net.calls == 8


def test_a_config_object_on_the_learner():
    @recorded
    def update(learner, batch):
        loss = loss_of(learner, batch) * learner.config.weight
        gradient_step(learner.optimizer, loss)
        return dict(loss=loss.detach())

    def change(learner, i):
        learner.config.weight = 1.0 + i // 3

    agree(update, lambda: make_learner(config=SimpleNamespace(weight=1.0)), between=change)


@recorded
def weighted_update(learner, batch, *, weights):
    weight = weights["a"] if isinstance(weights, dict) else getattr(weights, "a", None)
    loss = loss_of(learner, batch) * (weights[0] if weight is None else weight)
    gradient_step(learner.optimizer, loss)
    return dict(loss=loss.detach())


@pytest.mark.parametrize("kind", [dict, SimpleNamespace, "list"])
def test_settings_that_are_lists_dicts_and_objects(kind):
    """One object, whose content changes."""
    kept = [1.0] if kind == "list" else kind(a=1.0)

    def settings(i):
        if kind == "list":
            kept[0] = 1.0 + i // 3
        elif kind is dict:
            kept["a"] = 1.0 + i // 3
        else:
            kept.a = 1.0 + i // 3
        return dict(weights=kept)

    agree(weighted_update, settings=settings)


FACTOR = 1.0


def test_a_global():
    @recorded
    def update(learner, batch):
        loss = loss_of(learner, batch) * FACTOR
        gradient_step(learner.optimizer, loss)
        return dict(loss=loss.detach())

    agree(update, between=lambda learner, i: globals().update(FACTOR=1.0 + i // 3))


def test_a_closure():
    factor = 1.0

    @recorded
    def update(learner, batch):
        loss = loss_of(learner, batch) * factor
        gradient_step(learner.optimizer, loss)
        return dict(loss=loss.detach())

    def change(learner, i):
        nonlocal factor
        factor = 1.0 + i // 3

    agree(update, between=change)


def test_evaluation_mode():
    def net():
        return nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 2))

    def change(learner, i):
        learner.net.train(i % 3 == 0)

    agree(plain_update, lambda: make_learner(net), between=change)


def test_a_hook_put_on_later():
    def change(learner, i):
        if i == 4:
            learner.net[0].register_forward_hook(lambda module, inputs, output: 3 * output)

    agree(plain_update, between=change)


def test_calls_without_gradients():
    @recorded
    def update(learner, batch):
        h = learner.net(batch.x)
        return dict(h=h.detach(), differentiable=torch.tensor(float(h.requires_grad)))

    learner = make_learner()
    for enabled in (True, True, True, False, False, True):
        with torch.set_grad_enabled(enabled):
            assert update(learner, make_batch(0))["differentiable"].item() == enabled


def test_a_batch_changed_in_place():
    kept = {}

    def batch_of(i):
        batch = kept.setdefault("batch", make_batch(0))
        batch.x.copy_(make_batch(i).x)
        return batch

    agree(plain_update, batch_of=batch_of)


def test_a_column_that_is_none_and_later_a_tensor():
    @recorded
    def update(learner, batch):
        loss = loss_of(learner, batch)
        if batch.extra is not None:
            loss = loss + (learner.net(batch.extra)).mean()
        gradient_step(learner.optimizer, loss)
        return dict(loss=loss.detach())

    def batch_of(i):
        batch = make_batch(i)
        return batch._replace(extra=2 * batch.x) if i % 4 > 1 else batch

    agree(update, batch_of=batch_of)


# --- What else an update does ---

NOISE = {
    "NumPy's": lambda: float(np.random.rand()),
    "NumPy's, as a tensor": lambda: torch.from_numpy(np.random.rand(1)).float().sum(),
    "Python's": random.random,
    "PyTorch's": lambda: torch.rand(1).sum(),
}


@pytest.mark.parametrize("whose", NOISE)
def test_random_numbers_are_new_in_every_call(whose):
    noise = NOISE[whose]

    @recorded
    def update(learner, batch):
        loss = loss_of(learner, batch) * (0.5 + noise())
        gradient_step(learner.optimizer, loss)
        return dict(loss=loss.detach())

    agree(update)
    streams = []
    for function in (update, update.eager):
        learner = make_learner()
        seed_all(0)
        for i in range(4):
            function(learner, make_batch(i))
        streams.append((np.random.rand(), random.random(), torch.rand(1).item()))
    assert streams[0] == streams[1]


def test_gradients_that_accumulate():
    @recorded
    def update(learner, batch):
        loss = loss_of(learner, batch)
        loss.backward()
        return dict(loss=loss.detach(), grad=learner.net[0].weight.grad.clone())

    agree(update)


def test_a_list_of_losses():
    @recorded
    def update(learner, batch):
        loss = loss_of(learner, batch)
        gradient_step(learner.optimizer, loss)
        learner.history.append(loss.detach())
        return dict(loss=loss.detach())

    learner, _ = agree(update)
    assert len(learner.history) == 8 and len({id(t) for t in learner.history}) == 8
    assert len({t.item() for t in learner.history}) == 8


def test_a_list_outside():
    seen = []

    @recorded
    def update(learner, batch):
        loss = loss_of(learner, batch)
        gradient_step(learner.optimizer, loss)
        seen.append(1)
        return dict(loss=loss.detach())

    learner = make_learner()
    for i in range(6):
        update(learner, make_batch(i))
    assert len(seen) == 6


def test_what_is_printed(capsys):
    @recorded
    def update(learner, batch):
        print("an update")
        return plain_update.eager(learner, batch)

    learner = make_learner()
    for i in range(6):
        update(learner, make_batch(i))
    assert capsys.readouterr().out.count("an update") == 6


def test_the_reason_for_running_eagerly_is_told_once(capsys):
    @recorded
    def update(learner, batch):
        loss = loss_of(learner, batch)
        gradient_step(learner.optimizer, loss * loss.item())
        return dict(loss=loss.detach())

    _, report = agree(update)
    assert report.reason and report.replays == 0 and report.eager_calls == 8
    shown = capsys.readouterr()
    told = [line for line in (shown.out + shown.err).splitlines() if report.reason in line]
    assert len(told) == 1


def test_a_capture_that_is_given_up_has_changed_nothing():
    """One call of an update that cannot be captured is one call, to the last bit."""

    @recorded
    def update(learner, batch):
        loss = loss_of(learner, batch) + 0.1 * torch.randn(1).sum() * learner.net(batch.x).mean()
        loss.backward()
        learner.optimizer.step()
        learner.updates += 1
        learner.history.append(random.random() + np.random.rand())
        gradient_step(learner.optimizer, loss_of(learner, batch) * loss.item())
        return dict(loss=loss.detach())

    for optimizer in (lambda p: Adam(p, 1e-2), lambda p: torch.optim.Adam(p, 1e-2)):
        found = []
        for function in (update, update.eager):
            learner = make_learner(optimizer=optimizer)
            seed_all(3)
            function(learner, make_batch(0))
            state = io.BytesIO()
            torch.save(learner.optimizer.state_dict(), state)
            found.append((learner, state.getvalue(), torch.rand(1), np.random.rand()))
        (a, state, *random_a), (b, expected, *random_b) = found
        assert torch.equal(numbers(a), numbers(b)) and state == expected and random_a == random_b
        assert (a.updates, a.history) == (b.updates, b.history)


def test_an_update_that_raises_changes_what_its_lines_before_changed():
    @recorded
    def update(learner, batch):
        gradient_step(learner.optimizer, loss_of(learner, batch))
        learner.updates += 1
        if learner.updates == 3:
            raise ValueError("the third")
        return {}

    states = []
    for function in (update, update.eager):
        learner = make_learner()
        for i in range(5):
            if i == 2:
                with pytest.raises(ValueError, match="the third"):
                    function(learner, make_batch(i))
            else:
                function(learner, make_batch(i))
        states.append((numbers(learner), learner.updates))
    assert_close(states[0][0], states[1][0])
    assert states[0][1] == states[1][1] == 5


# --- Layers, operations and optimizers of every kind ---


class Recurrent(nn.Module):
    def __init__(self, kind=nn.GRU):
        super().__init__()
        self.cell, self.head = kind(1, 5, batch_first=True), nn.Linear(5, 2)

    def forward(self, x):
        return self.head(self.cell(x.unsqueeze(-1))[0][:, -1])


class Formula(nn.Module):
    def __init__(self, formula):
        super().__init__()
        self.layer, self.formula = nn.Linear(3, 6), formula

    def forward(self, x):
        return self.formula(self.layer(x))


def changed_in_place(h):
    z = h.clone()
    z.unsqueeze_(0).transpose_(1, 2).squeeze_(0)
    return (z * z[:1]).T


def whole_numbers(h):
    n = torch.arange(len(h)) * 3 + 1
    return h * (n % 4)[:, None] + h * (n // 3).sum() / 10


NETS = {
    "GRU": Recurrent,
    "LSTM": lambda: Recurrent(nn.LSTM),
    "in-place shape changes": lambda: Formula(changed_in_place),
    "integer arithmetic": lambda: Formula(whole_numbers),
    "BatchNorm": lambda: nn.Sequential(nn.Linear(3, 6), nn.BatchNorm1d(6), nn.Linear(6, 2)),
    "norm(dim=)": lambda: Formula(lambda h: h.norm(dim=-1, keepdim=True) * h),
    "amax()": lambda: Formula(lambda h: h.amax() * h),
    "mean(dtype=)": lambda: Formula(lambda h: h.mean(dtype=torch.float64).float() * h),
    "mean(dim, dtype=)": lambda: Formula(lambda h: h.mean(-1, True, dtype=torch.float64).float()),
    "sigmoid at -20": lambda: Formula(lambda h: torch.log(torch.sigmoid(0.1 * h - 20)) / 20),
    "sigmoid at 88": lambda: Formula(lambda h: torch.sigmoid(h + 88) * h),
    "sigmoid at -88": lambda: Formula(lambda h: torch.sigmoid(h - 88) * 1e30 + h),
}


@pytest.mark.parametrize("net", NETS)
def test_layers_and_operations(net):
    agree(plain_update, lambda: make_learner(NETS[net]))


def test_the_captured_sigmoid_at_minus_20_is_not_zero():
    @recorded
    def update(learner, batch):
        return dict(s=torch.sigmoid(batch.x))

    learner = make_learner()
    for value in (-20.0, -30.0, -20.0, -80.0):
        found = update(learner, Batch(torch.full((8, 3), value), None))["s"]
        expected = torch.full((8, 3), value, dtype=torch.float64).sigmoid().float()
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=0)


OPTIMIZERS = {
    "Adam": lambda p: torch.optim.Adam(p, 1e-2, eps=1e-3),
    "AdamW": lambda p: torch.optim.AdamW(p, 1e-2, eps=1e-3),
    "SGD": lambda p: torch.optim.SGD(p, 1e-2, momentum=0.9),
    "RMSprop": lambda p: torch.optim.RMSprop(p, 1e-3, eps=1e-3),
    "Adagrad": lambda p: torch.optim.Adagrad(p, 1e-2, eps=1e-3),
    "NAdam": lambda p: torch.optim.NAdam(p, 1e-2, eps=1e-3),
    "Adadelta": lambda p: torch.optim.Adadelta(p),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_of_pytorch(name):
    @recorded
    def backward_update(learner, batch):
        loss = loss_of(learner, batch)
        learner.optimizer.zero_grad()
        loss.backward()
        learner.optimizer.step()
        return dict(loss=loss.detach())

    for update in (plain_update, backward_update):
        learner, _ = agree(update, lambda: make_learner(optimizer=OPTIMIZERS[name]))
        twin, _ = agree(update, lambda: make_learner(optimizer=OPTIMIZERS[name]))
        states = [x.optimizer.state_dict()["state"] for x in (learner, twin)]
        for i, state in states[1].items():
            steps = state.get("step", torch.tensor(8.0))
            assert float(steps) == 8  # not one more, of a trial


def test_a_named_tuple_as_learner():
    class Pair(NamedTuple):
        net: Any
        optimizer: Any
        target: Any = None
        history: Any = ()
        updates: int = 0
        flipped: bool = False
        scale: float = 1.0

    def make():
        learner = make_learner()
        return Pair(learner.net, learner.optimizer)

    _, report = agree(plain_update, make)
    assert report.replays + report.eager_calls == 8


@pytest.mark.parametrize("rho", [0.0, 0])
def test_polyak_0_is_a_copy(rho):
    @recorded
    def update(learner, batch):
        gradient_step(learner.optimizer, loss_of(learner, batch))
        polyak_average(learner.net, learner.target, rho)
        return {}

    learner = make_learner(target=mlp([3, 8, 2], nn.Tanh))
    with torch.no_grad():
        for p in learner.target.parameters():
            p.mul_(1e4)  # what is left of it would show
    for i in range(5):
        update(learner, make_batch(i))
        assert all(map(torch.equal, learner.net.parameters(), learner.target.parameters()))


# --- Two updates at once ---


def test_ppo_with_shared_layers_gives_one_result():
    """Policy and value function may not be learned side by side, if they share a layer."""
    g = torch.Generator().manual_seed(0)
    spaces = Box(-1, 1, (3,), np.float32), Box(-1, 1, (2,), np.float32)
    shapes = dict(obs=(64, 3), act=(64, 2))
    rollout = Rollout(
        **{name: torch.randn(shapes.get(name, (64,)), generator=g) for name in Rollout._fields}
    )
    results = []
    for _ in range(3):
        torch.manual_seed(0)
        ac = ppo_core.MLPActorCritic(*spaces, hidden_sizes=(64, 64))
        mu, v = ([m for m in n.modules() if isinstance(m, nn.Linear)] for n in (ac.pi.mu_net, ac.v))
        v[1].weight, v[1].bias = mu[1].weight, mu[1].bias
        learner = ppo.make_learner(ac, 1e-2, 1e-2)
        for _ in range(4):
            ppo.update(
                learner,
                rollout,
                clip_ratio=0.2,
                target_kl=None,
                train_pi_iters=30,
                train_v_iters=30,
            )
        results.append(torch.cat([p.detach().reshape(-1) for p in ac.parameters()]))
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])
