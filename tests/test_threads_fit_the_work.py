"""A training uses as many threads as pay off for its products; the user has the last word."""

import pytest
import torch

import spinup
from spinup.parts.envs import EnvMaker
from spinup.utils import mpi_pytorch

TASKS = {
    "small batches of a small network": ("dqn", "CartPole-v1", dict(batch_size=64), 1),
    "small batches of a wide one": (
        "sac", "Pendulum-v1", dict(ac_kwargs=dict(hidden_sizes=(256, 256))), 2,
    ),
    "whole rollouts of a small one": ("ppo", "CartPole-v1", dict(steps_per_epoch=1000), 2),
    "parts of them": ("ppo", "CartPole-v1", dict(steps_per_epoch=1000, minibatch_size=100), 1),
    "short segments": ("acer", "CartPole-v1", dict(steps_per_epoch=1000), 1),
}  # fmt: skip


@pytest.fixture
def two_threads(monkeypatch):
    """PyTorch as it is on a machine of two cores where nobody has said anything."""
    before = torch.get_num_threads()
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(mpi_pytorch, "_all_threads", 2)
    yield monkeypatch
    torch.set_num_threads(before)


def train(task, folder):
    algorithm, env_name, settings, expected = TASKS[task]
    settings = dict(epochs=1, steps_per_epoch=20) | settings
    getattr(spinup, f"{algorithm}_pytorch")(
        EnvMaker(env_name), logger_kwargs=dict(output_dir=folder), **settings
    )
    return expected


@pytest.mark.parametrize("task", TASKS)
def test_threads(task, two_threads, tmp_path):
    torch.set_num_threads(2 if TASKS[task][-1] == 1 else 1)  # what an earlier training has left
    expected = train(task, tmp_path)
    assert torch.get_num_threads() == expected


def test_the_user_has_the_last_word(two_threads, tmp_path):
    two_threads.setenv("OMP_NUM_THREADS", "2")
    torch.set_num_threads(2)
    train("small batches of a small network", tmp_path)
    assert torch.get_num_threads() == 2
