"""What was made faster gives the same numbers as PyTorch's plain way, to the last few digits."""

from copy import deepcopy

import pytest
import torch
from torch import nn

from spinup.parts.pytorch.layers import (
    MLP,
    FastTanh,
    few_rows,
    gradients,
    mlp,
    observation_mlp,
    second_derivatives,
)
from spinup.parts.pytorch.learning import Adam, gradient_step, shorten
from spinup.parts.pytorch.networks import (
    LOG_STD_MAX,
    LOG_STD_MIN,
    Ensemble,
    Member,
    MLPCategoricalActor,
    MLPGaussianActor,
    MLPQFunction,
    SquashedGaussianMLPActor,
    squashed_log_prob,
)

ACTIVATIONS = [nn.Tanh, nn.ReLU, nn.ELU]


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def plain(net):
    """The same weights in PyTorch's own layers."""
    same = deepcopy(list(net))
    return nn.Sequential(*[nn.Tanh() if isinstance(x, FastTanh) else x for x in same])


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("output", [nn.Identity, nn.Tanh])
def test_layers_and_their_gradients(activation, output):
    fast = mlp([5, 16, 8, 3], activation, output)
    slow = plain(fast)
    x, y = (torch.randn(7, 5, dtype=torch.float32) * 3 for _ in range(2))
    y.copy_(x)
    results = []
    for net, inputs in ((fast, x.requires_grad_()), (slow, y.requires_grad_())):
        out = net(inputs)
        (out**3).sum().backward()
        results.append([out, inputs.grad, *(p.grad for p in net.parameters())])
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), slow(x), rtol=1e-5, atol=1e-6)


def test_only_what_is_asked_for_gets_a_gradient():
    net = mlp([2, 4, 1], nn.Tanh)
    first, *others = net.parameters()
    net(torch.ones(3, 2)).sum().backward(inputs=[first])
    assert first.grad is not None
    assert all(p.grad is None for p in others)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_critics_together_and_their_gradients(activation):
    critics = [MLPQFunction(3, 2, (16, 8), activation) for _ in range(2)]
    ensemble = Ensemble(critics)
    results = []
    for together in (True, False):
        obs, act = torch.linspace(-2, 2, 21).view(7, 3), torch.linspace(-1, 1, 14).view(7, 2)
        act.requires_grad_()
        q = ensemble(obs, act) if together else torch.stack([c(obs, act) for c in critics])
        owners = [ensemble] if together else critics
        params = [p for owner in owners for p in owner.parameters()]
        grads = torch.autograd.grad(q.square().mean() + q.amin(0).sum(), [act, *params])
        results.append((q, *grads))
    (q, of_act, *stacked), (expected_q, expected_of_act, *apart) = results
    torch.testing.assert_close(q, expected_q, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(of_act, expected_of_act, rtol=1e-4, atol=1e-6)
    weights, biases = stacked[:3], stacked[3:]
    for i in range(2):
        for layer, (weight, bias) in enumerate(zip(weights, biases)):
            expected_weight, expected_bias = apart[6 * i + 2 * layer : 6 * i + 2 * layer + 2]
            torch.testing.assert_close(weight[i].T, expected_weight, rtol=1e-4, atol=1e-6)
            torch.testing.assert_close(bias[i, 0], expected_bias, rtol=1e-4, atol=1e-6)


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
    needed, found = products(lambda loss: gradients(loss, wanted))
    assert all_of_them - needed == 3  # one for the weights of each layer of the critic
    for a, b in zip(found, expected, strict=True):
        assert torch.equal(a, b)


def test_fast_tanh_can_be_differentiated_twice():
    x = torch.linspace(-8, 8, 101, dtype=torch.float64).requires_grad_()
    torch.testing.assert_close(FastTanh()(x), torch.tanh(x))
    assert torch.autograd.gradgradcheck(FastTanh(), torch.randn(5).double().requires_grad_())


def test_second_derivatives_are_right_or_refused():
    net = mlp([2, 4, 1], nn.Tanh)
    x = torch.randn(6, 2)
    params = list(net.parameters())

    def hessian_product(network, params):
        grads = torch.autograd.grad(network(x).square().mean(), params, create_graph=True)
        return torch.autograd.grad(sum((g * g).sum() for g in grads), params)

    with pytest.raises(RuntimeError, match="once_differentiable|not have been used in the graph"):
        hessian_product(net, params)
    slow = plain(net)
    expected = hessian_product(slow, list(slow.parameters()))
    with second_derivatives():
        found = hessian_product(net, params)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("shape", [(5,), (2, 3), ()])
def test_a_few_rows_in_numpy(activation, shape):
    net = observation_mlp(shape, [16, 4], activation)
    for rows in (1, 3, 100):
        obs = torch.randn(rows, *shape)
        torch.testing.assert_close(torch.tensor(few_rows(net, obs)), net(obs).detach())


def test_a_few_rows_see_every_change_of_the_weights():
    net = mlp([3, 8, 2], nn.ReLU)
    obs = torch.randn(2, 3)

    def agree(network):
        torch.testing.assert_close(torch.tensor(few_rows(network, obs)), network(obs).detach())

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
    given = few_rows(net, one)
    few_rows(net, other)  # which is computed in the same place
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
    torch.testing.assert_close(torch.tensor(few_rows(wide, torch.ones(1, 3))), expected)


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


@pytest.mark.parametrize("max_norm", [0.1, 1000.0])
def test_gradients_are_shortened_as_pytorch_does(max_norm):
    nets = [nn.Linear(3, 2)]
    nets.append(deepcopy(nets[0]))
    for net in nets:
        net(torch.ones(4, 3)).square().sum().backward()
    shorten([p.grad for p in nets[0].parameters()], max_norm)
    nn.utils.clip_grad_norm_(nets[1].parameters(), max_norm)
    for p, q in zip(nets[0].parameters(), nets[1].parameters()):
        torch.testing.assert_close(p.grad, q.grad)


def test_a_policy_that_asks_one_of_two_critics_pays_for_neithers_weights():
    critics = Ensemble([MLPQFunction(3, 2, (32, 32), nn.ReLU) for _ in range(2)])
    policy = mlp([3, 32, 32, 2], nn.ReLU)
    obs, wanted = torch.ones(4, 3), list(policy.parameters())
    loss = Member(critics, 0)(obs, policy(obs)).sum()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        gradients(loss, wanted)
    (bmm,) = [event.count for event in profile.key_averages() if event.key == "aten::bmm"]
    assert bmm == 2  # back through two layers; the last has one output and needs none


@pytest.mark.parametrize("more", [nn.Linear(2, 2), nn.LayerNorm(2)])
def test_what_a_user_appends_is_not_left_out(more):
    net = mlp([3, 8, 2], nn.ReLU).append(more)
    obs = torch.randn(4, 3)
    expected = nn.Sequential(*net)(obs).detach()
    torch.testing.assert_close(net(obs).detach(), expected)
    torch.testing.assert_close(torch.tensor(few_rows(net, obs)), expected)
