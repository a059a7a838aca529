"""`spinup … | head -1`: a reader that goes away ends the command quietly, and a run resumes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from forked_command import spinup

TRAIN = (
    "ppo --env CartPole-v1 --epochs 2 --steps_per_epoch 32 --hid [4] --train_pi_iters 1 "
    "--train_v_iters 1 --exp_name run"
)
RUN = "data/run/run_s0"
COMMANDS = [
    "help", "version", "ppo --help", "ls data", "ls data --json", "compare data",
    "compare data --csv",
    "compare data --json", "report data", "plot data -o curve.png", f"watch {RUN} -n 2 --norender",
    f"test_policy {RUN} -n 2 -nr", f"resume {RUN}", f"resume {RUN} --epochs 3", TRAIN,
    TRAIN.replace("run", "other"), "watch --help", "resume nowhere",
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cut")
    assert spinup(*TRAIN.split(), cwd=folder).code == 0
    return folder


@pytest.mark.parametrize("command", COMMANDS)
def test_a_reader_that_has_gone(command, folder):
    reading, writing = os.pipe()
    os.close(reading)
    words = command.split()
    ended = spinup(*words, cwd=folder, stdout=writing)
    os.close(writing)
    assert ended.code == (2 if words[-1] == "nowhere" else 1), ended
    assert "Traceback" not in ended.err and "Broken pipe" not in ended.err
    if command == TRAIN.replace("run", "other"):
        assert "so the run was stopped. Resume with: spinup resume " in ended.err


def test_a_run_whose_reader_has_gone_resumes(folder):
    assert spinup("resume", RUN, "--epochs", 4, cwd=folder).code == 0


@pytest.mark.parametrize("command", ["help", "sac --help"])
def test_head_of_a_real_pipe(command):
    """Python itself closes its output only when it ends; nothing may be said of that either."""
    line = f"{sys.executable} -m spinup.run {command} | head -1; echo ${{PIPESTATUS[0]}}"
    ended = subprocess.run(
        ["bash", "-c", line], cwd=Path(__file__).parents[1], capture_output=True, text=True
    )
    first, code = ended.stdout.splitlines()
    assert first.startswith("spinup") and code in ("0", "1")
    assert ended.stderr == ""
