"""A student copies an algorithm's folder, edits its update, and every edit takes effect.

The copy counts its updates on the learner, anneals its learning rate by that count, and prints. It
is trained whole and, in another folder, stopped after an epoch and resumed: both are equal.
"""

import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import spinup
import spinup.user_config
from spinup.experiments.resume import resume
from spinup.parts.errors import UserError
from spinup.parts.jsonio import read_json
from spinup.parts.make_env import EnvMaker
from spinup.parts.run_folder import how_to_resume

SETTINGS = dict(
    steps_per_epoch=60,
    start_steps=20,
    update_after=20,
    update_every=10,
    batch_size=16,
    num_test_episodes=1,
    max_ep_len=30,
    ac_kwargs=dict(hidden_sizes=(8, 8)),
)
COUNTS = "    alpha_optimizer: Adam | None  # only where alpha is learned\n"
BEGINS = "    ac, target, alpha = learner.ac, learner.target, learner.temperature()\n"
ANNEALS = """    learner.updates += 1
    learner.q_optimizer.param_groups[0]["lr"] = 1e-2 / (1 + learner.updates)
"""


@pytest.fixture
def copied(tmp_path, monkeypatch):
    """Makes a package out of the sac folder with some lines changed, and imports it."""

    def copy(name, *edits):
        folder = tmp_path / "packages" / name
        shutil.copytree(Path(spinup.__file__).parent / "algos/pytorch/sac", folder)
        text = (folder / "sac.py").read_text()
        text = text.replace("spinup.algos.pytorch.sac", name)
        for before, after in edits:
            assert before in text
            text = text.replace(before, after)
        (folder / "sac.py").write_text(text)
        monkeypatch.syspath_prepend(folder.parent)
        importlib.invalidate_caches()
        return importlib.import_module(f"{name}.sac")

    yield copy
    for name in [n for n in sys.modules if n.startswith("own_sac")]:
        del sys.modules[name]


SCHEDULED = """        found = []
        for number, batch in zip(due, batches):
            learner.q_optimizer.param_groups[0]["lr"] = 1e-2 / (1 + number)
            found.append(update(learner, batch, **fixed))
        return found
"""


def train(module, folder, **settings):
    ac = module.sac(
        EnvMaker("Pendulum-v1"), logger_kwargs=dict(output_dir=folder), **SETTINGS | settings
    )
    rows = [line.split("\t") for line in (folder / "progress.txt").read_text().splitlines()]
    time = rows[0].index("Time")
    return [p.detach().clone() for p in ac.parameters()], [r[:time] + r[time + 1 :] for r in rows]


def same(one, other):
    return one[1] == other[1] and all(map(torch.equal, one[0], other[0]))


def test_a_counter_on_the_learner_and_a_schedule_made_of_it(copied, tmp_path, capsys):
    counter = (COUNTS, COUNTS + "    updates: int = 0\n")
    own = copied("own_sac_annealed", counter, (BEGINS, BEGINS + ANNEALS))
    whole = train(own, tmp_path / "whole", epochs=3)
    assert "runs eagerly, because it changes 'updates'" in capsys.readouterr().err
    train(own, tmp_path / "stopped", epochs=1)
    resumed = train(own, tmp_path / "stopped", epochs=3, resume=True)
    assert same(whole, resumed)
    steady = copied("own_sac_steady", counter)
    assert not same(whole, train(steady, tmp_path / "steady", epochs=3))


def test_a_schedule_in_the_training_loop_is_captured(copied, tmp_path):
    """The learning rate is read at every step, so a schedule costs nothing and is not frozen."""
    line = "        return updates(update, learner, batches, **fixed)\n"
    own = copied("own_sac_scheduled", (line, SCHEDULED))
    learners = []
    make = own.make_learner
    own.make_learner = lambda *args: learners.append(make(*args)) or learners[-1]
    whole = train(own, tmp_path / "whole", epochs=2)
    report = own.update.report(learners[0])
    assert report.reason is None and report.replays > 50 and report.eager_calls == 0
    assert learners[0].q_optimizer.param_groups[0]["lr"] < 1e-3
    steady = copied("own_sac_unscheduled")
    assert not same(whole, train(steady, tmp_path / "steady", epochs=2))


def test_a_print_in_the_update_prints_every_time(copied, tmp_path, capsys):
    own = copied("own_sac_printing", (BEGINS, BEGINS + '    print("an update")\n'))
    train(own, tmp_path / "run", epochs=1)
    out, err = capsys.readouterr()
    assert out.count("an update") == 40  # from step 20 on
    assert err.count("runs eagerly, because update calls print") == 1


def test_a_field_that_cannot_be_saved_is_refused_at_the_start(copied, tmp_path):
    field = "    seen: object = field(default_factory=lambda: {1, 2}.__iter__())\n"
    edit = ("import dataclass\n", "import dataclass, field\n"), (COUNTS, COUNTS + field)
    own = copied("own_sac_odd", *edit)
    with pytest.raises(UserError, match="learner.seen is a set_iterator, which"):
        train(own, tmp_path / "run", epochs=1)
    assert not (tmp_path / "run" / "checkpoint").exists()


def test_an_update_that_swallows_every_error_is_not_frozen(copied, tmp_path):
    """It decides by a number inside a `try` that would hide our refusal to capture it."""
    decide = """    try:
        scale = 1.0 if float(batch.rew.mean()) > -4 else 2.0
    except BaseException:
        scale = 3.0
    batch = batch._replace(rew=batch.rew * scale)
"""
    results = []
    for name, fast in (("own_sac_try", True), ("own_sac_try_plain", False)):
        own = copied(name, (BEGINS, BEGINS + decide))
        torch.manual_seed(0)
        before, spinup.user_config.FAST = spinup.user_config.FAST, fast
        try:
            results.append(train(own, tmp_path / name, epochs=1)[0])
        finally:
            spinup.user_config.FAST = before
    for p, q in zip(*results):
        np.testing.assert_allclose(p, q, rtol=1e-2, atol=2e-2)


def test_a_copy_is_not_taken_for_the_original(copied, tmp_path, capsys):
    """Its runs have its name: `spinup resume` and `spinup sac` do not resume with other code."""
    own = copied("own_sac_named")
    run = tmp_path / "run"
    train(own, run, epochs=1)
    assert read_json(run / "config.json")["algorithm"] == "own_sac_named.sac"
    with pytest.raises(UserError, match="'own_sac_named.sac', which is no algorithm of spinup"):
        resume(run, epochs=2)
    with pytest.raises(UserError, match="other settings: algorithm"):
        train(importlib.import_module("spinup.algos.pytorch.sac.sac"), run, epochs=2, resume=True)
    assert "uses the networks" not in capsys.readouterr().out
    train(own, run, epochs=2, resume=True)


def test_networks_beside_a_copy_that_it_does_not_use(copied, tmp_path, capsys):
    again = "from spinup.algos.pytorch.sac import core\n"
    own = copied("own_sac_forgetful", ("from own_sac_forgetful import core\n", again))
    train(own, tmp_path / "run", epochs=1)
    out = capsys.readouterr().out
    assert "uses the networks of spinup.algos.pytorch.sac.core, not" in out


def test_a_copy_run_as_a_file(tmp_path):
    folder = tmp_path / "mysac"
    shutil.copytree(Path(spinup.__file__).parent / "algos/pytorch/sac", folder)
    flags = (
        "--env Pendulum-v1 --epochs 1 --steps_per_epoch 60 --hid [4] --start_steps 20 "
        "--update_after 20 --num_test_episodes 1 --exp_name own --data_dir data"
    )
    words = [sys.executable, "-m", "mysac.sac", *flags.split()]
    home = Path(spinup.__file__).parents[1]
    environment = dict(os.environ, PYTHONPATH=str(home))
    told = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    assert "uses the networks of spinup.algos.pytorch.sac.core" in told.stdout
    run = tmp_path / "data/own/own_s0"
    assert read_json(run / "config.json")["algorithm"] == "mysac.sac"
    before = (run / "config.json").read_bytes()
    told = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert "finished" in told.stdout and (run / "config.json").read_bytes() == before
    other = [*words, "--lr", "0.5"]
    told = subprocess.run(other, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert told.returncode == 2 and "lr is 0.001 there, 0.5 here" in told.stderr
    assert how_to_resume(run).startswith("Resume with: the same command (")
    several = [*words, "--seed", "1", "2"]
    told = subprocess.run(several, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert told.returncode == 2 and "ExperimentGrid" in told.stderr


LOOP = "        for t in logger.progress("
BETAS = """        if epoch == 0:
            learner.q_optimizer.param_groups[0]["betas"] = (0.0, 0.9)
"""


def test_settings_of_the_optimizer_are_kept_when_a_run_is_resumed(copied, tmp_path):
    own = copied("own_sac_betas", (LOOP, BETAS + LOOP))
    whole = train(own, tmp_path / "whole", epochs=3)
    train(own, tmp_path / "stopped", epochs=1)
    assert same(whole, train(own, tmp_path / "stopped", epochs=3, resume=True))
    steady = copied("own_sac_usual_betas")
    assert not same(whole, train(steady, tmp_path / "steady", epochs=3))


def test_code_that_has_changed_since_a_run_began_is_told(copied, tmp_path, capsys):
    own = copied("own_sac_edited")
    train(own, tmp_path / "run", epochs=1)
    train(own, tmp_path / "run", epochs=2, resume=True)
    assert "has changed since this run began" not in capsys.readouterr().out
    file = Path(own.__file__)
    file.write_text(file.read_text() + "\n# edited\n")
    train(own, tmp_path / "run", epochs=3, resume=True)
    assert "own_sac_edited.sac has changed since this run began" in capsys.readouterr().out


def test_a_copy_without_an_init_file_is_captured(copied, tmp_path, monkeypatch):
    own = copied("own_sac_bare")
    (Path(own.__file__).parent / "__init__.py").unlink()
    for name in [name for name in sys.modules if name.startswith("own_sac_bare")]:
        del sys.modules[name]
    importlib.invalidate_caches()
    own = importlib.import_module("own_sac_bare.sac")
    learners, make = [], own.make_learner
    monkeypatch.setattr(own, "make_learner", lambda *a: learners.append(make(*a)) or learners[-1])
    train(own, tmp_path / "run", epochs=1)
    assert own.update.report(learners[0]).reason is None
