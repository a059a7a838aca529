"""A recorded update computes what the update as written computes, and nothing it should not.

Every algorithm is trained for a moment; each of its updates is made twice, once by the recording
and once line by line on a copy of the learner, with the same random numbers.
"""

import importlib
from copy import deepcopy
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import pytest
import torch
from learners import Batch, Learner
from torch import nn
from torch.profiler import profile

import spinup
from spinup import user_config
from spinup.parts.envs import EnvMaker
from spinup.parts.pytorch import learning
from spinup.parts.pytorch.fast import capture as recording
from spinup.parts.pytorch.fast.capture import Recording, recorded
from spinup.parts.pytorch.layers import mlp
from spinup.parts.pytorch.learning import Adam, gradient_step, polyak_average

SHORT = dict(epochs=1, steps_per_epoch=120, update_after=40, start_steps=40, num_test_episodes=0)
CASES = {
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
}  # fmt: skip
ON_POLICY = {
    "ppo": ("ppo", "CartPole-v1", {}),
    "ppo, minibatches": ("ppo", "Pendulum-v1", dict(minibatch_size=48, max_grad_norm=0.5)),
    "ppo, normalised": ("ppo", "Pendulum-v1", dict(ac_kwargs=dict(normalize=True), ent_coef=0.01)),
    "vpg": ("vpg", "CartPole-v1", {}),
    "trpo": ("trpo", "Pendulum-v1", {}),
    "reinforce": ("reinforce", "CartPole-v1", dict(baseline="value")),
}


def worst(found, expected) -> float:
    """The largest difference, in units of what single precision and its sums leave uncertain."""
    found, expected = found.detach().float(), expected.detach().float()
    return float(((found - expected).abs() / (1e-3 + expected.abs())).max())


def compare(recorded_one, log):
    """A stand-in for a recorded function that makes every update twice and compares."""

    def both(learner, batch, **settings):
        twin = deepcopy((learner, settings))
        stream = torch.get_rng_state()
        expected = recorded_one.as_written(twin[0], batch, **twin[1])
        torch.set_rng_state(stream)
        found = recorded_one(learner, batch, **settings)
        leaves, same = (torch.utils._pytree.tree_flatten(x)[0] for x in (found, expected))
        differences = [worst(a, b) for a, b in zip(leaves, same, strict=True) if torch.is_tensor(a)]
        # Adam divides by the size of a gradient, so that one near zero moves a weight by a step of
        # any sign: weights are compared with its step size in mind, 1e-3 or less.
        networks = [vars(x[0]).get("ac", x[0]) for x in ((learner,), twin)]
        for p, q in zip(*(network.parameters() for network in networks), strict=True):
            differences.append(float((p - q).abs().max()) / 5)
        log.append(max(differences))
        return found

    both.as_written = recorded_one.as_written
    return both


def train(algorithm, env_name, settings, folder):
    function = getattr(spinup, f"{algorithm}_pytorch")
    sizes = dict(hidden_sizes=(32, 32)) | settings.pop("ac_kwargs", {})
    where = dict(output_dir=folder)
    function(EnvMaker(env_name), ac_kwargs=sizes, logger_kwargs=where, **settings)


@pytest.mark.parametrize("case", CASES)
def test_whole_updates(case, monkeypatch, tmp_path):
    algorithm, env_name, settings = CASES[case]
    module = importlib.import_module(f"spinup.algos.pytorch.{algorithm}.{algorithm}")
    made, log = [], []
    monkeypatch.setattr(Recording, "__init__", counted(Recording.__init__, made))
    monkeypatch.setattr(module, "update", compare(module.update, log))
    train(algorithm, env_name, dict(settings), tmp_path)
    assert 1 <= len(made) <= 2  # of which one without the policy's step, where that is rarer
    assert len(log) > 10
    assert max(log) < 2e-3, max(log)


@pytest.mark.parametrize("case", ON_POLICY)
def test_single_steps(case, monkeypatch, tmp_path):
    algorithm, env_name, settings = ON_POLICY[case]
    made, log = [], []
    monkeypatch.setattr(Recording, "__init__", counted(Recording.__init__, made))
    monkeypatch.setattr(learning, "_gradient", compare(learning._gradient, log))
    few = dict(train_v_iters=5) | (dict(train_pi_iters=5) if algorithm == "ppo" else {})
    train(algorithm, env_name, dict(epochs=3, steps_per_epoch=200, **few, **settings), tmp_path)
    assert 1 <= len(made) <= 4  # policy and value, and the shorter last part of a pass
    assert len(log) >= 15
    assert max(log) < 2e-3, max(log)


def counted(function, calls):
    def call(*args, **kwargs):
        calls.append(args)
        return function(*args, **kwargs)

    return call


# --- What may be recorded ---


def learner_of(network=None):
    torch.manual_seed(0)
    network = network or mlp([3, 16, 1], nn.Tanh)
    return Learner(network, Adam(network.parameters(), 1e-2))


def batch_of(rows=8):
    return Batch(torch.randn(rows, 3), torch.randn(rows))


def plain_update(learner, batch, *, scale=1.0):
    loss = ((learner.ac(batch.x).squeeze(-1) - batch.y) ** 2).mean() * scale
    gradient_step(learner.optimizer, loss)
    return dict(loss=loss)


def snapshot(learner):
    numbers = [*learner.ac.parameters(), *learner.optimizer.exp_avgs, learner.optimizer.counts]
    return torch.cat([x.detach().reshape(-1) for x in numbers]).clone()


def test_recording_itself_changes_nothing():
    learner, before_rng = learner_of(), torch.get_rng_state()
    batch, before = batch_of(), snapshot(learner)
    stream = torch.get_rng_state()
    Recording(plain_update, learner, batch, {})
    assert torch.equal(before, snapshot(learner))
    assert torch.equal(stream, torch.get_rng_state())
    assert not torch.equal(before_rng, stream)  # the batch was drawn in between


def test_results_are_the_callers_to_keep():
    learner, update = learner_of(), recorded(plain_update)
    first = update(learner, batch_of())
    value = first["loss"].item()
    second = update(learner, batch_of())
    assert first["loss"].item() == value != second["loss"].item()


def test_plain_values_and_sizes_have_recordings_of_their_own():
    learner, update, made = learner_of(), recorded(plain_update), []
    twin = deepcopy(learner)
    for rows, scale in ((8, 1.0), (8, 3.0), (5, 1.0), (8, 3.0), (8, 1.0)):
        batch = batch_of(rows)
        made.append(update(learner, batch, scale=scale)["loss"].item())
        expected = plain_update(twin, batch, scale=scale)["loss"].item()
        assert made[-1] == pytest.approx(expected, rel=1e-4)
    for p, q in zip(learner.ac.parameters(), twin.ac.parameters()):
        torch.testing.assert_close(p, q, rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-3, atol=1e-4)  # of the last call


def test_loaded_weights_and_moments_are_used():
    learner, update = learner_of(), recorded(plain_update)
    saved = deepcopy((learner.ac.state_dict(), learner.optimizer.state_dict()))
    batch = batch_of()
    first = [update(learner, batch)["loss"].item() for _ in range(3)]
    learner.ac.load_state_dict(saved[0])
    learner.optimizer.load_state_dict(saved[1])
    assert [update(learner, batch)["loss"].item() for _ in range(3)] == first


class Own(nn.Module):
    """A network of a user's own, which does something new at every call."""

    def __init__(self):
        super().__init__()
        self.net, self.calls = mlp([3, 8, 1], nn.Tanh), 0

    def forward(self, x):
        self.calls += 1
        return self.net(x) * self.calls


LEAVING = {
    "a decision": lambda loss: loss if loss > 100 else 2 * loss,
    "a number": lambda loss: loss * loss.item(),
    "an array": lambda loss: loss * float(loss.detach().numpy()),
    "a list": lambda loss: loss * loss.detach().reshape(1).tolist()[0],
    "a text": lambda loss: loss * float(f"{loss.detach():.6f}"),
    "noise of NumPy's": lambda loss: loss * torch.from_numpy(np.random.rand(1)).float().sum(),
    "a choice of rows": lambda loss: loss * torch.arange(3.0)[torch.arange(3) > loss].sum(),
}


@pytest.mark.parametrize("way", LEAVING)
def test_what_leaves_pytorch_runs_as_written(way):
    def update(learner, batch):
        loss = LEAVING[way](((learner.ac(batch.x).squeeze(-1) - batch.y) ** 2).mean())
        gradient_step(learner.optimizer, loss)
        return dict(loss=loss)

    learner, twin, fast = learner_of(), learner_of(), recorded(update)
    for i in range(4):
        batch, losses = batch_of(), []
        for function, owner in ((fast, learner), (update, twin)):
            np.random.seed(i)
            losses.append(function(owner, batch)["loss"])
        if i == 0 and way == "noise of NumPy's":
            twin.ac.load_state_dict(learner.ac.state_dict())  # the attempt to record drew one
            twin.optimizer.load_state_dict(learner.optimizer.state_dict())
        else:
            assert torch.equal(*losses)
    assert torch.equal(snapshot(learner), snapshot(twin))


def test_a_value_learned_meanwhile_does_not_move_the_gradients_of_a_policy():
    """Two optimizers of one network, each with recordings of several sizes, take turns."""
    torch.manual_seed(0)
    ac = nn.ModuleDict(dict(pi=mlp([3, 8, 1], nn.Tanh), v=mlp([3, 8, 1], nn.Tanh)))
    twin = deepcopy(ac)
    optimizers = [{k: Adam(net[k].parameters(), 1e-2) for k in ("pi", "v")} for net in (ac, twin)]

    def loss_of(name):
        return lambda ac, batch: ((ac[name](batch.x).squeeze(-1) - batch.y) ** 2).mean()

    losses = {name: loss_of(name) for name in ("pi", "v")}
    for rows in (8, 8, 5, 8, 5, 5, 8):
        batch = batch_of(rows)
        for step, net, opt in (
            (learning._gradient, ac, optimizers[0]),
            (learning._gradient.as_written, twin, optimizers[1]),
        ):
            call = {
                n: dict(optimizer=opt[n], compute_loss=losses[n], max_grad_norm=None)
                for n in losses
            }
            step(net, batch, step=False, **call["pi"])
            step(net, batch, step=True, **call["v"])
            opt["pi"].step()
    for p, q in zip(ac.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-3, atol=1e-4)


def test_networks_of_a_users_own_run_as_written():
    learner = learner_of(Own())
    update = recorded(plain_update)
    for _ in range(3):
        update(learner, batch_of())
    assert learner.ac.calls == 3


def test_nothing_is_recorded_where_the_user_wants_to_look(monkeypatch):
    monkeypatch.setattr(user_config, "RECORD_UPDATES", False)
    seen = []
    update = recorded(lambda learner, batch: seen.append(1) or plain_update(learner, batch))
    learner = learner_of()
    for _ in range(3):
        update(learner, batch_of())
    assert len(seen) == 3


def test_a_setting_that_is_new_at_every_call_is_not_recorded_forever(monkeypatch):
    made = []
    monkeypatch.setattr(Recording, "__init__", counted(Recording.__init__, made))
    learner, twin, update = learner_of(), learner_of(), recorded(plain_update)
    for i in range(20):
        batch = batch_of()
        update(learner, batch, scale=1.0 + i)
        plain_update(twin, batch, scale=1.0 + i)
    assert len(made) == recording.MOST_RECORDINGS
    torch.testing.assert_close(snapshot(learner), snapshot(twin), rtol=1e-3, atol=1e-4)


def test_memory_is_shared_only_by_what_does_not_overlap_in_time():
    """A long chain in which every value is used again at the end, in reverse."""

    def update(learner, batch):
        values = [batch.x]
        for i in range(12):
            values.append(torch.tanh(values[-1] * (i + 1)).clone() if i % 3 else -values[-1])
        total = sum(value * (i + 1) for i, value in enumerate(reversed(values)))
        return dict(total=total, last=values[-1], first=values[1])

    learner, fast = learner_of(), recorded(update)
    for _ in range(3):
        batch = batch_of()
        for key, expected in update(learner, batch).items():
            torch.testing.assert_close(fast(learner, batch)[key], expected, rtol=1e-4, atol=1e-5)


def test_a_slow_copy_follows_a_recorded_update():
    @dataclass
    class Pair(Learner):
        target: nn.Module = None

    def update(learner, batch):
        found = plain_update(learner, batch)
        polyak_average(learner.ac, learner.target, 0.9)
        return found

    pair = Pair(**vars(learner_of()), target=deepcopy(learner_of().ac))
    fast = recorded(update)
    for _ in range(3):
        before = deepcopy(list(pair.target.parameters()))
        fast(pair, batch_of())
        for old, new, aim in zip(before, pair.target.parameters(), pair.ac.parameters()):
            torch.testing.assert_close(new, old + 0.1 * (aim - old), rtol=1e-5, atol=1e-6)


# --- What an update may ask of PyTorch ---

# At most so many operations of PyTorch in one update of networks of (64, 64), once it is recorded.
LIMITS = {"sac": 26, "td3": 17, "ddpg": 5, "dqn": 11}


def operations_of_an_update(algorithm):
    module = importlib.import_module(f"spinup.algos.pytorch.{algorithm}.{algorithm}")
    env = gym.make("CartPole-v1" if algorithm == "dqn" else "Pendulum-v1")
    torch.manual_seed(0)
    network = getattr(module.core, "MLPQNetwork" if algorithm == "dqn" else "MLPActorCritic")
    ac = network(env.observation_space, env.action_space, hidden_sizes=(64, 64))
    rates = dict(sac=(1e-3, 0.2), dqn=(1e-3,)).get(algorithm, (1e-3, 1e-3))
    learner = module.make_learner(ac, *rates)
    n, obs = 64, env.observation_space.shape[0]
    o, o2, r, over = torch.randn(n, obs), torch.randn(n, obs), torch.randn(n), torch.zeros(n)
    settings = dict(gamma=0.99, polyak=0.995)
    if algorithm == "dqn":
        act, rows = torch.randint(2, (n,)), torch.arange(n)
        batch = module.NStepTransitions(o, act, r, o2, over, over + 0.99, over + 1 / n, rows)
        settings = dict(double_q=True, polyak=0.995, move_target=True, max_grad_norm=10.0)
    else:
        batch = module.Transitions(o, torch.rand(n, 1), r, o2, over)
    if algorithm == "sac":
        settings |= dict(target_entropy=-1.0)
    if algorithm == "td3":
        settings |= dict(target_noise=0.2, noise_clip=0.5, bounds=ac.pi.range, move_policy=True)
    for _ in range(2):
        module.update(learner, batch, **settings)
    with profile() as seen:
        module.update(learner, batch, **settings)
    counts = {event.key: event.count for event in seen.key_averages()}
    # Inside PyTorch's fused Adam, one look at the number of steps of each parameter.
    learned = sum(len(x.counts) for x in vars(learner).values() if isinstance(x, Adam))
    for name in ("aten::item", "aten::_local_scalar_dense"):
        assert counts.pop(name) == learned
    return counts


@pytest.mark.parametrize("algorithm", LIMITS)
def test_an_update_asks_little_of_pytorch(algorithm):
    counts = operations_of_an_update(algorithm)
    operations = sum(n for name, n in counts.items() if name.startswith("aten::"))
    assert operations <= LIMITS[algorithm], counts
    assert not {"aten::_to_copy", "aten::clone", "aten::empty", "aten::empty_strided"} & set(counts)
    assert not [name for name in counts if "Backward" in name or "autograd" in name], counts


def test_arrays_and_recordings_agree_on_every_kernel():
    """Each operation that NumPy carries out again is asked for with numbers of several shapes."""
    from spinup.parts.pytorch.fast import kernels

    def update(learner, batch):
        x, y = batch.x, batch.y[:, None]
        z = torch.nn.functional
        some = [
            x + y, x - 2 * y, 3 - x, x * y, x / (y.abs() + 1), x**2, x**3, -x, x.exp(),
            (x.abs() + 1).log(), x.tanh(), x.abs().sqrt(), 1 / (x.abs() + 1), x.expm1(),
            x.sigmoid(), z.softplus(3 * x), x.clamp(-0.5, 0.5), x.clamp(max=0.1), x.clamp(min=0),
            torch.addcmul(x, y, x, value=0.5), x.sum(), x.sum(0), x.sum(-1, keepdim=True), x.mean(),
            x.mean(0), x.amin(0), x.amax(-1), x.argmax(-1), torch.cat([x, x], 1),
            torch.stack([x, 2 * x], 1), torch.minimum(x, y), torch.maximum(x, y), x == y, x > 0,
            torch.where(x > y, x, y), z.smooth_l1_loss(x, y.expand_as(x), reduction="none"),
            x @ x.T, torch.addmm(batch.y, x, x.T), z.relu(x), x.log_softmax(-1), x.softmax(-1),
            x.gather(1, (x > 0).long()), torch.linalg.vector_norm(batch.y), batch.y @ batch.y,
            x.double().float(), torch.randn_like(x), torch.rand_like(x),
        ]  # fmt: skip
        return dict(enumerate(some))

    learner, fast = learner_of(), recorded(update)
    for _ in range(2):
        batch = Batch(torch.randn(6, 3) * 2, torch.randn(6))
        stream = torch.get_rng_state()
        expected = update(learner, batch)
        torch.set_rng_state(stream)
        found = fast(learner, batch)
        for key, value in expected.items():
            torch.testing.assert_close(found[key], value, rtol=1e-5, atol=1e-6, msg=str(key))
    assert len(kernels._NUMPY) > 50
    assert np.isfinite(found[0].numpy()).all()


ROWS = {"rows in tens": 130, "a prime number of rows": 67, "one row": 1, "two rows": 2}


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("width", [2, 6, 40])
def test_rows_that_are_alike_are_gone_through_together(rows, width):
    def update(learner, batch):
        x, row, many = batch.x, batch.y[0], batch.y[:1].expand(len(batch.x), -1)
        some = [
            x * row, row * x, x / (row.abs() + 1), row - x, x - row, x + many, many / (x.abs() + 1),
            x.T.contiguous().T * row, torch.maximum(row, x), torch.addmm(row, x, x.T @ x),
            many.mean(), many.mean(0), (many * 2).sum(), x**1, x**2,
            (x > row).float().mean(), row + row, x * x[:, :1], row * x[:, :1],
            x.clone().masked_fill_(x > row, 3.0), row * x.sum(1, keepdim=True),
            (9 * x).long() == (9 * row).long(), (9 * x).long() + (9 * row).long(),
        ]  # fmt: skip
        return dict(enumerate(some))

    learner, fast = learner_of(), recorded(update)
    for _ in range(2):  # the second time, with other numbers in the same places
        batch = Batch(torch.randn(ROWS[rows], width), torch.randn(ROWS[rows], width))
        found = fast(learner, batch)
        for key, value in update(learner, batch).items():
            torch.testing.assert_close(found[key], value, rtol=1e-5, atol=1e-5, msg=str(key))


SHAPES = [(100, 256, 256), (4000, 64, 6), (4000, 17, 64), (50, 300, 1), (1, 256, 300), (3000, 1, 9)]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("rows, inner, columns", SHAPES)
def test_products_of_all_shapes(rows, inner, columns, threads):
    """By whichever library: of both layouts of a matrix, stacked ones, with a bias, and sums."""
    from spinup.parts.pytorch.fast.kernels import again

    x, bias, aten = torch.randn(2, rows, inner), torch.randn(2, 1, columns), torch.ops.aten
    for y in (torch.randn(2, inner, columns), torch.randn(2, columns, inner).mT):
        calls = {
            aten.mm.default: (x[0], y[0]),
            aten.bmm.default: (x, y),
            aten.addmm.default: (bias[0, 0], x[0], y[0]),
            aten.baddbmm.default: (bias, x, y),
            aten.sum.dim_IntList: (x, [1], True),
        }
        for operation, args in calls.items():
            expected = operation(*args)
            found = torch.full_like(expected, torch.nan)
            again(operation, args, {}, found, threads)()
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-3, msg=str(operation))
