"""Grids name their variants and folders as the original did, from flags and from scripts."""

import itertools
import math
import os
import re
import runpy
import shlex
import string
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spinup import ddpg_pytorch, ppo_pytorch
from spinup.cli.train import grid_of_flags
from spinup.experiments import flags
from spinup.experiments import grids as grids_module
from spinup.experiments.grids import ExperimentGrid, all_bools, valid_str
from spinup.parts import make_env
from spinup.parts.errors import UserError

REPOSITORY = Path(__file__).parents[1]
PPO_COLUMNS = (
    "Epoch AverageEpRet StdEpRet MaxEpRet MinEpRet EpLen AverageVVals StdVVals MaxVVals MinVVals "
    "TotalEnvInteracts LossPi LossV DeltaLossPi DeltaLossV Entropy KL ClipFrac StopIter Time"
)
SMALL = "--epochs 1 --steps_per_epoch 64 --train_pi_iters 1 --train_v_iters 1"


def names(grid):
    return [grid.variant_name(variant) for variant in grid.variants()]


def grid_of(line, algorithm=ppo_pytorch):
    return grid_of_flags(algorithm, flags.parse(line.split()), {})[0]


# --- Names, from flags ---


def test_the_example_of_shorthands():
    line = "--env Hopper-v5 --hid[h] [300] [128,128] --act tf.nn.tanh tf.nn.relu"
    suffixes = ("h300_ac-acttanh", "h300_ac-actrelu", "h128-128_ac-acttanh", "h128-128_ac-actrelu")
    assert names(grid_of(line, ddpg_pytorch)) == [
        f"cmd_ddpg_pytorch_{suffix}" for suffix in suffixes
    ]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("--env Walker2d-v5 --exp_name walker", ["walker"]),
        ("--env Walker2d-v5 --exp_name walker --seed 0 10 20", ["walker"] * 3),
        ("--env Walker2d-v5 --exp_name walker --act torch.nn.ELU", ["walker"]),
        ("--env A-v1", ["cmd_ppo_pytorch"]),
        ("--env A-v1 B-v2", ["cmd_ppo_pytorch_enva-v1", "cmd_ppo_pytorch_envb-v2"]),
        (
            "--env ALE/Pong-v5 pkg:Id-v0",
            ["cmd_ppo_pytorch_envale-pong-v5", "cmd_ppo_pytorch_envpkg-id-v0"],
        ),
        ("--env A --exp_name X --gamma 0.9 0.99", ["X_gam0-9", "X_gam0-99"]),
        ("--env A --exp_name x --pi_lr 1e-3 3e-05", ["x_pi0-001", "x_pi3e-05"]),
        ("--env A --exp_name x --epochs 1e1 20", ["x_epo10-0", "x_epo20"]),
        ("--env A --exp_name x --gamma[] 0.9 1", ["x_0-9", "x_1"]),
        ("--env A --exp_name x --gamma[Disc_] 0.9 1", ["x_disc_0-9", "x_disc_1"]),
        ("--env A --exp_name x --ac_kwargs:normalize True False", ["x_ac-nor", "x"]),
        ("--env A --exp_name x --hid 8 [8,4]", ["x_ac-hid8", "x_ac-hid8-4"]),
        ("--env A --exp_name x --act torch.nn.Tanh ELU", ["x_ac-acttanh", "x_ac-actelu"]),
        ("--env A --exp_name x --target_kl none 0.1", ["x_tarnone", "x_tar0-1"]),
        ("--env A --exp_name x --device cpu cuda:0", ["x_devcpu", "x_devcuda-0"]),
        ("--env A --exp_name x --env_kwargs:g 9 10", ["x_env-g9", "x_env-g10"]),
        ("--env A --exp_name x --ac_kwargs dict(a=1) {'a':2}", ["x_ac--a---1-", "x_ac--a---2-"]),
    ],
)
def test_names_of_command_lines(line, expected):
    assert names(grid_of(line)) == expected


def test_flags_with_short_names_of_their_own_come_last():
    """As the original moved them: then those it has short names for, always in the same order."""
    line = "--act ELU ReLU --hid[h] 8 9 --lam[l] 0.1 0.2 --env A B --gamma 0.9 1 --exp_name x"
    assert names(grid_of(line))[0] == "x_gam0-9_l0-1_enva_h8_ac-actelu"


def test_every_combination_is_there_once_the_first_flag_changing_slowest():
    grid = grid_of("--env A --gamma 0.9 1 --seed 0 10 20 --lam 0.5 0.6")
    found = [(v["gamma"], v["seed"], v["lam"]) for v in grid.variants()]
    assert found == list(itertools.product([0.9, 1], [0, 10, 20], [0.5, 0.6]))


# --- Names, from scripts ---


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1, "0-1"), ("HalfCheetah-v5", "halfcheetah-v5"), ((64, 64), "64-64"), ([32], "32"),
        ((), ""), (torch.nn.Tanh, "tanh"), (ppo_pytorch, "ppo"), (None, "none"), (True, "true"),
        ("a b/c.d_e", "a-b-c-d_e"), ([1, ("a", 0.5)], "1-a-0-5"), ({"a": 1}, "--a---1-"),
        (-1e-05, "-1e-05"), ("Ünï", "-n-"), (lambda: 0, "-lambda-"),
        ("torch.nn.Tanh", "torch-nn-tanh"),
    ],
)  # fmt: skip
def test_values_in_names(value, text):
    assert valid_str(value) == text


@pytest.mark.parametrize(
    ("key", "shorthand"),
    [
        ("seed", "see"), ("env_name", "env"), ("ac_kwargs:activation", "ac-act"),
        ("ac_kwargs:hidden_sizes", "ac-hid"), ("pi_lr", "pi"), ("a:b:c", "a-b-c"), ("n_1", "n1"),
        ("steps_per_epoch", "ste"), ("_x", "x"), ("___:é", "-"), ("lr", "lr"),
    ],
)  # fmt: skip
def test_the_shorthand_nobody_gave(key, shorthand):
    grid = ExperimentGrid("g")
    grid.add(key, [1, 2])
    assert grid.shs == [shorthand]


def test_without_default_shorthands_names_are_whole(monkeypatch):
    monkeypatch.setattr("spinup.user_config.DEFAULT_SHORTHAND", False)
    grid = ExperimentGrid("g")
    grid.add("ac_kwargs:hidden_sizes", [1, 2])
    grid.add("gamma", [1, 2], "g")
    assert names(grid)[0] == "g_ac_kwargs-hidden_sizes1_g1"


def test_a_setting_with_one_value_is_in_the_name_if_asked():
    grid = ExperimentGrid("g")
    grid.add("a", 5)
    grid.add("b", 6, in_name=True)
    grid.add("c", (7, 8), "", True)
    grid.add("seed", [1, 2], in_name=True)
    assert set(names(grid)) == {"g_b6_7-8"}


def test_booleans_show_where_they_are_true():
    assert all_bools([True, False]) and not all_bools([True, 1]) and all_bools([])
    grid = ExperimentGrid()
    grid.add("flag", [True, False])
    grid.add("mixed", [True, 0.5])
    assert names(grid) == ["fla_mixtrue", "fla_mix0-5", "mixtrue", "mix0-5"]


def test_the_example_grid():
    variants = grids_module.test_eg()
    assert len(variants) == 3 * 3 * 2 * 2
    assert variants[0] == dict(test=dict(a=1, b=1), some=4, why=True, huh=5, no=6)
    assert variants[-1] == dict(test=dict(a=3, b=3), some=5, why=False, huh=5, no=6)


def test_colons_make_nested_dicts():
    grid = ExperimentGrid()
    grid.add("a", dict(x=dict(z=0)))
    grid.add("a:x:y", [1, 2])
    grid.add("a:w", 3)
    grid.add("b:c:d", 4)
    one, two = grid.variants()
    assert one == dict(a=dict(x=dict(z=0, y=1), w=3), b=dict(c=dict(d=4)))
    assert two["a"]["x"] == dict(z=0, y=2)
    assert grid.vals[0] == [dict(x=dict(z=0))]  # what the user gave is not written to
    assert [grid.variant_name(v) for v in (one, two)] == ["a-x-y1", "a-x-y2"]
    assert grid.variant_name({"a": {"x:y": 7}, "b:c:d": 4}) == "a-x-y7"  # not taken apart yet


def grid_with(*added):
    grid = ExperimentGrid("g")
    for arguments in added:
        grid.add(*arguments)
    return grid


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (lambda: ExperimentGrid(3), "a string, not 3"),
        (lambda: grid_with(("gamma", [])), "gamma has no values"),
        (lambda: grid_with((3, [1])), "not 3"),
        (lambda: grid_with(("a:", [1])), "not 'a:'"),
        (lambda: grid_with(("a", [1], 3)), "shorthand of a must be a string, not 3"),
        (lambda: grid_with(("gamma", [1]), ("gamma", [2])), "gamma is in the grid already"),
        (lambda: grid_with(("a", 1), ("a:b", 2)).variants(), "a:b contradicts"),
        (lambda: grid_with(("a:b", 2), ("a", 1)).variants(), "a contradicts"),
        (lambda: grid_with(("a:b", 2), ("a:b:c", 1)).variants(), "a:b:c contradicts"),
        (lambda: grid_with(("a", [1, 2])).variant_name({}), "no value for a"),
        (lambda: grid_with(("a:b", [1, 2])).variant_name({"a": 3}), "no value for b"),
        (lambda: grid_with(("a", 1)).run("function"), "no setting 'function' to call"),
        (lambda: grid_with(("function", 1)).run("functoin"), "Did you mean 'function'"),
        (lambda: grid_with(("function", 1)).run("function"), "which is no function"),
        (lambda: grid_with(("a", 1)).run(None), "which is no function"),
        (lambda: grid_with(("gama", 1)).run(ppo_pytorch), "'gama'. Did you mean 'gamma'?"),
        (lambda: grid_with(("gamma", 1)).run(ppo_pytorch), "add env_name or env_fn"),
        (lambda: grid_with(("gamma", [1, 2])).run(ppo_pytorch), "add env_name or env_fn"),
        (lambda: grid_with(("env_name", "CartPole-v1"), ("gamma", [1, 2])).run(ppo_pytorch),
         "gamma must be a number from 0 to 1, not 2"),
        (lambda: grid_with(("env_name", ["CartPole-v1", "Cart-v1"])).run(print), "'Cart-v1'"),
        (lambda: grid_with(("a", 1)).run(print, num_cpu=0), "num_cpu must be an integer from 1"),
        (lambda: grid_with(("a", 1)).run(print, jobs=0), "jobs must be an integer from 1 up"),
        (lambda: grid_with(("a", 1)).run(print, jobs="many"), "jobs must be an integer"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_grid_is_told_before_anything_runs(
    wrong, sentence, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=".*".join(map(re.escape, sentence.split("…")))):
        wrong()
    assert list(tmp_path.iterdir()) == []


# --- Properties ---

key_part = st.text("abcxyz_019é", min_size=1, max_size=6)
keys = st.lists(key_part, min_size=1, max_size=3).map(":".join)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner),
    max_leaves=4,
)
shorthands = st.none() | st.text(max_size=4)
entries = st.tuples(keys, st.lists(values, min_size=1, max_size=3), shorthands, st.booleans())


def no_contradiction(grid):
    return not any(b == a or b.startswith(f"{a}:") for a, b in itertools.permutations(grid, 2))


grids = st.lists(entries, max_size=4, unique_by=lambda entry: entry[0]).filter(
    lambda grid: no_contradiction([entry[0] for entry in grid])
)
few = settings(max_examples=150, deadline=None, derandomize=True, database=None)


def slow_name(entries, chosen):
    """A variant's name, spelled out from the rule in the documentation."""
    words = ["g"]
    for (key, vals, shorthand, in_name), value in zip(entries, chosen):
        if key == "seed" or (len(vals) == 1 and not in_name):
            continue
        if shorthand is None:
            parts = [
                [c for c in part[:3] if c in string.ascii_letters + string.digits]
                for part in key.split(":")
            ]
            shorthand = "-".join("".join(part) for part in parts)
        word = "_" + valid_str(shorthand)
        if not all(v is True or v is False for v in vals):
            words.append(word + valid_str(value))
        elif value:
            words.append(word)
    return "".join(words)


@few
@given(grids, st.lists(st.integers(0, 99), min_size=1, max_size=3, unique=True))
def test_any_grid_has_all_combinations_and_the_names_of_the_rule(entries, seeds):
    grid = ExperimentGrid("g")
    for entry in entries:
        grid.add(*entry)
    grid.add("seed", seeds)
    variants = grid.variants()
    assert len(variants) == len(seeds) * math.prod(len(vals) for _, vals, _, _ in entries)
    choices = itertools.product(*(vals for _, vals, _, _ in entries), seeds)
    for variant, (*chosen, seed) in zip(variants, choices, strict=True):
        for (key, *_), value in zip([*entries, ("seed",)], [*chosen, seed]):
            inner = variant
            for part in key.split(":"):
                inner = inner[part]
            assert inner is value
        name = grid.variant_name(variant)
        assert re.fullmatch(r"g(_[a-z0-9_-]*)*", name)  # fit for any file system
        assert name == slow_name(entries, chosen)  # so it does not depend on the seed


@few
@given(values)
def test_a_value_in_a_name_is_made_of_plain_characters(value):
    assert re.fullmatch(r"[a-z0-9_-]*", valid_str(value))
    assert valid_str(valid_str(value)) == valid_str(value)


# --- The documented scripts and command lines, run ---


def run_here(jobs, at_once=1, ray_address=None):
    """In this process, for speed: the runs of a long grid, one after the other."""
    for job in jobs:
        job.thunk(**make_env.with_env_fn(job.kwargs))


def columns(folder):
    return (folder / "progress.txt").read_text().splitlines()[0].split("\t")


def test_the_quickstart_makes_the_documented_folders(tmp_path, monkeypatch, capsys):
    from spinup.run import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("spinup.experiments.grids.run_jobs", run_here)
    now, hours = time.localtime, itertools.count()
    monkeypatch.setattr("time.localtime", lambda *_: now(3600 * next(hours)))  # time flies
    typed = (
        "ppo --exp_name ppo_ant --env Ant-v5 --clip_ratio 0.1 0.2 --hid[h] [32,32] [64,32] "
        "--act torch.nn.Tanh --seed 0 10 20 --dt --data_dir path/to/data"
    )
    main(f"{typed} {SMALL}".split())
    shown = capsys.readouterr().out
    day, moment = r"\d{4}-\d\d-\d\d", r"\d\d-\d\d-\d\d"
    runs = sorted((tmp_path / "path/to/data").glob("*/*"))
    found = set()
    for run in runs:
        pattern = rf"{day}_(ppo_ant_\S+)/{day}_{moment}-\1_s(\d+)"
        name, seed = re.fullmatch(pattern, str(run.relative_to(tmp_path / "path/to/data"))).groups()
        found.add((name, int(seed)))
        assert columns(run)[: len(PPO_COLUMNS.split())] == PPO_COLUMNS.split()
        assert (run / "pyt_save/model.pt").exists() and (run / "config.json").exists()
    variants = [f"ppo_ant_cli0-{c}_h{h}-32" for c in (1, 2) for h in (32, 64)]
    assert found == set(itertools.product(variants, (0, 10, 20)))
    assert len(runs) == 12 and len({run.name[:19] for run in runs}) == 1  # one time for all
    assert all(name in shown for name in variants)
    assert "12 runs, 4 variants not counting seeds" in shown


def python(*words, folder):
    return subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"},
    )


def tables(folder):
    return {path.parent.name: path.read_bytes() for path in folder.glob("data/*/*/progress.txt")}


def test_the_example_script_runs_and_trains_nothing_twice(tmp_path):
    script = REPOSITORY / "spinup/examples/pytorch/bench_ppo_cartpole.py"
    words = (script, "--cpu", 1, "--num_runs", 1, "--epochs", 1, "--steps_per_epoch", 64)
    ended = python(*words, folder=tmp_path)
    assert ended.returncode == 0, ended.stderr
    first = tables(tmp_path)
    name = "ppo-pyt-bench_cartpole-v1_hid{}_{}_s0"
    assert set(first) == {name.format(h, a) for h in ("32", "64-64") for a in ("tanh", "relu")}
    again = python(*words, folder=tmp_path)
    assert again.returncode == 0, again.stderr
    assert tables(tmp_path) == first


def test_seeds_behind_a_flag_are_runs_of_one_experiment(tmp_path, monkeypatch):
    from spinup.run import main

    words = f"-m spinup.run ppo --env CartPole-v1 --exp_name walker --seed 0 10 {SMALL}"
    ended = python(*words.split(), folder=tmp_path)
    assert ended.returncode == 0, ended.stderr
    first = tables(tmp_path)
    assert set(first) == {"walker_s0", "walker_s10"}
    for run in (tmp_path / "data/walker").iterdir():
        assert columns(run)[: len(PPO_COLUMNS.split())] == PPO_COLUMNS.split()
    monkeypatch.chdir(tmp_path)
    main(f"ppo --env CartPole-v1 --exp_name a --seed 10 --data_dir data {SMALL}".split())
    rows = [tables(tmp_path)[name].splitlines()[1].split(b"\t") for name in ("walker_s10", "a_s10")]
    last = PPO_COLUMNS.split().index("Time")
    assert rows[0][:last] == rows[1][:last] and len(rows[0]) > last  # a grid's run is any run


def test_functions_of_the_script_itself_travel(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("""
from pathlib import Path
from spinup.utils.run_utils import ExperimentGrid

def note(word, seed, logger_kwargs, env_fn, sizes):
    folder = Path(logger_kwargs["output_dir"])
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "noted", "a") as file:
        print(word, seed, sizes["big"], env_fn().spec.id, file=file)

shout = lambda **kwargs: note("SHOUT", **kwargs)
whisper = lambda **kwargs: note("whisper", **kwargs)
whisper.__name__ = "whisper"
grid = ExperimentGrid("say")
grid.add("how", [shout, whisper])
grid.add("sizes:big", 7, "b", True)
grid.add("seed", [3])
grid.add("env_name", "CartPole-v1")
grid.run("how", data_dir="kept")
""")
    for _ in range(2):  # the second time there is nothing left to do
        ended = python(script, folder=tmp_path)
        assert ended.returncode == 0, ended.stderr
    noted = {str(p.relative_to(tmp_path)): p.read_text() for p in tmp_path.rglob("noted")}
    assert noted == {
        "kept/say_how-lambda-_b7/say_how-lambda-_b7_s3/noted": "SHOUT 3 7 CartPole-v1\n",
        "kept/say_howwhisper_b7/say_howwhisper_b7_s3/noted": "whisper 3 7 CartPole-v1\n",
    }


# --- What the user's defaults do ---


def test_user_config_is_heeded(tmp_path, monkeypatch, capsys):
    started, slept = [], []
    monkeypatch.setattr("spinup.experiments.grids.run_jobs", lambda jobs, *_: started.extend(jobs))
    monkeypatch.setattr("time.sleep", slept.append)
    monkeypatch.setattr("spinup.user_config.DEFAULT_DATA_DIR", str(tmp_path / "mine"))
    monkeypatch.setattr("spinup.user_config.FORCE_DATESTAMP", True)
    grid = grid_with(("a", [1, 2]))
    grid.run(print, num_cpu="auto" if os.cpu_count() == 1 else 1)
    pattern = rf"{tmp_path}/mine/(\d{{4}}-\d\d-\d\d)_g_a1/\1_\d\d-\d\d-\d\d-g_a1_s0"
    assert re.fullmatch(pattern, started[0].kwargs["logger_kwargs"]["output_dir"])
    assert slept == []  # nobody looks
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setattr("spinup.user_config.WAIT_BEFORE_LAUNCH", 2.5)
    grid.run(print)
    assert slept == [2.5]
    assert "start in 2.5 s" in capsys.readouterr().out


def test_what_run_is_told_reaches_the_jobs(monkeypatch):
    heard = []
    monkeypatch.setattr("spinup.experiments.grids.run_jobs", lambda *words: heard.append(words))
    grid_with(("a", [1, 2])).run(print, data_dir="d", jobs=3, ray_address="h:1", overwrite=True)
    ((jobs, at_once, ray_address),) = heard
    assert (at_once, ray_address, [job.overwrite for job in jobs]) == (3, "h:1", [True, True])
    assert [job.kwargs["a"] for job in jobs] == [1, 2]
    assert {job.kwargs["seed"] for job in jobs} == {0}


def test_numbers_of_arrays_are_numbers(monkeypatch):
    started = []
    monkeypatch.setattr("spinup.experiments.grids.run_jobs", lambda jobs, *_: started.extend(jobs))
    grid = grid_with(("env_name", "CartPole-v1"), ("seed", list(np.arange(2))))
    grid.add("pi_lr", list(np.array([0.5, 0.25])))
    grid.run(ppo_pytorch)
    assert {job.exp_name for job in started} == {"g_pi0-5", "g_pi0-25"}
    assert [type(job.kwargs["seed"]) for job in started] == [int] * 4


def test_one_experiment_is_called_like_a_variant(tmp_path, monkeypatch, capsys):
    started = []
    monkeypatch.setattr("spinup.experiments.grids.run_jobs", lambda jobs, *_: started.extend(jobs))
    where = dict(exp_name="shown")
    grids_module.call_experiment("x", print, 3, "auto", tmp_path, sizes=(8, 8), logger_kwargs=where)
    (job,) = started
    assert job.num_cpu == os.cpu_count()
    where["output_dir"] = str(tmp_path / "x" / "x_s3")
    assert job.kwargs == dict(sizes=(8, 8), seed=3, logger_kwargs=where)
    assert "sizes: [8, 8]" in capsys.readouterr().out
    with pytest.raises(UserError, match="Did you mean 'gamma'"):
        grids_module.call_experiment("x", ppo_pytorch, env_name="CartPole-v1", gama=1)


# --- The page in docs/ ---

PAGE = (REPOSITORY / "docs/experiments.md").read_text()


def test_the_page_says_what_happens(tmp_path, monkeypatch, capsys):
    from spinup.run import main

    monkeypatch.chdir(tmp_path)
    started = []
    monkeypatch.setattr("spinup.experiments.grids.run_jobs", lambda jobs, *_: started.extend(jobs))
    (command,) = re.findall(r"^spinup (ppo .*)$", PAGE, re.M)
    main(shlex.split(command))
    assert len(started) == 12
    assert all(f"`{name}`" in PAGE for name in {job.exp_name for job in started})
    (program,) = re.findall(r"^```python\n(import torch.*?)^```", PAGE, re.M | re.S)
    started.clear()
    (tmp_path / "page.py").write_text(program)
    runpy.run_path(str(tmp_path / "page.py"), run_name="__main__")
    assert len(started) == 12
    assert {job.exp_name.split("_")[1] for job in started} == {"cartpole-v1"}
    shown = re.findall(r"^\$ spinup (.*)\n(spinup: .*)$", PAGE, re.M)
    assert len(shown) == 3
    for typed, answer in shown:
        with pytest.raises(SystemExit):
            main(typed.split())
        assert capsys.readouterr().err.strip() == answer
