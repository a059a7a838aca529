"""What an error advises works: commands that are named exist, and doing it removes the error."""

import subprocess
import sys
from pathlib import Path

import pytest
from forked_command import spinup

TRAIN = [
    "ppo",
    "--env",
    "CartPole-v1",
    "--epochs",
    "1",
    "--steps_per_epoch",
    "32",
    "--hid",
    "[4]",
    "--train_pi_iters",
    "1",
    "--train_v_iters",
    "1",
    "--exp_name",
    "try",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("advice")
    for seed in (0, 1):
        assert spinup(*TRAIN, "--seed", seed, cwd=folder).code == 0
    return folder


@pytest.mark.parametrize(
    ("word", "advice"),
    [
        ("train", "spinup ppo --env CartPole-v1"), ("run", "spinup ppo --env CartPole-v1"),
        ("test", "spinup watch RUN"), ("eval", "spinup watch RUN"), ("play", "spinup watch RUN"),
        ("list", "spinup ls"), ("status", "spinup ls"), ("continue", "spinup resume RUN"),
        ("resum", "'resume'"), ("polt", "'plot'"), ("PPO", "'ppo'"), ("pop", "'ppo'"),
    ],
)  # fmt: skip
def test_a_word_that_is_no_command_gets_the_one_that_is_meant(word, advice, tmp_path):
    ended = spinup(word, cwd=tmp_path)
    assert ended.code == 2 and advice in ended.err
    assert "version" not in ended.err and ended.err.count("Did you mean") <= 1


@pytest.mark.parametrize("word", ["frobnicate", "zzz", "x"])
def test_a_word_near_to_nothing_gets_no_guess(word, tmp_path):
    error = spinup(word, cwd=tmp_path).err
    assert "Did you mean" not in error and "See: spinup help" in error


@pytest.mark.parametrize("command", ["watch", "test_policy", "resume", "export"])
@pytest.mark.parametrize("place", ["data", "data/try"])
def test_a_folder_of_runs_names_them(command, place, folder):
    ended = spinup(command, place, cwd=folder)
    assert ended.code == 2
    for seed in (0, 1):
        assert f"data/try/try_s{seed}" in ended.err


def test_a_folder_without_runs_says_so(tmp_path):
    assert "there is none below it" in spinup("watch", ".", cwd=tmp_path).err


def test_a_run_that_cannot_be_resumed_is_started_over_as_advised(folder):
    """`resume` has no --overwrite; the command that trained the run has, and it works."""
    run = folder / "data" / "try" / "try_s1"
    (run / "checkpoint" / "epoch1.rank0.npz").write_bytes(b"damaged")
    ended = spinup("resume", run, "--epochs", 2, cwd=folder)
    assert ended.code == 2 and str(run / "checkpoint") in ended.err
    (run / "checkpoint" / "latest").write_bytes(b"{}")
    ended = spinup("resume", run, "--epochs", 2, cwd=folder)
    assert (
        ended.code == 2 and "give the command that trained it again with --overwrite" in ended.err
    )
    assert spinup(*TRAIN, "--seed", 1, "--overwrite", cwd=folder).code == 0
    assert spinup("resume", run, "--epochs", 2, cwd=folder).code == 0


def test_help_is_there_without_docstrings(tmp_path):
    """`python -OO` throws docstrings away; the meanings of settings are read from the file."""
    command = [sys.executable, "-OO", "-m", "spinup.run", "sac", "--help"]
    root = Path(__file__).parents[1]
    bare = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert bare.returncode == 0, bare.stderr
    assert bare.stdout == spinup("sac", "--help", cwd=tmp_path).out
