"""ACER's targets, gradients and memory equal their definitions, written out slowly here."""

from copy import deepcopy
from itertools import product

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from small_learner import replace_update
from torch import nn

from spinup.algos.pytorch.acer import acer, core
from spinup.parts import buffers
from spinup.parts.buffers import Segments
from spinup.parts.checkpoint import read_tree, write_tree
from spinup.parts.errors import UserError
from spinup.parts.make_env import EnvMaker
from spinup.parts.pytorch.buffers import SegmentBuffer
from spinup.parts.pytorch.learning import gradient_step
from spinup.parts.pytorch.tensors import to_tensor

OBS, ACTIONS, STEPS, GAMMA = 3, 4, 6, 0.9
NEVER = 1e9  # a trust region too wide to matter
UPDATE = dict(gamma=GAMMA, n_steps=STEPS, c=1.5, delta=0.05, alpha=0.9, ent_coef=0.02)


def segments(count=5, seed=0):
    """Random segments in which episodes end, in either way, in the middle and at the end."""
    rng = np.random.default_rng(seed)
    n = count * STEPS
    terminated = (rng.random(n) < 0.15).astype(np.float32)
    truncated = ((rng.random(n) < 0.15) * (1 - terminated)).astype(np.float32)
    terminated[STEPS - 1], truncated[2 * STEPS - 1] = 1, 1 - terminated[2 * STEPS - 1]
    logits = rng.normal(size=(n, ACTIONS))
    logp = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    columns = (
        rng.normal(size=(n, OBS)),
        rng.integers(ACTIONS, size=n),
        rng.normal(size=n),
        rng.normal(size=(n, OBS)),
        terminated,
        truncated,
        logp,
    )
    return Segments(*map(to_tensor, columns))


def make_ac(seed=0):
    torch.manual_seed(seed)
    ac = core.MLPActorCritic(Box(-1, 1, (OBS,)), Discrete(ACTIONS), hidden_sizes=(8, 8))
    with torch.no_grad():  # a policy with opinions, so that weights are far from 1
        ac.pi[-2].weight.mul_(8)
    return ac


def make_learner(seed=0):
    learner = acer.make_learner(make_ac(seed), pi_lr=1e-2, q_lr=1e-2)
    with torch.no_grad():  # an average that has fallen behind
        for p in learner.average.parameters():
            p.add_(0.3 * torch.randn_like(p))
    return learner


def softmax(x):
    return np.exp(x - x.max()) / np.exp(x - x.max()).sum()


@torch.no_grad()
def told(ac, batch):
    """What the networks say of each row, asked one at a time: pi, q, and V of the successor."""
    rows = []
    for o, o2 in zip(batch.obs, batch.obs2):
        pi, pi2 = (softmax(ac.pi(x[None])[0].double().numpy()) for x in (o, o2))
        q, q2 = (ac.q(x[None])[0].double().numpy() for x in (o, o2))
        rows.append((pi, q, sum(p * value for p, value in zip(pi2, q2))))
    return [np.array(column) for column in zip(*rows)]


# --- Retrace ---


def by_recursion(i, r, terminated, truncated, rho, q_a, v2):
    """Q_ret(i) = r + gamma V(i+1) + gamma min(1, rho(i+1)) (Q_ret(i+1) - Q(i+1))."""
    if terminated[i]:
        return r[i]
    if truncated[i] or (i + 1) % STEPS == 0:
        return r[i] + GAMMA * v2[i]
    later = by_recursion(i + 1, r, terminated, truncated, rho, q_a, v2)
    return r[i] + GAMMA * (v2[i] + min(1, rho[i + 1]) * (later - q_a[i + 1]))


def by_sum(i, r, terminated, truncated, rho, q_a, v2):
    """Q_ret(i) = Q(i) + sum over later j of gamma^(j-i), the traces between, and delta(j)."""
    total, weight, j = q_a[i], 1.0, i
    while True:
        total += weight * (r[j] + GAMMA * (0 if terminated[j] else v2[j]) - q_a[j])
        if terminated[j] or truncated[j] or (j + 1) % STEPS == 0:
            return total
        j += 1
        weight *= GAMMA * min(1, rho[j])


@pytest.mark.parametrize("definition", [by_recursion, by_sum])
@pytest.mark.parametrize("seed", range(3))
def test_retrace(definition, seed):
    batch, ac = segments(seed=seed), make_ac(seed)
    pi, q, v2 = told(ac, batch)
    rows, act = np.arange(len(pi)), batch.act.numpy()
    q_a, rho = q[rows, act], pi[rows, act] / np.exp(batch.logp.double().numpy())[rows, act]
    assert rho.max() > 2 and rho.min() < 0.2
    assert batch.terminated.any() and batch.truncated.any()
    seen = (batch.rew, batch.terminated, batch.truncated)
    arguments = (*(column.double().numpy() for column in seen), rho, q_a, v2)
    expected = [definition(i, *arguments) for i in rows]
    loss, q_found, q_ret = acer.compute_loss_q(ac, batch, gamma=GAMMA, n_steps=STEPS)
    np.testing.assert_allclose(q_ret, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(q_found, q, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(loss.item(), np.mean((q_a - expected) ** 2), rtol=1e-4)
    assert not q_ret.requires_grad and not q_found.requires_grad


def test_retrace_by_hand():
    """Two steps, gamma 1/2; the second is worth 2 + 8 / 2 = 6, where the critic had said 4."""
    zero, t = torch.zeros(2), torch.tensor
    batch = Segments(None, None, t([1.0, 2.0]), None, zero, zero, None)
    rho, q_a, v2 = t([9.0, 0.5]), t([7.0, 4.0]), t([4.0, 8.0])
    found = acer.retrace(batch, rho, q_a, v2, gamma=0.5, n_steps=2)
    assert found.tolist() == [1 + 0.5 * (4 + 0.5 * (6 - 4)), 6.0]
    cut = batch._replace(truncated=t([1.0, 0.0]))
    assert acer.retrace(cut, rho, q_a, v2, gamma=0.5, n_steps=2).tolist() == [1 + 0.5 * 4, 6]
    over = batch._replace(terminated=t([1.0, 1.0]))
    assert acer.retrace(over, rho, q_a, v2, gamma=0.5, n_steps=2).tolist() == [1, 2]
    greedy = t([9.0, 3.0])  # a trace never grows past 1
    found = acer.retrace(batch, greedy, q_a, v2, gamma=0.5, n_steps=2)
    assert found.tolist() == [1 + 0.5 * (4 + (6 - 4)), 6]


def test_only_the_values_of_actions_taken_get_a_gradient():
    batch, ac = segments(), make_ac()
    loss, _, q_ret = acer.compute_loss_q(ac, batch, gamma=GAMMA, n_steps=STEPS)
    found = torch.autograd.grad(loss, list(ac.parameters()), allow_unused=True)
    q_a = torch.stack([ac.q(o[None])[0, a] for o, a in zip(batch.obs, batch.act)])
    plain = ((q_a - q_ret) ** 2).mean()
    expected = torch.autograd.grad(plain, list(ac.parameters()), allow_unused=True)
    for a, b in zip(found, expected, strict=True):
        assert (a is None) == (b is None)
        assert a is None or torch.allclose(a, b, rtol=1e-4, atol=1e-6)


# --- A decision process small enough to go through everything that can happen ---


class Table(nn.Module):
    """Networks that know only which row of a table they are asked for."""

    def __init__(self, logits, values):
        super().__init__()
        self.logits, self.values = nn.Parameter(logits), values
        self.pi, self.q = lambda o: self.logits[o.long()], lambda o: self.values[o.long()]


def tiny_process():
    """Two states, two actions: where each leads with what chance, and what it pays."""
    chances = np.array([[[0.7, 0.3], [0.2, 0.8]], [[0.5, 0.5], [0.9, 0.1]]])  # [s, a, s']
    rewards = np.array([[[1.0, -1.0], [0.5, 2.0]], [[0.0, 3.0], [-2.0, 1.0]]])
    pi, mu = np.array([[0.9, 0.1], [0.3, 0.7]]), np.array([[0.2, 0.8], [0.6, 0.4]])
    q = np.zeros((2, 2))
    for _ in range(500):
        q = (chances * (rewards + GAMMA * (pi * q).sum(-1))).sum(-1)
    return chances, rewards, pi, mu, q


def every_segment(state, action, length, chances, rewards, mu):
    """All that can follow an action under mu: chance of each, then its states, actions, rewards."""
    for course in product(range(2), repeat=2 * length - 1):
        states, actions = [state, *course[0::2]], [action, *course[1::2]]
        chance, paid = 1.0, []
        for i in range(length):
            s, a, s2 = states[i], actions[i], states[i + 1]
            chance *= chances[s, a, s2] * (mu[s, a] if i > 0 else 1)
            paid.append(rewards[s, a, s2])
        yield chance, states, actions, paid


@pytest.mark.parametrize("action", [0, 1])
@pytest.mark.parametrize("length", [1, 3])
def test_retrace_expects_the_true_value_whoever_played(action, length):
    chances, rewards, pi, mu, q = tiny_process()
    t = lambda x: torch.tensor(np.array(x))  # noqa: E731
    table = Table(t(np.log(pi)), t(q))
    weights, rows = [], []
    for chance, states, actions, paid in every_segment(0, action, length, chances, rewards, mu):
        weights.append(chance)
        rows += zip(states[:-1], actions, paid, states[1:])
    s, a, r, s2 = (t(column) for column in zip(*rows))
    zero = torch.zeros_like(r)
    batch = Segments(s, a, r, s2, zero, zero, t(np.log(mu))[s])
    _, _, q_ret = acer.compute_loss_q(table, batch, gamma=GAMMA, n_steps=length)
    assert sum(weights) == pytest.approx(1)
    expected = sum(w * x for w, x in zip(weights, q_ret[::length].tolist()))
    assert expected == pytest.approx(q[0, action], abs=1e-10)


@pytest.mark.parametrize("c", [0.0, 0.3, 1.0, 2.0, 10.0, NEVER])
def test_truncation_and_correction_together_are_unbiased(c):
    """Over the actions mu may take, with true values, they add up to the gradient of V."""
    _, _, pi, mu, q = tiny_process()
    for state in range(2):
        v = pi[state] @ q[state]
        plain = sum(pi[state, a] * (np.eye(2)[a] - pi[state]) * (q[state, a] - v) for a in range(2))
        total = np.zeros(2)
        for a in range(2):
            g = gradients(pi[state], mu[state], q[state], a, q[state, a], c)[0]
            total += mu[state, a] * g
        np.testing.assert_allclose(total, plain, atol=1e-12)


def gradients(pi, mu, q, a, q_ret, c, average=None, delta=NEVER, ent_coef=0.0):
    """What compute_loss_pi gives the logits of one row, and what it tells."""
    t = lambda x: torch.tensor(np.array([x]))  # noqa: E731
    table = Table(t(np.log(pi)), t(q))
    batch = Segments(t(0.0), t(a), None, None, None, None, t(np.log(mu)))
    log_average = t(np.log(pi if average is None else average))
    loss, stats = acer.compute_loss_pi(
        table,
        lambda o: log_average,
        batch,
        t(q),
        t(float(q_ret)),
        c=c,
        delta=delta,
        ent_coef=ent_coef,
    )
    loss.backward()
    return -table.logits.grad[0].numpy(), stats


# --- The policy gradient ---


def slow_gradient(phi, mu, q, a, q_ret, *, c, ent_coef):
    """The definition, action by action, differentiated by autograd in the statistics phi."""
    phi = torch.tensor(phi, requires_grad=True)
    pi = softmax(phi.detach().numpy())
    v = sum(pi[b] * q[b] for b in range(ACTIONS))
    objective = 0
    for b in range(ACTIONS):
        rho, log_f = pi[b] / mu[b], phi[b] - torch.logsumexp(phi, 0)
        if b == a:
            objective = objective + min(c, rho) * (q_ret - v) * log_f
        if rho > c:
            objective = objective + (rho - c) / rho * pi[b] * (q[b] - v) * log_f
    f = torch.softmax(phi, 0)
    objective = objective - ent_coef * (f * f.log()).sum()
    return torch.autograd.grad(objective, phi)[0].numpy()


def slow_kl_gradient(phi, average):
    phi = torch.tensor(phi, requires_grad=True)
    f = torch.softmax(phi, 0)
    kl = sum(average[b] * (np.log(average[b]) - f[b].log()) for b in range(ACTIONS))
    return torch.autograd.grad(kl, phi)[0].numpy()


def nearest(g, k, delta):
    """argmin |z - g|^2 with k.z <= delta, by gradient descent on ever steeper penalties."""
    z = g.copy()
    for steepness in 10.0 ** np.arange(0, 9):
        rate = 1 / (1 + steepness * (k @ k))
        for _ in range(300):
            z = z - rate * ((z - g) + steepness * max(0, k @ z - delta) * k)
    return z


@pytest.mark.parametrize("seed", range(4))
def test_the_projection_equals_a_numerical_solution(seed):
    rng = np.random.default_rng(seed)
    g, k = rng.normal(size=(2, 40, ACTIONS))
    k[0] = 0  # pi is its own average: there is nothing to keep to
    for delta in (0.0, 0.1, 1.0):
        z = acer.project(torch.tensor(g), torch.tensor(k), delta).numpy()
        expected = np.array([nearest(*row, delta) for row in zip(g, k)])
        np.testing.assert_allclose(z, expected, atol=1e-6)
        outside = (g * k).sum(-1) > delta
        assert outside.any() and not outside.all()
        assert ((z * k).sum(-1) <= delta + 1e-12).all()
        assert np.array_equal(z[~outside], g[~outside])
    assert np.array_equal(z[0], g[0])


@pytest.mark.parametrize("delta", [NEVER, 0.02])
@pytest.mark.parametrize("c", [0.5, 1.5, 10.0])
@pytest.mark.parametrize("ent_coef", [0.0, 0.3])
def test_the_policy_gradient_equals_its_definition(delta, c, ent_coef):
    learner, batch = make_learner(), segments()
    ac, average = learner.ac, learner.average
    _, q, q_ret = acer.compute_loss_q(ac, batch, gamma=GAMMA, n_steps=STEPS)
    loss, stats = acer.compute_loss_pi(
        ac, average, batch, q, q_ret, c=c, delta=delta, ent_coef=ent_coef
    )
    params = list(ac.pi.parameters())
    found = torch.autograd.grad(loss, params)

    phi = ac.pi(batch.obs)
    z, moved, cut, kls, entropies = [], [], [], [], []
    for i, row in enumerate(phi.detach().double().numpy()):
        f_average = softmax(average(batch.obs[i : i + 1])[0].detach().double().numpy())
        mu, a = np.exp(batch.logp[i].double().numpy()), int(batch.act[i])
        g = slow_gradient(
            row, mu, q[i].double().numpy(), a, q_ret[i].double().item(), c=c, ent_coef=ent_coef
        )
        k, f = slow_kl_gradient(row, f_average), softmax(row)
        z.append(nearest(g, k, delta))
        moved.append(k @ g > delta)
        cut.append(f[a] / mu[a] > c)
        kls.append(sum(f_average * np.log(f_average / f)))
        entropies.append(-sum(f * np.log(f)))
    ascent = torch.autograd.grad((torch.tensor(np.array(z)).float() * phi).sum() / len(z), params)
    for a, b in zip(found, ascent):
        torch.testing.assert_close(a, -b, rtol=1e-3, atol=1e-5)
    assert 0 < sum(cut) < len(cut) or c == 10
    assert sum(moved) > 3 if delta < 1 else not any(moved)
    for name, wanted in dict(TrustFrac=moved, TruncFrac=cut, KL=kls, Entropy=entropies).items():
        assert stats[name].mean().item() == pytest.approx(np.mean(wanted), rel=1e-4), name


def test_an_action_that_was_nearly_impossible_breaks_nothing():
    pi, mu = np.array([0.5, 0.5]), np.array([1 - 1e-300, 1e-300])
    for a in range(2):
        g, _ = gradients(pi, mu, np.array([1.0, 2.0]), a, 3.0, 10.0)
        assert np.isfinite(g).all()


# --- The update ---


def snapshot(learner):
    parts = dict(ac=learner.ac, average=learner.average)
    return {
        f"{part}.{name}": p.detach().clone()
        for part, module in parts.items()
        for name, p in module.named_parameters()
    }


def test_each_step_moves_its_own_network_only(monkeypatch):
    learner, steps = make_learner(), []

    def watched(optimizer, loss, *more):
        before = snapshot(learner)
        gradient_step(optimizer, loss, *more)
        after = snapshot(learner)
        steps.append((optimizer, {name for name in before if not before[name].equal(after[name])}))

    monkeypatch.setattr(acer, "gradient_step", watched)
    acer.update(learner, segments(), **UPDATE)
    names = {
        part: {name for name in snapshot(learner) if name.startswith(part)}
        for part in ("ac.q", "ac.pi")
    }
    assert steps == [(learner.q_optimizer, names["ac.q"]), (learner.pi_optimizer, names["ac.pi"])]


def test_both_steps_are_those_of_the_losses_before_them():
    learner, batch = make_learner(), segments()
    ac, average = deepcopy(learner.ac), deepcopy(learner.average)
    loss_q, q, q_ret = acer.compute_loss_q(ac, batch, gamma=GAMMA, n_steps=STEPS)
    loss_pi, _ = acer.compute_loss_pi(
        ac,
        average,
        batch,
        q,
        q_ret,
        c=UPDATE["c"],
        delta=UPDATE["delta"],
        ent_coef=UPDATE["ent_coef"],
    )
    acer.update(learner, batch, **UPDATE)
    for part, loss in (("q", loss_q), ("pi", loss_pi)):
        moved, params = getattr(learner.ac, part), list(getattr(ac, part).parameters())
        for p, grad in zip(moved.parameters(), torch.autograd.grad(loss, params)):
            torch.testing.assert_close(p.grad, grad)


@pytest.mark.parametrize("alpha", [0.99, 0.5, 0.0, 1.0])
def test_the_average_goes_the_rest_of_alpha_of_the_way(alpha):
    learner = make_learner()
    before = deepcopy(learner.average)
    acer.update(learner, segments(), **{**UPDATE, "alpha": alpha})
    trios = zip(before.parameters(), learner.average.parameters(), learner.ac.pi.parameters())
    for old, new, aim in trios:
        assert not torch.equal(old, aim)
        torch.testing.assert_close(new, old + (1 - alpha) * (aim - old), rtol=1e-6, atol=1e-7)


def test_a_long_gradient_is_shortened():
    learner = make_learner()
    acer.update(learner, segments(), **UPDATE, max_grad_norm=1e-3)
    for network in (learner.ac.pi, learner.ac.q):
        length = torch.cat([p.grad.reshape(-1) for p in network.parameters()]).norm()
        assert length.item() == pytest.approx(1e-3, rel=1e-2)


def test_replays_are_a_poisson_number_that_only_seed_and_step_decide():
    draw = [
        acer.replays_due(t, replay_start=0, replay_ratio=4, seed=3) for t in range(0, 60_000, 20)
    ]
    again = acer.replays_due(20, replay_start=0, replay_ratio=4, seed=3)
    assert again == draw[1]
    assert np.mean(draw) == pytest.approx(4, abs=0.15)
    assert np.var(draw) == pytest.approx(4, abs=0.4)
    other = [acer.replays_due(t, replay_start=0, replay_ratio=4, seed=4) for t in range(0, 200, 20)]
    assert other != draw[:10]
    assert acer.replays_due(999, replay_start=1000, replay_ratio=900, seed=0) == 0
    assert acer.replays_due(1000, replay_start=1000, replay_ratio=900, seed=0) > 0
    assert acer.replays_due(1000, replay_start=0, replay_ratio=0, seed=0) == 0


# --- The memory ---


def numbered(buffer, turns, first=0):
    """Store steps whose columns all tell turn and environment; gives what `store` answered."""
    envs, whole = np.arange(buffer.num_envs), []
    for t in range(first, first + turns):
        x = 100.0 * envs + t
        obs = np.repeat(x[:, None], 2, 1)
        logp = np.stack([-x, -2 * x, -3 * x], -1)
        whole.append(buffer.store(obs, x % 3, x, obs + 0.5, t % 5 == 4, t % 7 == 6, logp))
    return whole


def check_rows(batch, n_steps):
    x = batch.rew
    steps = x.reshape(-1, n_steps)
    assert np.array_equal(steps - steps[:, :1], np.tile(np.arange(n_steps), (len(steps), 1)))
    assert np.array_equal(batch.obs, np.repeat(x[:, None], 2, 1))
    assert np.array_equal(batch.obs2, batch.obs + 0.5)
    assert np.array_equal(batch.act, x % 3)
    assert np.array_equal(batch.logp, np.stack([-x, -2 * x, -3 * x], -1))
    t = x % 100
    assert np.array_equal(batch.terminated, t % 5 == 4)
    assert np.array_equal(batch.truncated, t % 7 == 6)


def test_segments_come_out_as_they_went_in():
    buffer = buffers.SegmentBuffer((2,), 3, size=50, n_steps=4, num_envs=3, seed=1)
    assert buffer.ring.max_size == 12 and len(buffer) == 0
    whole = numbered(buffer, 30)
    assert [t for t, done in enumerate(whole) if done] == [3, 7, 11, 15, 19, 23, 27]
    assert len(buffer) == 48
    latest = buffer.latest()
    check_rows(latest, 4)
    assert np.array_equal(latest.rew[0::4], [24, 124, 224])
    drawn = buffer.sample_batch(400)
    check_rows(drawn, 4)
    kept = {100.0 * env + first for env in range(3) for first in (12, 16, 20, 24)}
    assert set(drawn.rew[0::4]) == kept  # the oldest are overwritten, the rest all drawn
    assert drawn.act.dtype == np.int64


def test_segments_are_saved_and_resumed_in_the_midst_of_one(tmp_path):
    make = lambda: buffers.SegmentBuffer((2,), 3, size=48, n_steps=4, num_envs=2, seed=1)  # noqa: E731
    buffer, resumed = make(), make()
    for turns, first in ((18, 0), (17, 18)):
        numbered(buffer, turns, first)
        buffer.sample_batch(3)
        buffer.ring.append_log(tmp_path / "log")
        write_tree(tmp_path / "state.npz", buffer.state_dict())
    resumed.load_state_dict(read_tree(tmp_path / "state.npz"))
    resumed.ring.read_log(tmp_path / "log")
    for side in (buffer, resumed):
        numbered(side, 10, 35)
    for a, b in zip(buffer.sample_batch(50), resumed.sample_batch(50)):
        assert np.array_equal(a, b)
    check_rows(resumed.latest(), 4)
    write_tree(tmp_path / "one.npz", buffer.state_dict())
    write_tree(tmp_path / "two.npz", resumed.state_dict())
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()


def test_a_memory_too_small_for_one_segment_is_refused():
    with pytest.raises(UserError, match="replay_size is 39, but one segment of every environment"):
        buffers.SegmentBuffer((2,), 3, size=39, n_steps=20, num_envs=2)


def test_frames_stay_small_and_tensors_are_of_the_right_kind():
    buffer = SegmentBuffer((4, 4), 2, size=10, n_steps=2, obs_dtype=np.uint8)
    for t in range(4):
        frame = np.full((1, 4, 4), t)
        buffer.store(frame, [1], [1.0], frame + 1, [False], [False], np.log([[0.5, 0.5]]))
    assert buffer.ring.columns["obs"].dtype == np.uint8
    batch = buffer.latest()
    assert batch.obs.dtype == torch.float32 and batch.act.dtype == torch.int64
    assert batch.obs.shape == (2, 4, 4) and batch.obs[:, 0, 0].tolist() == [2, 3]


def test_a_run_remembers_true_successors_and_the_policy_that_played(tmp_path, monkeypatch):
    made, fresh, ratios = [], [], []

    class Watched(SegmentBuffer):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            made.append(self)

        def latest(self):
            fresh.append(super().latest())
            return fresh[-1]

    def watched(learner, batch, **settings):
        if batch is fresh[-1]:
            ratios.append((learner.ac.pi(batch.obs).log_softmax(-1) - batch.logp).detach())
        return update(learner, batch, **settings)

    update = acer.update
    monkeypatch.setattr(acer, "SegmentBuffer", Watched)
    replace_update(monkeypatch, acer, watched)
    acer.acer(
        EnvMaker("CartPole-v1"),
        steps_per_epoch=300,
        epochs=2,
        max_ep_len=15,
        num_envs=2,
        n_steps=7,
        replay_size=2000,
        replay_start=100,
        num_test_episodes=0,
        logger_kwargs=dict(output_dir=tmp_path),
    )
    (buffer,) = made
    rows = buffer.ring.storage[: buffer.ring.size]
    assert buffer.ring.total == 2 * (600 // 14)
    ended = (rows["terminated"] + rows["truncated"])[:, :-1] > 0
    follows = (rows["obs2"][:, :-1] == rows["obs"][:, 1:]).all(-1)
    assert np.array_equal(follows, ~ended)
    assert rows["terminated"].any() and rows["truncated"].any()
    np.testing.assert_allclose(np.exp(rows["logp"]).sum(-1), 1, rtol=1e-5)
    assert torch.cat(ratios).abs().max() < 1e-4  # of fresh segments: every weight is 1
    assert len(torch.cat(ratios)) == rows.size * 7
