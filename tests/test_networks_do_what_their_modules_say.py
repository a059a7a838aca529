"""A network gives what its modules say, whatever is put into it, and whether it acts or learns.

Each test is one way in which a network made fast could silently do something else.
"""

import copy
import io
import pickle

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
from spinup.algos.pytorch.sac import core as sac_core
from spinup.algos.pytorch.td3 import core as td3_core
from spinup.parts.pytorch.layers import mlp
from spinup.parts.pytorch.networks import MLPGaussianActor


def test_second_derivatives_of_a_gaussian_policy():
    """The Hessian-vector product of a loss against double precision and plain PyTorch."""
    torch.manual_seed(0)
    pi = MLPGaussianActor(3, 2, (16, 16), nn.Tanh)
    layers = [(m.weight, m.bias) for m in pi.mu_net.modules() if isinstance(m, nn.Linear)]
    obs, act = torch.randn(32, 3), torch.randn(32, 2)
    params = [p for layer in layers for p in layer] + [pi.log_std]
    vectors = [torch.randn_like(p) for p in params]

    def plain_logp(params, obs, act):
        *weights, log_std = params
        x = obs
        for i in range(0, len(weights), 2):
            x = x @ weights[i].T + weights[i + 1]
            x = torch.tanh(x) if i + 2 < len(weights) else x
        return (-0.5 * ((act - x) / log_std.exp()) ** 2 - log_std).sum(-1)

    def product(logp, params, vectors):
        loss = (logp.exp() + logp**2).mean()  # mixed: through the mean, the width and both
        grads = torch.autograd.grad(loss, params, create_graph=True)
        along = sum((g * v).sum() for g, v in zip(grads, vectors))
        return torch.cat([g.reshape(-1) for g in torch.autograd.grad(along, params)])

    constant = 2 * 0.5 * np.log(2 * np.pi)
    found = product(pi(obs, act)[1] + constant, params, vectors)
    exact = [p.detach().double().requires_grad_() for p in params]
    expected = product(
        plain_logp(exact, obs.double(), act.double()), exact, [v.double() for v in vectors]
    )
    assert torch.cosine_similarity(found.double(), expected, 0) > 0.9999
    assert found.norm().item() == pytest.approx(expected.norm().item(), rel=1e-3)


@pytest.mark.parametrize("activation", [nn.Tanh, nn.ReLU, nn.ELU])
def test_frozen_weights_with_trainable_biases(activation):
    torch.manual_seed(0)
    net = mlp([3, 8, 8, 2], activation)
    for layer in net:
        if isinstance(layer, nn.Linear):
            layer.weight.requires_grad_(False)
    plain = copy.deepcopy(net)
    x = torch.randn(5, 3)
    net(x).square().sum().backward()
    y = x
    for layer in plain:
        y = F.linear(y, layer.weight, layer.bias) if isinstance(layer, nn.Linear) else layer(y)
    y.square().sum().backward()
    for p, q in zip(net.parameters(), plain.parameters(), strict=True):
        assert (p.grad is None) == (q.grad is None) == (not p.requires_grad)
        if p.grad is not None:
            torch.testing.assert_close(p.grad, q.grad, rtol=1e-4, atol=1e-5)
            assert p.grad.abs().sum() > 0


SPACES = Box(-1, 1, (3,), np.float32), Box(-1, 1, (2,), np.float32)
ACTORS = {
    "ppo": lambda: ppo_core.MLPActorCritic(*SPACES, hidden_sizes=(8, 8)),
    "ppo, discrete": lambda: ppo_core.MLPActorCritic(SPACES[0], Discrete(3), hidden_sizes=(8, 8)),
    "td3": lambda: td3_core.MLPActorCritic(*SPACES, hidden_sizes=(8, 8)),
    "sac": lambda: sac_core.MLPActorCritic(*SPACES, hidden_sizes=(8, 8)),
    "dqn": lambda: dqn_core.MLPQNetwork(SPACES[0], Discrete(3), hidden_sizes=(8, 8)),
}


def policy_layers(ac):
    """The layers that the action depends on, as (what holds it, its name)."""
    policy = ac.pi if hasattr(ac, "pi") else ac.q
    return [
        (parent, name)
        for parent in policy.modules()
        for name, child in parent.named_children()
        if isinstance(child, nn.Linear) and name != "log_std_layer"
    ]


def greedy(ac, obs):
    """The number that an action is chosen by: it must not depend on how it is computed."""
    with torch.no_grad():
        return np.asarray(ac.act(obs, deterministic=True), np.float64)


def some_actions(ac):
    """Greedy actions at many observations."""
    g = torch.Generator().manual_seed(5)
    return greedy(ac, torch.randn(64, 3, generator=g))


class Opposite(nn.Module):
    """A layer and a sign, instead of the layer alone."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return -self.layer(x)


def put_in(layer, kind):
    size = layer.out_features
    if kind == "layer norm":
        return nn.Sequential(layer, nn.LayerNorm(size, elementwise_affine=False))
    if kind == "spectral norm":
        torch.manual_seed(0)
        return nn.utils.parametrizations.spectral_norm(layer).eval()
    return Opposite(layer)


@pytest.mark.parametrize("kind", ["layer norm", "spectral norm", "a module of one's own", "hook"])
@pytest.mark.parametrize("name", ACTORS)
def test_what_is_put_into_a_network_takes_effect(name, kind, monkeypatch):
    """Also when it acts, and after it has acted before."""
    torch.manual_seed(0)
    ac = ACTORS[name]()
    with torch.no_grad():
        for p in ac.parameters():
            p.mul_(3)  # so that actions differ clearly
    before = some_actions(ac)
    parent, child = policy_layers(ac)[0]
    layer = getattr(parent, child)
    if kind == "hook":
        layer.register_forward_hook(lambda module, inputs, output: -output)
    else:
        setattr(parent, child, put_in(layer, kind))
    after = some_actions(ac)
    assert not np.array_equal(before, after)
    assert_close(after, plain_actions(ac), 1e-4)
    monkeypatch.setattr(user_config, "FAST", False)
    np.testing.assert_allclose(some_actions(ac), after, rtol=1e-4, atol=1e-5)


def plain_actions(ac):
    """Greedy actions by calling the network's modules, as its forward does."""
    obs = torch.randn(64, 3, generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        if not hasattr(ac, "pi"):
            return ac.q(obs).argmax(-1)
        if hasattr(ac.pi, "log_std_layer"):
            return ac.pi(obs, deterministic=True, with_logprob=False)[0]
        if not hasattr(ac, "v"):
            return ac.pi(obs)
        distribution = ac.pi(obs)[0]
        logits = getattr(distribution, "logits", None)
        return distribution.mean if logits is None else logits.argmax(-1)


@pytest.mark.parametrize("way", ["a layer replaced", "data assigned", "loaded with assign"])
@pytest.mark.parametrize("name", ACTORS)
def test_acting_uses_the_weights_of_now(name, way):
    torch.manual_seed(0)
    ac, other = ACTORS[name](), ACTORS[name]()
    some_actions(ac)
    some_actions(other)
    if way == "loaded with assign":
        ac.load_state_dict(copy.deepcopy(other.state_dict()), assign=True)
    for (parent, child), (source, _) in zip(policy_layers(ac), policy_layers(other), strict=True):
        layer = getattr(source, child)
        if way == "a layer replaced":
            setattr(parent, child, copy.deepcopy(layer))
        elif way == "data assigned":
            getattr(parent, child).weight.data = layer.weight.detach().clone()
            getattr(parent, child).bias.data = layer.bias.detach().clone()
    np.testing.assert_allclose(some_actions(ac), some_actions(other), rtol=1e-5, atol=1e-6)
    assert_close(some_actions(ac), plain_actions(other), 1e-4)
    if hasattr(ac, "step"):
        obs = torch.randn(5, 3)
        results = []
        for network in (ac, other):
            torch.manual_seed(1)
            results.append(network.step(obs)[0])
        np.testing.assert_allclose(*results, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ACTORS)
def test_a_network_that_has_acted_can_be_pickled_and_copied(name):
    torch.manual_seed(0)
    ac = ACTORS[name]()
    expected = some_actions(ac)
    if hasattr(ac, "step"):
        ac.step(torch.randn(1, 3))
    file = io.BytesIO()
    torch.save(ac, file)
    file.seek(0)
    copies = [pickle.loads(pickle.dumps(ac)), copy.deepcopy(ac)]
    copies.append(torch.load(file, weights_only=False))
    for twin in copies:
        assert np.array_equal(some_actions(twin), expected)
    with torch.no_grad():
        for p in ac.parameters():
            p.neg_()
    for twin in copies:  # it has weights of its own
        assert np.array_equal(some_actions(twin), expected)


@pytest.mark.parametrize("name", ["td3", "sac"])
def test_critics_are_ordinary_modules(name):
    torch.manual_seed(0)
    ac = ACTORS[name]()
    obs, act = torch.randn(6, 3), torch.randn(6, 2)
    for critic in (ac.q1, ac.q2):
        assert "q.0.weight" in critic.state_dict()
        assert {id(p) for p in critic.parameters()} <= {id(p) for p in ac.parameters()}
    optimizer = torch.optim.SGD(ac.q1.parameters(), 0.1)
    before = [q(obs, act).detach().clone() for q in (ac.q1, ac.q2)]
    ac.q2.requires_grad_(False)
    (ac.q1(obs, act) + ac.q2(obs, act)).mean().backward()
    assert all(p.grad is None for p in ac.q2.parameters())
    optimizer.step()
    assert not torch.equal(ac.q1(obs, act), before[0])
    assert torch.equal(ac.q2(obs, act), before[1])
    ac.q2.load_state_dict(ac.q1.state_dict())
    assert torch.equal(ac.q2(obs, act), ac.q1(obs, act))
