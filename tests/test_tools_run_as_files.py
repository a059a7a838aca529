"""`python spinup/utils/plot.py RUN` and its like work from any folder, as they did originally."""

import subprocess
import sys
from pathlib import Path

import pytest

import spinup
from spinup.parts.make_env import EnvMaker

UTILS = Path(spinup.__file__).parent / "utils"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    spinup.ppo_pytorch(
        EnvMaker("CartPole-v1"),
        epochs=1,
        steps_per_epoch=60,
        ac_kwargs=dict(hidden_sizes=(8,)),
        logger_kwargs=dict(output_dir=str(folder)),
    )
    return folder


def ran(folder, *words):
    words = [sys.executable, *map(str, words)]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True)


def test_test_policy_runs_as_a_file(run, tmp_path):
    done = ran(tmp_path, UTILS / "test_policy.py", run, "-nr", "-n", "2", "-l", "5")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("EpLen 5") == 2 and "AverageEpRet" in done.stdout


def test_test_policy_is_found_by_a_path_relative_to_the_clone(run):
    script = Path("spinup", "utils", "test_policy.py")
    done = ran(UTILS.parents[1], script, run, "-nr", "-n", "1", "-l", "5")
    assert (done.returncode, done.stderr) == (0, "")


def test_plot_runs_as_a_file(run, tmp_path):
    done = ran(tmp_path, UTILS / "plot.py", run, "-o", tmp_path / "curve.png")
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("tool", ["test_policy.py", "plot.py"])
def test_a_wrong_folder_gets_a_sentence(tool, tmp_path):
    done = ran(tmp_path, UTILS / tool, tmp_path / "nothing")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr and "There is no folder" in done.stderr
