"""NumPy numbers, 1e3 for an integer, arrays and infinity are settings as Python numbers are."""

import json

import numpy as np
import pytest

import spinup
from spinup.experiments.algorithms import limits_of
from spinup.experiments.train import resume_action
from spinup.parts.errors import UserError
from spinup.parts.make_env import EnvMaker
from spinup.parts.settings import check
from spinup.utils.run_utils import ExperimentGrid

ENVS = dict(ddpg="Pendulum-v1", td3="Pendulum-v1", sac="Pendulum-v1", her="spinup/Reach-v0")
PYTHON = dict(
    seed=3,
    steps_per_epoch=60,
    epochs=2,
    max_ep_len=None,
    num_envs=2,
    batch_size=8,
    start_steps=20,
    update_after=20,
    update_every=10,
    num_test_episodes=1,
    replay_size=500,
    save_freq=1,
    gamma=0.5,
    lam=0.75,
    polyak=0.5,
    pi_lr=2**-10,
    vf_lr=2**-10,
    q_lr=2**-10,
    lr=2**-10,
    alpha=0.25,
    clip_ratio=0.25,
    act_noise=0.25,
    target_noise=0.25,
    noise_clip=0.5,
    policy_delay=2,
    train_pi_iters=2,
    train_v_iters=2,
    n_step=3,
    n_steps=5,
    ac_kwargs=dict(hidden_sizes=[8, 4]),
)
NUMPY = {key: np.int64(value) for key, value in PYTHON.items() if isinstance(value, int)}
NUMPY |= {key: np.float32(value) for key, value in PYTHON.items() if isinstance(value, float)}
DOUBLE = {key: np.float64(value) for key, value in PYTHON.items() if isinstance(value, float)}
DOUBLE = PYTHON | DOUBLE | dict(act_noise=np.array(0.25))
NUMPY |= dict(max_ep_len=np.inf, ac_kwargs=dict(hidden_sizes=np.array([8, 4])))
ROUND = {key: float(value) for key, value in PYTHON.items() if isinstance(value, int)}
ROUND |= dict(max_ep_len=float("inf"), ac_kwargs=dict(hidden_sizes=(8, np.int32(4))))


def train(algorithm, values, folder):
    function = getattr(spinup, f"{algorithm}_pytorch")
    known = function.__code__.co_varnames[: function.__code__.co_argcount]
    settings = {key: value for key, value in values.items() if key in known}
    where = dict(output_dir=str(folder))
    function(EnvMaker(ENVS.get(algorithm, "CartPole-v1")), logger_kwargs=where, **settings)
    rows = [row.split("\t") for row in (folder / "progress.txt").read_text().splitlines()]
    at = rows[0].index("Time")
    config = json.loads((folder / "config.json").read_text())
    for key in ("logger_kwargs", "exp_name"):
        config.pop(key, None)
    return [row[:at] + row[at + 1 :] for row in rows], config


@pytest.mark.parametrize("algorithm", spinup.ALGORITHMS["pytorch"])
def test_equal_numbers_give_equal_runs(algorithm, tmp_path):
    table, config = train(algorithm, PYTHON, tmp_path / "python")
    for name, values in dict(numpy=NUMPY, double=DOUBLE, round=PYTHON | ROUND).items():
        assert train(algorithm, values, tmp_path / name) == (table, config)


@pytest.mark.parametrize("values", [NUMPY, PYTHON | ROUND], ids=["numpy", "round"])
def test_equal_numbers_are_equal_settings_where_a_run_resumes(values, tmp_path):
    keys = ("seed", "steps_per_epoch", "epochs", "max_ep_len", "num_envs", "gamma", "ac_kwargs")
    where = dict(logger_kwargs=dict(output_dir=str(tmp_path)), env_name="CartPole-v1")
    first = {key: PYTHON[key] for key in keys} | dict(train_pi_iters=1, train_v_iters=1)
    train("ppo", first, tmp_path)
    again = {key: values[key] for key in keys} | dict(train_pi_iters=1, train_v_iters=1)
    assert resume_action(spinup.ppo_pytorch, again | where) == "finished"
    with pytest.raises(UserError, match="steps_per_epoch is 60 there, 61 here"):
        resume_action(spinup.ppo_pytorch, again | where | dict(steps_per_epoch=np.float64(61)))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epochs", np.float64(2.5)), ("epochs", 1e300), ("epochs", np.inf),
        ("gamma", np.float32(2)), ("gamma", np.nan), ("seed", np.int64(-1)),
        ("steps_per_epoch", np.True_),
        ("pi_lr", np.array([1.0, 2.0])), ("max_ep_len", -np.inf), ("train_v_iters", -1),
    ],
)  # fmt: skip
def test_numbers_that_cannot_be_meant_are_refused_all_the_same(name, value):
    with pytest.raises(UserError, match=f"^{name} "):
        check({name: value})


@pytest.mark.parametrize("algorithm", ["vpg", "trpo", "reinforce"])
def test_no_value_steps_leave_the_value_function_as_it_is(algorithm, tmp_path):
    quick = ["--env", "CartPole-v1", "--epochs", "2", "--steps_per_epoch", "60"]
    given = [*quick, "--train_v_iters", "0", "--data_dir", str(tmp_path), "--exp_name", "x"]
    from spinup.run import main

    main([algorithm, *given])
    (file,) = tmp_path.rglob("progress.txt")
    header, *rows = [row.split("\t") for row in file.read_text().splitlines()]
    assert len(rows) == 2
    assert all(float(row[header.index("LossV")]) > 0 for row in rows)
    if "DeltaLossV" in header:
        assert all(float(row[header.index("DeltaLossV")]) == 0 for row in rows)


# --- What only one algorithm has is checked by its own limits ---


@pytest.mark.parametrize(
    ("algorithm", "name", "values", "refused"),
    [
        ("trpo", "algo", ["npg", "trop"], "algo must be 'trpo' or 'npg', not 'trop'"),
        ("acer", "alpha", [0.9, 1.5], "alpha must be a number from 0 to 1, not 1.5"),
        ("acer", "alpha", [0.9, "auto"], "alpha must be a number from 0 to 1, not 'auto'"),
        ("sac", "alpha", ["auto", "atuo"], "alpha must be a number from 0 up or 'auto'"),
        ("her", "strategy", ["final", "last"], "strategy must be 'future', 'final' or 'episode'"),
    ],
)
def test_a_wrong_value_in_a_grid_is_refused_before_a_run_starts(
    algorithm, name, values, refused, tmp_path
):
    function = getattr(spinup, f"{algorithm}_pytorch")
    grid = ExperimentGrid("grid")
    grid.add("env_name", ENVS.get(algorithm, "CartPole-v1"))
    grid.add(name, values)
    with pytest.raises(UserError, match=refused):
        grid.run(function, data_dir=str(tmp_path))
    assert not list(tmp_path.rglob("*.txt"))
    check({name: values[0]}, **limits_of(function))
