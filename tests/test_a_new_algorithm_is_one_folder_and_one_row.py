"""A new algorithm needs its folder under algos/pytorch/ and its name in one table, nothing else."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import spinup

SCRIPT = """
import gymnasium
import spinup
from spinup import mine_pytorch

mine_pytorch(lambda: gymnasium.make("CartPole-v1"), epochs=1, steps_per_epoch=64,
             ac_kwargs=dict(hidden_sizes=(8,)), logger_kwargs=dict(output_dir="script"))
"""
FLAGS = "--env CartPole-v1 --epochs 1 --steps_per_epoch 64 --hid [8] --train_v_iters 2"


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A copy of the package with VPG copied to an algorithm called `mine`, and one row."""
    folder = tmp_path_factory.mktemp("clone")
    package = Path(spinup.__file__).parent
    shutil.copytree(package, folder / "spinup", ignore=shutil.ignore_patterns("__pycache__"))
    algos = folder / "spinup" / "algos"
    shutil.copytree(algos / "pytorch" / "vpg", algos / "pytorch" / "mine")
    file = algos / "pytorch" / "mine" / "vpg.py"
    text = file.read_text().replace("pytorch.vpg", "pytorch.mine").replace("def vpg(", "def mine(")
    (algos / "pytorch" / "mine" / "mine.py").write_text(text.replace("launch(vpg,", "launch(mine,"))
    file.unlink()
    table = algos / "__init__.py"
    table.write_text(table.read_text().replace('"vpg",', '"vpg", "mine",'))
    return folder


def python(*words, cwd):
    environment = os.environ | dict(PYTHONPATH=str(cwd))
    ended = subprocess.run(
        [sys.executable, *words], cwd=cwd, env=environment, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_the_command_line_trains_it(clone):
    python("-m", "spinup.run", "mine", *FLAGS.split(), cwd=clone)
    assert (clone / "data" / "cmd_mine_pytorch" / "cmd_mine_pytorch_s0" / "progress.txt").exists()
    python("-m", "spinup.run", "resume", "data/cmd_mine_pytorch/cmd_mine_pytorch_s0", cwd=clone)


@pytest.mark.parametrize("name", ["mine", "vpg"])
def test_its_file_trains_it_under_its_own_name(clone, name):
    python(f"spinup/algos/pytorch/{name}/{name}.py", *FLAGS.split(), cwd=clone)
    assert (clone / "data" / name / f"{name}_s0" / "progress.txt").exists()


def test_a_copy_beside_spinup_does_not_take_the_name_of_the_original(clone):
    shutil.copytree(clone / "spinup" / "algos" / "pytorch" / "vpg", clone / "myvpg")
    python("-m", "myvpg.vpg", *FLAGS.split(), cwd=clone)
    assert (clone / "data" / "myvpg.vpg" / "myvpg.vpg_s0" / "progress.txt").exists()


def test_a_script_trains_it(clone):
    (clone / "script.py").write_text(SCRIPT)
    python("script.py", cwd=clone)
    assert (clone / "script" / "pyt_save" / "model.pt").exists()


def test_help_knows_it(clone):
    assert "vpg, mine, trpo" in python("-m", "spinup.run", "help", cwd=clone)
    shown = python("-m", "spinup.run", "mine", "--help", cwd=clone)
    assert "spinup mine --env CartPole-v1" in shown and "--train_v_iters" in shown


def test_the_names_of_the_original_know_it(clone):
    code = "from spinup import run; print(run.BASE_ALGO_NAMES, run.MPI_COMPATIBLE_ALGOS)"
    assert python("-c", code, cwd=clone).count("'mine'") == 2
