"""REINFORCE and VPG: losses worked by hand, returns by double sums, and steps that stay at home."""

from itertools import product
from math import log, pi
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from test_losses_equal_hand_worked_numbers import in_every_state, tabular_policy
from test_updates_move_only_what_they_should import PlainPPO, changed, named, snapshot
from torch import nn

from spinup import user_config
from spinup.algos.pytorch.ppo import ppo
from spinup.algos.pytorch.reinforce import reinforce
from spinup.algos.pytorch.vpg import vpg
from spinup.parts.buffers import Rollout
from spinup.parts.pytorch.buffers import GAEBuffer
from spinup.parts.pytorch.learning import Adam
from spinup.parts.pytorch.networks import MLPActorCritic, MLPGaussianActor

t = torch.tensor
BASELINES = ("none", "average", "value")
every_baseline = pytest.mark.parametrize("baseline", BASELINES)


def policy_gradient(loss, ac):
    gradients = torch.autograd.grad(loss, list(ac.pi.parameters()))
    return torch.cat([gradient.reshape(-1) for gradient in gradients])


# --- The losses, on a table of probabilities with one row per state ---


def test_vpg_policy_loss_and_the_distance_from_the_old_policy():
    # Probabilities of the actions taken: 1/2, 1/4, 1/8 now; all 1/4 when they were taken.
    ac, rollout = tabular_policy([0.5, 0.25, 0.125]), in_every_state([0.25] * 3, [3.0, -2.0, 1.0])
    loss, stats = vpg.compute_loss_pi(ac, rollout)
    # -(3 log 1/2 - 2 log 1/4 + log 1/8) = (3 - 4 + 3) log 2
    assert loss.item() == pytest.approx(2 * log(2) / 3, abs=1e-6)
    # Log ratios log 2, 0, -log 2: their mean is 0, while ratio - 1 sums to 1 - 1/2.
    assert stats["KL"].item() == pytest.approx(0, abs=1e-6)
    assert stats["KLNonNegative"].item() == pytest.approx(0.5 / 3, abs=1e-6)
    # -p log p - (1-p) log(1-p) is 0.693147 at 1/2, 0.562335 at 1/4 and 0.376770 at 1/8.
    entropy = (0.693147 + 0.562335 + 0.376770) / 3
    assert stats["Entropy"].item() == pytest.approx(entropy, abs=1e-5)


def test_vpg_pulls_at_each_action_by_its_advantage():
    ac, rollout = tabular_policy([0.5, 0.25]), in_every_state([0.5, 0.25], [3.0, -2.0])
    loss, _ = vpg.compute_loss_pi(ac, rollout)
    (gradient,) = torch.autograd.grad(loss, ac.pi.logits_net[0].weight)
    # d(-adv log p)/d logit of the action taken = -adv (1 - p); of the other, adv (1 - p).
    torch.testing.assert_close(gradient, t([[-1.5, 1.5], [1.5, -1.5]]) / 2)


def test_vpg_and_the_first_step_of_ppo_agree():
    """At the old policy all ratios are 1, and PPO's clip has nothing to clip."""
    torch.manual_seed(0)
    ac = MLPActorCritic(Box(-1, 1, (3,)), Box(-1, 1, (2,)), hidden_sizes=(8,))
    obs, act = torch.randn(20, 3), torch.randn(20, 2)
    rollout = Rollout(obs, act, torch.randn(20), torch.randn(20), ac.pi(obs, act)[1].detach())
    ours, theirs = (
        policy_gradient(loss, ac)
        for loss in (
            vpg.compute_loss_pi(ac, rollout)[0],
            ppo.compute_loss_pi(ac, rollout, clip_ratio=0.2)[0],
        )
    )
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("module", [vpg, reinforce])
def test_value_loss(module):
    ac = tabular_policy([0.5] * 3, values=[1.0, 2.0, 3.0])
    rollout = in_every_state([0.5] * 3, [0.0] * 3, ret=[2.0, 2.0, 0.0])
    assert module.compute_loss_v(ac, rollout).item() == pytest.approx((1 + 0 + 9) / 3)


RETURNS, VALUES = [8.0, 2.0, 5.0], [6.0, 3.0, 5.0]


@pytest.mark.parametrize(
    ("baseline", "expected", "loss", "error"),
    [
        # Log probabilities -1, -2, -3 (times log 2): 8 + 4 + 15; squared 64 + 4 + 25.
        ("none", [0.0, 0.0, 0.0], 27, 93),
        # The average is 5, so 3 - 6 + 0; squared 9 + 9.
        ("average", [5.0, 5.0, 5.0], -3, 18),
        # Above their values by 2, -1, 0, so 2 - 2 + 0; squared 4 + 1.
        ("value", VALUES, 0, 5),
    ],
)
def test_reinforce_loss_with_each_baseline(baseline, expected, loss, error):
    ac = tabular_policy([0.5, 0.25, 0.125], values=VALUES)
    rollout = in_every_state([0.5] * 3, [float("nan")] * 3, ret=RETURNS)  # advantages: its own
    found = reinforce.expected_return(ac, rollout, baseline)
    assert found.tolist() == expected
    assert not found.requires_grad  # a number to compare with, not one to be learned here
    loss_pi, _ = reinforce.compute_loss_pi(ac, rollout, found)
    assert loss_pi.item() == pytest.approx(loss * log(2) / 3, abs=1e-6)
    learner = reinforce.make_learner(ac, pi_lr=0.0, vf_lr=0.0)
    stats = reinforce.update(learner, rollout, baseline=baseline, train_v_iters=1)
    assert stats["LossPi"].item() == loss_pi.item()
    assert stats["LossV"].item() == pytest.approx(error / 3)


def test_reinforce_loss_of_a_bell_curve():
    actor = MLPGaussianActor((1,), 2, (), nn.Tanh)
    with torch.no_grad():
        actor.mu_net[0].weight.copy_(t([[1.0], [-1.0]]))
        actor.mu_net[0].bias.zero_()
        actor.log_std.copy_(t([log(2.0), 0.0]))
    rollout = Rollout(t([[1.0]]), t([[3.0, 0.0]]), t([7.0]), t([0.0]), t([0.0]))
    loss, stats = reinforce.compute_loss_pi(SimpleNamespace(pi=actor), rollout, t([4.0]))
    # mean (1, -1), width (2, 1): both actions lie one width off, so each dimension has
    # -1/2 - log(width) - log(2 pi)/2; the return is 3 above the expected one.
    assert loss.item() == pytest.approx(3 * (1 + log(2) + log(2 * pi)), abs=1e-5)
    assert stats["Entropy"].item() == pytest.approx(log(2) / 2 + (1 + log(2 * pi)) / 2, abs=1e-6)


# --- REINFORCE is VPG with lam = 1 ---


def test_reinforce_is_vpg_that_trusts_only_rewards_but_for_the_scale():
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    ac = MLPActorCritic(Box(-1, 1, (3,)), Discrete(2), hidden_sizes=(8,))
    rows = [(rng.normal(size=3), rng.integers(2), rng.normal()) for _ in range(30)]
    for baseline in BASELINES:
        buffer = GAEBuffer(3, None, 30, gamma=0.9, lam=1.0, act_dtype=np.int64)
        for i, (obs, act, rew) in enumerate(rows):
            obs = torch.as_tensor(obs, dtype=torch.float32)
            buffer.store(obs, act, rew, ac.v(obs).item() if baseline == "value" else 0.0, 0.0)
            if i in (4, 17, 29):
                buffer.finish_path(0.0)
        raw = torch.as_tensor(buffer.adv_buf.copy())
        rollout = buffer.get()
        expected = reinforce.expected_return(ac, rollout, baseline)
        found = policy_gradient(reinforce.compute_loss_pi(ac, rollout, expected)[0], ac)
        # Without a baseline, and with a value, as VPG before it normalises its advantages;
        # with the average of returns, as VPG normalises them where all values are 0.
        adv = rollout.adv * raw.std(correction=0) if baseline == "average" else raw
        of_vpg = policy_gradient(vpg.compute_loss_pi(ac, rollout._replace(adv=adv))[0], ac)
        torch.testing.assert_close(found, of_vpg, rtol=1e-4, atol=1e-5)


# --- Where play is cut: every path of a small world, weighted by its probability ---

ENDS = (1, 1)  # the state and the action that end the task; action a leads from s to state a


def rewards_of(path):
    return [1.0 + 0.5 * s - 0.25 * a for s, a in path]


def paths(longest):
    """Each way to play from state 0 until the task ends, or is cut after `longest` steps."""
    found = set()
    for actions in product(range(2), repeat=longest):
        path = list(zip((0, *actions), actions))
        found.add(tuple(path[: path.index(ENDS) + 1] if ENDS in path else path))
    return sorted(found)


def probability(ac, path):
    s, a = zip(*path)
    return ac.pi(torch.eye(2)[list(s)], t(a))[1].sum().exp()


def gradient_of_a_path(ac, path, expected):
    """The gradient that reinforce takes from a path, as a sum over its steps."""
    buffer = GAEBuffer(2, None, len(path), gamma=1.0, act_dtype=np.int64)
    for (s, a), rew in zip(path, rewards_of(path)):
        buffer.store(np.eye(2)[s], a, rew, 0.0, 0.0)
    buffer.finish_path(0.0)
    rollout = buffer.get()
    loss, _ = reinforce.compute_loss_pi(ac, rollout, torch.full_like(rollout.ret, expected))
    return -policy_gradient(loss * len(path), ac)


@pytest.mark.parametrize("expected", [0.0, 7.0])
def test_what_reinforce_learns_from_cut_play_is_the_slope_of_the_rewards_until_the_cut(expected):
    ac = tabular_policy([0.6, 0.3])
    every_path = paths(longest=3)
    assert sum(probability(ac, path).item() for path in every_path) == pytest.approx(1, abs=1e-6)
    objective = sum(probability(ac, path) * sum(rewards_of(path)) for path in every_path)
    slope = policy_gradient(objective, ac)
    found = sum(
        probability(ac, path).item() * gradient_of_a_path(ac, path, expected) for path in every_path
    )
    torch.testing.assert_close(found, slope, rtol=1e-4, atol=1e-5)


def test_leaving_cut_play_out_would_teach_to_end_the_task():
    """Why reinforce keeps it, shown where each step brings a reward and action 1 may end all."""
    ac = tabular_policy([0.6, 0.3])
    every_path = paths(longest=3)
    kept, without_cut_ones = (
        sum(probability(ac, path).item() * gradient_of_a_path(ac, path, 0.0) for path in some)
        for some in (every_path, [path for path in every_path if path[-1] == ENDS])
    )
    ending = 3  # in the logits' weights, two rows of two: action 1 in state 1
    assert kept[ending].item() < 0
    assert without_cut_ones[ending].item() > 0


class Uneven(gym.Env):
    """Episodes of random lengths and rewards, which the observation tells."""

    observation_space, action_space = Box(-9, 9, (3,)), Discrete(2)

    def __init__(self):
        self.ending = True  # whether an episode ends by the task or by the clock; they take turns

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left, self.ending = int(self.np_random.integers(1, 8)), not self.ending
        return self.see(0.0), {}

    def see(self, rew):
        return np.array([rew, self.left, self.ending], np.float32)

    def step(self, action):
        self.left, rew = self.left - 1, float(self.np_random.normal())
        over = self.left == 0
        return self.see(rew), rew, over and self.ending, over and not self.ending, {}


class Fifty(nn.Linear):
    """Deems every state worth 50, so that each bootstrap shows."""

    def forward(self, obs):
        return torch.full(obs.shape[:-1], 50.0)


class FiftyEverywhere(nn.Module):
    def __init__(self, observation_space, action_space):
        super().__init__()
        self.pi, self.v = nn.Linear(3, 2), Fifty(3, 1)

    def step(self, obs):
        return np.zeros(len(obs), np.int64), self.v(obs).numpy(), np.zeros(len(obs), np.float32)


def rollouts_seen(module, monkeypatch, tmp_path, **settings):
    """What a training run hands to its update, and the rewards and ends of every step."""
    seen, steps, step = [], [], module.VectorEnv.step

    def watched(env, act):
        steps.append(step(env, act))
        return steps[-1]

    monkeypatch.setattr(module.VectorEnv, "step", watched)
    monkeypatch.setattr(module, "update", lambda _, rollout, **__: seen.append(rollout) or {})
    train = getattr(module, module.__name__.rpartition(".")[2])
    where = dict(output_dir=tmp_path)
    train(Uneven, FiftyEverywhere, gamma=0.9, logger_kwargs=where, **settings)
    return seen, steps


@pytest.mark.parametrize("num_envs", [1, 3])
@pytest.mark.parametrize(
    ("module", "settings", "guess"),
    [
        (vpg, {}, 50.0),
        (reinforce, dict(baseline="value"), 50.0),
        (reinforce, dict(baseline="average"), 0.0),
        (reinforce, dict(baseline="none"), 0.0),
    ],
)
def test_returns_are_the_double_sum(module, settings, guess, num_envs, monkeypatch, tmp_path):
    """The rewards after each step until its episode ends, or is cut: then a guess, if there is."""
    turns, gamma = 20, 0.9
    settings = dict(settings, steps_per_epoch=turns * num_envs, epochs=3, num_envs=num_envs)
    seen, steps = rollouts_seen(module, monkeypatch, tmp_path, **settings)
    assert len(seen) == 3
    ends = set()
    for epoch, rollout in enumerate(seen):
        part = steps[epoch * turns : (epoch + 1) * turns]
        found = rollout.ret.reshape(turns, num_envs).numpy()
        for i, start in product(range(num_envs), range(turns)):
            total = 0.0
            for k, step in enumerate(part[start:]):
                total += gamma**k * step.rew[i]
                cut = start + k == turns - 1 or step.truncated[i]
                if step.terminated[i] or cut:
                    total += 0 if step.terminated[i] else gamma ** (k + 1) * guess
                    ends.add((bool(step.terminated[i]), bool(step.truncated[i])))
                    break
            assert found[start, i] == pytest.approx(total, abs=1e-4)
    assert ends == {(True, False), (False, True), (False, False)}  # every kind of end was met


# --- The updates ---


def learner_of(module, seed=0, pi_lr=1e-2, actions=None):
    torch.manual_seed(seed)
    ac = MLPActorCritic(Box(-1, 1, (3,)), actions or Discrete(3), hidden_sizes=(8, 8))
    return module.make_learner(ac, pi_lr, vf_lr=1e-2)


def rollout_of(learner, n=24):
    torch.manual_seed(1)
    obs, act = torch.randn(n, 3), torch.randint(3, (n,))
    with torch.no_grad():
        _, logp = learner.ac.pi(obs, act)
    return Rollout(obs, act, torch.randn(n), torch.randn(n), logp)


def steps_of_an_update(module, learner, monkeypatch, **settings):
    """The optimizer of each step of an update, and which parameters the step moved."""
    steps, step = [], Adam.step

    def watched(optimizer):
        before = snapshot(learner)
        step(optimizer)
        steps.append((optimizer, changed(before, snapshot(learner))))

    monkeypatch.setattr(Adam, "step", watched)
    monkeypatch.setattr(user_config, "FAST", False)  # each step is to be seen
    module.update(learner, rollout_of(learner), **settings)
    return steps


def test_vpg_takes_one_policy_step_then_value_steps(monkeypatch):
    learner = learner_of(vpg)
    pi_step = learner.pi_optimizer, named(learner, "ac.pi")
    v_step = learner.vf_optimizer, named(learner, "ac.v")
    steps = steps_of_an_update(vpg, learner, monkeypatch, train_v_iters=4)
    assert steps == [pi_step] + [v_step] * 4


@every_baseline
def test_reinforce_trains_a_value_only_if_it_is_the_baseline(baseline, monkeypatch):
    learner = learner_of(reinforce)
    pi_step = learner.pi_optimizer, named(learner, "ac.pi")
    v_step = learner.vf_optimizer, named(learner, "ac.v")
    settings = dict(baseline=baseline, train_v_iters=4)
    steps = steps_of_an_update(reinforce, learner, monkeypatch, **settings)
    assert steps == [pi_step] + [v_step] * (4 if baseline == "value" else 0)


@pytest.mark.parametrize("baseline", ["none", "average"])
def test_without_a_value_baseline_nothing_depends_on_the_value(baseline, tmp_path):
    """Two runs whose value networks have nothing in common end with the same policy."""

    class Scrambled(MLPActorCritic):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            with torch.no_grad():
                for p in self.v.parameters():
                    p.mul_(-100.0)

    policies = []
    for i, network in enumerate((MLPActorCritic, Scrambled)):
        ac = reinforce.reinforce(
            lambda: gym.make("CartPole-v1"),
            network,
            baseline=baseline,
            steps_per_epoch=150,
            epochs=3,
            num_envs=2,
            logger_kwargs=dict(output_dir=tmp_path / str(i)),
        )
        policies.append(torch.cat([p.detach().reshape(-1) for p in ac.pi.parameters()]))
    assert torch.equal(*policies)


def test_the_policy_step_of_reinforce_does_not_pull_at_the_value():
    learner = learner_of(reinforce)
    rollout = rollout_of(learner)
    expected = reinforce.expected_return(learner.ac, rollout, "value")
    loss, _ = reinforce.compute_loss_pi(learner.ac, rollout, expected)
    wanted = policy_gradient(loss, learner.ac)
    reinforce.update(learner, rollout, baseline="value", train_v_iters=1)
    found = torch.cat([p.grad.reshape(-1) for p in learner.ac.pi.parameters()])
    torch.testing.assert_close(found, wanted)
    error = 2 * (expected - rollout.ret).mean()  # the slope along the last bias of v
    assert learner.ac.v.v_net[-2].bias.grad.item() == pytest.approx(error.item(), rel=1e-4)


def test_vpg_reports_the_loss_before_its_step_and_the_distance_after_it():
    learner = learner_of(vpg)
    rollout = rollout_of(learner)
    first, still = vpg.compute_loss_pi(learner.ac, rollout)
    assert still["KL"].item() == 0
    old, _ = learner.ac.pi(rollout.obs)
    stats = vpg.update(learner, rollout, train_v_iters=6)
    assert stats["LossPi"].item() == first.item()
    new, logp = learner.ac.pi(rollout.obs, rollout.act)
    last = -(logp * rollout.adv).mean()
    assert stats["DeltaLossPi"].item() == pytest.approx((last - first).item(), abs=1e-6)
    assert stats["DeltaLossPi"].item() < 0
    assert stats["KL"].item() == pytest.approx((rollout.logp - logp).mean().item(), abs=1e-6)
    assert abs(stats["KL"].item()) > 1e-5
    assert stats["KLNonNegative"].item() > 0
    assert stats["Entropy"].item() == pytest.approx(new.entropy().mean().item(), abs=1e-6)
    assert stats["Entropy"].item() != old.entropy().mean().item()
    assert stats["DeltaLossV"].item() < 0


@every_baseline
def test_reinforce_reports_how_far_returns_lie_from_its_baseline(baseline):
    learner = learner_of(reinforce)
    rollout = rollout_of(learner)
    guesses = dict(none=0.0, average=rollout.ret.mean(), value=learner.ac.v(rollout.obs))
    wanted = (rollout.ret - guesses[baseline]).square().mean().item()
    stats = reinforce.update(learner, rollout, baseline=baseline, train_v_iters=3)
    assert stats["LossV"].item() == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize(("module", "settings"), [(vpg, {}), (reinforce, dict(baseline="value"))])
def test_a_network_of_a_users_own_is_trained(module, settings, tmp_path):
    train = getattr(module, module.__name__.rpartition(".")[2])
    ac = train(
        lambda: gym.make("CartPole-v1"),
        PlainPPO,
        steps_per_epoch=60,
        epochs=1,
        max_ep_len=20,
        train_v_iters=3,
        logger_kwargs=dict(output_dir=tmp_path),
        **settings,
    )
    assert changed(PlainPPO.start, ac.state_dict()) == set(PlainPPO.start)
