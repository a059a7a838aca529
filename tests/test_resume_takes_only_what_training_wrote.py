"""`spinup resume` takes from config.json what training writes there, and loses nothing."""

import hashlib
import json
import math
import os
import shutil

import pytest

from spinup import ppo_pytorch
from spinup.parts.make_env import EnvMaker
from spinup.run import main


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained") / "run"
    ppo_pytorch(
        EnvMaker("CartPole-v1"),
        ac_kwargs=dict(hidden_sizes=[4]),
        steps_per_epoch=50,
        epochs=2,
        train_pi_iters=1,
        train_v_iters=1,
        logger_kwargs=dict(output_dir=str(folder)),
    )
    return folder


@pytest.fixture
def run(trained, tmp_path, monkeypatch):
    shutil.copytree(trained, tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "run"


def change(run, **changes):
    config = json.loads((run / "config.json").read_text())
    for path, value in changes.items():
        *outer, last = path.split("__")
        inner = config
        for name in outer:
            inner = inner[name]
        inner[last] = value
    (run / "config.json").write_text(json.dumps(config))


def content(folder):
    """All that a folder holds, but for the lock."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != ".lock"]
    return {str(path): hashlib.sha256(path.read_bytes()).digest() for path in files}


def rows(run):
    return (run / "progress.txt").read_text().splitlines()


REFUSED = {
    "env_fn__overwrite": True, "env_fn__output_dir": "/tmp/elsewhere", "env_fn__data_dir": "x",
    "env_fn__env_kwargs": ["x"], "env_fn__env_name": 7, "env_fn__num_cpu": 4,
    "env_fn": [], "num_procs": 2, "epochs": "ten", "gamma": math.nan, "seed": -1,
    "lam": 2, "steps_per_epoch": 1.5, "pi_lr": "fast", "num_envs": 10**9, "target_kl": [1],
    "max_ep_len": 0, "train_v_iters": True, "save_freq": {}, "device": 3, "clip_ratio": None,
    "ac_kwargs": [4], "ac_kwargs__hidden_sizes": "wide", "ac_kwargs__activation": "os.system",
    "ac_kwargs__unheard": 1, "algorithm": "os_system", "actor_critic": "Mine", "minibatch_size": 0,
    "exp_name": 7, "logger_kwargs": [1],
}  # fmt: skip
PROCESSES = [10**6, -1, "2", None, 1.0, True]


@pytest.mark.parametrize("key", REFUSED)
def test_what_no_training_would_write_is_refused(key, run, capsys):
    change(run, **{key: REFUSED[key]})
    before = content(run.parent)
    with pytest.raises(SystemExit) as ended:
        main(["resume", str(run), "--epochs", "3"])
    assert ended.value.code == 2
    assert "Traceback" not in capsys.readouterr().err
    assert content(run.parent) == before


@pytest.mark.parametrize("number", PROCESSES)
def test_so_many_processes_as_have_left_a_checkpoint(number, run, capsys):
    change(run, num_procs=number)
    before = content(run)
    with pytest.raises(SystemExit) as ended:
        main(["resume", str(run), "--epochs", "3"])
    assert ended.value.code == 2 and "Traceback" not in capsys.readouterr().err
    assert content(run) == before


IGNORED = {
    "overwrite": True, "resume": False, "output_dir": "/tmp/elsewhere", "data_dir": "/tmp/x",
    "datestamp": True, "num_cpu": 64, "jobs": 8, "ray_address": "evil:1", "wandb": True,
    "tensorboard": True, "whatever": "x\x1b]0;title\x07",
    "logger_kwargs__overwrite": True, "logger_kwargs__output_dir": "/tmp/elsewhere",
    "logger_kwargs__output_fname": "../outside.txt", "logger_kwargs__resume": False,
    "logger_kwargs__wandb": "yes",
}  # fmt: skip
SILENTLY = {"resume"}  # training itself may write this


@pytest.mark.parametrize("key", IGNORED)
def test_what_is_no_setting_changes_nothing(key, run, capsys):
    change(run, **{key: IGNORED[key]})
    before, around = rows(run), set(run.parent.iterdir())
    main(["resume", str(run), "--epochs", "3"])
    assert rows(run)[:-1] == before  # the run resumes where it was
    assert set(run.parent.iterdir()) == around and not (run / "wandb").exists()
    assert not os.path.exists("/tmp/elsewhere") and not list(run.glob("events*"))
    said = capsys.readouterr().out
    assert "\x1b" not in said
    if "__" not in key and key not in SILENTLY:
        assert f"config.json also has {key};" in said


def test_what_training_wrote_is_resumed_without_a_word(run, capsys):
    main(["resume", str(run), "--epochs", "3"])
    assert "config.json" not in capsys.readouterr().out


def test_a_run_that_was_sent_is_sent_again_only_if_asked(run, monkeypatch, capsys):
    """A file alone makes nothing be sent: who is known to Weights & Biases must say so."""
    change(run, logger_kwargs__wandb=True)
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    main(["resume", str(run), "--epochs", "3"])
    assert len(rows(run)) == 4 and not (run / "wandb").exists()
    assert "add --wandb" in capsys.readouterr().out
