"""With the same weights and the same batch, TensorFlow computes what PyTorch computes.

Losses and gradients to 1e-4, and weights after 20 updates to 1e-3.
"""

from importlib import import_module

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

from spinup.parts.batches import Rollout
from spinup.parts.tf1.framework import tf
from spinup.parts.tf1.learning import new_graph
from spinup.parts.tf1.models import network_kwargs

OBS = Box(-np.inf, np.inf, (5,), np.float32)
ACTIONS = {"continuous": Box(-1, 1, (3,), np.float32), "discrete": Discrete(4)}
HIDDEN = (16, 16)
ROWS = 200
LOSS_SETTINGS = dict(vpg={}, ppo=dict(clip_ratio=0.2, ent_coef=0.01))
UPDATE = dict(
    vpg=dict(train_v_iters=1), ppo=dict(target_kl=None, train_pi_iters=1, train_v_iters=1)
)
every_case = pytest.mark.parametrize(
    ("algorithm", "kind"), [(name, kind) for name in LOSS_SETTINGS for kind in ACTIONS]
)


class Spaces:
    """An environment as far as networks look at it."""

    observation_space = OBS

    def __init__(self, kind):
        self.action_space = ACTIONS[kind]


def modules(algorithm):
    return (
        import_module(f"spinup.algos.{backend}.{algorithm}.{algorithm}")
        for backend in ("pytorch", "tf1")
    )


def torch_networks(algorithm, kind):
    torch.manual_seed(1)
    core = import_module(f"spinup.algos.pytorch.{algorithm}.core")
    ac = core.MLPActorCritic(OBS, ACTIONS[kind], hidden_sizes=HIDDEN)
    with torch.no_grad():  # biases away from 0, so that they count
        for p in ac.parameters():
            p += 0.1 * torch.randn(p.shape)
    return ac


def tf_name(name):
    """The name of TensorFlow's variable for one of PyTorch's parameters."""
    if name == "pi.log_std":
        return "pi/log_std"
    net, _, layer, what = name.split(".")
    number = int(layer) // 2
    dense = f"dense_{number}" if number else "dense"
    return f"{net}/{dense}/{dict(weight='kernel', bias='bias')[what]}"


def arrays(named):
    """PyTorch's tensors by the names of TensorFlow's variables, and as those lie."""
    return {tf_name(name): t.detach().numpy().T.copy() for name, t in named}


def random_rollout(ac, kind):
    rng = np.random.default_rng(2)
    obs = rng.normal(size=(ROWS, 5)).astype(np.float32)
    act = rng.integers(4, size=ROWS)
    act = rng.normal(size=(ROWS, 3)).astype(np.float32) if kind == "continuous" else act
    with torch.no_grad():
        logp = ac.pi(torch.as_tensor(obs), torch.as_tensor(act))[1].numpy()
    logp = logp + rng.normal(size=ROWS, scale=0.1)  # an older policy; some ratios are clipped
    ret, adv = rng.normal(size=(2, ROWS))
    return Rollout(obs, act, *(x.astype(np.float32) for x in (ret, adv, logp)))


def as_tensors(rollout):
    return Rollout(*(torch.as_tensor(column) for column in rollout))


def make_tf_learner(algorithm, kind, ac):
    _, module = modules(algorithm)
    learner = module.make_learner(
        module.core.mlp_actor_critic, Spaces(kind), dict(hidden_sizes=HIDDEN), "cpu",
        pi_lr=3e-4, vf_lr=1e-3, **LOSS_SETTINGS[algorithm],
    )  # fmt: skip
    weights = arrays(ac.named_parameters())
    assert weights.keys() <= learner.variables.state_dict().keys()
    learner.variables.load_state_dict(learner.variables.state_dict() | weights)
    return learner


@every_case
def test_losses_and_gradients_are_equal(algorithm, kind):
    pytorch, tensorflow = modules(algorithm)
    ac = torch_networks(algorithm, kind)
    rollout = random_rollout(ac, kind)
    loss_pi, stats = pytorch.compute_loss_pi(ac, as_tensors(rollout), **LOSS_SETTINGS[algorithm])
    loss_v = pytorch.compute_loss_v(ac, as_tensors(rollout))
    (loss_pi + loss_v).backward()
    expected = arrays((name, p.grad) for name, p in ac.named_parameters())

    core, env = tensorflow.core, Spaces(kind)
    with new_graph():
        obs, act = core.placeholder_from_space(OBS), core.action_placeholder(env.action_space)
        places = Rollout(obs, act, *core.placeholders(None, None, None))
        kwargs = network_kwargs(core.mlp_actor_critic, env, dict(hidden_sizes=HIDDEN))
        nets = core.mlp_actor_critic(obs, act, **kwargs)
        found_pi, found_stats = tensorflow.compute_loss_pi(nets, places, **LOSS_SETTINGS[algorithm])
        found_v = tensorflow.compute_loss_v(nets, places)
        variables = {v.op.name: v for v in core.get_vars()}
        gradients = dict(zip(variables, tf.gradients(found_pi + found_v, list(variables.values()))))
        assert variables.keys() == expected.keys()
        assert core.count_vars("pi") == sum(p.numel() for p in ac.pi.parameters())
        with tf.Session() as session:
            for name, value in arrays(ac.named_parameters()).items():
                session.run(variables[name].initializer)
                variables[name].load(value, session)
            fetched = session.run(
                (found_pi, found_stats, found_v, gradients), dict(zip(places, rollout))
            )
    assert fetched[0] == pytest.approx(loss_pi.item(), rel=1e-4, abs=1e-6)
    assert fetched[2] == pytest.approx(loss_v.item(), rel=1e-4)
    for name, value in stats.items():
        assert fetched[1][name] == pytest.approx(value.item(), rel=1e-4, abs=1e-6), name
    for name, gradient in expected.items():
        scale = np.abs(gradient).max()
        assert np.abs(fetched[3][name] - gradient).max() <= 1e-4 * scale, name


@every_case
def test_weights_are_equal_after_twenty_updates(algorithm, kind):
    pytorch, tensorflow = modules(algorithm)
    ac = torch_networks(algorithm, kind)
    rollout = random_rollout(ac, kind)
    theirs = make_tf_learner(algorithm, kind, ac)
    ours = pytorch.make_learner(ac, pi_lr=3e-4, vf_lr=1e-3)
    before = arrays(ac.named_parameters())
    options = UPDATE[algorithm]
    loss_options = LOSS_SETTINGS[algorithm]
    for _ in range(20):
        stats = pytorch.update(ours, as_tensors(rollout), **options, **loss_options)
        found = tensorflow.update(theirs, rollout, **options)
        assert found.keys() == stats.keys()
        for name, value in stats.items():
            assert found[name] == pytest.approx(
                np.asarray(value.detach() if torch.is_tensor(value) else value), rel=1e-3, abs=1e-5
            ), name
    after, weights = theirs.variables.state_dict(), arrays(ac.named_parameters())
    for name, weight in weights.items():
        assert np.abs(weight - before[name]).max() > 2e-3, f"{name} has hardly moved"
        assert np.abs(after[name] - weight).max() <= 1e-3, name


@pytest.mark.parametrize("minibatch_size", [None, 60])
def test_ppo_stops_at_the_same_step(minibatch_size):
    """At the target KL; with minibatches, whose order is random, both stop early."""
    pytorch, tensorflow = modules("ppo")
    ac = torch_networks("ppo", "continuous")
    rollout = random_rollout(ac, "continuous")
    theirs = make_tf_learner("ppo", "continuous", ac)
    ours = pytorch.make_learner(ac, pi_lr=3e-4, vf_lr=1e-3)
    options = dict(
        target_kl=0.01, train_pi_iters=80, train_v_iters=1, minibatch_size=minibatch_size
    )
    stats = pytorch.update(ours, as_tensors(rollout), **options, clip_ratio=0.2, ent_coef=0.01)
    found = tensorflow.update(theirs, rollout, **options)
    assert 0 < stats["StopIter"] < 79
    apart = abs(found["StopIter"] - stats["StopIter"])
    assert apart <= (0 if minibatch_size is None else 8)


def test_no_policy_steps_leave_the_policy_alone():
    _, tensorflow = modules("ppo")
    ac = torch_networks("ppo", "discrete")
    learner = make_tf_learner("ppo", "discrete", ac)
    before = learner.variables.state_dict()
    options = dict(target_kl=None, train_pi_iters=0, train_v_iters=2)
    tensorflow.update(learner, random_rollout(ac, "discrete"), **options)
    after = learner.variables.state_dict()
    moved = {name for name in after if not np.array_equal(after[name], before[name])}
    assert moved and not any(name.startswith("pi/") for name in moved)
    assert any(name.startswith("v/") for name in moved)


def test_acting_follows_the_probabilities():
    """The frequencies of sampled actions are those of the softmax, and logp_pi is theirs."""
    ac = torch_networks("vpg", "discrete")
    learner = make_tf_learner("vpg", "discrete", ac)
    obs = np.repeat(np.ones((1, 5), np.float32), 20_000, axis=0)
    act, v, logp = learner.step(obs)
    with torch.no_grad():
        expected = ac.pi(torch.as_tensor(obs[:1]))[0].probs[0].numpy()
        value = ac.v(torch.as_tensor(obs[:1])).item()
    assert np.bincount(act, minlength=4) / len(act) == pytest.approx(expected, abs=0.015)
    assert np.exp(logp) == pytest.approx(expected[act], rel=1e-3)
    assert v[0] == pytest.approx(value, rel=1e-4)
    assert not np.array_equal(act, learner.step(obs)[0])  # new random numbers each time
    assert (learner.ac.act(obs, deterministic=True) == expected.argmax()).all()
    assert gym.spaces.Discrete(4).contains(int(learner.ac.act(obs[0])))
