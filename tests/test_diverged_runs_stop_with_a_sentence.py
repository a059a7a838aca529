"""A number that is not finite stops a run with a sentence; what was good before it is kept."""

import json
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import algorithm_kinds
import diverging_env
import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box

import spinup
from spinup.algos.pytorch.ppo import core as ppo_core
from spinup.algos.pytorch.sac import core as sac_core
from spinup.cli import report as cli_report
from spinup.experiments.job import Job
from spinup.experiments.jobs import run_jobs
from spinup.parts.envs import VectorEnv
from spinup.parts.errors import Diverged, JobsFailed, UserError
from spinup.parts.latest import read_latest
from spinup.parts.logger import EpochLogger
from spinup.parts.make_env import EnvMaker
from spinup.parts.run_folder import find_runs
from spinup.parts.run_status import run_status
from spinup.results import tables
from spinup.run import main

REPOSITORY = Path(__file__).parents[1]
SMALL = dict(steps_per_epoch=100, epochs=4, ac_kwargs=dict(hidden_sizes=[8]), save_freq=1)
OFF = dict(
    start_steps=30,
    update_after=30,
    update_every=10,
    batch_size=8,
    replay_size=500,
    num_test_episodes=1,
)
ON = dict(train_v_iters=2)
SIZES = OFF | ON | dict(train_pi_iters=2, replay_start=20, n_steps=7)
ALGORITHMS = {
    name: {key: value for key, value in SIZES.items() if key in algorithm_kinds.parameters(name)}
    for name in algorithm_kinds.ALGORITHMS
    if name not in algorithm_kinds.GOALS
}
DISCRETE_ONLY = [name for name in ALGORITHMS if not algorithm_kinds.takes(name, Box(-1, 1, (1,)))]


def train(algorithm, folder, env=None, **settings):
    """Train a small run here; `env` has the arguments of a broken environment."""
    env = dict(discrete=algorithm in DISCRETE_ONLY) | (env or {})
    settings = SMALL | ALGORITHMS[algorithm] | settings
    make = settings.pop("env_fn", partial(diverging_env.Diverging, **env))
    where = dict(output_dir=str(folder))
    return getattr(spinup, f"{algorithm}_pytorch")(make, logger_kwargs=where, **settings)


def rows(folder):
    return [line.split("\t") for line in (folder / "progress.txt").read_text().splitlines()]


def good_files(folder) -> dict:
    """The bytes of the model and the checkpoint, of which nothing is half written."""
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name != ".lock"]
    assert not [path for path in paths if path.suffix == ".new"]
    kept = [path for path in paths if path.parent.name in ("pyt_save", "checkpoint")]
    return {path.name: path.read_bytes() for path in kept}


def spinup_command(*words, **variables):
    paths = f"{REPOSITORY}{os.pathsep}{REPOSITORY / 'tests' / 'helpers'}"
    return subprocess.run(
        [sys.executable, "-m", "spinup.run", *map(str, words)],
        env=os.environ | dict(PYTHONPATH=paths, OMP_NUM_THREADS="1") | variables,
        capture_output=True,
        text=True,
        timeout=120,
    )


# ---------------------------------------------------------------- what an environment gives


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_stops_at_a_reward_that_is_no_number(algorithm, tmp_path):
    with pytest.raises(Diverged, match=r"reward of environment 0 is NaN in training at step 150 "):
        train(algorithm, tmp_path, dict(at=150))
    assert read_latest(tmp_path)["epoch"] == 1 and len(rows(tmp_path)) == 2
    assert run_status(tmp_path).state == "diverged"


@pytest.mark.parametrize("algorithm", ["ppo", "sac"])
@pytest.mark.parametrize(
    "what, value, told",
    [
        ("observation", "nan", "the observation of environment 0 is NaN in training at step 250"),
        ("observation", "-inf", "the observation of environment 0 is infinite in training"),
        ("reward", "inf", "the reward of environment 0 is infinite in training at step 250"),
        ("reset", "nan", "the first observation of environment 0 is NaN in training at step 240"),
    ],
)
def test_what_was_good_before_is_kept(algorithm, what, value, told, tmp_path):
    at = 240 if what == "reset" else 250
    with pytest.raises(Diverged, match=told) as stopped:
        train(algorithm, tmp_path / "run", dict(at=at, what=what, value=value))
    assert str(stopped.value).endswith(
        "Fix the environment, which must give finite numbers (it may end an episode where its "
        "simulation breaks), then resume the run. The checkpoint of epoch 2 and the last model are "
        "kept."
    )
    train(algorithm, tmp_path / "good", epochs=2)  # the same run, never broken
    found, good = good_files(tmp_path / "run"), good_files(tmp_path / "good")
    assert found["model.pt"] == good["model.pt"]
    assert found.keys() == good.keys() and read_latest(tmp_path / "run")["epoch"] == 2
    table = np.array(rows(tmp_path / "run")[1:], float)
    assert len(table) == 2 and np.isfinite(table[:, 1]).all()


def test_an_environment_that_breaks_in_evaluation(tmp_path):
    made = []

    def env_fn():
        # The second is for evaluation.
        made.append(diverging_env.Diverging(at=30 if made else None))
        return made[-1]

    with pytest.raises(Diverged, match=r"is NaN in evaluation at step 200 \(epoch 2\)"):
        train("sac", tmp_path, env_fn=env_fn)


def test_a_number_too_large_for_single_precision_is_infinite():
    env = VectorEnv(partial(diverging_env.Diverging, at=3, value="1e300"))
    with (
        pytest.raises(Diverged, match="reward of environment 0 is infinite"),
        np.errstate(over="ignore"),
    ):
        for _ in range(3):
            env.step(env.sample_actions())


def test_an_environment_that_cannot_even_begin():
    with pytest.raises(Diverged, match="first observation of environment 0 is NaN. Fix the env"):
        VectorEnv(partial(diverging_env.Diverging, at=0, what="reset"), n=2)


class ImageEnv(gym.Env):
    """Its observation_space is of bytes; what it gives is an image with `value` in it."""

    observation_space = gym.spaces.Box(0, 255, (2, 2, 1), np.uint8)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, value, dtype):
        self.image = np.full((2, 2, 1), value, dtype)

    def reset(self, seed=None, options=None):
        return self.image, {}

    def step(self, action):
        return self.image, 0.0, False, False, {}


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.5, -1.0, 256.0])
def test_a_byte_does_not_swallow_what_it_cannot_hold(value):
    with pytest.raises(UserError, match=f"with {value} in it, but .* integers from 0 to 255"):
        VectorEnv(partial(ImageEnv, value, np.float32))


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float32, bool])
def test_whole_numbers_of_any_type_are_bytes(dtype):
    env = VectorEnv(partial(ImageEnv, 1, dtype))
    assert env.step([0]).obs2.dtype == np.uint8 and (env.obs == 1).all()


# ---------------------------------------------------------------- what a policy does and learns


def spoiled(base):
    class Actor(base):
        """Networks whose policy gives NaN from its 150th action on."""

        calls = 0

        def act(self, obs, *args, **kwargs):
            return self.spoil(super().act(obs, *args, **kwargs))

        def step(self, obs):
            act, *others = super().step(obs)
            return self.spoil(act), *others

        def spoil(self, act):
            self.calls += 1
            return act * np.nan if self.calls >= 150 else act

    return Actor


@pytest.mark.parametrize(
    "algorithm, base", [("ppo", ppo_core.MLPActorCritic), ("sac", sac_core.MLPActorCritic)]
)
def test_an_action_that_is_no_number_never_reaches_the_environment(algorithm, base, tmp_path):
    seen = []

    class Records(diverging_env.Diverging):
        def step(self, action):
            seen.append(action)
            return super().step(action)

    with pytest.raises(Diverged, match="the action for environment 0 is NaN in training at step"):
        train(algorithm, tmp_path, env_fn=Records, actor_critic=spoiled(base))
    assert np.isfinite(seen).all() and run_status(tmp_path).state == "diverged"


@pytest.mark.parametrize(
    "algorithm, settings, what",
    [
        ("ppo", dict(vf_lr=1e30), r"DeltaLossV is not finite at step 100 \(epoch 1\). Try a "
         r"smaller learning rate \(pi_lr is 0.0003, vf_lr is 1e\+30\)"),
        ("vpg", dict(pi_lr=1e38), "DeltaLossPi, Entropy, KL, KLNonNegative are not finite"),
        ("reinforce", dict(pi_lr=1e38), r"the weights of ac \(pi.log_std and 4 more\) are not fin"),
        ("dqn", dict(lr=1e30), r"QVals, LossQ, TDError are not finite at step 100 \(epoch 1\)"),
        ("td3", dict(q_lr=1e30), "the action for environment 0 is NaN in training at step 41"),
        ("sac", dict(lr=1e30, start_steps=1000, num_test_episodes=0), "LossPi, LossQ are not fini"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_learning_rate_far_too_large(algorithm, settings, what, tmp_path):
    with pytest.raises(Diverged, match=what) as stopped:
        train(algorithm, tmp_path, **settings)
    assert str(stopped.value).endswith("at the same step. No epoch was completed before.")
    assert good_files(tmp_path) == {} and not (tmp_path / "progress.txt").read_text()
    assert "new --exp_name; resumed as it is, the run would diverge again" in str(stopped.value)


def test_optimizers_and_models_are_looked_at_before_anything_is_written(tmp_path):
    from spinup.parts.checkpoint import Checkpoint
    from spinup.parts.pytorch.learning import Adam

    for kind in (Adam, torch.optim.Adam):
        network = torch.nn.Linear(2, 1)
        optimizer, folder = kind(network.parameters(), 0.1), tmp_path / kind.__module__
        network(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        checkpoint = Checkpoint(folder=folder, ac=network, optimizer=optimizer)
        checkpoint.save(1)
        kept = good_files(folder)
        network.weight.grad = torch.full_like(network.weight, 1e30)  # its square is infinite
        optimizer.step()
        with pytest.raises(Diverged, match=r"the weights of optimizer \(state"):
            checkpoint.save(2)
        assert good_files(folder) == kept
    logger = EpochLogger(str(tmp_path / "script"))  # one that has no checkpoint
    logger.setup_pytorch_saver(network)
    logger.save_state({})
    kept = good_files(tmp_path / "script")
    with torch.no_grad():
        network.bias.fill_(torch.nan)
    with pytest.raises(Diverged, match=r"the weights of model \(bias\) are not finite. Try"):
        logger.save_state({})
    assert good_files(tmp_path / "script") == kept and len(kept) == 1


def test_a_script_with_a_table_of_its_own_stops_too(tmp_path, capsys):
    logger = EpochLogger(str(tmp_path))
    for loss in (1.0, float("nan")):
        logger.store(Loss=[2.0, loss], Success=None)
        logger.log_tabular("Epoch", 0)
        logger.log_tabular("Loss", with_min_and_max=True)
        logger.log_tabular("Success", average_only=True)  # nothing was measured: NaN, and no harm
        if loss == loss:
            logger.dump_tabular()
    with pytest.raises(Diverged, match="diverged: Loss is not finite. .* saved last is kept"):
        logger.dump_tabular()
    assert len(rows(tmp_path)) == 2 and rows(tmp_path)[1][-1] == "nan"
    assert len(tables.get_all_datasets([tmp_path])[0]) == 1  # the epoch that was good
    assert "AverageLoss |             nan" in capsys.readouterr().out  # to be seen, not kept


class Untold(gym.Wrapper):
    """A goal environment that does not say whether its goal was reached."""

    def step(self, action):
        return *super().step(action)[:4], {}


def test_what_was_not_measured_stops_nothing(tmp_path):
    train("ppo", tmp_path / "long", dict(length=1000))  # no episode ends
    assert [row[1] for row in rows(tmp_path / "long")[1:]] == ["nan"] * 4
    train("dqn", tmp_path / "idle", update_after=10_000)  # nothing is learned
    made = lambda: Untold(EnvMaker("spinup/Reach-v0")())  # noqa: E731
    her = OFF | dict(steps_per_epoch=100, epochs=2, ac_kwargs=dict(hidden_sizes=[8]))
    spinup.her_pytorch(made, logger_kwargs=dict(output_dir=str(tmp_path / "goals")), **her)
    for name in ("long", "idle", "goals"):
        assert run_status(tmp_path / name).state == "finished"


# ---------------------------------------------------------------- afterwards


def test_a_resumed_run_diverges_again_unless_its_environment_is_mended(tmp_path, capsys):
    """Once fixed, it is the run that it would have been."""

    class Fixable(diverging_env.Diverging):
        fixed = False

        def reset(self, *, seed=None, options=None):
            self.fatal = np.random.default_rng(seed).random() < 0.1
            return super().reset(seed=seed, options=options)

        def _breaks(self, what):
            return what == "reward" and self.t == 13 and self.fatal and not Fixable.fixed

    for _ in range(2):
        with pytest.raises(Diverged) as stopped:
            train("sac", tmp_path / "run", env_fn=Fixable, resume=True, seed=2)
        kept = good_files(tmp_path / "run")
    step = json.loads((tmp_path / "run" / "diverged.json").read_text())["step"]
    epoch = read_latest(tmp_path / "run")["epoch"]
    assert f"at step {step} (epoch {epoch + 1})" in str(stopped.value)
    said = f"diverged before at step {step}. It resumes after epoch {epoch} and stops at the same"
    assert said in capsys.readouterr().out
    Fixable.fixed = True
    train("sac", tmp_path / "run", env_fn=Fixable, resume=True, seed=2)
    assert not (tmp_path / "run" / "diverged.json").exists()
    assert run_status(tmp_path / "run").state == "finished"
    train("sac", tmp_path / "never", env_fn=Fixable, seed=2)
    assert good_files(tmp_path / "run")["model.pt"] == good_files(tmp_path / "never")["model.pt"]
    assert kept.keys() == {"latest", "model.pt", f"epoch{epoch}.rank0.npz"}


def test_the_command_line_says_it_with_exit_code_1(tmp_path, capsys):
    words = ["ppo", "--env", "diverging_env:Diverging-v0", "--env_kwargs:at", "250", "--hid", "[8]"]
    words += ["--steps_per_epoch", "100", "--epochs", "4", "--exp_name", "x"]
    words += ["--data_dir", tmp_path]
    ended = spinup_command(*words)
    folder = tmp_path / "x" / "x_s0"
    told = "spinup: The run diverged: the reward of environment 0 is NaN in training at step 250 "
    assert ended.returncode == 1 and ended.stderr.startswith(told)
    assert "Traceback" not in ended.stdout + ended.stderr
    files = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    again = spinup_command(*words)
    assert again.returncode == 1 and f"{folder} diverged, and is not trained again" in again.stderr
    assert f"spinup resume {folder}, or start over with --overwrite" in again.stderr
    with pytest.raises(SystemExit) as ended:
        main([*map(str, words), "--pi_lr", "1e-5"])
    assert ended.value.code == 2
    assert "other settings: pi_lr is 0.0003 there" in capsys.readouterr().err
    assert files == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    main(["ls", str(tmp_path)])
    listed = capsys.readouterr().out
    assert listed.splitlines()[1].split()[:6] == [
        "diverged",
        "ppo_pytorch",
        "diverging_env:Diverging-v0",
        "0",
        "2/4",
        "-",
    ]
    assert "The run diverged: the reward of environment 0 is NaN" in listed
    cli_report.main([str(tmp_path)])
    page = (tmp_path / "report.html").read_text()
    assert '"state":"diverged"' in page and "1 run in 1 experiment, 1 diverged." in page
    assert '"failures":[{"run":"x/x_s0","lines":["The run diverged: the reward' in page


def test_a_grid_says_which_runs_diverged_and_leaves_them_alone(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", f"{REPOSITORY}{os.pathsep}{REPOSITORY / 'tests' / 'helpers'}")

    def grid():
        for name, env in dict(good={}, late=dict(at=150), never=dict(at=0, what="reset")).items():
            where = dict(output_dir=str(tmp_path / name / f"{name}_s0"), exp_name=name)
            kwargs = SMALL | ON | dict(epochs=2, seed=0, logger_kwargs=where)
            made = dict(env_fn=partial(diverging_env.Diverging, **env))
            yield Job(name, spinup.vpg_pytorch, kwargs | made)

    with pytest.raises(JobsFailed) as failed:
        run_jobs(list(grid()), 2)
    told = str(failed.value)
    assert (
        f"late diverged: {tmp_path / 'late' / 'late_s0'}\n    The run diverged: the reward" in told
    )
    assert "2 of 3 runs diverged; the other 1 is finished." in told
    assert [name for name, _ in failed.value.failures] == ["late", "never"]
    states = {run.parent.name: run_status(run).state for run in find_runs([tmp_path])}
    assert states == dict(good="finished", late="diverged", never="diverged")
    outputs = {path: path.read_bytes() for path in tmp_path.rglob("output.txt")}
    assert "diverged" in capsys.readouterr().out
    with pytest.raises(JobsFailed, match="late_s0 diverged, and is not trained again"):
        run_jobs(list(grid()), 2)
    assert outputs == {path: path.read_bytes() for path in tmp_path.rglob("output.txt")}


@pytest.mark.parametrize(
    "algorithm, settings, what",
    [
        ("ppo", ["--env_kwargs:at", "120", "--env_kwargs:rank", "1"],
         r"the reward of environment 0 is NaN in training at step 240 \(epoch 3\)"),
        ("sac", ["--lr", "1e30", "--start_steps", "1000", "--update_after", "50", "--batch_size",
                 "8", "--num_test_episodes", "0"],
         r"Q1Vals, Q2Vals, LogPi, LossPi, LossQ are not finite at step 100 \(epoch 1\)"),
    ],
)  # fmt: skip
def test_all_processes_stop_also_where_one_alone_diverges(algorithm, settings, what, tmp_path):
    words = [algorithm, "--env", "diverging_env:Diverging-v0", "--hid", "[8]"]
    words += ["--steps_per_epoch", "100", "--epochs", "4", "--exp_name", "x"]
    words += ["--data_dir", tmp_path, "--cpu", "2", *settings]
    ended = spinup_command(*words)
    assert ended.returncode == 1, ended.stderr
    assert len(re.findall(f"spinup: The run diverged: {what}", ended.stderr)) == 1
    assert "Traceback" not in ended.stdout + ended.stderr
    folder = tmp_path / "x" / "x_s0"
    assert run_status(folder).state == "diverged"
    kept = {"epoch2.rank0.npz", "epoch2.rank1.npz", "latest", "model.pt"}
    assert good_files(folder).keys() == (kept if "at" in settings[0] else set())
