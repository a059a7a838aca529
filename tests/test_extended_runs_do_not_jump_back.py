"""What changes over the length of a run continues from where it was when the run is extended."""

import shutil
from itertools import pairwise

import pytest

import spinup
from spinup.algos.pytorch.dqn import dqn as dqn_module
from spinup.parts.make_env import EnvMaker

SETTINGS = dict(
    steps_per_epoch=60,
    start_steps=20,
    update_after=20,
    batch_size=4,
    replay_size=100,
    num_test_episodes=0,
    max_ep_len=25,
    prioritized=True,
    ac_kwargs=dict(hidden_sizes=[4]),
)


@pytest.fixture
def exponents(monkeypatch):
    """The importance exponents with which batches are sampled, in turn."""
    seen, sample = [], dqn_module.NStepReplayBuffer.sample_batch

    def watched(self, batch_size, importance_exponent):
        seen.append(importance_exponent)
        return sample(self, batch_size, importance_exponent)

    monkeypatch.setattr(dqn_module.NStepReplayBuffer, "sample_batch", watched)
    return seen


def train(folder, epochs, resume=False):
    where = dict(output_dir=str(folder))
    spinup.dqn_pytorch(
        EnvMaker("CartPole-v1"), epochs=epochs, logger_kwargs=where, resume=resume, **SETTINGS
    )
    return (folder / "pyt_save" / "model.pt").read_bytes()


def test_the_importance_exponent_never_goes_back(exponents, tmp_path):
    train(tmp_path / "run", 2)
    assert exponents[0] < 0.6
    assert exponents[-1] == pytest.approx(1, abs=0.01)
    started = len(exponents)
    train(tmp_path / "run", 4, resume=True)
    assert len(exponents) == started + 120
    assert all(one <= two for one, two in pairwise(exponents))
    assert set(exponents[started:]) == {1.0}


def test_it_does_not_matter_in_how_many_parts_a_run_is_extended(tmp_path):
    train(tmp_path / "one", 2)
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    at_once = train(tmp_path / "one", 5, resume=True)
    train(tmp_path / "two", 3, resume=True)
    assert train(tmp_path / "two", 5, resume=True) == at_once
