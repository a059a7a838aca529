"""Scripts written for the original's `spinup.run`, `run_utils` and `version` work unchanged."""

import subprocess
import sys

import numpy as np
import pytest
from forked_command import spinup as run_spinup

from spinup import run, version
from spinup.parts.errors import UserError
from spinup.utils import run_utils
from spinup.utils.run_utils import ExperimentGrid

SMALL = ["--env", "CartPole-v1", "--epochs", "1", "--steps_per_epoch", "64"]
SMALL += ["--hid", "[8]", "--train_v_iters", "1"]
TRAIN = """
import sys
from spinup.run import (BASE_ALGO_NAMES, MPI_COMPATIBLE_ALGOS, add_with_backends, friendly_err,
                        parse_and_execute_grid_search)

cmd, args = sys.argv[1], sys.argv[2:]
assert cmd in add_with_backends(BASE_ALGO_NAMES), friendly_err("no such algorithm")
if "num_cpu" in args:
    assert cmd in add_with_backends(MPI_COMPATIBLE_ALGOS), friendly_err("not with MPI")
parse_and_execute_grid_search(cmd, args)
"""
SHORTER = """
from spinup import run

run.SUBSTITUTIONS["lr"] = "pi_lr"
run.main("vpg --env CartPole-v1 --epochs 1 --steps_per_epoch 64 --train_v_iters 1 --lr 0.5".split())
"""


def python(code, *words, cwd):
    (cwd / "script.py").write_text(code)
    return subprocess.run(
        [sys.executable, "script.py", *words], cwd=cwd, capture_output=True, text=True
    )


@pytest.mark.parametrize("name", ["vpg", "vpg_pytorch"])
def test_a_script_trains_as_the_command_line_does(name, tmp_path):
    ended = python(TRAIN, name, *SMALL, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    folder = tmp_path / "data" / "cmd_vpg_pytorch" / "cmd_vpg_pytorch_s0"
    assert (folder / "progress.txt").read_text().count("\n") == 2
    assert run_spinup("resume", folder, "--epochs", 2, cwd=tmp_path).code == 0


def test_an_unknown_name_gets_a_friendly_error(tmp_path):
    ended = python(TRAIN, "vgp", cwd=tmp_path)
    assert "\n\nno such algorithm\n\n" in ended.stderr
    with pytest.raises(UserError, match="Did you mean 'vpg'"):
        run.parse_and_execute_grid_search("vgp", [])


def test_a_substitution_that_is_added_is_a_flag(tmp_path):
    ended = python(SHORTER, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    (config,) = tmp_path.glob("data/*/*/config.json")
    assert '"pi_lr": 0.5' in config.read_text()


def test_names_with_backends():
    names = run.add_with_backends(["ppo", "sac"])
    assert names[:2] == ["ppo", "sac"]
    assert set(names[2:]) == {"ppo_tf1", "ppo_pytorch", "sac_tf1", "sac_pytorch"}
    assert {"vpg", "trpo", "ppo"} <= set(run.MPI_COMPATIBLE_ALGOS) <= set(run.BASE_ALGO_NAMES)


@pytest.mark.parametrize("key", run.RUN_KEYS)
def test_run_keys_take_one_value_for_all_runs(key, tmp_path):
    words = ["--" + key.replace("ray_address", "ray-address"), "1", "2"]
    ended = run_spinup("vpg", *SMALL, *words, cwd=tmp_path)
    assert ended.code == 2 and f"--{key} has 2 values, but takes one." in ended.err
    assert {"num_cpu", "data_dir", "datestamp"} <= set(run.RUN_KEYS)


def test_the_steps_of_a_grid_can_be_replaced():
    """A subclass of ExperimentGrid that leaves variants out and names settings in its own way."""

    class Diagonal(ExperimentGrid):
        def _variants(self, keys, vals):
            return [v for v in super()._variants(keys, vals) if v["a:x"] == v["b"]]

        def _default_shorthand(self, key):
            return super()._default_shorthand(key)[::-1]

    grid = Diagonal("g")
    grid.add("a:x", [1, 2])
    grid.add("b", [2, 1])
    assert grid.variants() == [dict(a=dict(x=1), b=1), dict(a=dict(x=2), b=2)]
    assert [grid.variant_name(v) for v in grid.variants()] == ["g_x-a1_b1", "g_x-a2_b2"]
    assert ExperimentGrid()._default_shorthand("ac_kwargs:activation") == "ac-act"
    assert ExperimentGrid()._variants(["a", "b"], [[1], [2, 3]]) == [dict(a=1, b=2), dict(a=1, b=3)]


def test_the_width_of_lines(capsys):
    ExperimentGrid("g").print()
    assert capsys.readouterr().out.splitlines()[0] == "=" * run_utils.DIV_LINE_WIDTH


def test_the_version_in_three_forms():
    assert version.get_version() == version.__version__ == ".".join(map(str, version.version_info))
    assert version.version_info >= (1, 1, 0)


@pytest.mark.parametrize("name", ["convert_json", "colorize", "test_eg", "all_bools", "valid_str"])
def test_tools_of_run_utils(name):
    assert callable(getattr(run_utils, name))
    assert run_utils.convert_json({"a": (np.int64(3), np.ndarray)}) == {"a": [3, "ndarray"]}
