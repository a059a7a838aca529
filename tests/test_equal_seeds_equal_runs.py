"""Equal seeds give equal numbers twice; different seeds differ; zero is a seed like any other."""

import algorithm_kinds
import pytest
import torch

import spinup
from spinup.parts.make_env import EnvMaker

SETTINGS = dict(
    reinforce=("CartPole-v1", dict(steps_per_epoch=300)),
    vpg=("CartPole-v1", dict(steps_per_epoch=300, train_v_iters=5)),
    trpo=("CartPole-v1", dict(steps_per_epoch=300, train_v_iters=5)),
    ppo=("CartPole-v1", dict(steps_per_epoch=300, train_pi_iters=5, train_v_iters=5)),
    acer=("CartPole-v1", dict(steps_per_epoch=300, n_steps=7, replay_start=50)),
    sac=("Pendulum-v1", dict(steps_per_epoch=250, start_steps=100, update_after=100)),
    ddpg=("Pendulum-v1", dict(steps_per_epoch=250, start_steps=100, update_after=100)),
    td3=("Pendulum-v1", dict(steps_per_epoch=250, start_steps=100, update_after=100)),
    dqn=("CartPole-v1", dict(steps_per_epoch=300, start_steps=100, update_after=100)),
    her=("spinup/BitFlip-v0", dict(steps_per_epoch=300, start_steps=100, update_after=100)),
)
SETTINGS |= {
    name: (algorithm_kinds.ENVS[name], algorithm_kinds.small(name))
    for name in algorithm_kinds.ALGORITHMS
    if name not in SETTINGS
}
SETTINGS |= {
    "dqn prioritized": ("CartPole-v1", SETTINGS["dqn"][1] | dict(prioritized=True, n_step=3)),
    "sac discrete": ("CartPole-v1", SETTINGS["sac"][1]),
}


def run(algorithm, seed, folder, **more):
    env_name, settings = SETTINGS[algorithm]
    network = getattr(spinup, f"{algorithm.split()[0]}_pytorch")(
        EnvMaker(env_name),
        epochs=2,
        seed=seed,
        ac_kwargs=dict(hidden_sizes=(16, 16)),
        logger_kwargs=dict(output_dir=folder),
        **settings,
        **more,
    )
    rows = [line.split("\t") for line in (folder / "progress.txt").read_text().splitlines()]
    time = rows[0].index("Time")
    weights = torch.cat([p.detach().reshape(-1) for p in network.parameters()])
    return weights, [row[:time] + row[time + 1 :] for row in rows]


@pytest.mark.parametrize("num_envs", [1, 3])
@pytest.mark.parametrize("algorithm", SETTINGS)
def test_seeds(algorithm, num_envs, tmp_path):
    runs = [
        run(algorithm, seed, tmp_path / str(i), num_envs=num_envs)
        for i, seed in enumerate((0, 0, 1))
    ]
    (weights, table), (weights_again, table_again), (weights_other, table_other) = runs
    assert torch.equal(weights, weights_again)
    assert table == table_again
    assert not torch.equal(weights, weights_other)
    assert table != table_other
