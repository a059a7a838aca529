"""A flipped byte in a checkpoint is an error that names the file, never another run."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import spinup
from spinup.parts.checkpoint import read_tree, write_tree
from spinup.parts.errors import UserError
from spinup.parts.latest import read_latest
from spinup.parts.make_env import EnvMaker
from spinup.parts.pytorch import backend
from spinup.parts.pytorch.models import load_model

REPOSITORY = Path(__file__).parents[1]
SETTINGS = dict(
    steps_per_epoch=90,
    start_steps=30,
    update_after=30,
    update_every=3,
    batch_size=8,
    replay_size=150,
    num_test_episodes=1,
    max_ep_len=25,
    prioritized=True,
    n_step=2,
    ac_kwargs=dict(hidden_sizes=[8]),
)


def train(folder, epochs, **more):
    where = dict(output_dir=str(folder))
    spinup.dqn_pytorch(
        EnvMaker("CartPole-v1"), epochs=epochs, logger_kwargs=where, **SETTINGS | more
    )


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A run of two epochs, of which the ring has forgotten the first rows."""
    folder = tmp_path_factory.mktemp("saved") / "run"
    train(folder, 2)
    assert len(list(folder.glob("checkpoint/buffer.rank0/*.rows"))) > 5
    return folder


def flip(path, position, by=0x10):
    content = bytearray(path.read_bytes())
    content[position] ^= by
    path.write_bytes(content)


def what_is_left(folder):
    """All that a run has left, the time it took aside."""
    lines = [line.split("\t") for line in (folder / "progress.txt").read_text().splitlines()]
    time = lines[0].index("Time")
    rows = {path.name: path.read_bytes() for path in folder.glob("checkpoint/*/*.rows")}
    table = [line[:time] + line[time + 1 :] for line in lines]
    return table, rows, (folder / "pyt_save" / "model.pt").read_bytes()


@pytest.mark.parametrize("pattern", ["epoch2.rank0.npz", "buffer.rank0/*.rows"])
def test_a_flipped_byte_anywhere_is_noticed(pattern, saved, tmp_path):
    rng, folder = np.random.default_rng(0), tmp_path / "run"
    for path in sorted(saved.glob(f"checkpoint/{pattern}")):
        size = path.stat().st_size
        for position in {0, size - 1, *rng.integers(size, size=3).tolist()}:
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(saved, folder)
            damaged = folder / path.relative_to(saved)
            flip(damaged, position, 1 << int(rng.integers(8)))
            before = what_is_left(folder)
            with pytest.raises(UserError) as error:
                train(folder, 3, resume=True)
            assert f"{damaged} is damaged" in str(error.value)
            assert what_is_left(folder) == before


def test_every_byte_of_the_note_of_the_newest_checkpoint_counts(saved, tmp_path):
    shutil.copytree(saved, folder := tmp_path / "run")
    latest = folder / "checkpoint" / "latest"
    whole = latest.read_bytes()
    assert read_latest(folder).items() >= dict(epoch=2, num_procs=1).items()
    for position in range(len(whole)):
        for by in (0x01, 0x10, 0xFF):
            flip(latest, position, by)
            with pytest.raises(UserError, match="latest"):
                read_latest(folder)
            latest.write_bytes(whole)


@pytest.mark.parametrize("name", ["latest", "epoch2.rank0.npz", "buffer.rank0/7.rows"])
def test_the_command_line_says_it_in_a_sentence(name, saved, tmp_path):
    shutil.copytree(saved, folder := tmp_path / "run")
    damaged = folder / "checkpoint" / name
    flip(damaged, damaged.stat().st_size // 2)
    command = [sys.executable, "-m", "spinup.run", "resume", str(folder), "--epochs", "3"]
    run = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert run.returncode == 2
    assert str(damaged) in run.stderr
    assert "Traceback" not in run.stderr


def test_a_model_with_a_flipped_weight_is_refused(saved, tmp_path):
    shutil.copy(saved / "pyt_save" / "model.pt", path := tmp_path / "model.pt")
    weights = next(load_model(path).parameters()).detach().numpy().tobytes()
    flip(path, path.read_bytes().index(weights) + 5)
    with pytest.raises(UserError, match=r"model\.pt"):
        load_model(path)


def without_checksums(folder):
    """What the version before would have written in place of this checkpoint."""
    latest = folder / "checkpoint" / "latest"
    noted = json.loads(latest.read_text())
    latest.write_text(json.dumps({key: noted[key] for key in ("epoch", "num_procs")}, indent=4))
    path = folder / "checkpoint" / f"epoch{noted['epoch']}.rank0.npz"
    state = read_tree(path, backend=backend)
    assert state["buffer"]["ring"].pop("checksums")
    write_tree(path, state)
    config = json.loads((folder / "config.json").read_text())
    assert config.pop("planned_epochs")
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize("older", [False, True])
def test_runs_with_and_without_checksums_resume_exactly(older, saved, tmp_path):
    shutil.copytree(saved, folder := tmp_path / "run")
    if older:
        without_checksums(folder)
    # Rows that a killed run wrote after its last checkpoint do not count, and are cut off.
    *_, last = sorted(folder.glob("checkpoint/*/*.rows"), key=lambda path: int(path.stem))
    with open(last, "ab") as file:
        file.write(b"half a row")
    train(folder, 3, resume=True)
    train(folder, 4, resume=True)
    train(whole := tmp_path / "whole", 2)
    train(whole, 4, resume=True)
    assert what_is_left(folder) == what_is_left(whole)
    assert len(json.loads((folder / "checkpoint" / "latest").read_text())["checksums"]) == 1
