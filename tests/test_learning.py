"""Each algorithm learns its smallest task within a budget that a broken one cannot meet."""

import csv

import pytest

import spinup
from spinup.parts.envs import EnvMaker

SMALL = dict(hidden_sizes=(64, 64))
FAST_PPO = dict(
    pi_lr=1e-3, vf_lr=3e-3, lam=0.95, target_kl=0.02,
    train_pi_iters=10, train_v_iters=10, minibatch_size=250,
)  # fmt: skip
TASKS = {
    "reinforce on CartPole": (
        "reinforce", "CartPole-v1", 300,
        dict(epochs=100, steps_per_epoch=1000, num_envs=2, vf_lr=1e-2, train_v_iters=20),
    ),
    "vpg on CartPole": (
        "vpg", "CartPole-v1", 300,
        dict(epochs=60, steps_per_epoch=1000, num_envs=2, pi_lr=7e-3, vf_lr=3e-3),
    ),
    "ppo on CartPole": (
        "ppo", "CartPole-v1", 400,
        dict(epochs=20, steps_per_epoch=2000, num_envs=8, **FAST_PPO),
    ),
    "ppo on InvertedPendulum": (
        "ppo", "InvertedPendulum-v5", 500,
        dict(epochs=12, steps_per_epoch=4000, num_envs=2, **FAST_PPO),
    ),
    "sac on Pendulum": (
        "sac", "Pendulum-v1", -250,
        dict(epochs=6, steps_per_epoch=1000, start_steps=500, update_after=500, ac_kwargs=SMALL),
    ),
    "sac with learned temperature on Pendulum": (
        "sac", "Pendulum-v1", -250,
        dict(epochs=6, steps_per_epoch=1000, start_steps=500, update_after=500, ac_kwargs=SMALL,
             alpha="auto"),
    ),
    "dqn on CartPole": (
        "dqn", "CartPole-v1", 400,
        dict(epochs=10, steps_per_epoch=5000, start_steps=100, update_after=100,
             epsilon_steps=1000, epsilon_end=0.1),
    ),
}  # fmt: skip


@pytest.mark.parametrize("task", TASKS)
def test_learns(task, tmp_path, seed=0):
    algorithm, env_name, wanted, settings = TASKS[task]
    train = getattr(spinup, f"{algorithm}_pytorch")
    train(EnvMaker(env_name), seed=seed, logger_kwargs=dict(output_dir=tmp_path), **settings)
    with open(tmp_path / "progress.txt") as table:
        last = list(csv.DictReader(table, delimiter="\t"))[-1]
    result = last.get("AverageTestEpRet", last["AverageEpRet"])
    assert float(result) >= wanted
