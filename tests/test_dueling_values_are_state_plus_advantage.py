"""With dueling heads a value is that of the state plus the action's lead over the mean."""

from copy import deepcopy

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from torch import nn

from spinup.algos.pytorch.dqn import core, dqn
from spinup.parts.make_env import EnvMaker
from spinup.parts.pytorch.models import build_network, load_model, save_model
from spinup.results.playback import load_policy_and_env

SHAPES = [(5,), (2, 3), ()]


def network(shape=(5,), hidden_sizes=(16, 8), activation=nn.ReLU, seed=0):
    torch.manual_seed(seed)
    kwargs = dict(hidden_sizes=hidden_sizes, activation=activation, dueling=True)
    return build_network(core.MLPQNetwork, Box(-1, 1, shape), Discrete(3), kwargs)


def test_by_hand():
    ac = network((1,), (2,))
    with torch.no_grad():
        for p in ac.parameters():
            p.zero_()
        ac.q.features[-1][0].weight.copy_(torch.tensor([[1.0], [-1.0]]))
        ac.q.v[0].weight.copy_(torch.tensor([[10.0, 0.0]]))
        ac.q.a[0].weight.copy_(torch.tensor([[1.0, 0.0], [2.0, 0.0], [6.0, 0.0]]))
        # At 2 the features are 2 and 0; the value 20; 2, 4 and 12 are -4, -2 and 6 from their mean.
        assert ac.q(torch.tensor([[2.0]])).tolist() == [[16, 18, 26]]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("hidden_sizes", [(8,), (16, 8), (8, 8, 8)])
@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh, nn.ELU])
def test_the_mean_over_actions_is_the_value_of_the_state(shape, hidden_sizes, activation):
    ac = network(shape, hidden_sizes, activation)
    obs = torch.randn(7, *shape)
    q, v = ac.q(obs), ac.q.v(ac.q.features(obs))
    assert q.shape == (7, 3)
    torch.testing.assert_close(q.mean(-1, keepdim=True), v)
    assert np.array_equal(ac.act(obs), q.argmax(-1).numpy())
    a = ac.q.a(ac.q.features(obs)).detach()
    np.testing.assert_allclose(ac.q.advantages(obs), a, rtol=1e-4, atol=1e-6)


def test_each_stream_has_a_hidden_layer_of_its_own():
    ac = network((5,), (16, 8))
    sizes = 5 * 16 + 16, 16 * 8 + 8 + 8 + 1, 16 * 8 + 8 + 3 * 8 + 3
    parts = ac.q.features, ac.q.v, ac.q.a
    assert [core.count_vars(part) for part in parts] == list(sizes)


def test_both_streams_and_the_features_learn():
    learner = dqn.make_learner(network(activation=nn.Tanh), lr=1e-2)
    before = deepcopy(learner.ac.state_dict())
    obs, weight = torch.randn(16, 5), torch.full((16,), 1 / 16)
    batch = dqn.NStepTransitions(
        obs,
        torch.randint(3, (16,)),
        torch.randn(16),
        obs.flip(0),
        torch.zeros(16),
        torch.tensor(0.9),
        weight,
        None,
    )
    dqn.update(learner, batch, double_q=True, polyak=0.9, move_target=True)
    after = learner.ac.state_dict()
    still = [name for name, old in before.items() if torch.equal(old, after[name])]
    assert still == []


def test_a_saved_network_is_loaded_with_its_heads(tmp_path):
    ac = network(seed=3)
    save_model(tmp_path / "model.pt", ac)
    loaded = load_model(tmp_path / "model.pt")
    obs = torch.randn(9, 5)
    assert isinstance(loaded.q, core.DuelingMLP)
    assert torch.equal(loaded.q(obs), ac.q(obs))
    plain = build_network(
        core.MLPQNetwork, Box(-1, 1, (5,)), Discrete(3), dict(hidden_sizes=(16, 8))
    )
    save_model(tmp_path / "plain.pt", plain)
    assert not isinstance(load_model(tmp_path / "plain.pt").q, core.DuelingMLP)


def test_dqn_trains_with_them(tmp_path):
    ac = dqn.dqn(
        EnvMaker("CartPole-v1"),
        ac_kwargs=dict(hidden_sizes=(8, 8), dueling=True),
        epochs=1,
        steps_per_epoch=80,
        start_steps=20,
        update_after=30,
        batch_size=8,
        num_test_episodes=1,
        logger_kwargs=dict(output_dir=tmp_path),
    )
    _, get_action = load_policy_and_env(tmp_path)
    for obs in np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32):
        assert get_action(obs) == ac.act(torch.as_tensor(obs)[None])[0]
