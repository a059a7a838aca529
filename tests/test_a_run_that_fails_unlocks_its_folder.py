"""A training function that raises, wherever it does, leaves its run folder unlocked."""

from types import SimpleNamespace

import pytest

from spinup.algos.pytorch.vpg import core
from spinup.parts import run_setup
from spinup.parts.checkpoint import Checkpoint
from spinup.parts.envs import VectorEnv
from spinup.parts.errors import UserError
from spinup.parts.make_env import EnvMaker
from spinup.parts.pytorch import backend
from spinup.parts.run_lock import is_locked


def train(
    env_fn, raises=None, steps_per_epoch=20, epochs=1, num_envs=1, seed=0, logger_kwargs=None,
    resume=False,
):  # fmt: skip
    """A training loop without an update, which raises at the place that `raises` names."""
    settings = dict(locals())
    folder = logger_kwargs["output_dir"]
    seeds, _ = run_setup.setup(settings, backend)
    env = VectorEnv(env_fn, num_envs, seeds.env)
    ac = backend.build_network(core.MLPActorCritic, env, None, "cpu")
    learner = SimpleNamespace(ac=ac, field=print if raises == "Checkpoint" else 1)
    logger = run_setup.open_logger(__name__, settings, env, ac, backend)
    assert is_locked(folder)

    def policy(obs):
        return policy and ac.act(obs)  # it refers to itself, as a recursive function does

    if raises == "between":
        raise ValueError("a mistake in the script")
    checkpoint = Checkpoint(learner, env=env, logger=logger)
    if raises == "before the loop":
        raise ValueError("a mistake in the script")
    for epoch in checkpoint.epochs(epochs, resume):
        assert is_locked(folder)
        if raises == "loop":
            raise ValueError("a mistake in the script")
        logger.dump_epoch("Epoch", Epoch=epoch + 1)
    assert not is_locked(folder)


def try_to_train(folder, **settings):
    """Train, and forget the error, as a notebook does before its next cell."""
    try:
        train(EnvMaker("CartPole-v1"), logger_kwargs=dict(output_dir=str(folder)), **settings)
    except (ValueError, UserError) as error:
        return str(error)


@pytest.mark.parametrize("place", ["between", "Checkpoint", "before the loop", "loop"])
def test_the_folder_is_unlocked_wherever_training_raises(place, tmp_path):
    sentence = try_to_train(tmp_path / "run", raises=place)
    assert "field is a builtin" in sentence if place == "Checkpoint" else "mistake" in sentence
    assert not is_locked(tmp_path / "run")
    assert try_to_train(tmp_path / "run") is None


def test_it_is_unlocked_where_the_run_cannot_be_opened_or_resumed(tmp_path):
    assert try_to_train(tmp_path / "run") is None
    assert "seed is 0" in try_to_train(tmp_path / "run", seed=1, resume=True)
    assert not is_locked(tmp_path / "run")
    (checkpoint,) = (tmp_path / "run" / "checkpoint").glob("epoch1.*")
    checkpoint.write_bytes(checkpoint.read_bytes()[:-1])
    assert "damaged" in try_to_train(tmp_path / "run", epochs=2, resume=True)
    assert not is_locked(tmp_path / "run")
