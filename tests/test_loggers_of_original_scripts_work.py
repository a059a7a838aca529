"""Scripts that use the original's logger run unchanged with ours."""

import json

import gymnasium as gym
import numpy as np
import pytest
import torch

from spinup.algos.pytorch.ppo import core
from spinup.parts.checkpoint import Checkpoint
from spinup.parts.errors import UserError
from spinup.utils import logx, mpi_tools, serialization_utils
from spinup.utils.logx import EpochLogger


def train(folder, value=0.0, epochs=2, env=None):
    """A script's own loop: a network that is not built by us, and rows of its own."""
    logger = EpochLogger(output_dir=str(folder), exp_name="own")
    logger.save_config(dict(value=value))
    env = env or gym.make("CartPole-v1")
    ac = core.MLPActorCritic(env.observation_space, env.action_space, hidden_sizes=(8,))
    torch.nn.init.constant_(ac.v.v_net[0].weight, value)
    logger.setup_pytorch_saver(ac)
    for epoch in range(epochs):
        logger.store(EpRet=value)
        logger.save_state({"env": env}, None)
        logger.log_tabular("Epoch", epoch)
        logger.log_tabular("EpRet", with_min_and_max=True)
        logger.dump_tabular()
    logger.output_file.close()
    return ac


def saved_weights(folder):
    """The weights in pyt_save of a run folder, as a script reads them."""
    return torch.load(folder / "pyt_save" / "model.pt", weights_only=True)["weights"]


def test_a_loop_of_the_script_s_own_saves_its_model_and_names_what_it_leaves_out(tmp_path, capsys):
    ac = train(tmp_path, value=3.0)
    said = capsys.readouterr().out
    assert said.count("leaves out 'env' (TimeLimit)") == 1  # once, not at every epoch
    assert saved_weights(tmp_path).keys() == ac.state_dict().keys()
    assert (saved_weights(tmp_path)["v.v_net.0.weight"] == 3).all()
    assert len((tmp_path / "progress.txt").read_text().splitlines()) == 3


def test_the_mean_and_deviation_of_stored_values(tmp_path):
    logger = EpochLogger(output_dir=tmp_path)
    logger.store(EpRet=1.0)
    logger.store(EpRet=5.0)
    mean, std = logger.get_stats("EpRet")
    assert (mean, std) == (3.0, 2.0)
    assert logger.get_stats("EpRet", with_min_and_max=True) == (3.0, 2.0, 1.0, 5.0)


def test_a_script_that_opens_a_used_folder_can_read_its_old_model(tmp_path, capsys):
    train(tmp_path, value=1.0)
    before = (tmp_path / "progress.txt").read_text()
    capsys.readouterr()
    logger = EpochLogger(output_dir=tmp_path)
    logger.save_config(dict(value=2.0))
    assert (saved_weights(tmp_path)["v.v_net.0.weight"] == 1).all()
    assert (tmp_path / "progress.txt").read_text() == before
    assert capsys.readouterr().out == ""  # nothing has moved yet

    logger.log_tabular("Epoch", 0)
    logger.dump_tabular()
    aside = tmp_path / "older_runs" / "1"
    assert f"its files are now in {aside}" in capsys.readouterr().out
    assert (saved_weights(aside)["v.v_net.0.weight"] == 1).all()
    assert (aside / "progress.txt").read_text() == before
    assert json.loads((aside / "config.json").read_text())["value"] == 1.0
    assert json.loads((tmp_path / "config.json").read_text())["value"] == 2.0
    assert (tmp_path / "progress.txt").read_text() == "Epoch\n0\n"
    assert not (tmp_path / "pyt_save").exists()


def test_the_first_model_moves_the_older_run_too(tmp_path):
    train(tmp_path, value=1.0)
    logger = EpochLogger(output_dir=tmp_path)
    env = gym.make("CartPole-v1")
    ac = core.MLPActorCritic(env.observation_space, env.action_space, hidden_sizes=(8,))
    logger.setup_pytorch_saver(ac)
    logger.save_state({}, None)
    assert (saved_weights(tmp_path / "older_runs" / "1")["v.v_net.0.weight"] == 1).all()
    assert torch.equal(saved_weights(tmp_path)["v.v_net.0.weight"], ac.v.v_net[0].weight)


def test_a_script_that_writes_nothing_leaves_the_older_run_where_it_is(tmp_path):
    train(tmp_path, value=1.0)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    logger = EpochLogger(output_dir=tmp_path)
    logger.save_config(dict(value=2.0))
    logger.store(EpRet=1.0)
    logger.close()
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_new_run_with_checkpoints_never_takes_over_those_of_the_older_one(tmp_path):
    network = torch.nn.Linear(1, 1)
    for word in ("old", "new"):
        logger = EpochLogger(output_dir=tmp_path)
        checkpoint = Checkpoint(logger=logger, network=network)
        epochs = []
        for epoch in checkpoint.epochs(2, resume=True):  # there is nothing of this run to resume
            epochs.append(epoch)
            logger.dump_epoch("Epoch Word", Epoch=epoch, Word=word)
        assert epochs == [0, 1]
        assert (tmp_path / "progress.txt").read_text() == f"Epoch\tWord\n0\t{word}\n1\t{word}\n"
    assert "old" in (tmp_path / "older_runs" / "1" / "progress.txt").read_text()


def test_a_script_saves_its_network_by_the_original_s_method(tmp_path):
    logger = EpochLogger(output_dir=tmp_path)
    with pytest.raises(UserError, match="call setup_pytorch_saver first"):
        logger._pytorch_simple_save()
    with pytest.raises(UserError, match="call setup_tf_saver first"):
        logger._tf_simple_save()
    logger.setup_pytorch_saver(torch.nn.Linear(2, 1))
    logger._pytorch_simple_save()
    logger._pytorch_simple_save(itr=5)
    assert {path.name for path in (tmp_path / "pyt_save").iterdir()} == {"model.pt", "model5.pt"}


def test_names_that_scripts_import():
    assert logx.colorize("x", "crimson") == f"\x1b[{logx.color2num['crimson']}mx\x1b[0m"
    assert callable(logx.restore_tf_graph)
    assert serialization_utils.is_json_serializable([1, {"a": None}])
    assert not serialization_utils.is_json_serializable(np.zeros(2))
    assert mpi_tools.mpi_statistics_scalar([1.0, 3.0], with_min_and_max=True) == (2, 1, 1, 3)
    assert (mpi_tools.proc_id(), mpi_tools.num_procs(), mpi_tools.mpi_avg(2.0)) == (0, 1, 2.0)


def test_a_checkpoint_knows_the_framework_of_its_logger_when_it_saves(tmp_path):
    """Also where a script names its network to the logger later than the checkpoint is made."""

    def drawn(epochs, folder, resume):
        torch.manual_seed(0)
        logger = EpochLogger(output_dir=folder, resume=resume)
        network = torch.nn.Linear(2, 2)
        checkpoint = Checkpoint(logger=logger, network=network)
        logger.setup_pytorch_saver(network)
        numbers = []
        for _ in checkpoint.epochs(epochs, resume):
            numbers.append(torch.rand(1).item())
            logger.log_tabular("Epoch", 0)
            logger.dump_tabular()
        return numbers

    whole = drawn(4, tmp_path / "whole", False)
    parts = drawn(2, tmp_path / "parts", False) + drawn(4, tmp_path / "parts", True)
    assert parts == whole


def test_a_run_that_is_overwritten_loses_its_table_whatever_its_name(tmp_path):
    for overwrite in (False, True):
        logger = EpochLogger(output_dir=tmp_path, output_fname="log.txt", overwrite=overwrite)
        logger.log_tabular("Epoch", 1)
        logger.dump_tabular()
        logger.close()
    assert not (tmp_path / "older_runs").exists()
