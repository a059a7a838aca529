"""What was made faster gives the same numbers as PyTorch's plain way, to the last few digits."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import dataclass

import pytest
import torch
from gymnasium.spaces import Box
from small_learner import Batch
from torch import nn

from spinup.parts.pytorch import fast
from spinup.parts.pytorch.bounded_policies import (
    LOG_STD_MAX,
    LOG_STD_MIN,
    SquashedGaussianMLPActor,
    squashed_log_prob,
)
from spinup.parts.pytorch.critics import MLPQFunction, stack_values
from spinup.parts.pytorch.layers import MLP, apply_to_arrays, mlp, observation_mlp
from spinup.parts.pytorch.learning import Adam, gradient_step, polyak_average
from spinup.parts.pytorch.networks import MLPActorCritic, MLPCategoricalActor, MLPGaussianActor
from spinup.parts.pytorch.tensors import standard_normal, uniform

ACTIVATIONS = [nn.Tanh, nn.ReLU, nn.ELU]


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def plain(net):
    """The same weights in PyTorch's own layers."""
    return nn.Sequential(*deepcopy(list(net)))


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("output", [nn.Identity, nn.Tanh])
def test_layers_and_their_gradients(activation, output):
    quick = mlp([5, 16, 8, 3], activation, output)
    slow = plain(quick)
    x, y = (torch.randn(7, 5, dtype=torch.float32) * 3 for _ in range(2))
    y.copy_(x)
    results = []
    for net, inputs in ((quick, x.requires_grad_()), (slow, y.requires_grad_())):
        out = net(inputs)
        (out**3).sum().backward()
        results.append([out, inputs.grad, *(p.grad for p in net.parameters())])
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(quick(x), slow(x), rtol=1e-5, atol=1e-6)


def test_only_what_is_asked_for_gets_a_gradient():
    net = mlp([2, 4, 1], nn.Tanh)
    first, *others = net.parameters()
    net(torch.ones(3, 2)).sum().backward(inputs=[first])
    assert first.grad is not None
    assert all(p.grad is None for p in others)


@dataclass
class CriticLearner:
    policy: nn.Module
    critics: nn.Module
    optimizer: Adam


def critic_update(learner, batch):
    """A step along a gradient that goes through the critics into their actions too."""
    q = stack_values(learner.critics, batch.x, learner.policy(batch.x))
    gradient_step(learner.optimizer, q.square().mean() + q.amin(0).sum())
    return dict(Q=q.detach())


def critic_learner(activation, hidden_sizes=(16, 8)):
    critics = nn.ModuleList([MLPQFunction(3, 2, hidden_sizes, activation) for _ in range(2)])
    policy = mlp([3, 2], activation)
    return CriticLearner(policy, critics, Adam([*policy.parameters(), *critics.parameters()], 0.01))


def update_critics(learner, calls=4):
    """Captured updates; gives the values of the last one."""
    update = fast.recorded(critic_update)
    batch = Batch(torch.linspace(-2, 2, 21).view(7, 3), None)
    for _ in range(calls):
        found = update(learner, batch)["Q"]
    report = update.report(learner)
    assert (report.replays, report.reason) == (calls, None)
    return found


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("watched", [False, True])
def test_critics_together_and_their_gradients(activation, watched):
    learner = critic_learner(activation)
    apart = deepcopy(learner)
    if watched:  # their weights cannot be moved next to each other
        view = learner.critics[0].q[0].weight.detach().numpy()
    found = update_critics(learner)
    with fast.plain():
        for _ in range(4):
            expected = critic_update(apart, Batch(torch.linspace(-2, 2, 21).view(7, 3), None))["Q"]
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)
    for network, other in ((learner.policy, apart.policy), (learner.critics, apart.critics)):
        for p, q in zip(network.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(p.grad, q.grad, rtol=1e-3, atol=1e-5)
            torch.testing.assert_close(p, q, rtol=1e-3, atol=1e-4)
    if watched:
        assert (view == learner.critics[0].q[0].weight.detach().numpy()).all()


def test_memory_that_somebody_looks_at_stays_where_it_is():
    learner = critic_learner(nn.ReLU, (8,))
    view = learner.critics[0].q[0].weight.detach().numpy()
    update_critics(learner)
    with torch.no_grad():
        learner.critics[0].q[0].weight.fill_(3.0)
    assert (view == 3).all()


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("hidden_sizes", [(16,), (16, 8)])
@pytest.mark.parametrize("log_std", [0.0, 3.0, -25.0])
def test_squashed_policies_and_their_gradients(activation, hidden_sizes, log_std):
    actor = SquashedGaussianMLPActor(3, 2, hidden_sizes, activation, [2.0, 0.5], [1.0, 0.0])
    actor.log_std_layer.bias.data.fill_(log_std)  # inside the bounds, above them, below them
    obs = torch.linspace(-1, 1, 15).view(5, 3)

    def by_the_book(noise):
        features = nn.Sequential(*actor.net)(obs)  # layer by layer
        mu, width = actor.mu_layer(features), actor.log_std_layer(features)
        width = width.clamp(LOG_STD_MIN, LOG_STD_MAX)
        u = mu + width.exp() * noise
        middle, half = torch.tensor([1.0, 0.0]), torch.tensor([2.0, 0.5])
        return middle + half * torch.tanh(u), squashed_log_prob(noise, width, u)

    torch.manual_seed(3)
    noise = torch.randn(5, 2)
    torch.manual_seed(3)
    results = []
    for act, logp in (actor(obs), by_the_book(noise)):
        loss = (act**3).sum() + (logp * torch.arange(5.0)).sum()
        results.append((act, logp, *torch.autograd.grad(loss, list(actor.parameters()))))
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)


def test_gradients_that_nobody_wants_are_not_computed():
    """A loss that goes through critics to a policy must not pay for the critics' weights."""
    critic, policy = mlp([2, 32, 32, 1], nn.ReLU), mlp([3, 32, 32, 2], nn.ReLU)
    wanted = list(policy.parameters())

    def products(compute):
        loss = critic(policy(torch.ones(4, 3))).sum()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            found = compute(loss)
        count = sum(e.count for e in profile.key_averages() if e.key in ("aten::mm", "aten::bmm"))
        return count, found

    all_of_them, expected = products(lambda loss: torch.autograd.grad(loss, wanted))
    needed, found = products(lambda loss: fast.gradients(loss, wanted))
    assert all_of_them - needed == 3  # one for the weights of each layer of the critic
    for a, b in zip(found, expected, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("shape", [(5,), (2, 3), ()])
def test_a_few_rows_in_numpy(activation, shape):
    net = observation_mlp(shape, [16, 4], activation)
    for rows in (1, 3, 100):
        obs = torch.randn(rows, *shape)
        torch.testing.assert_close(torch.tensor(apply_to_arrays(net, obs)), net(obs).detach())


def test_a_few_rows_see_every_change_of_the_weights():
    net = mlp([3, 8, 2], nn.ReLU)
    obs = torch.randn(2, 3)

    def agree(network):
        torch.testing.assert_close(
            torch.tensor(apply_to_arrays(network, obs)), network(obs).detach()
        )

    agree(net)
    optimizer = Adam(net.parameters(), lr=0.1)
    for _ in range(3):
        gradient_step(optimizer, net(obs).square().sum())
        agree(net)
    copy = deepcopy(net)
    gradient_step(optimizer, net(obs).square().sum())
    agree(copy)
    agree(net)
    net.load_state_dict(copy.state_dict())
    agree(net)
    net.double().float()  # puts the weights somewhere else
    agree(net)


def test_what_was_given_for_a_few_rows_stays_as_it_was():
    net = mlp([3, 8, 2], nn.Tanh)
    one, other = torch.randn(1, 3), torch.randn(1, 3)
    given = apply_to_arrays(net, one)
    apply_to_arrays(net, other)
    torch.testing.assert_close(torch.tensor(given), net(one).detach())


def test_widths_of_bell_curves_are_those_of_now():
    actor = MLPGaussianActor(3, 2, (8,), nn.Tanh)
    obs = torch.randn(5, 3)
    actor.sample(obs)
    copy = deepcopy(actor)  # after the actor has looked where its numbers are
    for change in (-1.0, 2.0):
        for network in (actor, copy):
            with torch.no_grad():
                network.log_std += change
            act, logp = network.sample(obs)
            expected = network(obs, torch.as_tensor(act))[1].detach()
            torch.testing.assert_close(torch.as_tensor(logp), expected, rtol=1e-4, atol=1e-4)


def test_acting_does_not_ask_pytorch(monkeypatch):
    wide = mlp([3, 256, 256, 2], nn.ReLU)
    expected = wide(torch.ones(1, 3)).detach()
    monkeypatch.setattr(MLP, "forward", lambda *_: pytest.fail("one row went through PyTorch"))
    torch.testing.assert_close(torch.tensor(apply_to_arrays(wide, torch.ones(1, 3))), expected)


def test_drawn_actions_have_the_probabilities_of_the_policy():
    obs = torch.randn(1, 4).expand(50, 4)
    actor = MLPCategoricalActor(4, 3, (8,), nn.Tanh)
    draws = [actor.sample(obs) for _ in range(400)]
    acts = torch.cat([torch.as_tensor(act) for act, _ in draws])
    shares = torch.bincount(acts, minlength=3) / len(acts)
    probabilities = actor._distribution(obs[0]).probs.detach()
    torch.testing.assert_close(shares, probabilities, atol=0.012, rtol=0)
    act, logp = draws[0]
    expected = actor(obs, torch.as_tensor(act))[1].detach()
    torch.testing.assert_close(torch.tensor(logp), expected)

    gaussian = MLPGaussianActor(4, 2, (8,), nn.Tanh)
    act, logp = gaussian.sample(obs)
    expected = gaussian(obs, torch.as_tensor(act))[1].detach()
    torch.testing.assert_close(torch.tensor(logp), expected)
    many = torch.cat([torch.as_tensor(gaussian.sample(obs)[0]) for _ in range(400)])
    torch.testing.assert_close(many.mean(0), gaussian.mode(obs)[0].detach(), atol=0.02, rtol=0)
    torch.testing.assert_close(many.std(0), gaussian.log_std.detach().exp(), atol=0.02, rtol=0)


@pytest.mark.parametrize("ours, theirs", [(standard_normal, torch.randn), (uniform, torch.rand)])
def test_random_arrays_are_those_of_pytorch(ours, theirs):
    shapes = [(1, 6), (3,), (40, 7), (1, 6)]
    expected = [theirs(shape) for shape in shapes]
    torch.manual_seed(0)
    found = [ours(shape) for shape in shapes]  # the first and the last are not one array
    torch.manual_seed(0)
    with fast.plain():
        slow = [ours(shape) for shape in shapes]
    for one, other, array in zip(found, slow, expected, strict=True):
        assert one.tolist() == other.tolist() == array.tolist()
    with ThreadPoolExecutor(4) as pool:
        drawn = list(pool.map(ours, [(8, 5)] * 400))
    assert len({array.tobytes() for array in drawn}) == 400


def test_settings_that_adam_does_not_have_are_refused():
    optimizer = Adam((net := nn.Linear(2, 1)).parameters(), 1e-2)
    with pytest.raises(AttributeError, match="Adam has no 'weight_decay'. It has lr"):
        optimizer.weight_decay = 0.1
    net(torch.ones(1, 2)).sum().backward()
    optimizer.lr = 0.5
    optimizer.step()
    optimizer.param_groups[0]["weight_decay"] = 0.1
    with pytest.raises(ValueError, match="Adam has no weight_decay"):
        optimizer.step()


def test_random_arrays_are_there_in_and_after_inference_mode():
    with torch.inference_mode():
        standard_normal((3, 11)), uniform((3, 11))
    assert standard_normal((3, 11)).shape == uniform([3, 11]).shape == (3, 11)


def test_adam_takes_the_steps_of_pytorch():
    nets = [nn.Linear(3, 2)]
    nets.append(deepcopy(nets[0]))
    ours, theirs = Adam(nets[0].parameters(), lr=0.01), torch.optim.Adam(nets[1].parameters(), 0.01)
    for i in range(12):
        x = torch.randn(4, 3)
        for net, optimizer in zip(nets, (ours, theirs)):
            for p in net.parameters():
                p.grad = None
            (net(x) ** 2).sum().backward()
            if i in (3, 4):
                net.bias.grad = None  # a parameter that a loss did not touch
            optimizer.step()
        for p, q in zip(nets[0].parameters(), nets[1].parameters()):
            torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)
        if i == 6:  # saved and loaded in between
            again = Adam(nets[0].parameters(), lr=0.01)
            again.load_state_dict(ours.state_dict())
            ours = again


@pytest.mark.parametrize("more", [nn.Linear(2, 2), nn.LayerNorm(2)])
def test_what_a_user_appends_is_not_left_out(more):
    net = mlp([3, 8, 2], nn.ReLU).append(more)
    obs = torch.randn(4, 3)
    expected = nn.Sequential(*net)(obs).detach()
    torch.testing.assert_close(net(obs).detach(), expected)
    torch.testing.assert_close(torch.tensor(apply_to_arrays(net, obs)), expected)


NETWORKS = {
    "an mlp": (lambda: mlp([3, 8, 2], nn.Tanh), lambda net, x: net(x)),
    "an mlp with a squashed end": (
        lambda: mlp([3, 8, 2], nn.ReLU, nn.Tanh),
        lambda net, x: net(x),
    ),
    "a squashed Gaussian": (
        lambda: SquashedGaussianMLPActor(3, 2, (8, 8), nn.Tanh, [1.0, 2.0]),
        lambda net, x: sum(part.sum() for part in net(x)),
    ),
}


@pytest.mark.parametrize("kind", NETWORKS)
@pytest.mark.parametrize("loss", ["linear", "square"])
def test_second_derivatives_are_right(kind, loss):
    """The product of the Hessian with a vector, against plain layers."""
    make, call = NETWORKS[kind]
    net, x = make(), torch.randn(6, 3)

    def product(net, x):
        params = list(net.parameters())
        torch.manual_seed(5)
        out = call(net, x)
        value = out.sum() if loss == "linear" else out.square().mean()
        grads = torch.autograd.grad(value, params, create_graph=True)
        slope = sum((g * torch.cos(p.detach() * 7)).sum() for g, p in zip(grads, params))
        second = torch.autograd.grad(slope, params, allow_unused=True)
        return torch.cat(
            [
                torch.zeros_like(p).flatten() if g is None else g.flatten()
                for g, p in zip(second, params)
            ]
        ).double()

    found = product(net, x)
    with fast.plain():
        expected = product(deepcopy(net), x)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
    assert expected.abs().max() > 1e-3


@pytest.mark.parametrize("max_norm", [0.1, 1000.0])
def test_gradients_are_clipped_as_pytorch_does(max_norm):
    nets = [nn.Linear(3, 2)]
    nets.append(deepcopy(nets[0]))
    for net in nets:
        net(torch.ones(4, 3)).square().sum().backward()
    assert fast.clip_gradients(list(nets[0].parameters()), max_norm)
    nn.utils.clip_grad_norm_(nets[1].parameters(), max_norm)
    for p, q in zip(nets[0].parameters(), nets[1].parameters()):
        torch.testing.assert_close(p.grad, q.grad)


def test_frozen_weights_leave_the_biases_their_gradients():
    net = mlp([3, 8, 2], nn.ReLU)
    for layer in net[0::2]:
        layer.weight.requires_grad_(False)
    slow = plain(net)
    for network in (net, slow):
        network(torch.ones(4, 3)).square().sum().backward()
    for p, q in zip(net.parameters(), slow.parameters()):
        assert (p.grad is None) == (q.grad is None)
        if q.grad is not None:
            torch.testing.assert_close(p.grad, q.grad)


def narrow(net):
    net[2].weight.data, net[2].bias.data = net[2].weight.data[:5], net[2].bias.data[:5]
    net[4].weight.data = net[4].weight.data[:, :5]


def turn(net):
    net[2].weight.data = net[2].weight.data.t()


def reorder(net):
    layers = list(net)
    for i, layer in enumerate([*layers[2:4], *layers[:2], *layers[4:]]):
        net[i] = layer


def override(net):
    net[2].forward = lambda x: 2 * x


def move(net):
    net[0].bias.data = net[0].bias.data + 1


def become_another(net):
    net[1].__class__ = nn.Identity


@pytest.mark.parametrize("change", [narrow, turn, reorder, override, move, become_another])
def test_acting_follows_whatever_happens_to_a_network(change):
    torch.manual_seed(0)
    ac = MLPActorCritic(Box(-1, 1, (8,)), Box(-1, 1, (2,)), hidden_sizes=(8, 8))
    obs = torch.randn(3, 8)
    for _ in range(3):
        ac.step(obs)
    change(ac.v.v_net)
    _, value, _ = ac.step(obs)
    with fast.plain():
        torch.testing.assert_close(torch.tensor(value), ac.v(obs).detach())


class Clamped(nn.Module):
    def forward(self, x):
        return x.clamp(max=1.0)


def test_acting_follows_parameters_that_are_computed():
    ac = MLPActorCritic(Box(-1, 1, (3,)), Box(-1, 1, (2,)), hidden_sizes=(8,))
    nn.utils.parametrize.register_parametrization(ac.pi, "log_std", Clamped())
    obs = torch.randn(1, 3)
    ac.step(obs)
    with torch.no_grad():
        ac.pi.parametrizations.log_std.original.fill_(0.7)
    act, _, logp = ac.step(obs)
    expected = ac.pi(obs, torch.as_tensor(act))[1]
    torch.testing.assert_close(torch.as_tensor(logp), expected.detach(), atol=1e-4, rtol=1e-4)


def test_threads_that_act_at_once_do_not_disturb_each_other():
    ac = MLPActorCritic(Box(-1, 1, (3,)), Box(-1, 1, (2,)), hidden_sizes=(64, 64))
    inputs = [torch.full((1, 3), float(number)) for number in range(2)]
    expected = [ac.v(obs).item() for obs in inputs]

    def ask(number):
        return [ac.v.value(inputs[number])[0] for _ in range(2000)]

    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(ask, range(2)))
    for found, value in zip(answers, expected):
        torch.testing.assert_close(torch.tensor(found), torch.full((2000,), value))


def test_a_column_that_depends_on_another_is_counted_once():
    """The action's gradient of Q(f(s, a), a), once and twice."""
    q, model = MLPQFunction(3, 2, (16,), nn.Tanh), nn.Linear(5, 3)
    s, a = torch.randn(4, 3), torch.randn(4, 2, requires_grad=True)
    found = []
    for switch in (nullcontext, fast.plain):
        with switch():
            value = q(model(torch.cat([s, a], -1)), a).sum()
            (once,) = torch.autograd.grad(value, a, create_graph=True)
            (twice,) = torch.autograd.grad(once.square().sum(), a)
        found.append((once.detach(), twice))
    torch.testing.assert_close(found[0], found[1])


def test_observations_may_change_before_the_backward_pass():
    q = MLPQFunction(3, 2, (16,), nn.ReLU)
    obs, act, grads = torch.randn(4, 3), torch.randn(4, 2, requires_grad=True), []
    for switch in (nullcontext, fast.plain):
        with switch():
            given = obs.clone()
            value = q(given, act).sum()
            given.zero_()
            grads.append(torch.autograd.grad(value, [act, *q.parameters()]))
    torch.testing.assert_close(grads[0], grads[1])


def test_a_target_of_another_shape_is_refused():
    with pytest.raises(RuntimeError, match="must match"):
        polyak_average(mlp([3, 16, 1], nn.Tanh), mlp([3, 8, 1], nn.Tanh), 0.5)
    polyak_average([], [], 0.5)
