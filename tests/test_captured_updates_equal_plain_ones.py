"""Every algorithm's update is captured, and computes what its plain code computes.

Each algorithm is trained for a moment with the fast path. Each of its updates is made twice: once
as in training, and once by plain code on a copy of the learner, with the same random numbers.
"""

import importlib
import sys
from copy import deepcopy

import gymnasium as gym
import numpy as np
import pytest
import torch
from small_learner import Batch, Learner, replace_update
from torch import nn

import spinup
from spinup import user_config
from spinup.parts.make_env import EnvMaker
from spinup.parts.pytorch import fast
from spinup.parts.pytorch.layers import mlp
from spinup.parts.pytorch.learning import Adam

SHORT = dict(epochs=1, steps_per_epoch=120, update_after=40, start_steps=40, num_test_episodes=0)
OFF_POLICY = {
    "sac": ("sac", "Pendulum-v1", SHORT),
    "sac, learned alpha": ("sac", "Pendulum-v1", SHORT | dict(alpha="auto")),
    "sac, discrete": ("sac", "CartPole-v1", SHORT),
    "td3": ("td3", "Pendulum-v1", SHORT),
    "ddpg": ("ddpg", "Pendulum-v1", SHORT),
    "ddpg, elu": ("ddpg", "Pendulum-v1", SHORT | dict(ac_kwargs=dict(activation=nn.ELU))),
    "dqn": ("dqn", "CartPole-v1", SHORT),
    "dqn, prioritised": ("dqn", "CartPole-v1", SHORT | dict(prioritized=True, n_step=3)),
    "dqn, dueling": ("dqn", "CartPole-v1", SHORT | dict(ac_kwargs=dict(dueling=True))),
    "her, bits": ("her", "spinup/BitFlip-v0", SHORT),
    "her, arm": ("her", "spinup/Reach-v0", SHORT),
    "acer": ("acer", "CartPole-v1", dict(epochs=1, steps_per_epoch=400)),
}
FEW = dict(epochs=2, steps_per_epoch=200, train_v_iters=5)
ON_POLICY = {
    "ppo": ("ppo", "CartPole-v1", FEW | dict(train_pi_iters=5)),
    "ppo, minibatches": (
        "ppo",
        "Pendulum-v1",
        FEW | dict(train_pi_iters=2, train_v_iters=2, minibatch_size=48, max_grad_norm=0.5),
    ),
    "ppo, normalised": (
        "ppo",
        "Pendulum-v1",
        FEW | dict(train_pi_iters=5, ac_kwargs=dict(normalize=True)),
    ),
    "vpg": ("vpg", "CartPole-v1", FEW),
    "trpo": ("trpo", "Pendulum-v1", FEW),
    "reinforce": ("reinforce", "CartPole-v1", FEW | dict(baseline="value")),
}


def worst(found, expected) -> float:
    """The largest difference, in units of what single precision and its sums leave uncertain."""
    found, expected = found.detach().float(), expected.detach().float()
    return float(((found - expected).abs() / (1e-3 + expected.abs())).max())


def train(algorithm, env_name, settings, folder):
    settings = dict(settings)
    sizes = dict(hidden_sizes=(32, 32)) | settings.pop("ac_kwargs", {})
    function = getattr(spinup, f"{algorithm}_pytorch")
    where = dict(output_dir=folder)
    return function(EnvMaker(env_name), ac_kwargs=sizes, logger_kwargs=where, **settings)


@pytest.mark.parametrize("case", OFF_POLICY)
def test_each_update_of_a_training(case, monkeypatch, tmp_path):
    algorithm, env_name, settings = OFF_POLICY[case]
    module = importlib.import_module(f"spinup.algos.pytorch.{algorithm}.{algorithm}")
    update, differences, learners = module.update, [], []

    def twice(learner, batch, **settings):
        twin, stream = deepcopy((learner, settings)), torch.get_rng_state()
        with fast.plain():
            expected = update.eager(twin[0], batch, **twin[1])
        torch.set_rng_state(stream)
        found = update(learner, batch, **settings)
        assert list(found) == list(expected)
        here = [worst(found[key], expected[key]) for key in found if torch.is_tensor(found[key])]
        # Adam divides by the size of a gradient, so that one near zero moves a weight by a step of
        # any sign: weights are compared with its learning rate in mind, 1e-3 or less.
        for p, q in zip(learner.ac.parameters(), twin[0].ac.parameters(), strict=True):
            here.append(float((p - q).detach().abs().max()) / 5)
        differences.append(max(here))
        learners[:] = [learner]
        return found

    replace_update(monkeypatch, module, twice)
    train(algorithm, env_name, settings, tmp_path)
    report = update.report(learners[0])
    assert report.reason is None and report.eager_calls == 0
    assert report.replays == len(differences) >= 10
    assert 1 <= report.captures <= 2  # of which one without the policy's step, where that is rarer
    assert max(differences) < 2e-3, max(differences)


@pytest.mark.parametrize("case", ON_POLICY)
def test_a_training_with_the_fast_path_and_one_without(case, monkeypatch, tmp_path):
    results = {}
    for switch in (True, False):
        monkeypatch.setattr(user_config, "FAST", switch)
        ac = train(*ON_POLICY[case], tmp_path / str(switch))
        rows = (tmp_path / str(switch) / "progress.txt").read_text().splitlines()
        names, values = rows[0].split("\t"), np.array([r.split("\t") for r in rows[1:]], float)
        numbers = {n: v for n, v in zip(names, values.T) if n != "Time"}
        results[switch] = ac, numbers
        if switch:
            losses = {name: r for name, r in fast.reports().items() if r.replays}
            kept = [r for name, r in losses.items() if f".{ON_POLICY[case][0]}." in name]
            assert kept and all(r.reason is None and r.eager_calls == 0 for r in kept), losses
    (ac, numbers), (plain_ac, plain_numbers) = results[True], results[False]
    for name, expected in plain_numbers.items():
        np.testing.assert_allclose(numbers[name], expected, rtol=2e-3, atol=2e-3, err_msg=name)
    for p, q in zip(ac.parameters(), plain_ac.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-2, atol=5e-3)


@pytest.mark.parametrize("case", ["sac", "td3", "dqn", "ddpg", "her, arm", "acer"])
def test_actions_with_the_fast_path_and_without(case, monkeypatch, tmp_path):
    """Until the first update a run does the same either way, noise included."""
    algorithm, env_name, settings = OFF_POLICY[case]
    seen = {}
    for switch in (True, False):
        monkeypatch.setattr(user_config, "FAST", switch)
        settings = settings | dict(start_steps=5, update_after=10**6, replay_start=10**6)
        module = importlib.import_module(f"spinup.algos.pytorch.{algorithm}.{algorithm}")
        known = module.__dict__[algorithm].__code__.co_varnames
        settings = {k: v for k, v in settings.items() if k in known}
        if algorithm == "acer":
            settings |= dict(n_steps=1000, replay_size=1000)
        rows = seen[switch] = []
        step = VectorEnvStep(rows)
        monkeypatch.setattr("spinup.parts.envs.VectorEnv.step", step)
        train(algorithm, env_name, settings, tmp_path / str(switch))
        monkeypatch.undo()
    assert len(seen[True]) == len(seen[False]) > 50
    for here, there in zip(seen[True], seen[False]):
        np.testing.assert_allclose(here, there, rtol=1e-3, atol=1e-3)


class VectorEnvStep:
    """Steps an environment and keeps the actions."""

    def __init__(self, rows):
        from spinup.parts.envs import VectorEnv

        self.rows, self.step = rows, VectorEnv.step

    def __get__(self, env, kind):
        def step(actions):
            self.rows.append(np.array(actions, float))
            return self.step(env, actions)

        return step


# What stands in for plain code gives None where it does not; and what makes or replays a capture.
STAND_INS = {name for name in fast.__all__ if "None" in fast.__doc__.partition(name)[0]}
INSIDE = {"capture", "trace", "dependencies", "reachable", "kernels", "numpy_kernels", "fused_mlp"}


def test_with_the_switch_off_only_plain_code_runs(monkeypatch, tmp_path):
    """What stands in for plain code says that it does not, and nothing is captured."""
    monkeypatch.setattr(user_config, "FAST", False)
    entered, stood_in = set(), set()

    def note(frame, event, result):
        folder, _, file = frame.f_code.co_filename.replace("\\", "/").rpartition("/")
        if not folder.endswith("pytorch/fast"):
            return
        entered.add(file.removesuffix(".py"))
        if event == "return" and frame.f_code.co_name in STAND_INS and result is not None:
            stood_in.add(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        for case in ("sac", "td3", "dqn"):
            train(*OFF_POLICY[case], tmp_path / case)
        train(*ON_POLICY["ppo, minibatches"], tmp_path / "ppo")
    finally:
        sys.setprofile(None)
    assert entered and not entered & INSIDE
    assert stood_in == set()


# --- Operations, one by one ---


def learner_of():
    torch.manual_seed(0)
    network = mlp([3, 16, 1], nn.Tanh)
    return Learner(network, Adam(network.parameters(), 1e-2))


def test_results_are_the_callers_to_keep():
    @fast.recorded
    def update(learner, batch):
        return dict(total=(learner.ac(batch.x) * batch.y[:, None]).sum().detach())

    learner, kept = learner_of(), []
    for number in range(5):
        found = update(learner, Batch(torch.full((4, 3), float(number)), torch.ones(4)))["total"]
        kept.append((found, found.item()))
    assert update.report(learner).replays == 5
    assert [found.item() for found, _ in kept] == [value for _, value in kept]
    assert len({value for _, value in kept}) == 5


@pytest.mark.parametrize("rows", [130, 67, 2, 1])
@pytest.mark.parametrize("width", [2, 6, 40])
def test_every_operation_with_short_and_long_rows(rows, width):
    """Each operation that NumPy may carry out is asked for with numbers of several shapes."""

    @fast.recorded
    def update(learner, batch):
        x, y, z = batch.x, batch.y[:, :1], torch.nn.functional
        row, many = batch.y[0], batch.y[:1].expand(len(batch.x), -1)
        some = [
            x + y,
            x - 2 * y,
            3 - x,
            x * y,
            x / (y.abs() + 1),
            x**2,
            x**3,
            -x,
            x.exp(),
            (x.abs() + 1).log(),
            x.tanh(),
            x.abs().sqrt(),
            1 / (x.abs() + 1),
            x.expm1(),
            x.sigmoid(),
            z.softplus(3 * x),
            x.clamp(-0.5, 0.5),
            x.clamp(max=0.1),
            x.clamp(min=0),
            torch.addcmul(x, y, x, value=0.5),
            x.sum(),
            x.sum(0),
            x.sum(-1, keepdim=True),
            x.mean(),
            x.mean(0),
            x.amin(0),
            x.amax(-1),
            x.amax(),
            x.argmax(-1),
            torch.cat([x, x], 1),
            torch.stack([x, 2 * x], 1),
            torch.minimum(x, y),
            torch.maximum(x, y),
            x == y,
            x > 0,
            torch.where(x > y, x, y),
            z.smooth_l1_loss(x, y.expand_as(x), reduction="none"),
            x @ x.T,
            torch.addmm(y[:, 0], x, x.T),
            z.relu(x),
            x.log_softmax(-1),
            x.softmax(-1),
            x.gather(1, (x > 0).long()),
            torch.linalg.vector_norm(x),
            x.norm(dim=1),
            x.mean(dtype=torch.float64),
            x.double().float(),
            torch.randn_like(x),
            x * row,
            row * x,
            x / (row.abs() + 1),
            row - x,
            x - row,
            x + many,
            many / (x.abs() + 1),
            x.T.contiguous().T * row,
            torch.maximum(row, x),
            many.mean(),
            (many * 2).sum(),
            (x > row).float().mean(),
            row + row,
            x * x[:, :1],
            row * x[:, :1],
            x.clone().masked_fill_(x > row, 3.0),
            row * x.sum(1, keepdim=True),
            (9 * x).long() == (9 * row).long(),
            (9 * x).long() + (9 * row).long(),
        ]
        return dict(enumerate(some))

    learner = learner_of()
    torch.manual_seed(rows)
    for _ in range(4):
        batch = Batch(torch.randn(rows, width) * 2, torch.randn(rows, width))
        stream = torch.get_rng_state()
        expected = update.eager(learner, batch)
        torch.set_rng_state(stream)
        found = update(learner, batch)
        for key, value in expected.items():
            torch.testing.assert_close(found[key], value, rtol=1e-5, atol=1e-4, msg=str(key))
    assert update.report(learner).replays == 4


SHAPES = [(100, 256, 256), (4000, 64, 6), (4000, 17, 64), (50, 300, 1), (1, 256, 300), (3000, 1, 9)]


@pytest.mark.parametrize("rows, inner, columns", SHAPES)
def test_products_of_all_shapes(rows, inner, columns):
    """By whichever library: of both layouts of a matrix, stacked ones, with a bias, and sums."""
    learner, bias = learner_of(), torch.randn(2, 1, columns)

    @fast.recorded
    def update(learner, batch):
        some = []
        for y in (batch.y, batch.y.mT.contiguous().mT):
            some += [batch.x[0] @ y[0], batch.x @ y, torch.addmm(bias[0, 0], batch.x[0], y[0])]
            some += [torch.baddbmm(bias, batch.x, y), batch.x.sum(1, keepdim=True)]
        return dict(enumerate(some))

    for _ in range(3):
        batch = Batch(torch.randn(2, rows, inner), torch.randn(2, inner, columns))
        found, expected = update(learner, batch), update.eager(learner, batch)
        for key, value in expected.items():
            torch.testing.assert_close(found[key], value, rtol=1e-4, atol=1e-3, msg=str(key))
    assert update.report(learner).replays == 3


def test_memory_is_shared_only_by_what_does_not_overlap_in_time():
    """A long chain in which every value is used again at the end, in reverse."""

    @fast.recorded
    def update(learner, batch):
        values = [batch.x]
        for i in range(12):
            values.append(torch.tanh(values[-1] * (i + 1)).clone() if i % 3 else -values[-1])
        total = sum(value * (i + 1) for i, value in enumerate(reversed(values)))
        return dict(total=total, last=values[-1], first=values[1])

    learner = learner_of()
    for _ in range(4):
        batch = Batch(torch.randn(8, 3), torch.randn(8))
        for key, expected in update.eager(learner, batch).items():
            torch.testing.assert_close(update(learner, batch)[key], expected, rtol=1e-4, atol=1e-5)
    assert update.report(learner).reason is None


def test_an_image_task_with_channels_last_is_captured():
    env = gym.make("CartPole-v1")
    space = gym.spaces.Box(0, 255, (16, 16, 3), np.uint8)
    from spinup.algos.pytorch.dqn import core, dqn

    torch.manual_seed(0)
    learner = dqn.make_learner(core.MLPQNetwork(space, env.action_space, hidden_sizes=(16,)), 1e-3)
    twin = deepcopy(learner)
    settings = dict(double_q=True, polyak=0.9, move_target=True, max_grad_norm=1.0)
    for _ in range(10):
        o, o2 = torch.randint(256, (2, 32, 16, 16, 3)).float()
        n = torch.zeros(32)
        act, row = torch.randint(2, (32,)), torch.arange(32)
        batch = dqn.NStepTransitions(o, act, torch.randn(32), o2, n, n + 0.9, n + 1 / 32, row)
        dqn.update(learner, batch, **settings)
        with fast.plain():
            dqn.update.eager(twin, batch, **settings)
    assert dqn.update.report(learner).replays == 10
    for p, q in zip(learner.ac.parameters(), twin.ac.parameters()):
        torch.testing.assert_close(p, q, rtol=1e-2, atol=1e-3)
