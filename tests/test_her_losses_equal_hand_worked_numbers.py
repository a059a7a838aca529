"""Each loss of HER equals a number worked out on paper, and each update moves what it should."""

from copy import deepcopy
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from torch import nn

from spinup.algos.pytorch.her import core, her
from spinup.parts.buffers import Transitions
from spinup.parts.envs import VectorEnv
from spinup.parts.make_env import EnvMaker
from spinup.parts.pytorch.bounded_policies import ActionRange
from spinup.parts.pytorch.learning import gradient_step

t = torch.tensor
OBS = Box(-1, 1, (3,))

# --- Continuous actions: functions so simple that every number can be followed ---

BATCH = Transitions(
    t([[1.0], [2.0], [0.0]]),
    t([[0.5], [-1.0], [1.0]]),
    t([-1.0, 0.0, -1.0]),
    t([[3.0], [4.0], [1.0]]),
    t([0.0, 1.0, 0.0]),
)
NO_NOISE = core.RECIPES["ddpg"]._replace(bounds=ActionRange(4.0))


def refuse(*_):
    raise AssertionError("this network must not be asked")


def first_critic(o, a):
    return (2 * o + a).squeeze(-1)


def networks(critics, scale=1.0):
    """Critics 2o + a and o - a; slow ones o + a and 4 - oa, with the policy o/10."""
    own = [first_critic, lambda o, a: (o - a).squeeze(-1)][:critics]
    slow = [lambda o, a: (o + a).squeeze(-1), lambda o, a: (4 - o * a).squeeze(-1)][:critics]
    ac = SimpleNamespace(pi=refuse, q=lambda o, a: scale * torch.stack([q(o, a) for q in own]))
    target = SimpleNamespace(
        pi=lambda o: o / 10, q=lambda o, a: torch.stack([q(o, a) for q in slow])
    )
    return ac, target


@pytest.mark.parametrize(
    ("critics", "losses", "values"),
    [
        # Next actions 0.3, 0.4, 0.1. One critic says 3.3, (4.4), 1.1; backups -1 + 0.5 * 3.3 =
        # 0.65; 0, for it terminated; -1 + 0.5 * 1.1 = -0.45. Values 2.5, 3, 1.
        (1, [1.85**2 + 3**2 + 1.45**2], [[2.5, 3.0, 1.0]]),
        # The other says 3.1, (2.4), 3.9; the lesser 3.1, 1.1; backups 0.55, 0, -0.45.
        # Values 2.5, 3, 1 and 0.5, 3, -1.
        (2, [1.95**2 + 3**2 + 1.45**2, 0.05**2 + 3**2 + 0.55**2], [[2.5, 3, 1], [0.5, 3, -1]]),
    ],
)
def test_critic_loss_of_ddpg_and_of_td3_without_noise(critics, losses, values):
    loss, stats = her.compute_loss_q(*networks(critics), BATCH, gamma=0.5, recipe=NO_NOISE)
    assert loss.item() == pytest.approx(sum(losses) / 3, rel=1e-6)
    assert stats["LossQ"].item() == loss.item()
    assert stats["QVals"].tolist() == values


def test_critic_loss_pulls_at_the_critics_and_not_at_their_aim():
    scale, aim = t(1.0, requires_grad=True), t(1.0, requires_grad=True)
    (ac, _), (_, plain) = networks(1, scale), networks(1)
    target = SimpleNamespace(pi=lambda o: aim * plain.pi(o), q=lambda o, a: aim * plain.q(o, a))
    her.compute_loss_q(ac, target, BATCH, gamma=0.5, recipe=NO_NOISE)[0].backward()
    # 2/3 of the sum of error times value: 1.85 * 2.5 + 3 * 3 + 1.45 * 1.
    assert scale.grad.item() == pytest.approx((4.625 + 9 + 1.45) * 2 / 3, rel=1e-5)
    assert aim.grad is None


def test_the_noise_of_td3_is_clipped_and_stays_within_the_bounds():
    """With the critic q = a the backup shows the next action itself."""
    n, seen = 4000, []
    bounds = ActionRange([2.0, 1.0], [1.0, 0.0])  # from -1 to 3, from -1 to 1
    target = SimpleNamespace(
        pi=lambda o: t([2.5, -0.2]).expand(n, 2),
        q=lambda o, a: seen.append(a) or torch.zeros(1, n),
    )
    ac = SimpleNamespace(q=lambda o, a: torch.zeros(1, n))
    batch = Transitions(torch.zeros(n, 1), *[torch.zeros(n)] * 2, torch.zeros(n, 1), torch.zeros(n))
    recipe = core.RECIPES["td3"]._replace(bounds=bounds)
    torch.manual_seed(0)
    her.compute_loss_q(ac, target, batch, gamma=0.5, recipe=recipe)
    (a2,) = seen
    # Noise of deviation 0.2, cut at 0.5, the same in each dimension, whatever its bounds.
    assert a2[:, 0].min() == 2.0 and a2[:, 0].max() == 3.0
    assert a2[:, 1].min() == pytest.approx(-0.7) and a2[:, 1].max() == pytest.approx(0.3)
    assert a2[:, 1].std().item() == pytest.approx(0.2, rel=0.05)
    assert a2[:, 1].mean().item() == pytest.approx(-0.2, abs=0.02)


def test_policy_loss_is_the_first_critics_and_follows_its_slope():
    k = t(0.1, requires_grad=True)
    ac, _ = networks(2)
    ac.pi = lambda o: k * o
    loss = her.compute_loss_pi(ac, BATCH)
    # Actions 0.1, 0.2, 0; values 2.1, 4.2, 0; the slope of 2o + ko in k is o: 1, 2, 0.
    assert loss.item() == pytest.approx(-6.3 / 3, rel=1e-6)
    loss.backward()
    assert k.grad.item() == pytest.approx(-1.0)


# --- Discrete actions: two tables of values, one row per state ---

NOW = t([[1.0, 5.0], [2.0, 0.0], [0.0, 3.0], [1.0, 1.7]])
SLOW = t([[0.0, 0.0], [2.0, 6.0], [8.0, 1.0], [9.0, 9.0]])
STATE = torch.eye(4)
DISCRETE = Transitions(
    STATE[[0, 2, 3]], t([0, 1, 1]), t([-1.0, 0.0, -1.0]), STATE[[1, 3, 2]], t([0.0, 1.0, 0.0])
)


def test_discrete_loss():
    # Row 1: NOW prefers action 0 in state 1, worth 2 in SLOW; backup -1 + 0.5 * 2 = 0, value 1,
    #        error 1: 0.5. Row 2: terminated; backup 0, value 3: 3 - 0.5.
    # Row 3: NOW prefers action 1 in state 2, worth 1 in SLOW; backup -0.5, value 1.7: 2.2 - 0.5.
    table, slow = NOW.clone().requires_grad_(), SLOW.clone().requires_grad_()
    ac, target = (SimpleNamespace(q=lambda o, x=x: o @ x) for x in (table, slow))
    loss, stats = her.compute_loss_q_discrete(ac, target, DISCRETE, gamma=0.5)
    assert loss.item() == pytest.approx((0.5 + 2.5 + 1.7) / 3, rel=1e-6)
    torch.testing.assert_close(stats["QVals"], t([1.0, 3.0, 1.7]))
    loss.backward()
    worked = torch.zeros(4, 2)
    worked[0, 0] = worked[2, 1] = worked[3, 1] = 1 / 3  # every error is at least 1, and positive
    torch.testing.assert_close(table.grad, worked)
    assert slow.grad is None


# --- The update ---

ACTIONS = dict(td3=Box(-1, 1, (2,)), ddpg=Box(-1, 1, (2,)), dqn=Discrete(3))


def learner_of(algo):
    """A learner whose target network has fallen behind, so that its way shows; and its recipe."""
    torch.manual_seed(0)
    recipe = core.choose_recipe(algo, ACTIONS[algo], "cpu")
    ac = core.MLPActorCritic(
        OBS, ACTIONS[algo], hidden_sizes=(8, 8), activation=nn.Tanh, **dict(recipe.networks)
    )
    learner = her.make_learner(ac, lr=1e-2)
    with torch.no_grad():
        for p in learner.target.parameters():
            p.add_(0.1 * torch.randn_like(p))
    return learner, recipe


def transitions(algo, n=16):
    act = torch.randint(3, (n,)) if algo == "dqn" else torch.rand(n, 2) * 2 - 1
    ended = (torch.rand(n) < 0.3).float()
    return Transitions(torch.randn(n, 3), act, torch.randn(n), torch.randn(n, 3), ended)


def snapshot(learner):
    return {
        f"{part}.{name}": p.detach().clone()
        for part in ("ac", "target")
        for name, p in getattr(learner, part).named_parameters()
    }


@pytest.mark.parametrize("algo", ACTIONS)
def test_each_step_moves_its_own_network_only(monkeypatch, algo):
    (learner, recipe), steps = learner_of(algo), []

    def watched(optimizer, loss):
        before = snapshot(learner)
        gradient_step(optimizer, loss)
        after = snapshot(learner)
        steps.append(
            (optimizer, {key for key in before if not torch.equal(before[key], after[key])})
        )

    monkeypatch.setattr(her, "gradient_step", watched)
    stats = her.update(learner, transitions(algo), gamma=0.9, polyak=0.9, recipe=recipe)
    names = snapshot(learner)
    expected = [(learner.q_optimizer, {name for name in names if name.startswith("ac.q")})]
    if algo != "dqn":
        pi = {name for name in names if name.startswith("ac.pi")}
        expected.append((learner.pi_optimizer, pi))
    assert steps == expected
    assert ("LossPi" in stats) == (algo != "dqn")
    assert len(stats["QVals"].reshape(-1, 16)) == dict(td3=2, ddpg=1, dqn=1)[algo]


@pytest.mark.parametrize("algo", ACTIONS)
def test_the_slow_copy_and_the_policy_wait_until_it_is_time(algo):
    learner, recipe = learner_of(algo)
    before, settings = snapshot(learner), dict(gamma=0.9, polyak=0.9, recipe=recipe)
    her.update(learner, transitions(algo), move_policy=False, **settings)
    after = snapshot(learner)
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved == {name for name in before if name.startswith("ac.q")}
    aims = deepcopy(list(learner.target.parameters()))
    her.update(learner, transitions(algo), move_policy=True, **settings)
    for old, new, aim in zip(aims, learner.target.parameters(), learner.ac.parameters()):
        torch.testing.assert_close(new, old + 0.1 * (aim - old), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(("algo", "delay"), [("td3", 2), ("ddpg", 1)])
@pytest.mark.parametrize("num_envs", [1, 3])
def test_the_delay_of_the_policy_does_not_start_anew(monkeypatch, tmp_path, algo, delay, num_envs):
    moved = []
    monkeypatch.setattr(
        her, "update", lambda learner, batch, *, move_policy, **_: moved.append(move_policy) or {}
    )
    her.her(
        EnvMaker("spinup/Reach-v0"),
        steps_per_epoch=60,
        epochs=1,
        start_steps=0,
        update_after=0,
        update_every=5,
        method=algo,
        num_test_episodes=0,
        num_envs=num_envs,
        replay_size=100,
        ac_kwargs=dict(hidden_sizes=(4,)),
        logger_kwargs=dict(output_dir=tmp_path),
    )
    assert len(moved) == 60
    assert set(np.diff(np.flatnonzero(moved))) == {delay}


# --- Exploring ---


def test_a_share_of_actions_is_random_and_the_rest_have_noise_of_the_right_width():
    env = VectorEnv(EnvMaker("spinup/Reach-v0"), 4000)
    torch.manual_seed(0)
    bounds = ActionRange([1.0, 1.0])
    act = np.tile(np.float32([0.0, 0.98]), (4000, 1))
    found = core.explore(env, bounds, act, act_noise=0.1, random_eps=0.0)
    assert found.dtype == np.float32
    assert found[:, 0].std() == pytest.approx(0.1, rel=0.05)
    assert found[:, 1].max() == 1.0 and (found[:, 1] == 1.0).mean() > 0.3  # moved to the bound
    found = core.explore(env, bounds, act, act_noise=0.0, random_eps=0.2)
    replaced = (found != act).any(-1)
    assert replaced.mean() == pytest.approx(0.2, abs=0.03)
    assert found[replaced].std(0) == pytest.approx([3**-0.5] * 2, rel=0.1)  # even from -1 to 1


def test_a_share_of_discrete_actions_is_random():
    env = VectorEnv(EnvMaker("spinup/BitFlip-v0"), 4000)
    torch.manual_seed(0)
    act = np.full(4000, 3)
    found = core.explore(env, None, act, act_noise=0.1, random_eps=0.4)
    counts = np.bincount(found, minlength=8) / 4000
    assert counts[3] == pytest.approx(0.6 + 0.4 / 8, abs=0.04)
    assert counts[[0, 1, 2, 4, 5, 6, 7]] == pytest.approx(np.full(7, 0.05), abs=0.02)


# --- Networks of a user's own ---


class Plain(nn.Module):
    """Only q, act and, for continuous actions, pi; the critic is one row of values."""

    def __init__(self, observation_space, action_space, critics=1):
        super().__init__()
        self.discrete, obs_dim = isinstance(action_space, Discrete), observation_space.shape[0]
        if self.discrete:
            self.q = nn.Linear(obs_dim, int(action_space.n))
        else:
            self.pi = nn.Sequential(nn.Linear(obs_dim, action_space.shape[0]), nn.Tanh())
            self.q = Row(obs_dim + action_space.shape[0])
        Plain.start = deepcopy(self.state_dict())

    @torch.no_grad()
    def act(self, obs):
        return (self.q(obs).argmax(-1) if self.discrete else self.pi(obs)).numpy()


class Row(nn.Linear):
    def __init__(self, inputs):
        super().__init__(inputs, 1)

    def forward(self, obs, act):
        return super().forward(torch.cat([obs, act], -1)).T


@pytest.mark.parametrize(
    ("env_name", "algo"),
    [("spinup/Reach-v0", "td3"), ("spinup/Reach-v0", "ddpg"), ("spinup/BitFlip-v0", "auto")],
)
def test_her_trains_a_network_of_a_users_own(tmp_path, env_name, algo):
    ac = her.her(
        EnvMaker(env_name),
        Plain,
        steps_per_epoch=60,
        epochs=1,
        start_steps=20,
        method=algo,
        update_after=30,
        update_every=10,
        batch_size=8,
        num_test_episodes=1,
        logger_kwargs=dict(output_dir=tmp_path),
    )
    after = ac.state_dict()
    assert all(not torch.equal(old, after[name]) for name, old in Plain.start.items())
