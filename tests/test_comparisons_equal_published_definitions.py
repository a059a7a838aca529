"""What `spinup compare` says equals the definitions that Agarwal et al. published with rliable."""

import contextlib
import csv
import io
import itertools
import json
import math
import sys
import tempfile
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from rliable import metrics

from spinup.cli import compare as cli_compare
from spinup.parts.errors import UserError
from spinup.results import compare, statistics, tables


def import_rliable_library():
    """rliable's intervals, which need a corner of the package arch that pandas 3 leaves whole.

    The rest of arch fails on import with pandas 3, and rliable allows no newer arch.
    """
    sys.modules.setdefault("arch", module_from_spec(find_spec("arch")))  # found, but not run
    return import_module("rliable.library")


library = import_rliable_library()

RNG = np.random.default_rng(7)
SCORES = {  # runs × tasks; ties, an outlier, tasks of different size
    "a": RNG.normal(size=(5, 1)) * 10 + 100,
    "b": np.array([[1.0], [2.0], [2.0], [3.0], [500.0], [2.0], [-40.0]]),
    "c": RNG.normal(size=(6, 3)) * [1.0, 5.0, 0.1] + [0.0, 2.0, 1.0],
    "d": RNG.normal(size=(10, 3)) * [2.0, 3.0, 0.2] + [0.5, 2.5, 1.0],
    "e": np.round(RNG.normal(size=(8, 3)), 0),
}


def tasks_of(name):
    return list(SCORES[name].T)


# ---------------------------------------------------------------- definitions


@pytest.mark.parametrize("name", SCORES)
def test_the_aggregates_are_rliables(name):
    tasks = tasks_of(name)
    assert statistics.iqm_over_tasks(*tasks) == pytest.approx(metrics.aggregate_iqm(SCORES[name]))
    assert statistics.mean_over_tasks(*tasks) == pytest.approx(metrics.aggregate_mean(SCORES[name]))


@pytest.mark.parametrize("x, y", [("a", "b"), ("b", "a"), ("c", "d"), ("d", "e"), ("e", "e")])
def test_the_probability_of_improvement_is_rliables(x, y):
    expected = metrics.probability_of_improvement(SCORES[x], SCORES[y])
    ours = statistics.improvement_over_tasks(*tasks_of(x), *tasks_of(y))
    assert ours == pytest.approx(expected, abs=1e-12)


def test_the_probability_of_improvement_counts_pairs_of_seeds():
    x, y = [1.0, 2.0, 5.0], [2.0, 0.0]
    wins = sum((a > b) + 0.5 * (a == b) for a, b in itertools.product(x, y))
    assert statistics.improvement_over_tasks(np.array(x), np.array(y)) == wins / 6 == 4.5 / 6


@pytest.mark.parametrize("name", SCORES)
def test_the_interval_is_scipys(name):
    tasks = tasks_of(name)
    expected = scipy.stats.bootstrap(
        tasks,
        lambda *x, axis: scipy.stats.trim_mean(np.concatenate(x, axis), 0.25, axis=axis),
        n_resamples=statistics.RESAMPLES,
        method="percentile",
        random_state=np.random.default_rng(statistics.SEED),
    )
    found = statistics.interval(tasks, statistics.iqm_over_tasks)
    assert found == tuple(expected.confidence_interval)


@pytest.mark.parametrize("name", ["a", "c", "d"])
def test_the_interval_of_the_iqm_is_rliables(name):
    scores = SCORES[name]
    np.random.seed(0)  # rliable draws from NumPy's global stream
    _, expected = library.get_interval_estimates(
        {name: scores}, lambda x: np.array([metrics.aggregate_iqm(x)]), reps=2000
    )
    low, high = statistics.interval(tasks_of(name), statistics.iqm_over_tasks)
    width = np.ptp(expected[name])
    np.testing.assert_allclose([low, high], expected[name][:, 0], atol=0.06 * width)


@pytest.mark.parametrize("x, y", [("c", "d"), ("e", "c")])
def test_the_interval_of_the_improvement_is_rliables(x, y):
    np.random.seed(0)
    _, expected = library.get_interval_estimates(
        {"pair": [SCORES[x], SCORES[y]]},
        lambda x, y: np.array([metrics.probability_of_improvement(x, y)]),
        reps=300,
    )
    found = statistics.interval([*tasks_of(x), *tasks_of(y)], statistics.improvement_over_tasks)
    width = np.ptp(expected["pair"])
    np.testing.assert_allclose(found, expected["pair"][:, 0], atol=0.15 * width)


def test_resampling_is_stratified():
    """Tasks far apart, each with equal seeds: only drawing within tasks leaves no uncertainty."""
    tasks = [np.zeros(4), np.full(4, 100.0)]
    assert statistics.interval(tasks, statistics.iqm_over_tasks) == (50.0, 50.0)


def test_one_seed_has_no_interval():
    assert statistics.interval([np.array([1.0])], statistics.iqm_over_tasks) is None
    mixed = [np.array([1.0, 2.0]), np.array([1.0])]
    assert statistics.interval(mixed, statistics.iqm_over_tasks) is None


# ---------------------------------------------------------------- from folders to a table


def write_run(folder, returns, steps=100, column="AverageEpRet", **config):
    folder.mkdir(parents=True)
    rows = [f"{i}\t{value}\t{(i + 1) * steps}" for i, value in enumerate(returns)]
    header = f"Epoch\t{column}\tTotalEnvInteracts"
    (folder / "progress.txt").write_text("\n".join([header, *rows]) + "\n")
    if "env" in config:
        config["environment"] = dict(id=config.pop("env"))
    (folder / "config.json").write_text(json.dumps(config))


def write_experiment(folder, name, finals, env="Hopper-v5", epochs=20, **kwargs):
    """Runs that end with these scores: the mean of the last two epochs, a tenth of twenty."""
    for seed, final in enumerate(finals):
        returns = [-1000.0] * (epochs - 2) + [final - 1, final + 1]
        where = folder / f"{name}-{env}" / f"{name}_s{seed}"
        write_run(where, returns, env=env, exp_name=name, seed=seed, **kwargs)


@pytest.fixture
def data(tmp_path):
    write_experiment(tmp_path, "ppo", [1.0, 2.0, 3.0, 4.0, 90.0])
    write_experiment(tmp_path, "sac", [5.0, 6.0, 2.5, 7.0, 8.0, 9.0])
    write_experiment(tmp_path, "ppo", [10.0, 20.0, 30.0], env="Ant-v5")
    return tmp_path


def told(capsys, *argv):
    cli_compare.main([str(word) for word in argv])
    return capsys.readouterr().out


def test_environments_are_kept_apart_and_the_best_comes_first(data, capsys):
    found = json.loads(told(capsys, data, "--json"))
    rows = {(e["environment"], e["experiment"]): e for e in found["experiments"]}
    assert list(rows) == [("Ant-v5", "ppo"), ("Hopper-v5", "sac"), ("Hopper-v5", "ppo")]
    ppo = rows["Hopper-v5", "ppo"]
    assert ppo["scores"] == {"Hopper-v5": [1.0, 2.0, 3.0, 4.0, 90.0]}
    assert (ppo["mean"], ppo["iqm"], ppo["seeds"], ppo["steps"]) == (20.0, 3.0, 5, 2000)
    one = [np.array([1.0, 2.0, 3.0, 4.0, 90.0])]
    assert ppo["iqm_interval"] == list(statistics.interval(one, statistics.iqm_over_tasks))
    (pair,) = found["improvement"]  # sac and ppo have only one environment in common
    assert (pair["environment"], pair["experiment"], pair["over"]) == ("Hopper-v5", "sac", "ppo")
    assert pair["probability"] == pytest.approx(22 / 30)
    assert pair["interval"][0] < 22 / 30 < pair["interval"][1]
    assert found["warnings"][0].startswith("Fewer than 5 seeds: ppo (3).")
    assert len(found["warnings"]) == 1
    assert found["final"] == "a seed's score is its mean over the last tenth of its epochs"


def test_what_final_means_can_be_chosen(tmp_path):
    returns = [1.0, 2.0, math.nan, 4.0, 8.0]
    write_run(tmp_path / "x_s0", returns, exp_name="x")
    (run,) = tables.get_datasets(tmp_path)
    assert compare.final_score(run, "Performance") == (8.0, 500)
    assert compare.final_score(run, "Performance", last=3) == ((2 + 4 + 8) / 3, 500)
    assert compare.final_score(run, "Performance", last=99) == (15 / 4, 500)
    assert compare.final_score(run, "Performance", at=450) == (4.0, 400)
    assert compare.final_score(run, "Performance", at=399) == (2.0, 200)
    assert compare.final_score(run, "Performance", at=50) is None
    assert compare.final_score(run, "Epoch", last=2) == (3.5, 500)
    assert compare.final_score(run, "NotThere") is None


def test_pooled_environments_are_strata(data):
    write_experiment(data, "sac", [40.0, 50.0, 60.0, 5.0], env="Ant-v5")
    scale = {"Hopper-v5": (0, 10), "Ant-v5": (0, 100)}
    found = compare.compare(tables.get_all_datasets([data]), pool=True, scale=scale)
    rows = {result.experiment: result for result in found.results}
    ppo = [np.array([0.1, 0.2, 0.3]), np.array([0.1, 0.2, 0.3, 0.4, 9.0])]
    sac = [np.array([0.4, 0.5, 0.6, 0.05]), np.array([0.5, 0.6, 0.25, 0.7, 0.8, 0.9])]
    for name, tasks in dict(ppo=ppo, sac=sac).items():
        assert rows[name].environment == "2 environments"
        assert rows[name].iqm == pytest.approx(statistics.iqm_over_tasks(*tasks))
        assert rows[name].mean == pytest.approx(statistics.mean_over_tasks(*tasks))
        expected = statistics.interval(tasks, statistics.iqm_over_tasks)
        np.testing.assert_allclose(rows[name].iqm_interval, expected)
        assert rows[name].seeds == len(tasks[0])  # of the task with the fewest
    (pair,) = found.improvements
    assert pair.probability == pytest.approx(statistics.improvement_over_tasks(*sac, *ppo))
    assert found.warnings == [
        "Fewer than 5 seeds: sac (4), ppo (3). An interval from so few says little; "
        "train more before you believe it."
    ]
    unscaled = compare.compare(tables.get_all_datasets([data]), pool=True)
    assert "give a --scale for Ant-v5, Hopper-v5." in unscaled.warnings[-1]


def test_what_makes_numbers_uncertain_is_said(tmp_path):
    write_experiment(tmp_path, "even", [1.0] * 5)
    write_experiment(tmp_path / "again", "even", [1.0])
    write_experiment(tmp_path, "short", [1.0] * 5, epochs=10)
    write_experiment(tmp_path, "tested", [1.0] * 5, column="AverageTestEpRet")
    write_run(tmp_path / "lost_s0", [math.nan], env="Hopper-v5")
    warnings = compare.compare(tables.get_all_datasets([tmp_path])).warnings
    assert warnings == [
        f"Left out, for there is no number to compare: {tmp_path / 'lost_s0'}.",
        "even has seed 0 more than once; equal seeds give equal runs, so its interval is narrower "
        "than it should be.",
        "The runs on Hopper-v5 ended after different numbers of steps, 1000 to 2000; --at 1000 "
        "compares them after equally many.",
        "The experiments on Hopper-v5 are not compared by the same column: even, short by "
        "AverageEpRet but tested by AverageTestEpRet.",
    ]
    at = compare.compare(tables.get_all_datasets([tmp_path / "short"]), at=1000)
    assert at.warnings == [] and at.final.endswith("the last tenth of its epochs up to step 1000")


# ---------------------------------------------------------------- showing


def test_the_table_for_a_terminal(data, capsys):
    lines = told(capsys, data / "ppo-Hopper-v5", data / "sac-Hopper-v5").splitlines()
    assert lines[0] == (
        "Hopper-v5: Performance (a seed's score is its mean over the last tenth of its epochs)"
    )
    assert lines[2].split()[:6] == ["experiment", "seeds", "steps", "mean", "IQM", "95"]
    assert lines[3].split()[:5] == ["sac", "6", "2000", "6.25", "6.50"]
    assert lines[4].split()[:5] == ["ppo", "5", "2000", "20.00", "3.00"]
    assert lines[6].split() == ["scores", "higher", "probability", "95", "%", "interval"]
    assert lines[7].split()[:4] == ["sac", "over", "ppo", "0.73"]
    assert len({len(line) for line in lines[2:5]}) == 1  # columns stand under their names
    assert len(lines) == 8


def test_markdown_is_a_table_that_names_cannot_break(tmp_path, capsys):
    for seed in (0, 1):
        write_run(tmp_path / f"s{seed}", [1.0, 2.0], exp_name="a|b\\\x1b[3<m", seed=seed)
    lines = told(capsys, tmp_path, "--markdown").splitlines()
    assert lines[0] == "**environment unknown: Performance**"
    assert lines[2] == "| experiment | seeds | steps | mean | IQM | 95 % interval |"
    assert lines[3] == "| --- | ---: | ---: | ---: | ---: | ---: |"
    assert lines[4] == "| a\\|b\\\\\ufffd\\[3&lt;m | 2 | 200 | 2.000 | 2.000 | [2.000, 2.000] |"
    assert lines[6].startswith("IQM: interquartile mean; ")
    assert lines[8].startswith("Fewer than 5 seeds: ")


def test_csv_has_one_row_per_experiment(data, capsys):
    rows = list(csv.DictReader(io.StringIO(told(capsys, data, "--csv"))))
    assert [(r["environment"], r["experiment"], r["seeds"]) for r in rows] == [
        ("Ant-v5", "ppo", "3"),
        ("Hopper-v5", "sac", "6"),
        ("Hopper-v5", "ppo", "5"),
    ]
    _, sac, ppo = rows
    assert float(sac["over ppo"]) + float(ppo["over sac"]) == pytest.approx(1)
    assert float(sac["over ppo low"]) == pytest.approx(1 - float(ppo["over sac high"]))
    assert sac["over sac"] == "" and float(ppo["iqm"]) == 3.0
    assert "Fewer than 5 seeds" not in told(capsys, data, "--csv")


def test_a_single_seed_is_shown_without_an_interval(tmp_path, capsys):
    write_experiment(tmp_path, "x", [3.0])
    write_experiment(tmp_path, "y", [4.0])
    found = json.loads(told(capsys, tmp_path, "--json"))
    assert [e["iqm_interval"] for e in found["experiments"]] == [None, None]
    assert found["improvement"][0]["interval"] is None
    assert told(capsys, tmp_path).splitlines()[3].split()[-1] == "–"
    assert ",,," in told(capsys, tmp_path, "--csv")


@pytest.mark.parametrize(
    "flags, message",
    [
        ("--value AverageEpReturn", "no column 'AverageEpReturn'. Did you mean 'AverageEpRet'"),
        ("--last 0", "last is a number of epochs, 1 or more, not 0"),
        ("--at 1", "No run has a number under 'Performance' to compare"),
        ("--scale Hopper-v5 low high", "--scale must be an environment and two numbers"),
        ("--scale Hopper-v5 3 3", "must be two different numbers"),
        ("--scale Hoper-v5 0 1", "no environment 'Hoper-v5'. Did you mean 'Hopper-v5'"),
        ("--legend a", r"1 title\(s\) for"),
        ("--select nothing", "No folder is left"),
    ],
)
def test_settings_that_make_no_sense(data, flags, message):
    with pytest.raises(UserError, match=message):
        cli_compare.main([str(data / "ppo"), *flags.split()])


def test_two_forms_at_once_are_refused(data):
    with pytest.raises(SystemExit) as ended:
        cli_compare.main([str(data), "--json", "--csv"])
    assert ended.value.code == 2


NAMES = st.one_of(
    st.sampled_from(["Epoch", "AverageEpRet", "TotalEnvInteracts", "Unit", "Performance", ""]),
    st.text(max_size=4),
)
CELLS = st.one_of(st.floats().map(str), st.integers().map(str), st.text(max_size=4))
TABLES = st.lists(NAMES, min_size=1, max_size=4).flatmap(
    lambda names: st.lists(
        st.lists(CELLS, min_size=len(names), max_size=len(names)), max_size=3
    ).map(lambda rows: "".join("\t".join(row) + "\n" for row in [names, *rows]).encode())
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=4)),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)
CONFIGS = st.fixed_dictionaries(
    {},
    optional=dict(
        exp_name=VALUES,
        seed=VALUES,
        epochs=VALUES,
        environment=VALUES | st.fixed_dictionaries(dict(id=VALUES)),
    ),
).map(lambda config: json.dumps(config).encode())


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.binary(max_size=60) | TABLES, st.binary(max_size=20) | CONFIGS, st.binary(max_size=30))
def test_whatever_a_folder_holds_there_is_no_traceback(table, config, said):
    from spinup.cli import report as cli_report

    with tempfile.TemporaryDirectory() as folder:
        write_run(Path(folder) / "good_s0", [1.0, 2.0], seed=0)
        odd = Path(folder) / "odd_s0"
        odd.mkdir()
        for name, content in {
            "progress.txt": table,
            "config.json": config,
            "output.txt": said,
        }.items():
            (odd / name).write_bytes(content)
        for command, *flags in (
            (cli_compare.main, "--json"),
            (cli_compare.main,),
            (cli_report.main,),
        ):
            with contextlib.suppress(UserError):  # what is damaged; the rest is shown
                command([folder, *flags])
        assert (Path(folder) / "report.html").stat().st_size > 20_000
