"""An update moves the parameters it is about, by as much as it should, and nothing else."""

from copy import deepcopy

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from torch import nn
from torch.distributions import Categorical

from spinup import user_config
from spinup.algos.pytorch.dqn import core as dqn_core
from spinup.algos.pytorch.dqn import dqn
from spinup.algos.pytorch.ppo import core as ppo_core
from spinup.algos.pytorch.ppo import ppo
from spinup.algos.pytorch.sac import core as sac_core
from spinup.algos.pytorch.sac import sac
from spinup.parts import hidden_state
from spinup.parts.buffers import NStepTransitions, Rollout, Transitions
from spinup.parts.pytorch.bounded_policies import SquashedGaussianMLPActor
from spinup.parts.pytorch.critics import Ensemble, MLPQFunction
from spinup.parts.pytorch.layers import mlp
from spinup.parts.pytorch.learning import Adam, Minibatches, gradient_step, polyak_average

OBS, ACT = Box(-1, 1, (3,)), Box(-1, 1, (2,))
t = torch.tensor
SMALL = dict(hidden_sizes=(8, 8), activation=nn.Tanh)  # tanh: no unit is dead, all get gradients


def transitions(n=16, discrete=False):
    act = torch.randint(3, (n,)) if discrete else torch.rand(n, 2) * 2 - 1
    ended = (torch.rand(n) < 0.3).float()
    return Transitions(torch.randn(n, 3), act, torch.randn(n), torch.randn(n, 3), ended)


def n_step_transitions(n=16):
    discount, weight = 0.99 ** torch.randint(1, 4, (n,)), torch.rand(n) / n
    return NStepTransitions(*transitions(n, discrete=True), discount, weight, torch.arange(n))


def modules(learner):
    return {name: part for name, part in vars(learner).items() if isinstance(part, nn.Module)}


def snapshot(learner):
    """Every parameter of a learner by name, as it is now."""
    return {
        f"{part}.{name}": p.detach().clone()
        for part, module in modules(learner).items()
        for name, p in module.named_parameters()
    }


def changed(before, after):
    return {name for name in before if not torch.equal(before[name], after[name])}


def named(learner, *beginnings):
    return {name for name in snapshot(learner) if name.startswith(beginnings)}


@pytest.fixture
def line_by_line(monkeypatch):
    """Let updates run as they are written, not as they were recorded."""
    monkeypatch.setattr(user_config, "FAST", False)


@pytest.fixture
def watch(monkeypatch, line_by_line):
    """Write down which parameters each step of an optimizer changes."""

    def watch(learner):
        steps, step = [], Adam.step

        def watched(optimizer):
            before = snapshot(learner)
            step(optimizer)
            steps.append((optimizer, changed(before, snapshot(learner))))

        monkeypatch.setattr(Adam, "step", watched)
        return steps

    return watch


# --- SAC ---


def sac_learner(alpha=0.2, seed=0):
    torch.manual_seed(seed)
    learner = sac.make_learner(sac_core.MLPActorCritic(OBS, ACT, **SMALL), lr=1e-2, alpha=alpha)
    with torch.no_grad():  # a target network that has fallen behind, so that its way shows
        for p in learner.target.parameters():
            p.add_(0.1 * torch.randn_like(p))
    return learner


@pytest.mark.parametrize("alpha", [0.2, "auto"])
def test_each_sac_step_moves_its_own_networks_only(watch, alpha):
    learner = sac_learner(alpha)
    steps = watch(learner)
    sac.update(learner, transitions(), gamma=0.99, polyak=0.9, target_entropy=-2)
    expected = [
        (learner.q_optimizer, named(learner, "ac.q")),
        (learner.pi_optimizer, named(learner, "ac.pi")),
    ]
    if alpha == "auto":
        expected.append((learner.alpha_optimizer, {"temperature.log_alpha"}))
    assert steps == expected


@pytest.mark.parametrize("polyak", [0.995, 0.5, 0.0, 1.0])
def test_the_sac_target_goes_the_rest_of_polyak_of_the_way(polyak):
    learner = sac_learner()
    of = sac_core.q_parameters
    before, policy = deepcopy(of(learner.target)), deepcopy(learner.target.pi.state_dict())
    sac.update(learner, transitions(), gamma=0.99, polyak=polyak, target_entropy=-2)
    for old, new, aim in zip(before, of(learner.target), of(learner.ac), strict=True):
        assert not torch.equal(old, aim)
        torch.testing.assert_close(new, old + (1 - polyak) * (aim - old), rtol=1e-6, atol=1e-7)
    for key, old in policy.items():  # nobody asks the target network what to do
        assert torch.equal(learner.target.pi.state_dict()[key], old)


def test_the_policy_step_leaves_no_gradient_in_the_critics():
    learner, batch = sac_learner(), transitions()
    torch.manual_seed(5)
    loss, _ = sac.compute_loss_q(learner.ac, learner.target, batch, gamma=0.99, alpha=t(0.2))
    q_params = sac_core.q_parameters(learner.ac)
    of_critic_loss = torch.autograd.grad(loss, q_params)
    torch.manual_seed(5)
    sac.update(learner, batch, gamma=0.99, polyak=0.9, target_entropy=-2)
    for p, grad in zip(q_params, of_critic_loss):
        torch.testing.assert_close(p.grad, grad)


def test_gradients_of_one_update_are_gone_in_the_next():
    learner = sac_learner()
    first, second = transitions(), transitions()
    sac.update(learner, first, gamma=0.99, polyak=0.9, target_entropy=-2)
    torch.manual_seed(6)
    loss, _ = sac.compute_loss_q(
        learner.ac, learner.target, second, gamma=0.99, alpha=learner.temperature()
    )
    alone = torch.autograd.grad(loss, sac_core.q_parameters(learner.ac))
    torch.manual_seed(6)
    sac.update(learner, second, gamma=0.99, polyak=0.9, target_entropy=-2)
    for p, grad in zip(sac_core.q_parameters(learner.ac), alone):
        torch.testing.assert_close(p.grad, grad)


def test_a_fixed_alpha_stays():
    learner = sac_learner(alpha=0.2)
    assert learner.alpha_optimizer is None
    for _ in range(3):
        stats = sac.update(learner, transitions(), gamma=0.99, polyak=0.9, target_entropy=-2)
    assert stats["Alpha"].item() == learner.temperature().item() == pytest.approx(0.2)


@pytest.mark.parametrize(("target_entropy", "direction"), [(100.0, 1), (-100.0, -1)])
def test_a_learned_alpha_moves_towards_the_entropy_asked_for(target_entropy, direction):
    learner = sac_learner(alpha="auto")
    alphas = [learner.temperature().item()]
    for _ in range(3):
        sac.update(learner, transitions(), gamma=0.99, polyak=0.9, target_entropy=target_entropy)
        alphas.append(learner.temperature().item())
    assert (np.sign(np.diff(alphas)) == direction).all()


def test_the_policy_and_critics_are_paid_the_learned_alpha():
    """What the losses use is the temperature as it was when the update began."""
    learner = sac_learner(alpha="auto")
    learner.temperature.log_alpha.data.fill_(np.log(3.0))
    batch = transitions()
    torch.manual_seed(7)
    loss, _ = sac.compute_loss_q(learner.ac, learner.target, batch, gamma=0.99, alpha=3.0)
    torch.manual_seed(7)
    stats = sac.update(learner, batch, gamma=0.99, polyak=0.9, target_entropy=-2)
    assert stats["LossQ"].item() == pytest.approx(loss.item(), rel=1e-5)
    assert stats["Alpha"].item() == pytest.approx(3.0, rel=1e-6)


# --- DQN ---


def dqn_learner(seed=0):
    torch.manual_seed(seed)
    return dqn.make_learner(dqn_core.MLPQNetwork(OBS, Discrete(3), **SMALL), lr=1e-2)


SETTINGS = dict(double_q=True, polyak=0.9)


def test_the_dqn_step_moves_the_network_only(watch):
    learner = dqn_learner()
    steps = watch(learner)
    dqn.update(learner, n_step_transitions(), move_target=False, **SETTINGS)
    assert steps == [(learner.q_optimizer, named(learner, "ac.q"))]


def test_the_dqn_target_waits_until_it_is_time_then_goes_its_share():
    learner = dqn_learner()
    start = deepcopy(list(learner.target.parameters()))
    for _ in range(3):
        dqn.update(learner, n_step_transitions(), move_target=False, **SETTINGS)
    assert all(torch.equal(a, b) for a, b in zip(start, learner.target.parameters()))
    dqn.update(learner, n_step_transitions(), move_target=True, **SETTINGS)
    for old, new, aim in zip(start, learner.target.parameters(), learner.ac.parameters()):
        torch.testing.assert_close(new, old + 0.1 * (aim - old), rtol=1e-6, atol=1e-7)


def test_without_polyak_the_dqn_target_is_a_plain_copy():
    learner = dqn_learner()
    settings = SETTINGS | dict(polyak=0.0)
    dqn.update(learner, n_step_transitions(), move_target=True, **settings)
    pairs = zip(learner.target.parameters(), learner.ac.parameters())
    assert all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("num_envs", [1, 2])
@pytest.mark.parametrize("target_every", [1, 4])
def test_the_dqn_target_moves_every_so_many_updates(monkeypatch, tmp_path, target_every, num_envs):
    moved = []
    monkeypatch.setattr(
        dqn, "update", lambda learner, batch, *, move_target, **_: moved.append(move_target) or {}
    )
    dqn.dqn(
        lambda: gym.make("CartPole-v1"),
        steps_per_epoch=24,
        epochs=1,
        start_steps=0,
        update_after=0,
        update_every=3,
        target_every=target_every,
        num_test_episodes=0,
        num_envs=num_envs,
        logger_kwargs=dict(output_dir=tmp_path),
    )
    assert len(moved) == 24
    assert set(np.diff(np.flatnonzero(moved))) == {target_every}


# --- PPO ---


def ppo_learner(pi_lr=1e-2, vf_lr=1e-2, seed=0):
    torch.manual_seed(seed)
    return ppo.make_learner(ppo_core.MLPActorCritic(OBS, Discrete(3), **SMALL), pi_lr, vf_lr)


def rollout_of(learner, n=24):
    obs, act = torch.randn(n, 3), torch.randint(3, (n,))
    with torch.no_grad():
        _, logp = learner.ac.pi(obs, act)
    return Rollout(obs, act, torch.randn(n), torch.randn(n), logp)


PPO = dict(clip_ratio=0.2, target_kl=None, train_pi_iters=2, train_v_iters=3)


def test_each_ppo_step_moves_its_own_network_only(watch):
    learner = ppo_learner()
    steps = watch(learner)
    stats = ppo.update(learner, rollout_of(learner), **PPO)
    pi, v = named(learner, "ac.pi"), named(learner, "ac.v")
    assert steps == [(learner.pi_optimizer, pi)] * 2 + [(learner.vf_optimizer, v)] * 3
    assert stats["StopIter"] == 1


def test_losses_that_ppo_reports_are_the_first_and_the_way_to_the_last():
    learner = ppo_learner()
    rollout = rollout_of(learner)
    first = ppo.compute_loss_pi(learner.ac, rollout, clip_ratio=0.2)[0].item()
    first_v = ppo.compute_loss_v(learner.ac, rollout).item()
    stats = ppo.update(learner, rollout, **PPO | dict(train_pi_iters=6, train_v_iters=6))
    assert stats["LossPi"].item() == pytest.approx(first)
    assert stats["LossV"].item() == pytest.approx(first_v)
    assert stats["DeltaLossPi"].item() < 0
    assert stats["DeltaLossV"].item() < 0


def test_ppo_stops_when_the_policy_has_moved_too_far_and_steps_no_more(watch):
    iterations = 20
    stopped, replayed = ppo_learner(pi_lr=0.3), ppo_learner(pi_lr=0.3)
    rollout = rollout_of(stopped)
    steps = watch(stopped)
    settings = PPO | dict(train_pi_iters=iterations)
    stats = ppo.update(stopped, rollout, **settings | dict(target_kl=0.01))
    stop = stats["StopIter"]
    assert 0 < stop < iterations - 1
    assert [optimizer for optimizer, _ in steps].count(stopped.pi_optimizer) == stop
    ppo.update(replayed, rollout, **settings | dict(train_pi_iters=stop))
    assert not changed(snapshot(stopped), snapshot(replayed))
    assert stats["KL"].item() > 1.5 * 0.01
    now = ppo.compute_loss_pi(stopped.ac, rollout, clip_ratio=0.2)[1]["KL"]
    assert now.item() == pytest.approx(stats["KL"].item(), abs=1e-6)


def test_ppo_stops_at_one_and_a_half_times_the_target(monkeypatch, line_by_line):
    kls = iter([0.0, 0.0149, 0.0151, 0.5])
    compute_loss_pi = ppo.compute_loss_pi

    def scripted(*args, **kwargs):
        loss, stats = compute_loss_pi(*args, **kwargs)
        return loss, stats | dict(KL=t(next(kls)))

    monkeypatch.setattr(ppo, "compute_loss_pi", scripted)
    learner = ppo_learner()
    stats = ppo.update(learner, rollout_of(learner), **PPO | dict(target_kl=0.01, train_pi_iters=4))
    assert stats["StopIter"] == 2


def test_minibatches_visit_every_row_once_in_each_pass_in_a_new_order():
    torch.manual_seed(0)
    row = torch.arange(10.0)
    rollout = Rollout(row[:, None], row, 2 * row, 3 * row, -row)
    parts = list(Minibatches(rollout, 3, size=4))
    assert [i for i, _ in parts] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert [len(part.obs) for _, part in parts] == [4, 4, 2] * 3
    orders = [torch.cat([p.obs[:, 0] for i, p in parts if i == n]).tolist() for n in range(3)]
    assert all(sorted(order) == row.tolist() for order in orders)
    assert len({tuple(order) for order in orders}) == 3
    for _, part in parts:
        rows = part.obs[:, 0]
        for column, factor in zip(part[1:], (1, 2, 3, -1)):
            assert torch.equal(column, factor * rows)


def test_without_minibatches_each_pass_is_the_whole_rollout():
    learner = ppo_learner()
    rollout = rollout_of(learner)
    parts = list(Minibatches(rollout, 3))
    assert [i for i, _ in parts] == [0, 1, 2]
    assert all(part is rollout for _, part in parts)


def test_ppo_takes_a_step_per_minibatch(watch):
    learner = ppo_learner()
    steps = watch(learner)
    ppo.update(learner, rollout_of(learner, 10), minibatch_size=4, **PPO)
    optimizers = [optimizer for optimizer, _ in steps]
    assert optimizers == [learner.pi_optimizer] * 2 * 3 + [learner.vf_optimizer] * 3 * 3


# --- The step itself ---


@pytest.mark.parametrize(
    ("max_grad_norm", "moved"),
    [(None, [3.0, 4.0]), (10.0, [3.0, 4.0]), (1.0, [0.6, 0.8]), (0.0, [0.0, 0.0])],
)
def test_a_long_gradient_is_shortened_and_keeps_its_direction(max_grad_norm, moved):
    x, y = (nn.Parameter(torch.zeros(1)) for _ in range(2))
    loss = (3 * x + 4 * y).sum()  # of length 5 over both
    gradient_step(torch.optim.SGD([x, y], lr=1.0), loss, max_grad_norm)
    torch.testing.assert_close(-torch.cat([x, y]).detach(), t(moved), rtol=1e-4, atol=1e-6)


def test_algorithms_pass_the_bound_on():
    """Adam hides the length of a gradient, so look at the gradients themselves."""

    def length(optimizer):
        return torch.stack([p.grad.norm() for p in optimizer.param_groups[0]["params"]]).norm()

    tiny = dict(max_grad_norm=1e-3)
    learner = dqn_learner()
    dqn.update(learner, n_step_transitions(), move_target=False, **SETTINGS, **tiny)
    assert length(learner.q_optimizer).item() == pytest.approx(1e-3, rel=1e-2)
    learner = ppo_learner()
    ppo.update(learner, rollout_of(learner), **PPO, **tiny)
    assert length(learner.pi_optimizer).item() == pytest.approx(1e-3, rel=1e-2)
    assert length(learner.vf_optimizer).item() == pytest.approx(1e-3, rel=1e-2)


def test_polyak_average_by_hand():
    source, target = nn.Linear(1, 1), nn.Linear(1, 1)
    with torch.no_grad():
        for p, q in zip(source.parameters(), target.parameters()):
            p.fill_(10.0)
            q.fill_(20.0)
    polyak_average(source.parameters(), target.parameters(), 0.75)
    assert [p.item() for p in target.parameters()] == [17.5, 17.5]
    assert [p.item() for p in source.parameters()] == [10.0, 10.0]


class Still(gym.Env):
    """Nothing ever happens, but the steps of all copies are counted."""

    observation_space, action_space, steps = OBS, ACT, 0

    def reset(self, *, seed=None, options=None):
        return np.zeros(3, np.float32), {}

    def step(self, action):
        Still.steps += 1
        return np.zeros(3, np.float32), 0.0, False, False, {}


@pytest.mark.parametrize("num_envs", [1, 2, 3])
@pytest.mark.parametrize("update_every", [1, 5, 50])
def test_one_update_is_owed_per_step_in_whole_blocks(monkeypatch, tmp_path, num_envs, update_every):
    Still.steps, steps_at_update = 0, []
    tried = 3 * hidden_state.STEPS  # the search for hidden state, before all else
    monkeypatch.setattr(
        sac, "update", lambda *_, **__: steps_at_update.append(Still.steps - tried) or {}
    )
    sac.sac(
        Still,
        steps_per_epoch=60,
        epochs=2,
        update_after=0,
        update_every=update_every,
        num_test_episodes=0,
        num_envs=num_envs,
        batch_size=1,
        replay_size=200,
        ac_kwargs=dict(hidden_sizes=(2,)),
        logger_kwargs=dict(output_dir=tmp_path),
    )
    assert len(steps_at_update) == 120 // update_every * update_every
    times, updates = np.unique(steps_at_update, return_counts=True)
    assert (updates % update_every == 0).all()
    behind = times - np.cumsum(updates)
    assert (behind >= 0).all()
    assert (behind < update_every).all()


# --- Critics together, critics apart, and networks of a user's own ---


@pytest.mark.parametrize("obs_dim", [3, (3,), (2, 3)])
def test_an_ensemble_equals_its_critics_apart(obs_dim):
    torch.manual_seed(0)
    apart = [MLPQFunction(obs_dim, 2, (8, 8), nn.ReLU) for _ in range(2)]
    together = Ensemble(apart)
    shape = (obs_dim,) if isinstance(obs_dim, int) else obs_dim
    obs, act = torch.randn(16, *shape), torch.randn(16, 2)
    expected = torch.stack([q(obs, act) for q in apart])
    torch.testing.assert_close(together(obs, act), expected)
    for i, q in enumerate(apart):
        torch.testing.assert_close(q(obs[0], act[0]), together(obs, act)[i, 0])


def test_q1_and_q2_are_the_rows_of_q_values():
    torch.manual_seed(0)
    ac = sac_core.MLPActorCritic(OBS, ACT, **SMALL)
    obs, act = torch.randn(16, 3), torch.randn(16, 2)
    q = sac_core.q_values(ac, obs, act)
    torch.testing.assert_close(ac.q1(obs, act), q[0])
    torch.testing.assert_close(ac.q2(obs, act), q[1])
    assert not torch.allclose(q[0], q[1])


class PlainSAC(nn.Module):
    """Only what the original documents: pi, q1, q2 and act."""

    def __init__(self, observation_space, action_space, hidden_sizes=(8, 8), activation=nn.Tanh):
        super().__init__()
        obs_dim, act_dim = observation_space.shape[0], action_space.shape[0]
        limit = action_space.high[0]
        self.pi = SquashedGaussianMLPActor(obs_dim, act_dim, hidden_sizes, activation, limit)
        self.q1 = MLPQFunction(obs_dim, act_dim, hidden_sizes, activation)
        self.q2 = MLPQFunction(obs_dim, act_dim, hidden_sizes, activation)
        PlainSAC.start = deepcopy(self.state_dict())

    def act(self, obs, deterministic=False):
        with torch.no_grad():
            a, _ = self.pi(obs, deterministic, False)
            return a.numpy()


def with_critics_together(plain):
    """Our own networks, with the weights of a user's."""
    ac = sac_core.MLPActorCritic(OBS, ACT, **SMALL)
    ac.pi.load_state_dict(plain.pi.state_dict())
    for name in ("q1", "q2"):
        getattr(ac, name).load_state_dict(getattr(plain, name).state_dict())
    return ac


def test_plain_critics_give_sac_the_same_losses_and_the_same_update():
    torch.manual_seed(0)
    plain = PlainSAC(OBS, ACT)
    ours = with_critics_together(plain)
    batch, stats = transitions(), []
    for ac in (plain, ours):
        learner = sac.make_learner(ac, lr=1e-2, alpha=0.2)
        torch.manual_seed(3)
        for _ in range(3):
            stats.append(sac.update(learner, batch, gamma=0.9, polyak=0.9, target_entropy=-2))
    for theirs, own in zip(stats[:3], stats[3:]):
        for name in ("LossQ", "LossPi", "Q1Vals", "Q2Vals", "LogPi"):
            torch.testing.assert_close(theirs[name], own[name], rtol=1e-4, atol=1e-4)
    again = with_critics_together(plain)
    for theirs, own in zip(again.parameters(), ours.parameters()):
        torch.testing.assert_close(theirs, own, rtol=1e-3, atol=1e-4)


def test_sac_trains_a_network_of_a_users_own(tmp_path):
    ac = sac.sac(
        lambda: gym.make("Pendulum-v1"),
        PlainSAC,
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
    assert changed(PlainSAC.start, ac.state_dict()) == set(PlainSAC.start)


class PlainPolicy(nn.Module):
    """A policy that can only be called."""

    def __init__(self, obs_dim, act_dim):
        super().__init__()
        self.net = mlp([obs_dim, 8, act_dim], nn.Tanh)

    def forward(self, obs, act=None):
        pi = Categorical(logits=self.net(obs))
        return pi, None if act is None else pi.log_prob(act)


class PlainValue(nn.Module):
    def __init__(self, obs_dim):
        super().__init__()
        self.net = mlp([obs_dim, 8, 1], nn.Tanh)

    def forward(self, obs):
        return self.net(obs).squeeze(-1)


class PlainPPO(nn.Module):
    """Only what the original documents: pi, v, step and act."""

    def __init__(self, observation_space, action_space):
        super().__init__()
        self.pi = PlainPolicy(observation_space.shape[0], action_space.n)
        self.v = PlainValue(observation_space.shape[0])
        PlainPPO.start = deepcopy(self.state_dict())

    def step(self, obs):
        with torch.no_grad():
            pi, _ = self.pi(obs)
            a = pi.sample()
            return a.numpy(), self.v(obs).numpy(), pi.log_prob(a).numpy()

    def act(self, obs):
        return self.step(obs)[0]


def test_ppo_trains_a_network_of_a_users_own(tmp_path):
    ac = ppo.ppo(
        lambda: gym.make("CartPole-v1"),
        PlainPPO,
        steps_per_epoch=60,
        epochs=1,
        max_ep_len=20,
        train_pi_iters=3,
        train_v_iters=3,
        logger_kwargs=dict(output_dir=tmp_path),
    )
    assert changed(PlainPPO.start, ac.state_dict()) == set(PlainPPO.start)


class PlainDQN(nn.Module):
    """Only q and act."""

    def __init__(self, observation_space, action_space):
        super().__init__()
        self.q = mlp([observation_space.shape[0], 8, action_space.n], nn.Tanh)
        PlainDQN.start = deepcopy(self.state_dict())

    def act(self, obs):
        with torch.no_grad():
            return self.q(obs).argmax(-1).numpy()


def test_dqn_trains_a_network_of_a_users_own(tmp_path):
    ac = dqn.dqn(
        lambda: gym.make("CartPole-v1"),
        PlainDQN,
        steps_per_epoch=60,
        epochs=1,
        start_steps=20,
        update_after=30,
        batch_size=8,
        num_test_episodes=1,
        max_ep_len=20,
        logger_kwargs=dict(output_dir=tmp_path),
    )
    assert changed(PlainDQN.start, ac.state_dict()) == set(PlainDQN.start)
