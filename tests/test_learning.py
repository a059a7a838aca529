"""Each algorithm learns its smallest task within a budget that a broken one cannot meet."""

import csv

import pytest

import spinup
from spinup.parts.envs import VectorEnv, evaluate
from spinup.parts.make_env import EnvMaker
from spinup.parts.pytorch.tensors import to_tensor

SMALL = dict(hidden_sizes=(64, 64))
FAST_PPO = dict(
    pi_lr=1e-3,
    vf_lr=3e-3,
    lam=0.95,
    target_kl=0.02,
    train_pi_iters=10,
    train_v_iters=10,
    minibatch_size=250,
)
FAST_TRPO = dict(delta=0.02, vf_lr=1e-2, train_v_iters=40)
TASKS = {
    "reinforce on CartPole": (
        "reinforce", "CartPole-v1", 300,
        dict(epochs=100, steps_per_epoch=1000, num_envs=2, vf_lr=1e-2, train_v_iters=20),
    ),
    "vpg on CartPole": (
        "vpg", "CartPole-v1", 300,
        dict(epochs=60, steps_per_epoch=1000, num_envs=2, pi_lr=7e-3, vf_lr=3e-3),
    ),
    "trpo on CartPole": (
        "trpo", "CartPole-v1", 450,
        dict(epochs=20, steps_per_epoch=2000, num_envs=4, **FAST_TRPO),
    ),
    "trpo on InvertedPendulum": (
        "trpo", "InvertedPendulum-v5", 500,
        dict(epochs=24, steps_per_epoch=2000, num_envs=2, lam=0.95, **FAST_TRPO),
    ),
    "ppo on CartPole": (
        "ppo", "CartPole-v1", 400,
        dict(epochs=20, steps_per_epoch=2000, num_envs=8, **FAST_PPO),
    ),
    "ppo on InvertedPendulum": (
        "ppo", "InvertedPendulum-v5", 500,
        dict(epochs=12, steps_per_epoch=4000, num_envs=2, **FAST_PPO),
    ),
    "acer on CartPole": (
        "acer", "CartPole-v1", 400,
        dict(epochs=12, steps_per_epoch=5000, num_envs=8, pi_lr=1e-3, q_lr=3e-3, replay_ratio=8,
             replay_size=10_000, delta=0.1),
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
    "ddpg on Pendulum": (
        "ddpg", "Pendulum-v1", -250,
        dict(epochs=12, steps_per_epoch=1000, start_steps=500, update_after=500, ac_kwargs=SMALL),
    ),
    "td3 on Pendulum": (
        "td3", "Pendulum-v1", -250,
        dict(epochs=12, steps_per_epoch=1000, start_steps=500, update_after=500, ac_kwargs=SMALL,
             pi_lr=3e-4),
    ),
    "sac on CartPole": (
        "sac", "CartPole-v1", 400,
        dict(epochs=6, steps_per_epoch=5000, start_steps=1000, polyak=0.98, ac_kwargs=SMALL),
    ),
    "dqn on CartPole": (
        "dqn", "CartPole-v1", 400,
        dict(epochs=20, steps_per_epoch=2500, start_steps=100, update_after=100,
             epsilon_steps=1000, epsilon_end=0.1, n_step=3, prioritized=True),
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


# Goals: the share of 100 episodes in which the trained network reaches its own.
BITS = dict(epochs=4, steps_per_epoch=1000, num_envs=4, batch_size=128, gamma=0.98, polyak=0.99)
REACHING = dict(
    epochs=4, steps_per_epoch=2000, num_envs=4, gamma=0.95, ac_kwargs=dict(hidden_sizes=(128, 128))
)
GOALS = {
    "her flips 8 bits": ("her", "spinup/BitFlip-v0", 0.9, 1.0, dict(ac_kwargs=SMALL, **BITS)),
    "dqn cannot": (
        "dqn", "spinup/BitFlip-v0", 0.0, 0.3,
        dict(ac_kwargs=SMALL, epsilon_start=0.2, epsilon_end=0.2, **BITS),
    ),
    "her moves an arm": ("her", "spinup/Reach-v0", 0.9, 1.0, REACHING),
}  # fmt: skip


@pytest.mark.parametrize("task", GOALS)
def test_reaches_goals(task, tmp_path, seed=0):
    algorithm, env_name, least, most, settings = GOALS[task]
    train = getattr(spinup, f"{algorithm}_pytorch")
    logger_kwargs = dict(output_dir=tmp_path)
    ac = train(EnvMaker(env_name), seed=seed, logger_kwargs=logger_kwargs, **settings)
    episodes = evaluate(VectorEnv(EnvMaker(env_name), 1, 123), lambda o: ac.act(to_tensor(o)), 100)
    success = sum(episode.success for episode in episodes) / 100
    assert least <= success <= most
