"""DDPG's and TD3's losses equal numbers worked on paper; their updates move what they should."""

from copy import deepcopy
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from small_learner import replace_update
from torch import nn

from spinup.algos.pytorch.ddpg import core as ddpg_core
from spinup.algos.pytorch.ddpg import ddpg
from spinup.algos.pytorch.td3 import core as td3_core
from spinup.algos.pytorch.td3 import td3
from spinup.parts import hidden_state
from spinup.parts.buffers import Transitions
from spinup.parts.pytorch.bounded_policies import ActionRange, MLPActor, action_limits
from spinup.parts.pytorch.critics import MLPQFunction
from spinup.parts.pytorch.learning import gradient_step
from spinup.parts.schedule import Schedule

t = torch.tensor
BATCH = Transitions(
    t([[1.0], [2.0], [0.0]]),
    t([[0.5], [-1.0], [1.0]]),
    t([1.0, 2.0, 0.0]),
    t([[3.0], [4.0], [1.0]]),
    t([0.0, 1.0, 0.0]),
)
UNIT = ActionRange(1.0)
QUIET = dict(target_noise=0.0, noise_clip=0.5, bounds=UNIT)


def refuse(*_):
    raise AssertionError("this network must not be asked")


def tenth(o):
    return o / 10


# --- DDPG's losses: functions so simple that every number can be followed ---


def ddpg_networks():
    ac = SimpleNamespace(pi=refuse, q=lambda o, a: (2 * o + a).squeeze(-1))
    return ac, SimpleNamespace(pi=tenth, q=lambda o, a: (4 - o * a).squeeze(-1))


def test_ddpg_critic_loss():
    # Row 1: the target policy's 0.3, its value 4 - 0.9 = 3.1, backup 1 + 0.5 * 3.1 = 2.55;
    #        the critic says 2.5; error -0.05.
    # Row 2: terminated, backup 2; the critic says 3; error 1.
    # Row 3: 0.1, its value 3.9, backup 0.5 * 3.9 = 1.95; the critic says 1; error -0.95.
    ac, target = ddpg_networks()
    loss, stats = ddpg.compute_loss_q(ac, target, BATCH, gamma=0.5)
    assert loss.item() == pytest.approx((0.0025 + 1 + 0.9025) / 3, rel=1e-6)
    assert stats["LossQ"].item() == loss.item()
    assert stats["QVals"].tolist() == [2.5, 3.0, 1.0]


def test_ddpg_critic_loss_pulls_at_the_critic_and_not_at_its_aim():
    scale, aim = t(1.0, requires_grad=True), t(1.0, requires_grad=True)
    ac, target = ddpg_networks()
    ac.q = lambda o, a: scale * (2 * o + a).squeeze(-1)
    target = SimpleNamespace(pi=lambda o: aim * o / 10, q=lambda o, a: aim * target_q(o, a))
    target_q = ddpg_networks()[1].q
    loss, _ = ddpg.compute_loss_q(ac, target, BATCH, gamma=0.5)
    loss.backward()
    # 2/3 of the sum of error times value.
    assert scale.grad.item() == pytest.approx((-0.05 * 2.5 + 3 - 0.95) * 2 / 3, rel=1e-5)
    assert aim.grad is None


def test_ddpg_policy_loss_and_its_slope():
    # Actions k o = 0.1, 0.2, 0; values 2 o + 3 a = 2.3, 4.6, 0. Slope in k: -3 (1 + 2 + 0) / 3.
    k = t(0.1, requires_grad=True)
    ac = SimpleNamespace(pi=lambda o: k * o, q=lambda o, a: (2 * o + 3 * a).squeeze(-1))
    loss, stats = ddpg.compute_loss_pi(ac, BATCH)
    loss.backward()
    assert loss.item() == pytest.approx(-6.9 / 3, rel=1e-6)
    assert stats["LossPi"].item() == loss.item()
    assert k.grad.item() == pytest.approx(-3.0, rel=1e-6)


# --- TD3's losses ---


def td3_networks():
    ac = SimpleNamespace(
        pi=refuse,
        q1=lambda o, a: (2 * o + a).squeeze(-1),
        q2=lambda o, a: (o - a).squeeze(-1),
    )
    target = SimpleNamespace(
        pi=tenth,
        q1=lambda o, a: (o + a).squeeze(-1),
        q2=lambda o, a: (4 - o * a).squeeze(-1),
    )
    return ac, target


def test_td3_critic_loss_takes_the_smaller_value():
    # Row 1: next action 0.3, target critics 3.3 and 3.1, the lesser 3.1; backup 1 + 0.5 * 3.1;
    #        critics 2.5 and 0.5; errors -0.05, -2.05.
    # Row 2: terminated, backup 2; critics 3 and 3; errors 1, 1.
    # Row 3: next action 0.1, target critics 1.1 and 3.9, the lesser 1.1; backup 0.5 * 1.1 = 0.55;
    #        critics 1 and -1; errors 0.45, -1.55.
    ac, target = td3_networks()
    loss, stats = td3.compute_loss_q(ac, target, BATCH, gamma=0.5, **QUIET)
    first, second = (0.0025 + 1 + 0.2025) / 3, (4.2025 + 1 + 2.4025) / 3
    assert loss.item() == pytest.approx(first + second, rel=1e-6)
    assert stats["LossQ"].item() == loss.item()
    assert stats["Q1Vals"].tolist() == [2.5, 3.0, 1.0]
    assert stats["Q2Vals"].tolist() == [0.5, 3.0, -1.0]


def test_td3_critic_loss_with_a_known_noise(monkeypatch):
    # Noise 0.2 (1, -1, -5) is clipped to 0.2, -0.2, -0.3, whatever the bounds of the action.
    # Row 1: 0.3 + 0.2 = 0.5; target critics 3.5 and 4 - 1.5 = 2.5, the lesser 2.5; backup 2.25.
    # Row 3: 0.1 - 0.3 = -0.2; target critics 0.8 and 4.2, the lesser 0.8; backup 0.4.
    monkeypatch.setattr(torch, "randn_like", lambda a: t([[1.0], [-1.0], [-5.0]]))
    ac, target = td3_networks()
    smoothing = dict(target_noise=0.2, noise_clip=0.3, bounds=ActionRange(2.0))
    loss, _ = td3.compute_loss_q(ac, target, BATCH, gamma=0.5, **smoothing)
    first = (0.25**2 + 1 + 0.6**2) / 3
    second = (1.75**2 + 1 + 1.4**2) / 3
    assert loss.item() == pytest.approx(first + second, rel=1e-5)


def test_td3_critic_loss_pulls_at_the_critics_and_not_at_their_aim():
    scale, aim = t(1.0, requires_grad=True), t(1.0, requires_grad=True)
    ac, aimed = td3_networks()
    ac.q1 = lambda o, a: scale * (2 * o + a).squeeze(-1)
    target = SimpleNamespace(
        pi=lambda o: aim * o / 10, q1=lambda o, a: aim * aimed.q1(o, a), q2=aimed.q2
    )
    loss, _ = td3.compute_loss_q(ac, target, BATCH, gamma=0.5, **QUIET)
    loss.backward()
    assert scale.grad.item() == pytest.approx((-0.05 * 2.5 + 3 + 0.45) * 2 / 3, rel=1e-5)
    assert aim.grad is None


def test_td3_policy_loss_asks_the_first_critic_only():
    # Actions k o = 0.1, 0.2, 0; values 2 o + 3 a = 2.3, 4.6, 0. Slope in k: -3 (1 + 2 + 0) / 3.
    k = t(0.1, requires_grad=True)
    ac = SimpleNamespace(pi=lambda o: k * o, q1=lambda o, a: (2 * o + 3 * a).squeeze(-1), q2=refuse)
    loss, stats = td3.compute_loss_pi(ac, BATCH)
    loss.backward()
    assert loss.item() == pytest.approx(-6.9 / 3, rel=1e-6)
    assert stats["LossPi"].item() == loss.item()
    assert k.grad.item() == pytest.approx(-3.0, rel=1e-6)


# --- Noise, in the units of the action, and bounds ---

LOW, HIGH = np.float32([-1, 0, 10]), np.float32([1, 4, 30])
UNEVEN = Box(LOW, HIGH)
BOUNDS = ActionRange(**action_limits(UNEVEN))


def smoothed(act, target_noise, noise_clip):
    """The next actions that TD3's target critics judge, where the target policy says `act`."""
    asked = []

    def q(o, a):
        asked.append(a)
        return torch.zeros(len(a))

    n = len(act)
    batch = Transitions(torch.zeros(n, 1), act, torch.zeros(n), torch.zeros(n, 1), torch.zeros(n))
    target = SimpleNamespace(pi=lambda o: act, q1=q, q2=q)
    ac = SimpleNamespace(q1=lambda o, a: torch.zeros(n), q2=lambda o, a: torch.zeros(n))
    td3.compute_loss_q(
        ac,
        target,
        batch,
        gamma=1.0,
        target_noise=target_noise,
        noise_clip=noise_clip,
        bounds=BOUNDS,
    )
    first, second = asked
    assert torch.equal(first, second)  # both critics judge the same action
    return first.numpy()


MIDDLE = torch.as_tensor((LOW + HIGH) / 2).expand(20_000, 3)


def test_smoothing_noise_has_its_width_and_is_clipped_where_asked():
    torch.manual_seed(0)
    noise = smoothed(MIDDLE, target_noise=0.2, noise_clip=10.0) - MIDDLE.numpy()
    np.testing.assert_allclose(noise.mean(0), 0, atol=0.01)
    np.testing.assert_allclose(noise.std(0), 0.2, atol=0.005)
    noise = smoothed(MIDDLE, target_noise=0.2, noise_clip=0.3) - MIDDLE.numpy()
    np.testing.assert_allclose(noise.min(0), -0.3, atol=1e-5)
    np.testing.assert_allclose(noise.max(0), 0.3, atol=1e-5)
    clipped = (np.abs(noise) > 0.3 - 1e-4).mean(0)
    np.testing.assert_allclose(clipped, 0.134, atol=0.01)  # beyond 1.5 deviations, by the table


def test_smoothed_actions_stay_within_the_bounds_of_each_dimension():
    torch.manual_seed(0)
    edges = [torch.as_tensor(edge).expand(1000, 3) for edge in (LOW, HIGH)]
    for edge in edges:
        act = smoothed(edge, target_noise=0.4, noise_clip=0.5)
        assert (act >= LOW).all() and (act <= HIGH).all()
        stay = (act == edge.numpy()).mean(0)  # about half of the noise points outwards
        np.testing.assert_allclose(stay, 0.5, atol=0.06)


@pytest.mark.parametrize("module", [ddpg, td3])
def test_exploring_noise_has_its_width_in_each_dimension_and_stays_in_the_bounds(module):
    torch.manual_seed(0)
    noise = module.with_noise(MIDDLE.numpy(), bounds=BOUNDS, act_noise=0.1)
    assert isinstance(noise, np.ndarray)
    noise = noise - MIDDLE.numpy()
    np.testing.assert_allclose(noise.mean(0), 0, atol=0.005)
    np.testing.assert_allclose(noise.std(0), 0.1, atol=0.003)
    assert abs(np.corrcoef(noise.T) - np.eye(3)).max() < 0.03
    wild = module.with_noise(MIDDLE.numpy(), bounds=BOUNDS, act_noise=50.0)
    assert np.array_equal(wild.min(0), LOW) and np.array_equal(wild.max(0), HIGH)
    still = module.with_noise(MIDDLE.numpy(), bounds=BOUNDS, act_noise=0.0)
    assert np.array_equal(still, MIDDLE.numpy())


def test_bounds_are_exactly_those_of_the_space():
    rng = np.random.default_rng(0)
    low = rng.normal(size=500).astype(np.float32)
    high = low + rng.uniform(0.1, 100, 500).astype(np.float32)
    bounds = ActionRange(**action_limits(Box(low, high)))
    assert np.array_equal(bounds.clip(torch.full((500,), -1e6)), low)
    assert np.array_equal(bounds.clip(torch.full((500,), 1e6)), high)


class Recorder(gym.Env):
    """Nothing ever happens, but what is done is written down."""

    observation_space, action_space, taken = Box(-1, 1, (3,)), UNEVEN, []

    def reset(self, *, seed=None, options=None):
        return np.ones(3, np.float32), {}

    def step(self, action):
        Recorder.taken.append(action)
        return np.ones(3, np.float32), 0.0, False, False, {}


TRIED = 3 * hidden_state.STEPS  # the search for hidden state, before all else


@pytest.mark.parametrize("module", [ddpg, td3])
def test_training_acts_with_noise_after_a_random_start_and_tests_without(module, tmp_path):
    Recorder.taken = []
    name = module.__name__.rpartition(".")[2]
    ac = getattr(module, name)(
        Recorder,
        steps_per_epoch=300,
        epochs=1,
        start_steps=100,
        update_after=300,
        max_ep_len=20,
        num_test_episodes=2,
        act_noise=0.1,
        ac_kwargs=dict(hidden_sizes=(8,)),
        logger_kwargs=dict(output_dir=tmp_path),
    )
    taken = np.array(Recorder.taken[TRIED:])
    assert (taken >= LOW).all() and (taken <= HIGH).all()
    start, noisy, test = np.split(taken, [100, 300])
    assert len(test) == 40
    act = ac.act(torch.ones(3))
    assert (test == test[0]).all()
    np.testing.assert_allclose(test[0], act, rtol=1e-5)
    np.testing.assert_allclose((noisy - act).std(0), 0.1, rtol=0.2)
    np.testing.assert_allclose((noisy - act).mean(0), 0, atol=0.03)
    half_widths = (HIGH - LOW) / 2
    np.testing.assert_allclose(start.std(0) / half_widths, 3**-0.5, rtol=0.2)


# --- Updates ---

OBS, ACT = Box(-1, 1, (3,)), Box(np.float32([-1, 0]), np.float32([1, 4]))
SMALL = dict(hidden_sizes=(8, 8), activation=nn.Tanh)  # tanh: no unit is dead, all get gradients
CORES = {ddpg: ddpg_core, td3: td3_core}
SETTINGS = {
    ddpg: dict(gamma=0.99, polyak=0.9),
    td3: dict(
        gamma=0.99, polyak=0.9, target_noise=0.2, noise_clip=0.5, move_policy=True,
        bounds=ActionRange(**action_limits(ACT)),
    ),
}  # fmt: skip
both = pytest.mark.parametrize("module", [ddpg, td3])


def transitions(n=16):
    act = torch.rand(n, 2) * t([2.0, 4.0]) - t([1.0, 0.0])
    ended = (torch.rand(n) < 0.3).float()
    return Transitions(torch.randn(n, 3), act, torch.randn(n), torch.randn(n, 3), ended)


def learner_of(module, seed=0, **learning_rates):
    torch.manual_seed(seed)
    ac = CORES[module].MLPActorCritic(OBS, ACT, **SMALL)
    learner = module.make_learner(ac, **dict(pi_lr=1e-2, q_lr=1e-2) | learning_rates)
    with torch.no_grad():  # a target network that has fallen behind, so that its way shows
        for p in learner.target.parameters():
            p.add_(0.1 * torch.randn_like(p))
    return learner


def snapshot(learner):
    return {
        f"{part}.{name}": p.detach().clone()
        for part in ("ac", "target")
        for name, p in getattr(learner, part).named_parameters()
    }


def changed(before, after):
    return {name for name in before if not torch.equal(before[name], after[name])}


def named(learner, *beginnings):
    return {name for name in snapshot(learner) if name.startswith(beginnings)}


@both
def test_each_step_moves_its_own_networks_and_then_the_target_network_follows(module, monkeypatch):
    learner, steps = learner_of(module), []

    def watched(optimizer, loss):
        before = snapshot(learner)
        gradient_step(optimizer, loss)
        steps.append((optimizer, changed(before, snapshot(learner))))

    monkeypatch.setattr(module, "gradient_step", watched)
    before = snapshot(learner)
    stats = module.update(learner, transitions(), **SETTINGS[module])
    assert steps == [
        (learner.q_optimizer, named(learner, "ac.q")),
        (learner.pi_optimizer, named(learner, "ac.pi")),
    ]
    assert "LossPi" in stats
    assert changed(before, snapshot(learner)) == set(before)


@both
@pytest.mark.parametrize("polyak", [0.995, 0.5, 0.0, 1.0])
def test_policy_and_critics_of_the_target_network_go_the_rest_of_polyak_of_the_way(module, polyak):
    learner = learner_of(module)
    before = deepcopy(list(learner.target.parameters()))
    module.update(learner, transitions(), **SETTINGS[module] | dict(polyak=polyak))
    pairs = zip(before, learner.target.parameters(), learner.ac.parameters(), strict=True)
    for old, new, aim in pairs:
        assert not torch.equal(old, aim)
        torch.testing.assert_close(new, old + (1 - polyak) * (aim - old), rtol=1e-6, atol=1e-7)


@both
def test_the_policy_step_leaves_the_critics_gradients_alone(module):
    learner, batch = learner_of(module), transitions()
    settings = dict(SETTINGS[module])
    q_settings = {k: v for k, v in settings.items() if k not in ("polyak", "move_policy")}
    torch.manual_seed(5)
    loss, _ = module.compute_loss_q(learner.ac, learner.target, batch, **q_settings)
    q_params = learner.q_optimizer.param_groups[0]["params"]
    of_critic_loss = torch.autograd.grad(loss, q_params)
    torch.manual_seed(5)
    module.update(learner, batch, **settings)
    for p, grad in zip(q_params, of_critic_loss, strict=True):
        torch.testing.assert_close(p.grad, grad)
    assert all(p.grad is None for p in learner.target.parameters())


@both
def test_policy_and_critics_have_step_sizes_of_their_own(module):
    for learning_rates, part in ((dict(pi_lr=0.0), "ac.q"), (dict(q_lr=0.0), "ac.pi")):
        learner = learner_of(module, **learning_rates)
        before = snapshot(learner)
        module.update(learner, transitions(), **SETTINGS[module] | dict(polyak=1.0))
        assert changed(before, snapshot(learner)) == named(learner, part)


def test_without_a_policy_step_td3_moves_its_critics_only():
    learner = learner_of(td3)
    before = snapshot(learner)
    for _ in range(3):
        stats = td3.update(learner, transitions(), **SETTINGS[td3] | dict(move_policy=False))
        assert set(stats) == {"LossQ", "Q1Vals", "Q2Vals"}
    assert changed(before, snapshot(learner)) == named(learner, "ac.q")


# --- The delay of TD3 ---


@pytest.mark.parametrize("total_envs", [1, 2, 3, 7])
@pytest.mark.parametrize("update_every", [1, 3, 5, 50])
@pytest.mark.parametrize("update_after", [0, 10, 101])
def test_updates_are_numbered_without_a_gap(total_envs, update_every, update_after):
    schedule, numbers = Schedule(420 // total_envs, total_envs, epochs=2), []
    for epoch in range(2):
        for step in schedule.steps(epoch):
            due = schedule.updates_due(step, update_after, update_every)
            done = step + total_envs
            assert not due or done > update_after
            numbers += due
            if numbers:
                assert 0 <= done - 1 - numbers[-1] < update_every  # one update per step, in blocks
    assert numbers == list(range(numbers[0], 840 // update_every * update_every))
    assert numbers[0] <= update_after < numbers[0] + max(total_envs, update_every) + update_every


@pytest.mark.parametrize("num_envs", [1, 2, 5])
@pytest.mark.parametrize("update_every", [1, 3, 5, 50])
@pytest.mark.parametrize("policy_delay", [1, 2, 3])
def test_the_delay_does_not_restart_with_a_block(
    monkeypatch, tmp_path, policy_delay, update_every, num_envs
):
    moved = []
    monkeypatch.setattr(
        td3, "update", lambda learner, batch, *, move_policy, **_: moved.append(move_policy) or {}
    )
    td3.td3(
        lambda: gym.make("Pendulum-v1"),
        steps_per_epoch=60,
        epochs=2,
        start_steps=200,
        update_after=0,
        update_every=update_every,
        policy_delay=policy_delay,
        batch_size=1,
        num_test_episodes=0,
        num_envs=num_envs,
        replay_size=200,
        ac_kwargs=dict(hidden_sizes=(2,)),
        logger_kwargs=dict(output_dir=tmp_path),
    )
    assert len(moved) == 120 // update_every * update_every
    assert set(np.diff(np.flatnonzero(moved))) == {policy_delay}
    assert moved[0]


def test_a_run_moves_its_policy_as_often_as_the_delay_says(monkeypatch, tmp_path):
    """The updates themselves, not only what they are told: three blocks of 5, every 2nd moves."""
    moves, plain = [], td3.update

    def watched(learner, batch, **settings):
        before = snapshot(learner)
        stats = plain(learner, batch, **settings)
        moves.append("ac.pi.pi.0.weight" in changed(before, snapshot(learner)))
        return stats

    replace_update(monkeypatch, td3, watched)
    td3.td3(
        lambda: gym.make("Pendulum-v1"),
        steps_per_epoch=15,
        epochs=1,
        start_steps=15,
        update_after=0,
        update_every=5,
        batch_size=4,
        num_test_episodes=0,
        replay_size=20,
        ac_kwargs=dict(hidden_sizes=(4,), activation=nn.Tanh),
        logger_kwargs=dict(output_dir=tmp_path),
    )
    assert moves == [True, False] * 7 + [True]


# --- Networks: acting, and a user's own ---


@both
@pytest.mark.parametrize("shape", [(3,), (2, 3)])
@pytest.mark.parametrize("hidden_sizes", [(8, 8), (256, 256)])
def test_acting_equals_the_policy(module, shape, hidden_sizes):
    torch.manual_seed(0)
    ac = CORES[module].MLPActorCritic(Box(-1, 1, shape), UNEVEN, hidden_sizes)
    for rows in (1, 5, 100):
        obs = torch.randn(rows, *shape)
        np.testing.assert_allclose(ac.act(obs), ac.pi(obs).detach(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(ac.act(obs[0]), ac.pi(obs)[0].detach(), rtol=1e-4, atol=1e-5)
    gradient_step(torch.optim.SGD(ac.pi.parameters(), 0.1), ac.pi(obs).sum())
    np.testing.assert_allclose(ac.act(obs), ac.pi(obs).detach(), rtol=1e-4, atol=1e-5)


class Plain(nn.Module):
    """Only what the original documents: pi, q (or q1 and q2) and act."""

    critics = ("q",)

    def __init__(self, observation_space, action_space, hidden_sizes=(8, 8), activation=nn.Tanh):
        super().__init__()
        obs_dim, act_dim = observation_space.shape[0], action_space.shape[0]
        limit = action_space.high[0]
        self.pi = MLPActor(obs_dim, act_dim, hidden_sizes, activation, limit)
        for name in self.critics:
            setattr(self, name, MLPQFunction(obs_dim, act_dim, hidden_sizes, activation))
        type(self).start = deepcopy(self.state_dict())

    def act(self, obs):
        with torch.no_grad():
            return self.pi(obs).numpy()


class PlainTwins(Plain):
    critics = ("q1", "q2")


@both
def test_networks_of_a_users_own_are_trained(module, tmp_path):
    network = {ddpg: Plain, td3: PlainTwins}[module]
    ac = getattr(module, module.__name__.rpartition(".")[2])(
        lambda: gym.make("Pendulum-v1"),
        network,
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
    assert changed(network.start, ac.state_dict()) == set(network.start)


def test_critics_of_a_users_own_give_td3_the_same_update():
    torch.manual_seed(0)
    plain = PlainTwins(OBS, Box(-1, 1, (2,)))
    ours = td3_core.MLPActorCritic(OBS, Box(-1, 1, (2,)), **SMALL)
    ours.pi.load_state_dict(plain.pi.state_dict())
    for name in ("q1", "q2"):
        getattr(ours, name).q.load_state_dict(getattr(plain, name).q.state_dict())
    batches, stats = [transitions() for _ in range(4)], []
    for ac in (plain, ours):
        learner = td3.make_learner(ac, 1e-2, 1e-2)
        torch.manual_seed(3)
        for number, batch in enumerate(batches):
            settings = SETTINGS[td3] | dict(move_policy=number % 2 == 0, bounds=UNIT)
            stats.append(td3.update(learner, batch, **settings))
    for theirs, own in zip(stats[:4], stats[4:], strict=True):
        assert set(theirs) == set(own)
        for name in theirs:
            torch.testing.assert_close(theirs[name], own[name], rtol=1e-4, atol=1e-4)
    for theirs, own in zip(plain.pi.parameters(), ours.pi.parameters(), strict=True):
        torch.testing.assert_close(theirs, own, rtol=1e-3, atol=1e-4)
