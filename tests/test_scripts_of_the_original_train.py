"""Scripts in the manner of the original's vpg.py, ppo.py, ddpg.py, td3.py and sac.py train here.

Each is a program of its own, in scripts_of_the_original/, and uses core, logger and MPI by the
names that the original has. It runs in a new process, in a new folder.
"""

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch

from spinup.utils.plot import get_datasets
from spinup.utils.test_policy import load_pytorch_policy

SCRIPTS = Path(__file__).parent / "scripts_of_the_original"
ON_POLICY = (
    "Epoch EpRet* EpLen VVals* TotalEnvInteracts LossPi LossV DeltaLossPi DeltaLossV Entropy KL"
)
OFF_POLICY = "Epoch EpRet* TestEpRet* EpLen TestEpLen TotalEnvInteracts"
COLUMNS = dict(
    vpg=f"{ON_POLICY} Time",
    ppo=f"{ON_POLICY} ClipFrac StopIter Time",
    ddpg=f"{OFF_POLICY} QVals* LossPi LossQ Time",
    td3=f"{OFF_POLICY} Q1Vals* Q2Vals* LossPi LossQ Time",
    sac=f"{OFF_POLICY} Q1Vals* Q2Vals* LogPi* LossPi LossQ Time",
)
OBS_DIM = dict(vpg=4, ppo=4, ddpg=1, td3=1, sac=1)


def columns(algorithm):
    """The header of progress.txt; X* stands for AverageX, StdX, MaxX, MinX."""
    names = []
    for name in COLUMNS[algorithm].split():
        kinds = ("Average", "Std", "Max", "Min") if name.endswith("*") else ("",)
        names += [kind + name.rstrip("*") for kind in kinds]
    return names


def run_script(algorithm, folder, *flags):
    """Run one script to its end; gives its run folder."""
    path = os.pathsep.join([str(SCRIPTS.parents[1]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path.rstrip(os.pathsep), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(SCRIPTS / f"{algorithm}.py"), *flags]
    ended = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=400
    )
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-2000:]
    return folder / "data" / algorithm / f"{algorithm}_s0"


def table(run):
    header, *rows = [line.split("\t") for line in (run / "progress.txt").read_text().splitlines()]
    return header, [dict(zip(header, map(float, row))) for row in rows]


def check_run(algorithm, run):
    """What every script leaves behind: settings, a table, a curve that rises."""
    header, rows = table(run)
    assert header == columns(algorithm)
    assert all(np.isfinite(value) for row in rows for value in row.values())
    config = json.loads((run / "config.json").read_text())
    assert (config["seed"], config["exp_name"]) == (0, algorithm)
    last = rows[-1].get("AverageTestEpRet", rows[-1]["AverageEpRet"])
    assert last > rows[0]["AverageEpRet"] + 10  # off-policy, the first epoch's are random actions
    (data,) = get_datasets(str(run))
    assert data["Performance"].iloc[-1] == pytest.approx(last)


@pytest.fixture(scope="module", params=COLUMNS)
def script_run(request, tmp_path_factory):
    """An algorithm, and the run folder that its script leaves."""
    return request.param, run_script(request.param, tmp_path_factory.mktemp(request.param))


def test_a_script_trains_and_leaves_a_run(script_run):
    check_run(*script_run)


def test_the_network_of_a_script_can_be_loaded(script_run):
    algorithm, run = script_run
    get_action = load_pytorch_policy(run, deterministic=True)
    act = get_action(np.zeros(OBS_DIM[algorithm], np.float32))
    if algorithm in ("vpg", "ppo"):
        assert act in (0, 1)
    else:
        assert act.shape == (1,) and abs(act[0]) <= 2


@pytest.mark.parametrize("algorithm", ["vpg", "ppo"])
def test_two_processes_end_with_the_same_weights(algorithm, tmp_path):
    run = run_script(algorithm, tmp_path, "--cpu", "2")
    check_run(algorithm, run)
    first, second = (np.load(tmp_path / f"weights{i}.npy") for i in range(2))
    assert np.array_equal(first, second) and first[:-1].any()
    # The average over both processes of the sum of the weights is this sum.
    assert first[-1] == pytest.approx(first[:-1].sum(), rel=1e-4)


@pytest.mark.parametrize("algorithm", ["ddpg", "td3", "sac"])
def test_act_limit_is_that_of_the_space(algorithm):
    core = import_module(f"spinup.algos.pytorch.{algorithm}.core")
    obs = gym.spaces.Box(-1, 1, (3,))
    same = core.MLPActorCritic(obs, gym.spaces.Box(-2, 2, (2,)), (8,))
    assert type(same.pi.act_limit) is float and same.pi.act_limit == 2
    high = np.array([1, 3], np.float32)
    apart = core.MLPActorCritic(obs, gym.spaces.Box(-high, high), (8,))
    assert torch.equal(apart.pi.act_limit, torch.tensor([1.0, 3.0]))
    kind = core.SquashedGaussianMLPActor if algorithm == "sac" else core.MLPActor
    alone = kind(3, 2, (8,), torch.nn.ReLU, 0.5)
    assert alone.act_limit == 0.5
    assert abs(alone.act(torch.full((3,), 100.0))).max() <= 0.5


@pytest.mark.parametrize("algorithm", ["vpg", "ppo", "trpo", "ddpg", "td3", "sac"])
def test_importing_all_of_core_brings_numpy_and_torch(algorithm):
    names = {}
    exec(f"from spinup.algos.pytorch.{algorithm}.core import *", names)
    assert (names["np"], names["torch"], names["nn"]) == (np, torch, torch.nn)
    assert {"MLPActorCritic", "mlp", "combined_shape", "count_vars"} <= names.keys()
