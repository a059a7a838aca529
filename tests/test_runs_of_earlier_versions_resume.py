"""Runs and models of earlier versions resume, load, act, plot and are listed.

`data/version_1` holds small runs stopped after one of three epochs, and what the version that made
them computes (its make_runs.py says how). A later version may round otherwise, so numbers
are compared to TOLERANCE, not bit for bit; and parameters may have other names and shapes, so what
is compared are actions, values and all numbers of the parameters in the order of their size.
"""

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from spinup.experiments.resume import resume
from spinup.parts.earlier_configs import in_todays_units
from spinup.parts.errors import UserError
from spinup.run import dispatch

DATA = Path(__file__).parent / "data" / "version_1"
TOLERANCE = 1e-3  # relative, of an epoch of training; rounding grows from update to update
LOADED = 1e-5  # of what a loaded network gives

_spec = importlib.util.spec_from_file_location("make_runs", DATA / "make_runs.py")
make_runs = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(make_runs)
every_run = pytest.mark.parametrize("name", make_runs.RUNS)


def expected_of(name) -> dict:
    with np.load(DATA / "expected" / f"{name}.npz") as arrays:
        return dict(arrays)


def copy_of(name, tmp_path) -> Path:
    """The run in a folder of its own, as it lies in data/: where it was made is not there."""
    return Path(shutil.copytree(DATA / name, tmp_path / name)) / f"{name}_s0"


def rows_of(file) -> list[dict]:
    """The rows of a progress.txt."""
    header, *lines = (line.split("\t") for line in Path(file).read_text().splitlines())
    return [dict(zip(header, map(float, line), strict=True)) for line in lines]


def assert_close(found, expected, tolerance, what):
    """Equal to `tolerance` of the largest number there, where all have one unit."""
    found, expected = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    scale = max(np.abs(expected).max(), 1e-2)
    assert found.shape == expected.shape, what
    np.testing.assert_allclose(found, expected, 0, tolerance * scale, err_msg=what)


@every_run
def test_a_saved_model_gives_the_same_actions_and_values(name):
    expected = expected_of(name)
    found = make_runs.look(DATA / name / f"{name}_s0", (expected["obs"], expected["act"]))
    for key in ("actions", "values", "parameters"):
        assert_close(found[key], expected[key], LOADED, key)
    assert np.ptp(expected["actions"], 0).max() > 0 or np.ptp(expected["values"]) > 1e-3


@every_run
def test_a_stopped_run_resumes_as_the_version_that_made_it(name, tmp_path):
    folder, expected = copy_of(name, tmp_path), expected_of(name)
    resume(folder, epochs=make_runs.RESUMED_TO.get(name, 2))
    table, expected_table = folder / "progress.txt", DATA / "expected" / f"{name}.txt"
    # The first row was written by the version before, and is left alone.
    assert table.read_text().splitlines()[:2] == expected_table.read_text().splitlines()[:2]
    rows, expected_rows = rows_of(table), rows_of(expected_table)
    assert len(rows) == len(expected_rows) > 1
    for row, expected_row in zip(rows[1:], expected_rows[1:]):
        for column, value in expected_row.items():
            if column != "Time":
                assert_close(row[column], value, TOLERANCE, column)
    found = make_runs.look(folder, (expected["obs"], expected["act"]))
    for key in ("actions", "values", "parameters"):
        assert_close(found[key], expected[f"after_{key}"], TOLERANCE, key)
    # The epoch has learned something, or the comparison would prove nothing.
    moved = np.abs(expected["after_parameters"] - expected["parameters"]).max()
    assert moved > 3 * TOLERANCE * np.abs(expected["parameters"]).max()


def test_the_noise_of_version_1_is_told_apart_from_todays(tmp_path):
    """0.1 of half the width 2 was 0.2 in the units of the action; the same number is refused."""
    folder = copy_of("ddpg", tmp_path)
    typed = [*make_runs.RUNS["ddpg"].split(), "--exp_name", "ddpg", "--data_dir", str(tmp_path)]
    typed.remove("--data_dir")
    typed.remove(".")
    with pytest.raises(UserError, match="act_noise is 0.2 there, 0.1 here"):
        dispatch(typed)
    config = json.loads((folder / "config.json").read_text())
    uneven = config["spaces"] | dict(action="Box([-1. -2.], [1. 2.], (2,), float32)")
    found = in_todays_units(config | dict(spaces=uneven))
    assert "half-widths" in found["act_noise"]  # which no run can be resumed with


def test_commands_of_today_take_runs_of_before(tmp_path):
    """Each in a process of its own, as a user types it."""
    folder = copy_of("sac", tmp_path)
    for words in (
        ["resume", folder],
        ["watch", folder, "--episodes", "1", "--norender", "--deterministic"],
        ["plot", tmp_path / "sac", "-o", tmp_path / "curve.png"],
    ):
        command = [sys.executable, "-m", "spinup.run", *map(str, words)]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    assert len(rows_of(folder / "progress.txt")) == 3  # the epochs it was started for
    assert (tmp_path / "curve.png").stat().st_size > 1000


def test_ls_lists_them_as_stopped(capsys):
    dispatch(["ls", str(DATA), "--json"])
    found = json.loads(capsys.readouterr().out)
    assert {run["folder"].rpartition("/")[2] for run in found} == {
        f"{n}_s0" for n in make_runs.RUNS
    }
    assert {(run["state"], run["epochs_done"]) for run in found} == {("stopped", 1)}


def test_they_hold_nothing_of_the_machine_they_were_made_on():
    for path in DATA.rglob("config.json"):
        folder = json.loads(path.read_text())["logger_kwargs"]["output_dir"]
        assert not Path(folder).is_absolute()
