"""SAC on discrete actions takes the exact mean over them in both losses, and learns by it."""

from copy import deepcopy
from math import log
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiBinary
from torch import nn
from torch.distributions import Categorical

from spinup.algos.pytorch.sac import core, sac
from spinup.parts.buffers import Transitions
from spinup.parts.errors import UserError
from spinup.parts.make_env import EnvMaker
from spinup.parts.pytorch.bounded_policies import SquashedGaussianMLPActor
from spinup.parts.pytorch.critics import Ensemble, MLPDiscreteQFunction
from spinup.results.playback import load_policy_and_env

t = torch.tensor
OBS, ACT = Box(-1, 1, (3,)), Discrete(4)
SMALL = dict(hidden_sizes=(8, 8), activation=nn.Tanh)


def networks(seed=0, **more):
    torch.manual_seed(seed)
    return core.MLPActorCritic(OBS, ACT, **SMALL, **more)


def transitions(n=16):
    ended = (torch.rand(n) < 0.3).float()
    act = torch.randint(4, (n,))
    return Transitions(torch.randn(n, 3), act, torch.randn(n), torch.randn(n, 3), ended)


# --- By hand: two states (unit vectors), two actions ---

STATE = torch.eye(2)
HAND_BATCH = Transitions(STATE[[0, 1]], t([1, 0]), t([1.0, 2.0]), STATE[[1, 0]], t([0.0, 1.0]))
P = t([[0.25, 0.75], [0.5, 0.5]])


def tables():
    """Networks that are tables, one row per state; a user's own, apart."""

    def critic(table):
        def q(obs, act=None):
            values = obs @ t(table)
            return values if act is None else values.gather(-1, act[:, None])[:, 0]

        return q

    ac = SimpleNamespace(
        pi=lambda obs: (Categorical(probs=obs @ P), None),
        q1=critic([[1.0, 2.0], [3.0, 4.0]]),
        q2=critic([[2.0, 1.0], [5.0, 0.0]]),
    )
    target = SimpleNamespace(
        q1=critic([[9.0, 9.0], [4.0, 6.0]]), q2=critic([[9.0, 9.0], [2.0, 8.0]])
    )
    return ac, target


def test_the_critic_loss_by_hand():
    # Row 1: from state 0 by action 1 to state 1, where both actions have probability 1/2 and the
    #        lesser of the copies' values are 2 and 6: their mean 4, the entropy log 2;
    #        backup 1 + 0.5 (4 + 0.2 log 2). Critics 2 and 1.
    # Row 2: terminated, backup 2; critics 3 and 5.
    ac, target = tables()
    loss, stats = sac.compute_loss_q(ac, target, HAND_BATCH, gamma=0.5, alpha=0.2)
    backup = 1 + 0.5 * (4 + 0.2 * log(2))
    worked = ((2 - backup) ** 2 + 1) / 2 + ((1 - backup) ** 2 + 9) / 2
    assert loss.item() == pytest.approx(worked, rel=1e-6)
    assert stats["Q1Vals"].tolist() == [2, 3]
    assert stats["Q2Vals"].tolist() == [1, 5]


def test_the_policy_loss_by_hand():
    # State 0: the lesser values 1 and 1, entropy 1/4 log 4 + 3/4 log 4/3. State 1: 3 and 0, log 2.
    ac, _ = tables()
    loss, stats = sac.compute_loss_pi(ac, HAND_BATCH, alpha=0.2)
    entropy = [0.25 * log(4) + 0.75 * log(4 / 3), log(2)]
    worked = -((1 + 0.2 * entropy[0]) + (1.5 + 0.2 * entropy[1])) / 2
    assert loss.item() == pytest.approx(worked, rel=1e-6)
    np.testing.assert_allclose(stats["LogPi"], [-entropy[0], -entropy[1]], rtol=1e-6)


def test_the_best_policy_is_the_softmax_of_values_over_temperature():
    """Where the policy loss is least its slope is zero: pi ~ exp(min Q / alpha)."""
    ac, _ = tables()
    alpha = 0.7
    logits = (t([[1.0, 1.0], [3.0, 0.0]]) / alpha).requires_grad_()
    ac.pi = lambda obs: (Categorical(logits=obs @ logits), None)
    loss, _ = sac.compute_loss_pi(ac, HAND_BATCH, alpha=alpha)
    (slope,) = torch.autograd.grad(loss, logits)
    torch.testing.assert_close(slope, torch.zeros(2, 2), atol=1e-6, rtol=0)
    ac.pi = lambda obs: (Categorical(logits=obs @ (1.1 * logits)), None)
    worse, _ = sac.compute_loss_pi(ac, HAND_BATCH, alpha=alpha)
    assert worse > loss


# --- Our own networks, against one action after the other ---


def enumerated(ac, critics, obs, alpha):
    """The soft value by definition, in a loop over states and actions."""
    values, log_probabilities = [], []
    for o in obs:
        logits = ac.pi.logits_net(o[None])[0].double()
        p = logits.exp() / logits.exp().sum()
        v = logp = 0.0
        for a in range(4):
            one = t(a)
            q = min(critics.q1(o, one).item(), critics.q2(o, one).item())
            v += p[a].item() * (q - alpha * log(p[a].item()))
            logp += p[a].item() * log(p[a].item())
        values.append(v)
        log_probabilities.append(logp)
    return values, log_probabilities


def soft_value(ac, critics, obs, *, alpha):
    """What `obs` is worth in the losses of sac.py, entropy included; and the mean of log pi."""
    a, logp = core.sample(ac.pi, obs)
    q = core.q_values(critics, obs, a).amin(0)
    return core.expectation(a, q - alpha * logp), core.expectation(a, logp)


@pytest.mark.parametrize("alpha", [0.0, 0.2, 3.0])
def test_the_soft_value_is_the_mean_over_all_actions(alpha):
    ac, critics = networks(0), networks(1)
    obs = torch.randn(9, 3)
    with torch.no_grad():
        v, logp = soft_value(ac, critics, obs, alpha=alpha)
        slow_v, slow_logp = enumerated(ac, critics, obs, alpha)
    np.testing.assert_allclose(v, slow_v, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(logp, slow_logp, rtol=1e-4, atol=1e-5)


def test_the_exact_mean_is_what_many_drawn_actions_give():
    ac = networks()
    with torch.no_grad():
        ac.pi.logits_net[-2].weight.mul_(5)
        obs = torch.randn(1, 3).expand(20_000, 3)
        v, _ = soft_value(ac, ac, obs[:1], alpha=0.5)
        a = t(ac.act(obs))
        log_p = ac.pi(obs, a)[1]
        drawn = core.q_values(ac, obs, a).amin(0) - 0.5 * log_p
    spread = 5 * drawn.std().item() / len(a) ** 0.5
    assert 0 < spread < 0.05
    assert v.item() == pytest.approx(drawn.mean().item(), abs=spread)


def test_of_continuous_actions_one_stands_for_the_mean():
    torch.manual_seed(0)
    ac = core.MLPActorCritic(OBS, Box(-1, 1, (2,)), **SMALL)
    obs = torch.randn(5, 3)
    torch.manual_seed(1)
    v, logp = soft_value(ac, ac, obs, alpha=0.3)
    torch.manual_seed(1)
    a, logp_a = ac.pi(obs)
    worked = torch.minimum(ac.q1(obs, a), ac.q2(obs, a)) - 0.3 * logp_a
    torch.testing.assert_close(v, worked)
    torch.testing.assert_close(logp, logp_a)


def test_critics_together_equal_critics_apart():
    torch.manual_seed(0)
    apart = [MLPDiscreteQFunction((3,), 4, (8, 8), nn.ReLU) for _ in range(2)]
    together = Ensemble(apart)
    obs, act = torch.randn(6, 3), torch.randint(4, (6,))
    torch.testing.assert_close(together(obs), torch.stack([q(obs) for q in apart]))
    torch.testing.assert_close(together(obs, act), torch.stack([q(obs, act) for q in apart]))
    for q in apart:
        torch.testing.assert_close(q(obs, act), q(obs)[torch.arange(6), act])
        torch.testing.assert_close(q(obs[0], act[0]), q(obs, act)[0])
        assert q(obs[0]).shape == (4,)


def test_an_action_space_of_one_action_is_no_special_case():
    ac = core.MLPActorCritic(OBS, Discrete(1), **SMALL)
    obs = torch.randn(5, 3)
    v, logp = soft_value(ac, ac, obs, alpha=0.2)
    torch.testing.assert_close(v, torch.minimum(ac.q1(obs), ac.q2(obs))[:, 0])
    assert logp.tolist() == [0] * 5


# --- The update ---


@pytest.mark.parametrize("alpha", [0.2, "auto"])
def test_each_step_moves_its_own_networks_only(monkeypatch, alpha):
    learner = sac.make_learner(networks(), lr=1e-2, alpha=alpha)
    step, moved = sac.gradient_step, []

    def watched(optimizer, loss):
        before = {n: p.clone() for n, p in learner.ac.named_parameters()}
        step(optimizer, loss)
        after = dict(learner.ac.named_parameters())
        moved.append({n for n, p in before.items() if not torch.equal(p, after[n])})

    monkeypatch.setattr(sac, "gradient_step", watched)
    sac.update(learner, transitions(), gamma=0.99, polyak=0.9, target_entropy=0.5)
    names = [n for n, _ in learner.ac.named_parameters()]
    q, pi = ({n for n in names if n.startswith(part)} for part in (("q1.", "q2."), "pi."))
    assert moved == [q, pi, set()][: len(moved)]
    assert len(moved) == (3 if alpha == "auto" else 2)
    assert q | pi == set(names)


@pytest.mark.parametrize(("logits", "rises"), [([0.0] * 4, False), ([9.0, 0.0, 0.0, 0.0], True)])
def test_a_learned_temperature_aims_between_dice_and_certainty(logits, rises):
    """It falls while the policy is as random as can be, and rises when it is all but certain."""
    learner = sac.make_learner(networks(), lr=1e-2, alpha="auto")
    with torch.no_grad():
        learner.ac.pi.logits_net[-2].weight.zero_()
        learner.ac.pi.logits_net[-2].bias.copy_(t(logits))
    aim = core.target_entropy(ACT)
    sac.update(learner, transitions(), gamma=0.99, polyak=0.9, target_entropy=aim)
    assert (learner.temperature().item() > 1) == rises


def test_target_entropies():
    assert core.target_entropy(Box(-1, 1, (3,))) == -3
    assert core.target_entropy(Box(-1, 1, (2, 2))) == -4
    for n in (2, 5, 18):
        assert 0 < core.target_entropy(Discrete(n)) < log(n)
        assert core.target_entropy(Discrete(n)) / log(n) == pytest.approx(core.ENTROPY_FRACTION)


# --- Acting, saving, refusing ---


def test_actions_are_drawn_by_their_probabilities_or_the_best_is_taken():
    ac = networks()
    obs = torch.randn(1, 3)
    p = ac.pi(obs)[0].probs[0].detach()
    torch.manual_seed(0)
    shares = np.bincount(ac.act(obs.expand(30_000, 3)), minlength=4) / 30_000
    np.testing.assert_allclose(shares, p, atol=0.015)
    assert ac.act(obs, deterministic=True).tolist() == [p.argmax().item()]
    assert ac.act(obs[0]).shape == ac.act(obs[0], True).shape == ()


def test_a_trained_policy_can_be_loaded(tmp_path):
    ac = sac.sac(
        EnvMaker("CartPole-v1"),
        ac_kwargs=dict(hidden_sizes=(8, 8)),
        steps_per_epoch=60,
        epochs=1,
        start_steps=20,
        update_after=30,
        batch_size=8,
        update_every=10,
        num_test_episodes=1,
        alpha="auto",
        logger_kwargs=dict(output_dir=tmp_path),
    )
    _, get_action = load_policy_and_env(tmp_path, deterministic=True)
    for obs in np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32):
        assert get_action(obs) == ac.act(torch.as_tensor(obs), deterministic=True)
    header = (tmp_path / "progress.txt").read_text().splitlines()[0].split("\t")
    assert {"AverageLogPi", "AverageQ1Vals", "AverageQ2Vals", "LossPi", "Alpha"} <= set(header)


def test_other_spaces_get_a_sentence():
    with pytest.raises(UserError, match="sac needs continuous or discrete actions"):
        core.MLPActorCritic(OBS, MultiBinary(3))


class OwnCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(4, 2)

    def forward(self, obs, act=None):
        q = self.net(obs)
        return q if act is None else q.gather(-1, act[:, None]).squeeze(-1)


class OwnPolicy(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(4, 2)

    def forward(self, obs):
        return Categorical(logits=self.net(obs)), None


class Own(nn.Module):
    """All that a network of a user's own needs: pi, q1, q2 and act."""

    def __init__(self, observation_space, action_space):
        super().__init__()
        self.pi, self.q1, self.q2 = OwnPolicy(), OwnCritic(), OwnCritic()
        Own.start = deepcopy(self.state_dict())

    def act(self, obs, deterministic=False):
        with torch.no_grad():
            pi, _ = self.pi(obs)
            return (pi.probs.argmax(-1) if deterministic else pi.sample()).numpy()


def test_a_network_of_a_users_own_trains(tmp_path):
    ac = sac.sac(
        lambda: gym.make("CartPole-v1"),
        Own,
        steps_per_epoch=60,
        epochs=1,
        start_steps=20,
        update_after=30,
        update_every=10,
        batch_size=8,
        num_test_episodes=1,
        max_ep_len=20,
        logger_kwargs=dict(output_dir=tmp_path),
    )
    after = ac.state_dict()
    assert {n for n, old in Own.start.items() if not torch.equal(old, after[n])} == set(Own.start)


def test_continuous_networks_are_what_they_were():
    ac = core.MLPActorCritic(OBS, Box(-1, 1, (2,)), **SMALL)
    assert isinstance(ac.pi, SquashedGaussianMLPActor)
    assert ac.q1(torch.randn(5, 3), torch.randn(5, 2)).shape == (5,)
