"""Observations are normalised inside the policy, by all that was seen; nothing can lose that."""

import csv
import os
import subprocess
import sys
from copy import deepcopy
from pathlib import Path

import algorithm_kinds
import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from torch import nn

import spinup
from spinup import ppo_pytorch
from spinup.parts.errors import UserError
from spinup.parts.make_env import EnvMaker
from spinup.parts.mpi import mpiexec
from spinup.parts.pytorch.layers import (
    RunningNormalizer,
    apply_to_arrays,
    count_vars,
    observation_mlp,
    update_normalizers,
)
from spinup.parts.pytorch.learning import Adam, gradient_step
from spinup.parts.pytorch.models import build_network, load_model
from spinup.parts.pytorch.networks import MLPActorCritic
from spinup.results.playback import load_policy_and_env

TESTS = Path(__file__).parent

SIGHT = Box(-np.inf, np.inf, (4,), np.float32)
SMALL = dict(steps_per_epoch=200, train_pi_iters=3, train_v_iters=3)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)
    return np.random.default_rng(0)


def table(folder):
    with open(folder / "progress.txt") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def mixed(rng, rows):
    """Numbers of very different kinds: usual, huge, tiny, far from zero, and always the same."""
    usual = rng.standard_normal((rows, 5))
    return np.float32(usual * [1, 1e6, 1e-6, 0.5, 0] + [0.3, -2e6, 1e-6, 5000, 0.1])


# --- The module by itself ---


def test_at_first_nothing_changes(seed):
    obs = torch.as_tensor(seed.uniform(-10, 10, (6, 3)).astype(np.float32))
    assert torch.equal(RunningNormalizer(3)(obs), obs)


def test_statistics_are_those_of_all_that_was_seen(seed):
    normalizer, seen = RunningNormalizer((5,)), []
    for rows in (1, 700, 3, 5000):
        seen.append(mixed(seed, rows))
        normalizer.update(torch.as_tensor(seen[-1]))
        everything = np.concatenate(seen).astype(np.float64)
        assert normalizer.count.item() == len(everything)
        for found, expected in (
            (normalizer.mean, everything.mean(0)),
            (normalizer.var.sqrt(), everything.std(0)),
        ):
            np.testing.assert_allclose(found.numpy(), expected, rtol=1e-9, atol=1e-13)


def test_what_comes_out_has_mean_zero_and_spread_one(seed):
    normalizer, obs = RunningNormalizer(5), mixed(seed, 5000)
    normalizer.update(torch.as_tensor(obs))
    out = normalizer(torch.as_tensor(obs)).numpy().astype(np.float64)
    np.testing.assert_allclose(out.mean(0), 0, atol=1e-3)
    np.testing.assert_allclose(out.std(0), [1, 1, 1, 1, 0], atol=1e-3)
    by_hand = (obs[0].astype(np.float64) - obs.mean(0, np.float64))[:3] / obs.std(0, np.float64)[:3]
    np.testing.assert_allclose(out[0, :3], by_hand, rtol=1e-4)


def test_a_number_that_never_changed_is_only_shifted(seed):
    normalizer = RunningNormalizer(5)
    normalizer.update(torch.as_tensor(mixed(seed, 100)))
    moved = torch.tensor([0, 0, 0, 0, 0.1 + 2])
    assert normalizer(moved)[4] == pytest.approx(2)


def test_far_outliers_are_clipped(seed):
    normalizer = RunningNormalizer(1)
    normalizer.update(torch.tensor([[0.0], [2.0]]))  # mean 1, spread 1
    out = normalizer(torch.tensor([[-1e9], [0.0], [10.5], [11.5]]))
    assert out.flatten().tolist() == [-10, -1, 9.5, 10]


@pytest.mark.parametrize("shape", [(5,), (2, 3)])
@pytest.mark.parametrize("activation", [nn.Tanh, nn.ReLU, nn.ELU])
def test_acting_in_numpy_gives_what_pytorch_gives(shape, activation, seed):
    net = observation_mlp(shape, [16, 4], activation, RunningNormalizer(shape))
    apply_to_arrays(net, torch.zeros(1, *shape))  # made ready before anything was seen

    def agree(network):
        for rows in (1, 3, 100):
            obs = torch.as_tensor(seed.normal(50, 30, (rows, *shape)).astype(np.float32))
            expected = network(obs).detach()
            torch.testing.assert_close(torch.tensor(apply_to_arrays(network, obs)), expected)

    for _ in range(3):
        update_normalizers(net, torch.as_tensor(seed.normal(50, 3, (20, *shape))).float())
        agree(net)
    copy = deepcopy(net)
    update_normalizers(net, torch.zeros(500, *shape))
    agree(copy)
    agree(net)
    assert not torch.equal(copy[0].mean, net[0].mean)
    net.load_state_dict(copy.state_dict())
    agree(net)
    assert (
        apply_to_arrays(net, torch.ones(1, *shape)) == apply_to_arrays(copy, torch.ones(1, *shape))
    ).all()


# --- In a policy ---


@pytest.mark.parametrize("actions", [Box(-1, 1, (2,), np.float32), Discrete(3)])
def test_policy_and_value_share_one_that_no_gradient_moves(actions, seed):
    ac = MLPActorCritic(SIGHT, actions, normalize=True)
    first = [net[0] for net in (ac.v.v_net, getattr(ac.pi, "mu_net", None) or ac.pi.logits_net)]
    assert first[0] is first[1]
    assert [type(m) for m in ac.modules()].count(RunningNormalizer) == 1
    assert count_vars(ac) == count_vars(MLPActorCritic(SIGHT, actions))
    obs = torch.as_tensor(seed.normal(7, 3, (50, 4)).astype(np.float32))
    update_normalizers(ac, obs)
    before = {name: value.clone() for name, value in first[0].state_dict().items()}
    gradient_step(Adam(ac.v.parameters(), 0.1), ac.v(obs).square().mean())
    for name, value in first[0].state_dict().items():
        assert torch.equal(value, before[name]), name
    assert not torch.allclose(ac.v(obs), MLPActorCritic(SIGHT, actions).v(obs))


def test_a_network_without_one_is_left_alone(seed):
    ac = MLPActorCritic(SIGHT, Discrete(2))
    before = deepcopy(ac.state_dict())
    update_normalizers(ac, torch.randn(20, 4))
    assert all(torch.equal(before[name], value) for name, value in ac.state_dict().items())


def test_true_or_false():
    with pytest.raises(UserError, match="normalize in ac_kwargs must be True or False, not 'yes'"):
        build_network(MLPActorCritic, SIGHT, Discrete(2), dict(normalize="yes"))


class Recording(MLPActorCritic):
    """Keeps every observation it is asked to act on."""

    def step(self, obs):
        SEEN.append(obs.numpy().copy())
        return super().step(obs)


SEEN = []


def run(folder, epochs=3, env_name="CartPole-v1", **more):
    SEEN.clear()
    settings = SMALL | dict(ac_kwargs=dict(normalize=True, hidden_sizes=(16,))) | more
    where = dict(output_dir=str(folder))
    return ppo_pytorch(EnvMaker(env_name), epochs=epochs, logger_kwargs=where, **settings)


@pytest.mark.parametrize("num_envs", [1, 4])
def test_a_run_has_the_statistics_of_every_observation_it_acted_on(num_envs, tmp_path):
    ac = run(tmp_path, actor_critic=Recording, num_envs=num_envs)
    everything = np.concatenate(SEEN).astype(np.float64)
    normalizer = ac.v.v_net[0]
    assert normalizer.count.item() == len(everything) == 600
    np.testing.assert_allclose(normalizer.mean.numpy(), everything.mean(0), rtol=1e-9)
    np.testing.assert_allclose(normalizer.var.sqrt().numpy(), everything.std(0), rtol=1e-9)


@pytest.mark.parametrize("algorithm", algorithm_kinds.ON_POLICY)
def test_every_on_policy_algorithm_learns_the_statistics(algorithm, tmp_path):
    ac = getattr(spinup, f"{algorithm}_pytorch")(
        EnvMaker("CartPole-v1"),
        steps_per_epoch=100,
        epochs=2,
        train_v_iters=2,
        ac_kwargs=dict(normalize=True),
        logger_kwargs=dict(output_dir=tmp_path),
    )
    assert ac.v.v_net[0].count.item() == 200
    loaded = load_model(tmp_path / "pyt_save" / "model.pt")
    assert loaded.v.v_net[0].count.item() == 200


def test_two_processes_have_the_statistics_of_what_both_acted_on(tmp_path):
    program = f"""
import numpy as np, sys
sys.path[:0] = [{str(TESTS)!r}, {str(TESTS / "helpers")!r}]
import test_observations_are_normalised_inside_the_policy as here
from mpi4py import MPI
ac = here.run({str(tmp_path)!r}, actor_critic=here.Recording, num_envs=2)
everything = np.concatenate(MPI.COMM_WORLD.allgather(np.concatenate(here.SEEN))).astype(np.float64)
normalizer = ac.v.v_net[0]
assert normalizer.count.item() == len(everything) == 600
assert len(np.unique(everything, axis=0)) > 500  # the processes have seen different things
np.testing.assert_allclose(normalizer.mean.numpy(), everything.mean(0), rtol=1e-9)
np.testing.assert_allclose(normalizer.var.sqrt().numpy(), everything.std(0), rtol=1e-9)
states = MPI.COMM_WORLD.allgather({{k: v.numpy().tobytes() for k, v in ac.state_dict().items()}})
assert states[0] == states[1]
print("agreed")
"""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = str(TESTS.parent)
    command = [mpiexec(), "-n", "2", sys.executable, "-c", program]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("agreed") == 2


def test_an_update_still_sees_the_policy_that_acted(tmp_path):
    """Before its first step a policy is no distance away from itself: same statistics, too."""
    run(tmp_path, train_pi_iters=1)
    assert [abs(float(row["KL"])) < 1e-6 for row in table(tmp_path)] == [True] * 3
    assert [float(row["ClipFrac"]) for row in table(tmp_path)] == [0] * 3


@pytest.mark.parametrize("env_name", ["CartPole-v1", "Pendulum-v1"])
def test_a_loaded_policy_acts_as_the_trained_one(env_name, tmp_path, seed):
    trained = run(tmp_path, env_name=env_name)
    _, get_action = load_policy_and_env(tmp_path, deterministic=True)
    loaded = load_model(tmp_path / "pyt_save" / "model.pt")
    assert loaded.v.v_net[0].count.item() == 600
    for obs in seed.normal(0, 2, (50, *trained.obs_shape)).astype(np.float32):
        batch = torch.as_tensor(obs)[None]
        expected = trained.act(batch, deterministic=True)[0]
        space = gym.make(env_name).action_space
        assert np.array_equal(
            get_action(obs),
            np.clip(expected, space.low, space.high) if isinstance(space, Box) else expected,
        )
        assert loaded.v.value(batch) == trained.v.value(batch)


def test_a_resumed_run_equals_an_unbroken_one(tmp_path):
    whole = run(tmp_path / "whole", epochs=4)
    run(tmp_path / "broken", epochs=2)
    resumed = run(tmp_path / "broken", epochs=4, resume=True)
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name
    for a, b in zip(table(tmp_path / "whole"), table(tmp_path / "broken"), strict=True):
        assert a | dict(Time=0) == b | dict(Time=0)


# --- What it is good for ---


def badly_scaled():
    """CartPole measured in units that nobody would choose."""
    scale, shift = np.float32([300, 0.01, 1000, 0.01]), np.float32([500, 3, -2000, 0.1])
    env = gym.make("CartPole-v1")
    space = Box(-np.inf, np.inf, (4,), np.float32)
    return gym.wrappers.TransformObservation(env, lambda obs: obs * scale + shift, space)


def learned(folder, normalize, seed=0):
    settings = dict(
        pi_lr=1e-3,
        vf_lr=3e-3,
        lam=0.95,
        target_kl=0.02,
        train_pi_iters=10,
        train_v_iters=10,
        minibatch_size=250,
        num_envs=8,
        steps_per_epoch=2000,
        epochs=9,
        seed=seed,
    )
    where, ac_kwargs = dict(output_dir=str(folder)), dict(normalize=normalize)
    ppo_pytorch(badly_scaled, ac_kwargs=ac_kwargs, logger_kwargs=where, **settings)
    return float(table(folder)[-1]["AverageEpRet"])


def test_badly_scaled_observations_are_learned_from(tmp_path):
    assert learned(tmp_path / "with", normalize=True) >= 200
    assert learned(tmp_path / "without", normalize=False) < 60
