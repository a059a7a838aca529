"""Each loss equals a number that was worked out on paper, shown beside it."""

from math import log
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.distributions import Independent, Normal, TanhTransform, TransformedDistribution

from spinup.algos.pytorch.dqn import dqn
from spinup.algos.pytorch.ppo import core as ppo_core
from spinup.algos.pytorch.ppo import ppo
from spinup.algos.pytorch.sac import core as sac_core
from spinup.algos.pytorch.sac import sac
from spinup.parts.buffers import NStepTransitions, Rollout, Transitions
from spinup.parts.pytorch.bounded_policies import SquashedGaussianMLPActor, squashed_log_prob
from spinup.parts.pytorch.networks import MLPGaussianActor

t = torch.tensor


# --- PPO: a table of probabilities, one row per state (a linear layer on unit vectors) ---


def tabular_policy(probabilities, values=None):
    """An actor-critic that takes action 0 in state s with probability probabilities[s]."""
    p = t(probabilities)
    ac = ppo_core.MLPActorCritic(Box(0, 1, (len(p),)), Discrete(2), hidden_sizes=())
    with torch.no_grad():
        logits, v = ac.pi.logits_net[0], ac.v.v_net[0]
        logits.weight.copy_(torch.stack([p.log(), (1 - p).log()]))
        v.weight.copy_(torch.zeros(1, len(p)) if values is None else t([values]))
        logits.bias.zero_()
        v.bias.zero_()
    return ac


def in_every_state(old_probabilities, adv, ret=None):
    """A rollout that takes action 0 once in each state, as a policy of old did."""
    n = len(adv)
    return Rollout(
        torch.eye(n),
        torch.zeros(n, dtype=torch.int64),
        t(ret or [0.0] * n),
        t(adv),
        t(old_probabilities).log(),
    )


# Ratios:           1.5  1.5  0.5   0.5  1.1    (clipped to 0.8 ... 1.2)
PROBABILITIES_NOW = [0.6, 0.6, 0.3, 0.3, 0.55]
PROBABILITIES_OLD = [0.4, 0.4, 0.6, 0.6, 0.5]
ADVANTAGES = [2.0, -1.0, 1.0, -2.0, 3.0]
# min of the two:    2.4  -1.5  0.5  -1.6  3.3   sum 3.1
LOG_RATIOS = 2 * log(1.5) + 2 * log(0.5) + log(1.1)


def test_ppo_policy_loss_on_both_sides_of_the_clip_with_both_signs():
    ac, rollout = (
        tabular_policy(PROBABILITIES_NOW),
        in_every_state(PROBABILITIES_OLD, ADVANTAGES),
    )
    loss, stats = ppo.compute_loss_pi(ac, rollout, clip_ratio=0.2)
    assert loss.item() == pytest.approx(-3.1 / 5, abs=1e-6)
    assert stats["ClipFrac"].item() == pytest.approx(4 / 5)
    assert stats["KL"].item() == pytest.approx(-LOG_RATIOS / 5, abs=1e-6)
    # The ratios sum to 5.1, so ratio - 1 sums to 0.1.
    assert stats["KLNonNegative"].item() == pytest.approx((0.1 - LOG_RATIOS) / 5, abs=1e-6)
    # -p log p - (1-p) log(1-p) is 0.673012 at 0.6, 0.610864 at 0.3 and 0.688139 at 0.55.
    entropy = (2 * 0.673012 + 2 * 0.610864 + 0.688139) / 5
    assert stats["Entropy"].item() == pytest.approx(entropy, abs=1e-5)
    with_entropy, _ = ppo.compute_loss_pi(ac, rollout, clip_ratio=0.2, ent_coef=0.5)
    assert with_entropy.item() == pytest.approx(-0.62 - 0.5 * entropy, abs=1e-5)


@pytest.mark.parametrize(
    ("now", "old", "advantage", "pulls"),
    [
        (0.6, 0.4, 2.0, False),  # already more probable by half: no reward for more
        (0.6, 0.4, -1.0, True),  # wrongly more probable: bring it back
        (0.3, 0.6, 1.0, True),  # wrongly less probable: bring it back
        (0.3, 0.6, -2.0, False),  # already less probable by half: no reward for less
        (0.55, 0.5, 3.0, True),  # inside the clip
        (0.45, 0.5, -3.0, True),
    ],
)
def test_ppo_gradient_is_cut_off_only_where_the_policy_went_too_far(now, old, advantage, pulls):
    ac = tabular_policy([now])
    loss, _ = ppo.compute_loss_pi(ac, in_every_state([old], [advantage]), clip_ratio=0.2)
    (gradient,) = torch.autograd.grad(loss, ac.pi.logits_net[0].weight)
    # d(-ratio * adv)/d logit of the action taken = -ratio * adv * (1 - probability)
    worked = -now / old * advantage * (1 - now) if pulls else 0.0
    assert gradient[0].item() == pytest.approx(worked, abs=1e-6)


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(st.lists(st.tuples(*[st.floats(0.02, 0.98)] * 2), min_size=1, max_size=6))
def test_the_second_estimate_of_kl_is_never_negative(pairs):
    now, old = (list(column) for column in zip(*pairs))
    rollout = in_every_state(old, [1.0] * len(pairs))
    _, stats = ppo.compute_loss_pi(tabular_policy(now), rollout, clip_ratio=0.2)
    assert stats["KLNonNegative"].item() >= -1e-6
    by_hand = np.mean([q / p - 1 - log(q / p) for q, p in pairs])
    assert stats["KLNonNegative"].item() == pytest.approx(by_hand, rel=1e-3, abs=1e-5)


def test_an_unmoved_policy_has_no_kl_and_no_clipping():
    ac = tabular_policy([0.25, 0.75])
    loss, stats = ppo.compute_loss_pi(ac, in_every_state([0.25, 0.75], [1.0, -3.0]), clip_ratio=0.2)
    assert loss.item() == pytest.approx(1.0)  # minus the mean advantage
    for name in ("KL", "KLNonNegative", "ClipFrac"):
        assert stats[name].item() == pytest.approx(0, abs=1e-6)


def test_ppo_value_loss():
    ac = tabular_policy([0.5] * 3, values=[1.0, 2.0, 3.0])
    rollout = in_every_state([0.5] * 3, [0.0] * 3, ret=[2.0, 2.0, 0.0])
    assert ppo.compute_loss_v(ac, rollout).item() == pytest.approx((1 + 0 + 9) / 3)


def test_gaussian_policy_loss_uses_the_probability_of_all_dimensions_together():
    pi = MLPGaussianActor((1,), 2, (), nn.Tanh)
    with torch.no_grad():
        pi.mu_net[0].weight.copy_(t([[1.0], [-1.0]]))
        pi.mu_net[0].bias.zero_()
        pi.log_std.copy_(t([log(2.0), 0.0]))
    rollout = Rollout(t([[1.0]]), t([[3.0, 0.0]]), t([0.0]), t([1.0]), t([-3.0]))
    loss, stats = ppo.compute_loss_pi(SimpleNamespace(pi=pi), rollout, clip_ratio=10.0)
    # mean (1, -1), width (2, 1): both actions lie one width off, so each dimension has
    # -1/2 - log(width) - log(2 pi)/2, together -1 - log 2 - log(2 pi).
    logp = -1 - log(2) - log(2 * np.pi)
    assert stats["KL"].item() == pytest.approx(-3 - logp, abs=1e-6)
    assert loss.item() == pytest.approx(-np.exp(logp + 3), abs=1e-6)
    # log(width) + (1 + log 2 pi)/2 for each dimension; the mean over both.
    entropy = log(2) / 2 + (1 + log(2 * np.pi)) / 2
    assert stats["Entropy"].item() == pytest.approx(entropy, abs=1e-6)


# --- SAC: functions so simple that every number can be followed ---


def refuse(*_):
    raise AssertionError("this network must not be asked")


SAC_BATCH = Transitions(
    t([[1.0], [2.0], [0.0]]),
    t([[0.5], [-1.0], [1.0]]),
    t([1.0, 2.0, 0.0]),
    t([[3.0], [4.0], [1.0]]),
    t([0.0, 1.0, 0.0]),
)


def tenth_of_observation(o):
    """The action o/10, with log probability -o."""
    return o / 10, -o.squeeze(-1)


def sac_networks(scale=1.0):
    ac = SimpleNamespace(
        pi=tenth_of_observation,
        q1=lambda o, a: scale * (2 * o + a).squeeze(-1),
        q2=lambda o, a: scale * (o - a).squeeze(-1),
    )
    target = SimpleNamespace(
        pi=refuse,
        q1=lambda o, a: (o + a).squeeze(-1),
        q2=lambda o, a: (4 - o * a).squeeze(-1),
    )
    return ac, target


def test_sac_critic_loss():
    # Row 1: next action 0.3, log probability -3, target critics 3.3 and 3.1, the lesser 3.1;
    #        backup 1 + 0.5 (3.1 + 0.2 * 3) = 2.85; critics 2.5 and 0.5; errors -0.35, -2.35.
    # Row 2: terminated, backup 2; critics 3 and 3; errors 1, 1.
    # Row 3: next action 0.1, log probability -1, target critics 1.1 and 3.9, the lesser 1.1;
    #        backup 0 + 0.5 (1.1 + 0.2) = 0.65; critics 1 and -1; errors 0.35, -1.65.
    ac, target = sac_networks()
    loss, stats = sac.compute_loss_q(ac, target, SAC_BATCH, gamma=0.5, alpha=0.2)
    first, second = (0.1225 + 1 + 0.1225) / 3, (5.5225 + 1 + 2.7225) / 3
    assert loss.item() == pytest.approx(first + second, rel=1e-6)
    assert stats["LossQ"].item() == loss.item()
    assert stats["Q1Vals"].tolist() == [2.5, 3.0, 1.0]
    assert stats["Q2Vals"].tolist() == [0.5, 3.0, -1.0]


def test_what_follows_a_terminated_state_is_worth_nothing():
    ac, _ = sac_networks()
    target = SimpleNamespace(q1=lambda o, a: 1e6 * o.squeeze(-1), q2=lambda o, a: 1e6 * a[:, 0])
    batch = SAC_BATCH._replace(terminated=torch.ones(3))
    loss, _ = sac.compute_loss_q(ac, target, batch, gamma=0.5, alpha=0.2)
    # Backups 1, 2, 0; critics 2.5, 3, 1 and 0.5, 3, -1.
    assert loss.item() == pytest.approx((2.25 + 1 + 1) / 3 + (0.25 + 1 + 1) / 3, rel=1e-6)


def test_sac_critic_loss_pulls_at_the_critics_and_not_at_their_aim():
    scale, aim = t(1.0, requires_grad=True), t(1.0, requires_grad=True)
    ac, _ = sac_networks(scale)
    _, plain = sac_networks()
    ac.pi = lambda o: (aim * o / 10, -aim * o.squeeze(-1))
    target = SimpleNamespace(q1=lambda o, a: aim * plain.q1(o, a), q2=plain.q2)
    loss, _ = sac.compute_loss_q(ac, target, SAC_BATCH, gamma=0.5, alpha=0.2)
    loss.backward()
    # 2/3 of the sum of error times value: -0.875 + 3 + 0.35, and -1.175 + 3 + 1.65.
    assert scale.grad.item() == pytest.approx((2.475 + 3.475) * 2 / 3, rel=1e-5)
    assert aim.grad is None


def test_sac_policy_loss():
    # Actions 0.1, 0.2, 0 with log probabilities -1, -2, 0; critics 2o+a = 2.1, 4.2, 0 and
    # 1+a = 1.1, 1.2, 1; the lesser 1.1, 1.2, 0; so -0.2-1.1, -0.4-1.2, 0.
    ac, _ = sac_networks()
    ac.q2 = lambda o, a: (1 + a).squeeze(-1)
    loss, stats = sac.compute_loss_pi(ac, SAC_BATCH, alpha=0.2)
    assert loss.item() == pytest.approx(-2.9 / 3, rel=1e-6)
    assert stats["LossPi"].item() == loss.item()
    assert stats["LogPi"].tolist() == [-1.0, -2.0, 0.0]


def test_sac_policy_loss_follows_the_critics_slope():
    """The policy learns through the action: d/dk of -min Q(o, k o) + alpha * logp."""
    k = t(0.1, requires_grad=True)
    ac, _ = sac_networks()
    ac.pi = lambda o: (k * o, -o.squeeze(-1))
    ac.q2 = lambda o, a: (1 + 3 * a).squeeze(-1)
    loss, _ = sac.compute_loss_pi(ac, SAC_BATCH, alpha=0.2)
    loss.backward()
    # The lesser critic is q2 (1.3 < 2.1, 1.6 < 4.2) with slope 3 o, and q1 in row 3 where o is 0.
    assert k.grad.item() == pytest.approx(-(3 * 1 + 3 * 2) / 3, rel=1e-6)


@pytest.mark.parametrize(
    ("log_probabilities", "slope"),
    [([-2.0, -4.0], 4.0), ([2.0, 4.0], -2.0), ([0.5, 1.5], 0.0)],
)
def test_sac_temperature_loss(log_probabilities, slope):
    """The slope is entropy - target: alpha falls while there is more entropy than asked for."""
    temperature = sac_core.Temperature("auto")
    temperature.log_alpha.data.fill_(log(0.5))
    loss = sac.compute_loss_alpha(temperature, t(log_probabilities), target_entropy=-1)
    loss.backward()
    assert loss.item() == pytest.approx(log(0.5) * slope, abs=1e-6)
    assert temperature.log_alpha.grad.item() == pytest.approx(slope)


@pytest.mark.parametrize("alpha", [0.2, 0.0, 3.0])
def test_a_fixed_temperature_is_the_number_given(alpha):
    assert sac_core.Temperature(alpha)().item() == pytest.approx(alpha, rel=1e-6)


def test_squashed_log_probability_is_that_of_torch():
    torch.manual_seed(0)
    mu, log_std = 3 * torch.randn(500, 4).double(), torch.empty(500, 4).double().uniform_(-3, 1)
    noise = torch.randn(500, 4).double()
    u = mu + log_std.exp() * noise
    squashed = TransformedDistribution(
        Independent(Normal(mu, log_std.exp()), 1), [TanhTransform(cache_size=1)]
    )
    action = squashed.transforms[0](u)
    assert torch.equal(action, u.tanh())
    torch.testing.assert_close(
        squashed_log_prob(noise, log_std, u), squashed.log_prob(action), rtol=1e-9, atol=1e-9
    )


def test_squashed_probability_sums_to_one():
    u = torch.linspace(-12, 12, 20001).double()[:, None]
    mu, log_std = 0.7, torch.full_like(u, -0.4)
    density = squashed_log_prob((u - mu) / log_std.exp(), log_std, u).exp()
    assert torch.trapezoid(density, u[:, 0].tanh()).item() == pytest.approx(1, abs=1e-5)


def test_squashed_log_probability_stays_finite_at_the_edge():
    u = t([[40.0], [-40.0]])
    logp = squashed_log_prob(torch.zeros(2, 1), torch.zeros(2, 1), u)
    # -log(2 pi)/2, less the log of the slope, log 4 - 2 |u|.
    np.testing.assert_allclose(logp, [80 - log(4) - log(2 * np.pi) / 2] * 2, rtol=1e-6)


def test_the_squashed_policy_gives_the_log_probability_of_its_own_action():
    torch.manual_seed(1)
    limit, center = [2.0, 0.5], [1.0, -0.25]
    pi = SquashedGaussianMLPActor((3,), 2, (8,), nn.Tanh, limit, center).double()
    obs = torch.randn(64, 3).double()
    action, logp = pi(obs)
    unit = (action - t(center)) / t(limit)
    features = pi.net(obs)
    squashed = TransformedDistribution(
        Independent(Normal(pi.mu_layer(features), pi.log_std_layer(features).exp()), 1),
        [TanhTransform()],
    )
    torch.testing.assert_close(logp, squashed.log_prob(unit), rtol=1e-6, atol=1e-6)
    middle, _ = pi(obs, deterministic=True)
    torch.testing.assert_close(middle, t(center) + t(limit) * pi.mu_layer(features).tanh())
    assert pi(obs, with_logprob=False)[1] is None


def test_the_width_of_the_squashed_policy_is_kept_between_its_limits():
    pi = SquashedGaussianMLPActor((1,), 1, (4,), nn.Tanh, 1.0)
    obs = torch.zeros(2000, 1)
    with torch.no_grad():
        pi.mu_layer.weight.zero_()
        pi.mu_layer.bias.zero_()
        pi.log_std_layer.weight.zero_()
        pi.log_std_layer.bias.fill_(-100.0)
        torch.manual_seed(2)
        narrow, _ = pi(obs)
        pi.log_std_layer.bias.fill_(100.0)
        torch.manual_seed(2)
        action, _ = pi(obs[:200])
        torch.manual_seed(2)
        u = np.exp(2) * torch.randn(200, 1)
    assert 0 < narrow.abs().max() < 10 * np.exp(-20)
    torch.testing.assert_close(action, u.tanh())


# --- DQN: two tables of values, one row per state ---

NOW = t([[1.0, 5.0], [2.0, 0.0], [0.0, 3.0], [1.0, 1.7]])
SLOW = t([[0.0, 0.0], [2.0, 6.0], [8.0, 1.0], [9.0, 9.0]])
STATE = torch.eye(4)
DQN_BATCH = NStepTransitions(
    STATE[[0, 2, 3]],
    t([0, 1, 1]),
    t([0.5, 10.0, 0.0]),
    STATE[[1, 3, 2]],
    t([0.0, 1.0, 0.0]),
    discount=t(0.5),
    weight=torch.full((3,), 1 / 3),
    indices=torch.arange(3),
)


@pytest.mark.parametrize(
    ("double_q", "losses"),
    [
        # Row 1: NOW prefers action 0 in state 1, worth 2 in SLOW; backup 0.5 + 0.5 * 2 = 1.5,
        #        value 1, error 0.5, small: 0.5 * 0.25.
        # Row 2: terminated; backup 10, value 3, error 7, large: 7 - 0.5.
        # Row 3: NOW prefers action 1 in state 2, worth 1 in SLOW; backup 0.5, value 1.7,
        #        error 1.2, large: 1.2 - 0.5.
        (True, [0.125, 6.5, 0.7]),
        # Row 1: SLOW's own best is 6; backup 3.5, error 2.5. Row 3: 8; backup 4, error 2.3.
        (False, [2.0, 6.5, 1.8]),
    ],
)
def test_dqn_loss(double_q, losses):
    ac, target = (SimpleNamespace(q=lambda o, table=table: o @ table) for table in (NOW, SLOW))
    loss, stats = dqn.compute_loss_q(ac, target, DQN_BATCH, double_q=double_q)
    assert loss.item() == pytest.approx(np.mean(losses), rel=1e-6)
    assert stats["LossQ"].item() == loss.item()
    torch.testing.assert_close(stats["QVals"], t([1.0, 3.0, 1.7]))


def test_dqn_loss_pulls_only_at_the_actions_that_were_taken():
    table, slow = NOW.clone().requires_grad_(), SLOW.clone().requires_grad_()
    ac, target = (SimpleNamespace(q=lambda o, x=x: o @ x) for x in (table, slow))
    dqn.compute_loss_q(ac, target, DQN_BATCH)[0].backward()
    # A third of the error where it is small, of its sign where it is large.
    worked = torch.zeros(4, 2)
    worked[0, 0], worked[2, 1], worked[3, 1] = -0.5 / 3, -1 / 3, 1 / 3
    torch.testing.assert_close(table.grad, worked)
    assert slow.grad is None


@pytest.mark.parametrize(
    ("step", "share"), [(0, 1.0), (25, 0.775), (50, 0.55), (100, 0.1), (101, 0.1), (10**6, 0.1)]
)
def test_a_schedule_follows_a_straight_line_then_stays(step, share):
    found = dqn.linear_schedule(step, start=1.0, end=0.1, steps=100)
    assert found == pytest.approx(share)


def test_a_schedule_without_a_slope_is_at_its_end_from_the_start():
    found = dqn.linear_schedule(0, start=1.0, end=0.1, steps=0)
    assert found == pytest.approx(0.1)
