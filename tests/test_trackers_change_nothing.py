"""TensorBoard and Weights & Biases get every row of a run once, and the run does not notice."""

import json
import random
import sys
import time

import killed_runs
import numpy as np
import pytest
import torch

from spinup.parts import trackers
from spinup.parts.logger import EpochLogger, Logger
from spinup.parts.mpi import mpiexec
from spinup.parts.pytorch import backend
from spinup.run import main

SMALL = "ppo --env CartPole-v1 --steps_per_epoch 60 --train_pi_iters 1 --train_v_iters 1 --hid [4]"


@pytest.fixture(autouse=True)
def no_account(monkeypatch, tmp_path):
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "no_netrc"))
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("it asked at a prompt"))


def table(folder):
    """The rows of progress.txt, as numbers by column."""
    header, *rows = [
        line.split("\t") for line in (folder / "progress.txt").read_text().splitlines()
    ]
    return [dict(zip(header, map(float, row), strict=True)) for row in rows]


def on_tensorboard(folder):
    """The same as TensorBoard shows it: each step and its numbers; and the settings."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    shown = EventAccumulator(str(folder)).Reload()
    rows = {}
    for tag in shown.Tags()["scalars"]:
        for event in shown.Scalars(tag):
            rows.setdefault(event.step, []).append((tag, event.value))
    assert all(len(dict(row)) == len(row) for row in rows.values())  # nothing twice
    (content,) = shown.PluginTagToContent("hparams").values()
    hparams = HParamsPluginData.FromString(content).session_start_info.hparams
    settings = {key: getattr(x, x.WhichOneof("kind")) for key, x in hparams.items()}
    return {step: dict(row) for step, row in sorted(rows.items())}, settings


def records(path):
    """What a file for Weights & Biases holds so far; another process writes it."""
    from wandb.proto.wandb_internal_pb2 import Record
    from wandb.sdk.internal.datastore import DataStore

    store = DataStore()
    store.open_for_scan(str(path))
    while (data := store.scan_data()) is not None:
        yield Record.FromString(data)


def on_wandb(folder):
    """What the one run for Weights & Biases shows: itself, its rows in order, its settings."""
    (path,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    for _ in range(100):
        found = list(records(path))
        if any(record.HasField("exit") for record in found):
            break
        time.sleep(0.1)
    (run,) = [record.run for record in found if record.HasField("run")]
    settings = {x.key: json.loads(x.value_json) for r in found for x in r.config.update}
    rows = [
        {(x.key or x.nested_key[0]): json.loads(x.value_json) for x in record.history.item}
        for record in found
        if record.HasField("history")
    ]
    return run, rows, settings


def assert_shown_everywhere(folder, step="TotalEnvInteracts"):
    """Every row of the table is at TensorBoard and at Weights & Biases, once."""
    assert len(list(folder.glob("events*"))) == len(list(folder.glob("wandb/*"))) == 1
    rows = table(folder)
    shown, _ = on_tensorboard(folder)
    assert list(shown) == [row[step] for row in rows]
    for row in rows:
        assert shown[row[step]] == {key: np.float32(value) for key, value in row.items()}
    _, sent, _ = on_wandb(folder)
    assert [row["_step"] for row in sent] == [row[step] for row in rows]
    for expected, found in zip(rows, sent, strict=True):
        assert {key: found[key] for key in expected} == expected


def test_killed_with_trackers_equals_unbroken_without(tmp_path):
    plain, both = tmp_path / "plain", tmp_path / "both"
    assert killed_runs.run_until_done(killed_runs.command("dqn", plain), []) == 0
    command = [*killed_runs.command("dqn", both), "--tensorboard", "--wandb"]
    # When a row is written whose checkpoint is not: it will be written again.
    assert killed_runs.run_until_done(command, ["replace:5"]) == 1
    expected, found = killed_runs.remains(plain), killed_runs.remains(both)
    assert found.keys() == expected.keys()
    assert [key for key in expected if found[key] != expected[key]] == []
    folder = both / "run" / "run_s7"
    assert len(table(folder)) == 5
    assert_shown_everywhere(folder)
    assert not list((plain / "run" / "run_s7").glob("events*"))
    assert not (plain / "run" / "run_s7" / "wandb").exists()


LOG = """
import sys
from spinup.utils.logx import EpochLogger
logger = EpochLogger(sys.argv[1], tensorboard=True, wandb=True)
logger.save_config({})
logger.dump_epoch("Epoch TotalEnvInteracts Time", Epoch=1, TotalEnvInteracts=20)
logger.close()
"""


def test_of_several_processes_the_first_writes(tmp_path):
    command = [mpiexec(), "-n", "2", sys.executable, "-c", LOG, str(tmp_path / "run")]
    code, output = killed_runs.run(command)
    assert code == 0, output
    assert_shown_everywhere(tmp_path / "run")


def test_settings_go_along_and_a_resumed_run_keeps_them(tmp_path, capsys):
    words = [*SMALL.split(), "--data_dir", str(tmp_path), "--exp_name", "try"]
    main([*words, "--epochs", "2", "--tensorboard", "--wandb"])
    folder = tmp_path / "try" / "try_s0"
    first, _, settings = on_wandb(folder)
    assert (first.project, first.run_group, first.display_name) == ("spinup", "try", "try_s0")
    config = json.loads((folder / "config.json").read_text())
    assert settings.items() >= config.items()
    _, hparams = on_tensorboard(folder)
    expected = dict(pi_lr=3e-4, algorithm="ppo_pytorch", seed=0, minibatch_size="null")
    expected |= {"ac_kwargs:hidden_sizes": "[4]", "env_fn:env_name": "CartPole-v1"}
    assert hparams.items() >= expected.items()
    assert not any(key.startswith(("versions", "logger_kwargs")) for key in hparams)

    main(["resume", str(folder), "--epochs", "3"])  # which remembers what was asked for
    assert len(table(folder)) == 3
    assert_shown_everywhere(folder)
    again, _, _ = on_wandb(folder)
    assert again.run_id == first.run_id
    assert "wandb" not in capsys.readouterr().out  # it keeps its own words to itself


def test_asked_for_later_they_get_the_earlier_rows_too(tmp_path):
    words = [*SMALL.split(), "--data_dir", str(tmp_path), "--exp_name", "try"]
    main([*words, "--epochs", "2", "--tensorboard"])
    main([*words, "--epochs", "3"])
    folder = tmp_path / "try" / "try_s0"
    assert len(on_tensorboard(folder)[0]) == 2
    main([*words, "--epochs", "4", "--tensorboard", "--wandb"])
    assert len(table(folder)) == 4
    assert_shown_everywhere(folder)
    (first, *_, last), (first_sent, *_, last_sent) = table(folder), on_wandb(folder)[1]
    took = last_sent["_timestamp"] - first_sent["_timestamp"]
    assert np.isclose(took, last["Time"] - first["Time"], atol=1e-3)  # as if never stopped


def test_a_script_s_own_rows(tmp_path):
    logger = Logger(str(tmp_path), tensorboard=True, wandb=True)
    logger.save_config(dict(lr=0.5, nested=dict(deep=[1, 2])))
    for i in range(3):
        for key, value in dict(Loss=torch.tensor(0.5 * i), Note="fine", Odd=float("nan")).items():
            logger.log_tabular(key, value)
        logger.dump_tabular()
    logger.close()
    logger.close()  # does no harm
    shown, hparams = on_tensorboard(tmp_path)
    assert {step: row["Loss"] for step, row in shown.items()} == {1: 0, 2: 0.5, 3: 1}
    assert np.isnan(shown[1]["Odd"])
    assert "Note" not in shown[1]
    assert hparams == {"lr": 0.5, "nested:deep": "[1, 2]"}
    assert [row["Loss"] for row in on_wandb(tmp_path)[1]] == [0, 0.5, 1]


def streams():
    return random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()


class RandomTracker:
    """A tracker that samples random numbers in every call."""

    def settings(self, *_):
        random.random(), np.random.rand(), torch.rand(1)

    row = drop_stale = close = settings


def test_no_random_number_of_the_run_is_used_up(tmp_path):
    before = streams()
    logger = EpochLogger(str(tmp_path), tensorboard=True, wandb=True, backend=backend)
    logger.trackers.append(RandomTracker())
    logger.save_config(dict(lr=0.5))
    logger.dump_epoch("Epoch Time", Epoch=1)
    logger.load_state_dict(logger.state_dict())
    logger.close()
    assert streams() == before


class Broken(RandomTracker):
    """A tracker that fails at its second row."""

    rows = 0

    def row(self, *_):
        self.rows += 1
        if self.rows == 2:
            raise OSError("no room for it")


def test_a_tracker_that_fails_does_not_stop_the_run(tmp_path, capsys):
    logger = EpochLogger(str(tmp_path), tensorboard=True)
    logger.trackers.insert(0, Broken())
    logger.save_config({})
    for epoch in range(4):
        logger.dump_epoch("Epoch Time", Epoch=epoch)
    logger.close()
    assert capsys.readouterr().out.count("no room for it") == 1
    assert len(table(tmp_path)) == len(on_tensorboard(tmp_path)[0]) == 4


def test_an_older_run_s_tracker_files_move_with_it_and_a_user_s_own_stay(tmp_path):
    own = tmp_path / "events.out.tfevents.1.mine", tmp_path / "wandb" / "run-1-mine" / "x"
    own[1].parent.mkdir(parents=True)
    for path in own:
        path.write_text("mine")

    def write(**kwargs):
        logger = EpochLogger(str(tmp_path), tensorboard=True, wandb=True, **kwargs)
        logger.dump_epoch("Epoch Time", Epoch=1)
        logger.close()

    def found(folder):
        return [len(list(folder.glob(name))) for name in (trackers.EVENTS, "*/*-run-*-spinup*")]

    write()
    write()
    assert found(tmp_path) == [1, 1]
    aside = tmp_path / "older_runs" / "1"
    assert len(list(aside.glob(trackers.EVENTS))) == len(list(aside.glob("offline-run*"))) == 1
    write(overwrite=True)
    assert found(tmp_path) == [1, 1]
    Logger(str(tmp_path / "new"), tensorboard=True).close()  # never came to its first row
    Logger(str(tmp_path / "new"), tensorboard=True).close()
    assert found(tmp_path / "new") == [1, 0]
    assert [path.read_text() for path in own] == ["mine", "mine"]


def fails(words, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize("package", ["tensorboard", "wandb"])
def test_what_is_not_installed_is_said_before_anything_is_touched(
    package, tmp_path, capsys, monkeypatch
):
    words = [*SMALL.split(), "--epochs", "1", "--data_dir", str(tmp_path), "--exp_name", "try"]
    main(words)
    before = (tmp_path / "try" / "try_s0" / "progress.txt").read_text()
    monkeypatch.setitem(sys.modules, package, None)
    said = fails([*words, "--overwrite", f"--{package}"], capsys)
    assert f"pip install 'spinup[{package}]'" in said
    with pytest.raises(ValueError, match="pip install"):
        Logger(str(tmp_path / "try" / "try_s0"), overwrite=True, **{package: True})
    assert (tmp_path / "try" / "try_s0" / "progress.txt").read_text() == before
    assert "must be True or False" in fails([*words, f"--{package}", "please"], capsys)


def test_the_mode_of_wandb_is_the_user_s(tmp_path, capsys, monkeypatch):
    words = [*SMALL.split(), "--epochs", "1", "--data_dir", str(tmp_path), "--wandb"]
    monkeypatch.setenv("WANDB_MODE", "online")
    assert "wandb login" in fails([*words, "--exp_name", "online"], capsys)
    monkeypatch.setenv("WANDB_MODE", "disabled")
    main([*words, "--exp_name", "disabled"])
    assert len(table(tmp_path / "disabled" / "disabled_s0")) == 1
    assert not list((tmp_path / "disabled" / "disabled_s0").glob(trackers.WANDB_RUNS))


def test_without_a_network_it_is_kept_offline(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "0123456789" * 4)
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")  # where nobody listens
    monkeypatch.setattr(trackers, "TIMEOUT", 2)
    main([*SMALL.split(), "--epochs", "1", "--data_dir", str(tmp_path), "--wandb", "--seed", "4"])
    assert "kept offline" in capsys.readouterr().out
    assert len(on_wandb(tmp_path / "cmd_ppo_pytorch" / "cmd_ppo_pytorch_s4")[1]) == 1
