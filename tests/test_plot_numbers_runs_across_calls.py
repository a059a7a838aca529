"""Runs read by several calls of `spinup.utils.plot` are told apart, so tables can be joined."""

import json
from importlib import reload

import pandas as pd
import pytest

from spinup.utils import plot as plot_module


@pytest.fixture
def plot():
    return reload(plot_module)  # as in a new process: no run has been read


@pytest.fixture
def data(tmp_path):
    for experiment, score in dict(first=1, second=10).items():
        for seed in (0, 1):
            folder = tmp_path / experiment / f"{experiment}_s{seed}"
            folder.mkdir(parents=True)
            (folder / "config.json").write_text(json.dumps(dict(exp_name=experiment, seed=seed)))
            rows = [f"{e}\t{score + seed}\t{100 * e}\n" for e in range(3)]
            text = "Epoch\tAverageEpRet\tTotalEnvInteracts\n" + "".join(rows)
            (folder / "progress.txt").write_text(text)
    return tmp_path


def columns(runs, name):
    return [run[name].iloc[0] for run in runs]


def test_numbers_go_up_across_calls(plot, data):
    assert (plot.exp_idx, plot.units) == (0, {})
    runs = plot.get_datasets(str(data / "first")) + plot.get_datasets(str(data / "second"))
    assert columns(runs, "Condition2") == ["first-0", "first-1", "second-2", "second-3"]
    assert columns(runs, "Unit") == [0, 1, 0, 1]
    more = plot.get_datasets(str(data / "second"))
    assert columns(more, "Condition2") == ["second-4", "second-5"]
    assert columns(more, "Unit") == [2, 3]
    assert (plot.exp_idx, plot.units) == (6, dict(first=2, second=4))
    assert list(more[0]["Performance"]) == [10, 10, 10]


def test_a_notebook_may_set_them_back(plot, data):
    plot.get_datasets(str(data))
    plot.exp_idx, plot.units = 0, {}
    runs = plot.get_datasets(str(data / "second"), condition="mine")
    assert columns(runs, "Condition2") == ["mine-0", "mine-1"]
    assert (plot.exp_idx, plot.units) == (2, dict(mine=2))


def test_joined_tables_plot_each_run_once(plot, data):
    from matplotlib.figure import Figure

    same = [plot.get_datasets(str(data / name), "all") for name in ("first", "second")]
    joined = pd.concat([run for runs in same for run in runs], ignore_index=True)
    ax = Figure().add_subplot()
    plot.plot_data([joined], "Epoch", "Performance", ax=ax)
    assert "4 runs" in " ".join(text.get_text() for text in ax.texts)


def test_all_datasets_are_announced_and_numbered(plot, data, capsys):
    runs = plot.get_all_datasets([str(data / "first"), str(data / "second")])
    assert columns(runs, "Condition2") == ["first-0", "first-1", "second-2", "second-3"]
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "Plotting from..."
    assert said.count("=" * plot.DIV_LINE_WIDTH) == 2 and str(data / "second") in said
    assert plot.exp_idx == 4
