"""Many updates in a row, which a recorded update checks once, equal as many single calls."""

import subprocess
import sys
from copy import deepcopy
from dataclasses import dataclass

import pytest
import torch
from small_learner import Batch
from torch import nn

from spinup.parts.pytorch import fast
from spinup.parts.pytorch.layers import mlp
from spinup.parts.pytorch.learning import Adam, gradient_step, updates


@dataclass
class Learner:
    net: nn.Module
    optimizer: Adam
    count: int = 0


def make_learner():
    torch.manual_seed(0)
    net = mlp([3, 16, 1], nn.Tanh)
    return Learner(net, Adam(net.parameters(), 1e-2))


def plain_update(learner, batch, *, scale, twice=False):
    loss = scale * ((learner.net(batch.x).squeeze(-1) - batch.y) ** 2).mean()
    gradient_step(learner.optimizer, loss)
    if twice:
        gradient_step(learner.optimizer, (learner.net(batch.x) ** 2).mean())
    return dict(loss=loss.detach())


def counting_update(learner, batch, *, scale, twice=False):
    learner.count += 1
    return plain_update(learner, batch, scale=scale / learner.count, twice=twice)


def batches(count, other_size_at=None):
    random = torch.Generator().manual_seed(1)
    for number in range(count):
        rows = 5 if number == other_size_at else 8
        yield Batch(torch.randn(rows, 3, generator=random), torch.randn(rows, generator=random))


def weights_and_losses(learner, found):
    losses = [stats["loss"] for stats in found]
    return [*(p.detach().clone() for p in learner.net.parameters()), *losses]


def one_by_one(update, data, per_call, **settings):
    learner = make_learner()
    found = [update(learner, b, **settings, **own) for b, own in zip(data, per_call)]
    return weights_and_losses(learner, found)


@pytest.mark.parametrize("update", [plain_update, counting_update])
@pytest.mark.parametrize("other_size_at", [None, 0, 70, 149])
def test_they_equal_single_calls_to_the_last_bit(update, other_size_at):
    per_call = [dict(twice=number % 3 == 0) for number in range(150)]
    learner, recorded = make_learner(), fast.recorded(update)
    found = updates(recorded, learner, batches(150, other_size_at), per_call, scale=0.5)
    assert len(found) == 150
    in_a_row = weights_and_losses(learner, found)
    data = list(batches(150, other_size_at))
    single = one_by_one(fast.recorded(update), data, per_call, scale=0.5)
    assert all(map(torch.equal, in_a_row, single))
    for mine, eager in zip(in_a_row, one_by_one(update, data, per_call, scale=0.5)):
        torch.testing.assert_close(mine, eager, rtol=1e-4, atol=1e-5)
    report = recorded.report(learner)
    assert report.replays == (150 if update is plain_update else 0)


@pytest.mark.parametrize("update", [plain_update, fast.recorded(plain_update)])
def test_nothing_is_left_out_with_the_switch_off_or_without_the_decorator(update):
    learner = make_learner()
    with fast.plain():
        found = updates(update, learner, batches(70), scale=2.0)
    expected = one_by_one(plain_update, list(batches(70)), [{}] * 70, scale=2.0)
    for mine, eager in zip(weights_and_losses(learner, found), expected, strict=True):
        torch.testing.assert_close(mine, eager, rtol=1e-4, atol=1e-5)


def freeze(learner):
    learner.net[0].weight.requires_grad_(False)


def replace_a_layer(learner):
    torch.manual_seed(5)
    learner.net[0] = nn.Linear(3, 16)


def cut_shorter(learner):
    for p, rows in ((learner.net[0].weight, 9), (learner.net[0].bias, 9)):
        p.data = p.data[:rows]
    learner.net[2].weight.data = learner.net[2].weight.data[:, :9]
    learner.optimizer = Adam(learner.net.parameters(), 1e-2)


def another_learning_rate(learner):
    learner.optimizer.param_groups[0]["lr"] = 1e-4


CHANGES = [freeze, replace_a_layer, cut_shorter, another_learning_rate]


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_between_two_rows_is_seen(change):
    """What happens after the updates of one call is seen by those of the next."""
    recorded = fast.recorded(plain_update)
    found = []
    for update in (recorded, plain_update):
        learner, data = make_learner(), list(batches(40))
        updates(update, learner, data[:20], scale=1.0)
        change(learner)
        found.append(weights_and_losses(learner, updates(update, learner, data[20:], scale=1.0)))
    for mine, eager in zip(*found, strict=True):
        torch.testing.assert_close(mine, eager, rtol=1e-4, atol=1e-5)


def test_a_change_is_seen_where_pytorch_has_no_quick_checks():
    program = f"""
import sys, pytest, torch
from torch._C._dynamo import guards
for name in ("TensorGuards", "dict_version"):
    if hasattr(guards, name):
        delattr(guards, name)
sys.exit(pytest.main([{__file__!r}, "-k", "test_a_change_between"]))
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_a_change_while_batches_are_sampled_is_seen():
    """A generator of batches may do anything; the batches after the next check feel it."""

    def data(learner):
        for number, batch in enumerate(batches(130)):
            if number == 64:
                replace_a_layer(learner)
            yield batch

    found = []
    for update in (fast.recorded(plain_update), plain_update):
        learner = make_learner()
        found.append(
            weights_and_losses(learner, updates(update, learner, data(learner), scale=1.0))
        )
    for mine, eager in zip(*found, strict=True):
        torch.testing.assert_close(mine, eager, rtol=1e-4, atol=1e-5)


def test_an_update_that_changes_its_learner_once_is_seen():
    """An update that freezes a layer in one of its calls, between others of the same settings."""

    def update(learner, batch, *, scale, freeze=False):
        if freeze:
            learner.net[2].weight.requires_grad_(False)
        return plain_update(learner, batch, scale=scale)

    per_call = [dict(freeze=number == 30) for number in range(50)]
    learner, twin = make_learner(), deepcopy(make_learner())
    found = updates(fast.recorded(update), learner, batches(50), per_call, scale=1.0)
    expected = updates(update, twin, batches(50), per_call, scale=1.0)
    pairs = zip(weights_and_losses(learner, found), weights_and_losses(twin, expected))
    for mine, eager in pairs:
        torch.testing.assert_close(mine, eager, rtol=1e-4, atol=1e-5)
