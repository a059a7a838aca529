"""TRPO's step, against second derivatives by autograd, a dense solver, and numbers by hand."""

from math import log

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from mpi_programs import COUNT_EXCHANGES, under_mpiexec
from torch import nn
from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal
from torch.func import functional_call

from spinup.algos.pytorch.trpo import core, trpo
from spinup.parts.buffers import Rollout
from spinup.parts.errors import UserError

OBS = Box(-1, 1, (3,))
ACTIONS = dict(discrete=Discrete(3), continuous=Box(-1, 1, (2,)))
every_kind = pytest.mark.parametrize("kind", ACTIONS)
t = torch.tensor
SETTINGS = dict(
    delta=0.01,
    damping_coeff=0.1,
    cg_iters=10,
    backtrack_iters=10,
    backtrack_coeff=0.8,
    train_v_iters=3,
)


def learner_of(kind, hidden_sizes=(5, 4), seed=0):
    torch.manual_seed(seed)
    ac = core.MLPActorCritic(OBS, ACTIONS[kind], hidden_sizes).double()
    return trpo.make_learner(ac, vf_lr=1e-2)


def rollout_of(learner, n=40):
    obs = torch.randn(n, 3).double()
    with torch.no_grad():
        act = learner.ac.pi(obs)[0].sample()
        _, logp = learner.ac.pi(obs, act)
    return Rollout(obs, act, torch.randn(n).double(), torch.randn(n).double(), logp)


def old_policy(ac, rollout):
    with torch.no_grad():
        return ac.pi(rollout.obs, rollout.act)[0]


def flat(module):
    return core.flat_concat(module.parameters()).detach().clone()


def outputs(pi, obs, theta=None):
    """Logits, or means and log widths, from PyTorch's own layers with the weights `theta`."""
    net = pi.logits_net if hasattr(pi, "logits_net") else pi.mu_net
    plain = nn.Sequential(*[nn.Tanh() if isinstance(x, nn.Tanh) else x for x in net]).double()
    if theta is None:
        return plain(obs), getattr(pi, "log_std", None)
    named = [(name, p) for name, p in pi.named_parameters()]
    parts = theta.split([p.numel() for _, p in named])
    weights = {name: part.view_as(p) for (name, p), part in zip(named, parts)}
    log_std = weights.pop("log_std", None)
    inner = {name.partition(".")[2]: w for name, w in weights.items()}
    return functional_call(plain, inner, obs), log_std


def kl_by_definition(pi, obs, theta):
    """The mean KL of the policy with weights theta from the policy as it is, written out."""
    (old, old_log_std), (new, log_std) = outputs(pi, obs), outputs(pi, obs, theta)
    old = old.detach()
    if log_std is None:
        p, q = old.softmax(-1), new.softmax(-1)
        return (p * (p / q).log()).sum(-1).mean()
    # log(s/s0) + (s0^2 + (m0 - m)^2) / 2 s^2 - 1/2, for each dimension
    old_log_std = old_log_std.detach()
    apart = (2 * old_log_std).exp() + (old - new) ** 2
    kl = log_std - old_log_std + apart / (2 * (2 * log_std).exp()) - 0.5
    return kl.sum(-1).mean()


def full_hessian(ac, rollout):
    return torch.autograd.functional.hessian(
        lambda theta: kl_by_definition(ac.pi, rollout.obs, theta), flat(ac.pi)
    )


def products(ac, rollout, damping_coeff=0.0):
    _, kl = trpo.compute_loss_pi(ac, rollout, old_policy(ac, rollout))
    return core.hessian_vector_product(kl, list(ac.pi.parameters()), damping_coeff)


def gradient(ac, rollout):
    loss, _ = trpo.compute_loss_pi(ac, rollout, old_policy(ac, rollout))
    return core.flat_grad(loss, list(ac.pi.parameters()))


# --- Losses ---


def tabular_policy(probabilities, values=(0.0, 0.0)):
    """An actor-critic that takes action 0 in state s with probability probabilities[s]."""
    p = t(probabilities)
    ac = core.MLPActorCritic(Box(0, 1, (len(p),)), Discrete(2), hidden_sizes=())
    with torch.no_grad():
        ac.pi.logits_net[0].weight.copy_(torch.stack([p.log(), (1 - p).log()]))
        ac.v.v_net[0].weight.copy_(t([values]))
        ac.pi.logits_net[0].bias.zero_()
        ac.v.v_net[0].bias.zero_()
    return ac


def test_surrogate_loss_and_kl_of_discrete_actions():
    ac = tabular_policy([0.6, 0.3])
    old = Categorical(probs=t([[0.4, 0.6], [0.6, 0.4]]))
    # Action 0 in both states: ratios 1.5 and 0.5, advantages 2 and 3, so -(3 + 1.5) / 2.
    rollout = Rollout(torch.eye(2), t([0, 0]), t([0.0, 0.0]), t([2.0, 3.0]), t([0.4, 0.6]).log())
    loss, kl = trpo.compute_loss_pi(ac, rollout, old)
    assert loss.item() == pytest.approx(-2.25, abs=1e-6)
    first = 0.4 * log(0.4 / 0.6) + 0.6 * log(0.6 / 0.4)
    second = 0.6 * log(0.6 / 0.3) + 0.4 * log(0.4 / 0.7)  # the old probabilities weigh
    assert kl.item() == pytest.approx((first + second) / 2, abs=1e-6)


@pytest.mark.parametrize("joint", [False, True])
def test_surrogate_loss_and_kl_of_continuous_actions(joint):
    """The KL of an action is the sum over its dimensions, whoever adds them up."""
    ac = core.MLPActorCritic(Box(-1, 1, (1,)), ACTIONS["continuous"], hidden_sizes=())
    with torch.no_grad():
        ac.pi.mu_net[0].weight.copy_(t([[1.0], [-1.0]]))
        ac.pi.mu_net[0].bias.zero_()
        ac.pi.log_std.copy_(t([log(2.0), 0.0]))
    mean, width = t([[1.0, 1.0]]), t([[1.0, 1.0]])
    old = Normal(mean, width)
    if joint:
        old, plain = Independent(old, 1), ac.pi._distribution
        ac.pi._distribution = lambda obs: Independent(plain(obs), 1)
        ac.pi._log_prob_from_distribution = lambda pi, act: pi.log_prob(act)
    logp = -1 - log(2) - log(2 * np.pi)  # both numbers lie one width off, as widths 2 and 1 are
    rollout = Rollout(t([[1.0]]), t([[3.0, 0.0]]), t([0.0]), t([-4.0]), t([logp - log(1.5)]))
    loss, kl = trpo.compute_loss_pi(ac, rollout, old)
    assert loss.item() == pytest.approx(6.0, rel=1e-5)  # minus the ratio 1.5 times -4
    # First dimension: log 2 + (1 + 0) / 8 - 1/2; second: 0 + (1 + 2^2) / 2 - 1/2.
    assert kl.item() == pytest.approx(log(2) + 1 / 8 - 1 / 2 + 2, rel=1e-6)


def test_value_loss():
    ac = tabular_policy([0.5, 0.5], values=[1.0, 3.0])
    rollout = Rollout(torch.eye(2), t([0, 0]), t([2.0, 0.0]), t([0.0, 0.0]), t([0.0, 0.0]))
    assert trpo.compute_loss_v(ac, rollout).item() == pytest.approx((1 + 9) / 2)


@every_kind
def test_the_surrogate_has_the_slope_of_the_policy_gradient(kind):
    """At the old policy a ratio is 1 and its slope that of the log probability."""
    learner = learner_of(kind)
    rollout = rollout_of(learner)
    params = list(learner.ac.pi.parameters())
    expected = torch.zeros_like(flat(learner.ac.pi))
    for obs, act, adv in zip(rollout.obs, rollout.act, rollout.adv):
        _, logp = learner.ac.pi(obs[None], act[None])
        expected -= adv * core.flat_grad(logp.sum(), params) / len(rollout.obs)
    torch.testing.assert_close(gradient(learner.ac, rollout), expected)


# --- The Fisher product ---


@every_kind
@pytest.mark.parametrize("damping_coeff", [0.0, 0.3])
def test_products_are_those_with_the_full_second_derivative_of_the_kl(kind, damping_coeff):
    learner = learner_of(kind)
    rollout = rollout_of(learner)
    H = full_hessian(learner.ac, rollout)
    product = products(learner.ac, rollout, damping_coeff)
    found = torch.stack([product(v) for v in torch.eye(len(H)).double()])
    assert H.abs().max() > 0.01
    torch.testing.assert_close(found, H + damping_coeff * torch.eye(len(H)).double())


@every_kind
def test_that_is_the_fisher_matrix(kind):
    """The expected square of the slope of log pi: exact over actions, or drawn very often."""
    learner = learner_of(kind, hidden_sizes=(3,))
    rollout = rollout_of(learner, n=4)
    params, fisher = list(learner.ac.pi.parameters()), 0
    for obs in rollout.obs[:, None]:
        pi, _ = learner.ac.pi(obs)
        if kind == "discrete":
            points = [(t([a]), pi.probs[0, a].item()) for a in range(3)]
        else:  # Gauss and Hermite's points: exact for the fourth powers that occur here
            roots, weights = np.polynomial.hermite_e.hermegauss(5)
            weights = weights / weights.sum()
            points = [
                (pi.loc.detach() + pi.scale.detach() * t([[a, b]]), p * q)
                for a, p in zip(roots, weights)
                for b, q in zip(roots, weights)
            ]
        for act, probability in points:
            slope = core.flat_grad(learner.ac.pi(obs, act)[1].sum(), params)
            fisher += probability * torch.outer(slope, slope) / len(rollout.obs)
    torch.testing.assert_close(full_hessian(learner.ac, rollout), fisher)


# --- Conjugate gradient ---


def positive(n, seed=0):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(n, n))
    return A @ A.T + np.eye(n), rng.normal(size=n)


@pytest.mark.parametrize("n", [1, 2, 5, 12])
def test_conjugate_gradient_solves_in_as_many_steps_as_there_are_dimensions(n):
    A, b = positive(n)
    x = core.conjugate_gradient(lambda v: t(A) @ v, t(b), iters=n, tolerance=0)
    np.testing.assert_allclose(x, np.linalg.solve(A, b), rtol=1e-6, atol=1e-9)


def test_few_steps_are_the_best_within_their_reach():
    """After k steps the error, in A's measure, is the least of all mixtures of b, Ab, AAb, …"""
    A, b = positive(12)
    solution = np.linalg.solve(A, b)
    for k in (1, 2, 4):
        x = core.conjugate_gradient(lambda v: t(A) @ v, t(b), iters=k, tolerance=0).numpy()
        reach, _ = np.linalg.qr(np.stack([np.linalg.matrix_power(A, i) @ b for i in range(k)], 1))
        best = reach @ np.linalg.solve(reach.T @ A @ reach, reach.T @ A @ solution)
        np.testing.assert_allclose(x, best, rtol=1e-6, atol=1e-9)


def test_it_stops_when_it_is_there():
    asked = []
    x = core.conjugate_gradient(lambda v: asked.append(v) or 4 * v, t([8.0, 4.0]), iters=10)
    assert x.tolist() == [2.0, 1.0]
    assert len(asked) == 1


@pytest.mark.parametrize("factor", [0.0, -1.0, float("nan")])
def test_what_is_no_bowl_gives_no_step(factor):
    x = core.conjugate_gradient(lambda v: factor * v, t([1.0, 2.0]), iters=10)
    assert x.tolist() == [0.0, 0.0]
    # One direction is a bowl, the other a saddle: what was found before is kept.
    saddle = t([2.0, -0.5])
    assert core.conjugate_gradient(lambda v: saddle * v, t([1.0, 0.5]), iters=10).isfinite().all()


def test_nothing_to_solve():
    x = core.conjugate_gradient(lambda v: 2 * v, torch.zeros(3), iters=10)
    assert x.tolist() == [0.0, 0.0, 0.0]


# --- The step's length and direction ---


def npg_step(kind, **more):
    learner = learner_of(kind)
    rollout = rollout_of(learner)
    before, H = flat(learner.ac.pi), full_hessian(learner.ac, rollout)
    g, old = gradient(learner.ac, rollout), old_policy(learner.ac, rollout)
    stats = trpo.update(learner, rollout, **SETTINGS | dict(algo="npg") | more)
    moved = flat(learner.ac.pi) - before
    loss, kl = trpo.compute_loss_pi(learner.ac, rollout, old)
    assert stats["KL"] == pytest.approx(kl.item())
    assert stats["LossPi"] + stats["DeltaLossPi"] == pytest.approx(loss.item())
    assert stats["BacktrackIters"] == 0
    return moved, g, H, kl.item()


@every_kind
@pytest.mark.parametrize("delta", [0.01, 0.5])
@pytest.mark.parametrize("cg_iters", [1, 3, 10])
def test_a_quadratic_kl_would_be_exactly_delta(kind, delta, cg_iters):
    moved, g, H, _ = npg_step(kind, delta=delta, cg_iters=cg_iters, damping_coeff=0.2)
    H = H + 0.2 * torch.eye(len(H)).double()
    assert (moved @ H @ moved).item() / 2 == pytest.approx(delta, rel=1e-9)
    assert (moved @ g).item() < 0  # downhill


@every_kind
def test_the_true_kl_is_delta_to_first_order(kind):
    errors = []
    for delta in (1e-2, 1e-4, 1e-6):
        *_, kl = npg_step(kind, delta=delta, damping_coeff=0.0)
        errors.append(abs(kl / delta - 1))
    assert errors[2] < 1e-2
    # A third power of the step remains: a hundredth of delta, a tenth of the error.
    assert errors[1] < errors[0] / 5 and errors[2] < errors[1] / 5


@every_kind
def test_the_direction_is_the_natural_gradient(kind):
    moved, g, H, _ = npg_step(kind, cg_iters=200, damping_coeff=0.05)
    H = (H + 0.05 * torch.eye(len(H)).double()).numpy()
    x = np.linalg.solve(H, g.numpy())
    np.testing.assert_allclose(-moved, np.sqrt(0.02 / (x @ H @ x)) * x, rtol=1e-3, atol=1e-5)


# --- The line search ---


def search(learner, rollout, step, algo="trpo", **more):
    settings = dict(delta=0.01, backtrack_iters=10, backtrack_coeff=0.8) | more
    said = []
    stats = trpo.line_search(
        learner.ac,
        rollout,
        old_policy(learner.ac, rollout),
        step,
        **settings,
        algo=algo,
        log=said.append,
    )
    return stats, said


def downhill(learner, rollout, kl=0.01):
    """A step of which a quadratic KL is as given."""
    H, g = full_hessian(learner.ac, rollout).numpy(), gradient(learner.ac, rollout).numpy()
    x = np.linalg.solve(H + 0.01 * np.eye(len(H)), g)
    return t(np.sqrt(2 * kl / (x @ H @ x)) * x)


@every_kind
def test_a_good_step_is_taken_whole(kind):
    learner = learner_of(kind)
    rollout = rollout_of(learner)
    before, step = flat(learner.ac.pi), downhill(learner, rollout, kl=0.005)
    stats, said = search(learner, rollout, step)
    assert torch.equal(flat(learner.ac.pi), before - step)
    assert stats["BacktrackIters"] == 0 and said == []
    assert stats["DeltaLossPi"] < 0 < stats["KL"] < 0.01


@every_kind
def test_a_long_step_is_shortened_until_it_is_near_and_no_further(kind):
    learner = learner_of(kind)
    rollout = rollout_of(learner)
    before, step = flat(learner.ac.pi), downhill(learner, rollout, kl=0.05)
    old = old_policy(learner.ac, rollout)
    stats, said = search(learner, rollout, step)
    i = stats["BacktrackIters"]
    assert 1 < i < 10 and said == []
    torch.testing.assert_close(flat(learner.ac.pi), before - 0.8**i * step)
    assert stats["KL"] <= 0.01
    params = list(learner.ac.pi.parameters())
    core.assign_params_from_flat(before - 0.8 ** (i - 1) * step, params)
    assert trpo.compute_loss_pi(learner.ac, rollout, old)[1] > 0.01


@pytest.mark.parametrize(
    ("attempts", "accepted"),
    [
        ([(-0.1, 0.01)], 0),  # better, and just near enough
        ([(-0.1, 0.011), (-0.05, 0.009)], 1),  # too far first
        ([(0.2, 0.001), (0.1, 0.001), (-1e-6, 0.001)], 2),  # worse first
        ([(0.0, 0.0), (-0.1, 0.0)], 1),  # as good is not better
        ([(float("nan"), 0.0), (-0.1, float("nan")), (-0.1, 0.001)], 2),
        ([(-0.1, 0.02), (0.1, 0.001), (-0.1, 0.02)], 3),  # never both: the old one stays
    ],
)
def test_better_and_near_is_what_counts(monkeypatch, attempts, accepted):
    learner = learner_of("discrete")
    rollout, before = rollout_of(learner), flat(learner.ac.pi)
    answers = iter([(0.0, 0.0), *attempts])
    monkeypatch.setattr(trpo, "compute_loss_pi", lambda *_: tuple(t(x) for x in next(answers)))
    step = torch.ones_like(before)
    stats, said = search(learner, rollout, step, backtrack_iters=3, backtrack_coeff=0.5)
    assert stats["BacktrackIters"] == accepted
    assert len(said) == (accepted == 3)
    expected = before if accepted == 3 else before - 0.5**accepted * step
    assert torch.equal(flat(learner.ac.pi), expected)


@every_kind
def test_a_search_that_fails_says_so_and_keeps_the_old_policy_bit_for_bit(kind):
    learner = learner_of(kind)
    with torch.no_grad():
        next(iter(learner.ac.pi.parameters()))[0] = -0.0  # also the sign of nothing
    rollout = rollout_of(learner)
    before = flat(learner.ac).numpy().tobytes()
    stats, said = search(learner, rollout, -downhill(learner, rollout))
    assert flat(learner.ac).numpy().tobytes() == before
    (sentence,) = said
    assert "line search" in sentence and "old policy stays" in sentence
    assert stats["BacktrackIters"] == 10
    assert stats["DeltaLossPi"] == stats["KL"] == 0


def test_npg_asks_no_questions():
    learner = learner_of("discrete")
    rollout, before = rollout_of(learner), flat(learner.ac.pi)
    uphill = -downhill(learner, rollout, kl=0.1)
    stats, said = search(learner, rollout, uphill, algo="npg")
    assert torch.equal(flat(learner.ac.pi), before - uphill)
    assert stats["DeltaLossPi"] > 0 and stats["KL"] > 0.01 and said == []


# --- The update ---


@every_kind
def test_an_update_improves_the_policy_within_the_bound(kind):
    learner = learner_of(kind)
    rollout = rollout_of(learner)
    old, said = old_policy(learner.ac, rollout), []
    first, _ = trpo.compute_loss_pi(learner.ac, rollout, old)
    first_v = trpo.compute_loss_v(learner.ac, rollout)
    stats = trpo.update(learner, rollout, **SETTINGS, log=said.append)
    loss, kl = trpo.compute_loss_pi(learner.ac, rollout, old)
    assert loss < first and 0.001 < kl <= 0.01 and said == []
    assert stats["LossPi"] == pytest.approx(first.item())
    assert stats["DeltaLossPi"] == pytest.approx((loss - first).item())
    assert stats["KL"] == pytest.approx(kl.item())
    assert stats["LossV"].item() == pytest.approx(first_v.item())
    assert stats["DeltaLossV"].item() < 0


@every_kind
def test_value_steps_leave_the_policy_and_the_policy_step_the_value(kind, monkeypatch):
    learner, moved = learner_of(kind), []

    def watched(function):
        def call(*args, **kwargs):
            before = [flat(learner.ac.pi), flat(learner.ac.v)]
            result = function(*args, **kwargs)
            after = [flat(learner.ac.pi), flat(learner.ac.v)]
            moved.append([not torch.equal(a, b) for a, b in zip(before, after)])
            return result

        return call

    for name in ("line_search", "fit_value"):
        monkeypatch.setattr(trpo, name, watched(getattr(trpo, name)))
    trpo.update(learner, rollout_of(learner), **SETTINGS)
    assert moved == [[True, False], [False, True]]


@pytest.mark.parametrize("algo", ["trpo", "npg"])
@every_kind
def test_no_gradient_no_step(kind, algo):
    learner = learner_of(kind)
    rollout = rollout_of(learner)
    rollout = rollout._replace(adv=torch.zeros_like(rollout.adv))
    before = flat(learner.ac.pi)
    trpo.update(learner, rollout, **SETTINGS, algo=algo, log=lambda _: None)
    assert torch.equal(flat(learner.ac.pi), before)
    assert flat(learner.ac.v).isfinite().all()


@pytest.mark.parametrize("algo", ["trpo", "npg"])
@pytest.mark.parametrize("factor", [0.0, -1.0, float("nan"), float("inf")])
def test_a_measure_that_is_none_gives_no_step(monkeypatch, algo, factor):
    """Whatever the solver came up with: where x H x is no length, nothing moves."""
    monkeypatch.setattr(core, "hessian_vector_product", lambda *_: lambda v: factor * v)
    monkeypatch.setattr(core, "conjugate_gradient", lambda H, g, iters: g)
    learner = learner_of("discrete")
    rollout, before = rollout_of(learner), flat(learner.ac.pi)
    trpo.update(learner, rollout, **SETTINGS, algo=algo, log=lambda _: None)
    assert torch.equal(flat(learner.ac.pi), before)


# --- Networks of a user's own ---


class Own(nn.Module):
    """Only what COMPAT asks for, in PyTorch's own layers, and some weights that must not move."""

    def __init__(self, observation_space, action_space):
        super().__init__()
        self.pi, self.v = OwnPolicy(observation_space, action_space), OwnValue(observation_space)

    @torch.no_grad()
    def step(self, obs):
        pi, _ = self.pi(obs)
        act = pi.sample()
        return act.numpy(), self.v(obs).numpy(), self.pi(obs, act)[1].numpy()

    def act(self, obs):
        return self.step(obs)[0]


class OwnPolicy(nn.Module):
    def __init__(self, observation_space, action_space):
        super().__init__()
        self.discrete = isinstance(action_space, Discrete)
        n = int(action_space.n) if self.discrete else action_space.shape[0]
        size = int(np.prod(observation_space.shape))
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(size, 8), nn.ELU(), nn.Linear(8, n))
        self.unused = nn.Parameter(torch.ones(2))
        self.frozen = nn.Parameter(torch.ones(n), requires_grad=False)

    def forward(self, obs, act=None):
        out = self.frozen * self.net(obs)
        pi = Categorical(logits=out) if self.discrete else Independent(Normal(out, 0.5), 1)
        return pi, None if act is None else pi.log_prob(act)


class OwnValue(nn.Module):
    def __init__(self, observation_space):
        super().__init__()
        size = int(np.prod(observation_space.shape))
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(size, 1))

    def forward(self, obs):
        return self.net(obs)[:, 0]


class Pixels(gym.Env):
    """Two pixels, one of them bright; it pays to name it."""

    observation_space, action_space = Box(0, 255, (2, 1, 1), np.uint8), Discrete(2)

    def _draw(self):
        self.bright = int(self.np_random.integers(2))
        obs = np.zeros((2, 1, 1), np.uint8)
        obs[self.bright] = 2
        return obs

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._draw(), {}

    def step(self, action):
        rew = float(action == self.bright)
        return self._draw(), rew, False, False, {}


@pytest.mark.parametrize("env_name", ["CartPole-v1", "Pendulum-v1"])
@pytest.mark.parametrize("algo", ["trpo", "npg"])
def test_networks_of_a_users_own_train(env_name, algo, tmp_path):
    made = []

    def remember(*spaces):
        made.append(Own(*spaces))
        made.append(flat(made[0].pi))
        return made[0]

    ac = trpo.trpo(
        lambda: gym.make(env_name),
        remember,
        steps_per_epoch=300,
        epochs=2,
        train_v_iters=2,
        num_envs=2,
        algo=algo,
        logger_kwargs=dict(output_dir=tmp_path),
    )
    net, before = made
    assert ac is net
    assert not torch.equal(flat(ac.pi), before)
    assert flat(ac).isfinite().all()
    assert (ac.pi.unused == 1).all() and (ac.pi.frozen == 1).all()


def test_images_are_refused_without_an_encoder_and_taken_with_one(tmp_path):
    settings = dict(steps_per_epoch=200, epochs=10, train_v_iters=5, max_ep_len=20, delta=0.05)
    where = dict(logger_kwargs=dict(output_dir=tmp_path))
    with pytest.raises(UserError, match="ppo or dqn.*actor_critic of your own"):
        trpo.trpo(Pixels, **settings, **where)
    ac = trpo.trpo(Pixels, Own, **settings, **where)
    bright = torch.tensor([[2.0, 0.0], [0.0, 2.0]]).reshape(2, 2, 1, 1)
    assert (ac.pi(bright)[0].probs.diagonal() > 0.8).all()


def test_a_distribution_without_a_kl_gets_a_sentence():
    def mixture():
        parts = Normal(torch.zeros(5, 2), torch.ones(5, 2))
        return MixtureSameFamily(Categorical(torch.ones(5, 2)), parts)

    with pytest.raises(UserError, match="none for MixtureSameFamily.*Normal or a Categorical"):
        core.kl_divergence(mixture(), mixture())


# --- Processes ---

TWO = """
import torch, numpy as np
from gymnasium.spaces import Box, Discrete
from spinup.algos.pytorch.trpo import core, trpo
from spinup.parts.buffers import Rollout
from spinup.parts.mpi import broadcast, num_procs, proc_id
from spinup.utils.mpi_pytorch import sync_params
assert num_procs() == 2
rank = proc_id()

def flat(module):
    return core.flat_concat(module.parameters()).detach().numpy().copy()

def train(half, action_space, more):
    torch.manual_seed(100 + rank)  # processes begin apart; the first one's weights count
    ac = core.MLPActorCritic(Box(-1, 1, (3,)), action_space, (8, 8)).double()
    sync_params(ac)
    learner = trpo.make_learner(ac, vf_lr=1e-2)
    torch.manual_seed(1)
    counts, said = [], []
    for _ in range(3):
        obs = torch.randn(64, 3).double()
        with torch.no_grad():
            act = ac.pi(obs)[0].sample()
            _, logp = ac.pi(obs, act)
        adv, ret = torch.randn(64).double(), torch.randn(64).double()
        adv[32:] *= 3  # the second half alone would go elsewhere, and otherwise far
        whole = Rollout(obs, act, ret, adv, logp)
        rows = slice(32 * rank, 32 * rank + 32) if half else slice(None)
        calls.clear()
        stats = trpo.update(learner, Rollout(*(x[rows] for x in whole)), **SETTINGS | more,
                            log=said.append)
        tries = 1 if more.get("algo") == "npg" else min(stats["BacktrackIters"] + 1, 10)
        # the gradient, four products and that for the length, the old loss, attempts, value steps
        assert len(calls) == 1 + 4 + 1 + 1 + tries + 3, (calls, stats)
        counts.append((stats["BacktrackIters"], round(stats["KL"], 6)))
    return flat(ac), counts, said

for space in (Discrete(3), Box(-1, 1, (2,))):
    for more in (dict(), dict(algo="npg"), dict(damping_coeff=0.0, backtrack_coeff=0.5),
                 dict(backtrack_iters=10, backtrack_coeff=1.0, damping_coeff=0.0, delta=4.0)):
        mine, counts, said = train(True, space, more)
        first = mine.copy()
        broadcast(first)
        assert np.array_equal(mine, first), "processes differ"
        together, counts_together, said_together = train(False, space, more)
        np.testing.assert_allclose(mine, together, rtol=1e-6, atol=1e-8)
        assert counts == counts_together, (counts, counts_together)
        assert len(said) == len(said_together) == sum(tries == 10 for tries, _ in counts)
        if rank == 0: print("tries", *[tries for tries, _ in counts])
print("agreed")
"""


def test_two_processes_step_as_one_with_the_whole_batch():
    """To rounding; and they make the same exchanges, one for each vector."""
    program = TWO.replace("**SETTINGS", f"**{SETTINGS | dict(cg_iters=4)}")
    ended = under_mpiexec(COUNT_EXCHANGES + program)
    assert ended.returncode == 0, ended.stderr + ended.stdout
    assert ended.stdout.count("agreed") == 2
    tries = {int(x) for line in ended.stdout.splitlines() for x in line.split()[1:] if x.isdigit()}
    assert 0 in tries and 10 in tries and tries & set(range(1, 10))  # all endings were seen
