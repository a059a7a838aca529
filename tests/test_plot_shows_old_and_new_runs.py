"""Learning curves show what progress.txt says, of this library's runs and of the original's."""

import inspect
import json
import math
import shlex
import subprocess
import sys

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from spinup.cli import plot as cli_plot
from spinup.parts.errors import UserError
from spinup.parts.logger import EpochLogger
from spinup.parts.run_folder import OLDER_RUNS
from spinup.results import curves, statistics, tables


@pytest.fixture(autouse=True)
def no_screen(monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")


def write_run(folder, returns, config=None, column="AverageEpRet", steps=100, **columns):
    """A run of one epoch per return; further columns by name."""
    folder.mkdir(parents=True)
    epochs = np.arange(len(returns))
    table = {"Epoch": epochs, column: returns, "TotalEnvInteracts": (epochs + 1) * steps}
    pd.DataFrame(table | columns).to_csv(folder / "progress.txt", sep="\t", index=False)
    if config is not None:
        text = config if isinstance(config, str) else json.dumps(config)
        (folder / "config.json").write_text(text)
    return folder


def write_seeds(folder, *runs, **config):
    """A folder of runs as `spinup` lays them out, one per seed."""
    for seed, returns in enumerate(runs):
        settings = dict(exp_name=folder.name, seed=seed) | config
        write_run(folder / f"{folder.name}_s{seed}", returns, settings)
    return folder


def draw(runs, xaxis="TotalEnvInteracts", value="Performance", **kwargs):
    return curves.plot_data(runs, xaxis, value, ax=Figure().add_subplot(), **kwargs)


def caption(ax):
    (text,) = ax.texts
    return text.get_text()


def edges(ax, i=0):
    """Lower and upper edge of the i-th band by x, read from the polygon."""
    (path,) = ax.collections[i].get_paths()
    by_x = {}
    for x, y in path.vertices:
        by_x.setdefault(x, []).append(y)
    return {x: (min(ys), max(ys)) for x, ys in by_x.items()}


def svg_text(path):
    """The texts of an SVG by matplotlib, which notes each in a comment beside its outlines."""
    lines = path.read_text().splitlines()
    return [line.strip()[5:-4] for line in lines if line.strip().startswith("<!-- ")]


# ------------------------------------------------------------------ reading


def test_a_run_gets_the_columns_of_the_original(tmp_path):
    write_seeds(tmp_path / "ppo", [1.0, 2.0], [3.0, 4.0])
    write_run(tmp_path / "sac_s0", [5.0], dict(exp_name="sac"), AverageTestEpRet=[7.0])
    runs = tables.get_datasets(tmp_path)
    added = ["Unit", "Condition1", "Condition2", "Performance"]
    assert all(list(run.columns[-4:]) == added for run in runs)
    assert [[run[c][0] for c in added] for run in runs] == [
        [0, "ppo", "ppo-0", 1.0],
        [1, "ppo", "ppo-1", 3.0],
        [0, "sac", "sac-2", 7.0],  # what is tested counts, where something is
    ]
    assert list(runs[1]["Performance"]) == [3.0, 4.0]
    assert [run["Condition1"][0] for run in tables.get_datasets(tmp_path, "mine")] == ["mine"] * 3


def test_a_run_of_the_original_library_is_plotted(tmp_path, capsys):
    header = (
        "Epoch\tAverageEpRet\tStdEpRet\tMaxEpRet\tMinEpRet\tEpLen\tAverageVVals\tStdVVals\t"
        "MaxVVals\tMinVVals\tTotalEnvInteracts\tLossPi\tLossV\tDeltaLossPi\tDeltaLossV\t"
        "Entropy\tKL\tClipFrac\tStopIter\tTime\tMyOwn"
    )
    rows = [
        [0, 21.5, 10.1, 58.0, 8.0, 21.5, 0.1, 0.2, 0.4, -0.3, 4000, -1e-8, 200.3, -0.02, -90.0,
         0.69, 0.01, 0.15, 79, 3.2, '"quoted'],
        [1, 44.25, 20.1, 99.0, 9.0, 44.25, 9.1, 2.2, 12.4, 0.3, 8000, 2e-8, 400.3, -0.02, -50.0,
         0.66, 0.01, 0.15, 79, 6.4, "text"],
    ]  # fmt: skip
    folder = tmp_path / "cmd_ppo" / "2019-01-22_cmd_ppo" / "2019-01-22_10-11-12-cmd_ppo_s0"
    folder.mkdir(parents=True)
    lines = [header, *("\t".join(map(str, row)) for row in rows)]
    (folder / "progress.txt").write_text("\n".join(lines) + "\n")
    settings = dict(
        env_fn="<function call_experiment.<locals>.<lambda> at 0x7f>", exp_name="cmd_ppo"
    )
    (folder / "config.json").write_text(json.dumps(settings))

    ax = draw(tables.get_datasets(tmp_path))
    (line,) = ax.lines
    assert line.get_label() == "cmd_ppo"
    assert line.get_xydata().tolist() == [[4000, 21.5], [8000, 44.25]]
    cli_plot.main([str(tmp_path / "cmd_ppo")])
    assert capsys.readouterr().out == f"Wrote {tmp_path / 'cmd_ppo' / 'plot.png'}\n"


def test_a_run_of_our_logger_is_plotted(tmp_path):
    logger = EpochLogger(tmp_path / "x" / "x_s0", exp_name="x")
    logger.save_config(dict(environment=dict(id="CartPole-v1")))
    for epoch, returns in enumerate([[1.0, 3.0], [], [5.0]]):  # no episode ends in the second
        if returns:
            logger.store(EpRet=np.array(returns))
        logger.dump_epoch(
            "Epoch EpRet* TotalEnvInteracts Time", Epoch=epoch, TotalEnvInteracts=10 * (epoch + 1)
        )
    logger.output_file.close()
    (line,) = draw(tables.get_datasets(tmp_path)).lines
    assert line.get_xydata().tolist() == [[10, 2.0], [30, 5.0]]


def test_folders_of_older_runs_are_skipped_unless_asked_for(tmp_path):
    write_seeds(tmp_path / "ppo", [1.0])
    older = tmp_path / "ppo" / "ppo_s0" / OLDER_RUNS
    write_run(older / "1", [9.0], dict(exp_name="ppo"))
    assert [run["Performance"][0] for run in tables.get_datasets(tmp_path)] == [1.0]
    assert [run["Performance"][0] for run in tables.get_datasets(older)] == [9.0]
    with pytest.raises(UserError, match="No folder is left"):
        tables.get_all_datasets([older.parent / "older"])


@pytest.mark.parametrize("config", [None, "{not json", "[1, 2]", {"seed": 3}])
def test_without_a_name_in_config_json_the_folder_gives_it(tmp_path, config):
    for seed in (0, 1):
        write_run(tmp_path / f"ppo_h64_s{seed}", [1.0, 2.0], config)
    runs = tables.get_datasets(tmp_path)
    assert [(run["Condition1"][0], run["Unit"][0]) for run in runs] == [
        ("ppo_h64", 0),
        ("ppo_h64", 1),
    ]


@pytest.mark.parametrize("lost", [1, 2, 4, 9])
def test_a_last_line_that_was_cut_off_is_dropped(tmp_path, capsys, lost):
    folder = write_run(tmp_path / "x_s0", [1.0, 2.0, 3.125])
    table = folder / "progress.txt"
    table.write_text(table.read_text()[:-lost])  # the last line is '2 3.125 300' and its end
    (run,) = tables.get_datasets(tmp_path)
    assert list(run["Performance"]) == [1.0, 2.0]
    said = capsys.readouterr()
    assert said.err == f"{table} ends in the middle of a line; that line is left out.\n"
    assert said.out == ""  # which may be piped on


def test_a_torn_line_in_the_middle_is_dropped(tmp_path):
    folder = write_run(tmp_path / "x_s0", [1.0, 2.0, 3.0])
    table = folder / "progress.txt"
    table.write_text(table.read_text().replace("1\t2.0\t200\n", "1\t2.\n\n\0\0\0\n"))
    (run,) = tables.get_datasets(tmp_path)
    assert run["Performance"].tolist() == [1.0, 3.0] and run["Epoch"].tolist() == [0, 2]


def test_an_empty_table_is_skipped_and_said(tmp_path, capsys):
    write_run(tmp_path / "a_s0", [1.0])
    files = [write_run(tmp_path / f"{name}_s0", []) / "progress.txt" for name in "bcd"]
    files[0].write_text("")
    files[1].write_text("\n\n\n")
    assert files[2].read_text() == "Epoch\tAverageEpRet\tTotalEnvInteracts\n"
    assert len(tables.get_all_datasets([tmp_path])) == 1
    said = capsys.readouterr().err.splitlines()
    assert said == [f"{table} holds no epoch yet; it is left out." for table in files]


def test_a_table_that_cannot_be_read_is_skipped_and_said(tmp_path, capsys):
    write_run(tmp_path / "a_s0", [1.0])
    (tmp_path / "b_s0").mkdir()
    table = tmp_path / "b_s0" / "progress.txt"
    table.symlink_to(tmp_path / "gone")
    assert len(tables.get_all_datasets([tmp_path])) == 1
    said = f"There is no {table}. It is left out.\n"
    assert capsys.readouterr().err == said


# ---------------------------------------------------------------- choosing


@pytest.fixture
def grid(tmp_path):
    for name in ("ppo_h32", "ppo_h64", "ppo_h64_relu", "sac"):
        write_seeds(tmp_path / name, [1.0, 2.0])
    (tmp_path / "ppo_notes.txt").write_text("not a folder")
    return tmp_path


def names(runs):
    return [run["Condition1"].iloc[0] for run in runs]


def test_a_logdir_is_a_folder_or_how_several_begin(grid):
    assert names(tables.get_all_datasets([str(grid / "ppo")])) == [
        "ppo_h32",
        "ppo_h64",
        "ppo_h64_relu",
    ]
    assert names(tables.get_all_datasets(str(grid / "ppo_h6"))) == ["ppo_h64", "ppo_h64_relu"]
    assert names(tables.get_all_datasets([grid / "ppo_h64"])) == ["ppo_h64"]
    with pytest.raises(UserError, match="none whose name begins like that"):
        tables.get_all_datasets([grid / "h64"])
    assert names(tables.get_all_datasets([f"{grid / 'ppo_h64'}/", grid / "s"])) == [
        "ppo_h64",
        "sac",
    ]


def test_a_prefix_in_the_current_folder(grid, monkeypatch, capsys):
    monkeypatch.chdir(grid)
    assert names(tables.get_all_datasets(["sa"])) == ["sac"]
    cli_plot.main(["ppo"])
    assert capsys.readouterr().out == "Wrote plot.png\n" and (grid / "plot.png").is_file()


def test_select_and_exclude(grid):
    def chosen(**kwargs):
        return names(tables.get_all_datasets([str(grid / "ppo"), str(grid / "sac")], **kwargs))

    assert chosen(select=["h64"]) == ["ppo_h64", "ppo_h64_relu"]
    assert chosen(select=["h64", "_relu"]) == ["ppo_h64_relu"]
    assert chosen(exclude=["_relu", "sac"]) == ["ppo_h32", "ppo_h64"]
    assert chosen(select=["h64"], exclude=["_relu"]) == ["ppo_h64"]
    with pytest.raises(
        UserError, match="No folder is left to plot. Check .* --select and --exclude"
    ):
        chosen(select=["nothing_like_it"])


def test_a_legend_names_the_folders(grid):
    runs = tables.get_all_datasets([grid / "sac", grid / "ppo_h"], ["one", "two", "two", "four"])
    assert names(runs) == ["one", "two", "two", "four"]
    assert [run["Unit"].iloc[0] for run in runs] == [0, 0, 1, 0]
    assert [run["Condition2"].iloc[0] for run in runs] == ["one-0", "two-1", "two-2", "four-3"]
    with pytest.raises(UserError, match=r"1 title\(s\) for 3 folder\(s\): .*ppo_h32, .*Give one"):
        tables.get_all_datasets([grid / "ppo"], ["only one"])


def test_a_run_reached_by_two_paths_counts_once(grid):
    assert names(tables.get_all_datasets([grid, grid / "sac", f"{grid}/sac/"])).count("sac") == 1
    assert names(tables.get_all_datasets([grid / "sac", grid / "sac" / "sac_s0"], ["a", "b"])) == [
        "a",
        "b",
    ]


# ---------------------------------------------------------------- numbers


def test_smoothing_against_numbers_worked_by_hand():
    y = [2.0, 4.0, 9.0, 1.0]
    assert curves.smoothed(y, 1).tolist() == y
    assert curves.smoothed(y, 3).tolist() == [3.0, 5.0, 14 / 3, 5.0]
    assert curves.smoothed(y, 2).tolist() == [2.0, 3.0, 6.5, 5.0]
    assert curves.smoothed(y, 99).tolist() == [4.0] * 4  # the original could not


@pytest.mark.parametrize("window", range(1, 12))
def test_smoothing_is_that_of_the_original(window):
    y, ones = np.random.default_rng(0).normal(size=11), np.ones(window)
    expected = np.convolve(y, ones, "same") / np.convolve(np.ones(11), ones, "same")
    np.testing.assert_allclose(curves.smoothed(y, window), expected, rtol=1e-12)


def test_each_run_is_smoothed_by_itself_and_the_data_stay_as_they_are(tmp_path):
    write_seeds(tmp_path / "x", [2.0, 4.0, 9.0, 1.0], [4.0, 6.0, 11.0, 3.0])
    runs = tables.get_datasets(tmp_path)
    for _ in range(2):
        ax = draw(runs, smooth=3)
        np.testing.assert_allclose(ax.lines[0].get_ydata(), [4.0, 6.0, 17 / 3, 6.0])
    assert caption(ax).endswith("; smoothed over 3 points")


@pytest.mark.parametrize(
    "estimator, expected",
    [
        ("mean", [3.0, 5.0]),
        ("median", [2.0, 5.0]),
        ("iqm", [3.0, 5.0]),  # a quarter of three is no whole run
        ("max", [6.0, 8.0]),
        (np.min, [1.0, 2.0]),
    ],
)
def test_the_line_is_the_estimate_over_runs(tmp_path, estimator, expected):
    write_seeds(tmp_path / "x", [1.0, 2.0], [2.0, 8.0], [6.0, 5.0])
    runs = tables.get_datasets(tmp_path)
    for data in (runs, pd.concat(runs)):  # the original took both
        (line,) = draw(data, estimator=estimator).lines
        assert line.get_xdata().tolist() == [100, 200] and line.get_ydata().tolist() == expected


def test_the_interquartile_mean_leaves_a_quarter_out_at_each_end(tmp_path):
    write_seeds(tmp_path / "x", [90.0, 1.0], [2.0, 2.0], [3.0, 6.0], [-50.0, 900.0], [7.0, -8.0])
    ax = draw(tables.get_datasets(tmp_path), estimator="iqm")
    assert ax.lines[0].get_ydata().tolist() == [4.0, 3.0]
    assert caption(ax) == "line: interquartile mean of 5 runs; band: 95 % bootstrap interval"


def slow_interval(values, middle):
    """The 95 % percentile interval, one resample after another."""
    rng = np.random.default_rng(statistics.SEED)
    picks = rng.integers(len(values), size=(statistics.BAND_RESAMPLES, len(values)))
    estimates = sorted(middle([values[i] for i in row]) for row in picks)

    def quantile(q):
        place = q * (len(estimates) - 1)
        low = math.floor(place)
        return estimates[low] + (place - low) * (estimates[low + 1] - estimates[low])

    return quantile(0.025), quantile(0.975)


MIDDLES = dict(
    mean=lambda v: sum(v) / len(v),
    median=lambda v: sorted(v)[len(v) // 2],
    iqm=lambda v: sum(sorted(v)[1:-1]) / (len(v) - 2),  # of five runs
)


@pytest.mark.parametrize("estimator", MIDDLES)
def test_the_band_is_the_bootstrap_interval(tmp_path, estimator):
    seeds = np.random.default_rng(1).normal(size=(5, 3)) * [1.0, 5.0, 0.1]
    write_seeds(tmp_path / "x", *seeds)
    ax = draw(tables.get_datasets(tmp_path), estimator=estimator)
    line = dict(ax.lines[0].get_xydata())
    for epoch, (x, (low, high)) in enumerate(sorted(edges(ax).items())):
        assert x == 100 * (epoch + 1) and low <= line[x] <= high
        values = list(seeds[:, epoch])
        values = values if estimator == "mean" else sorted(values)  # which rank is sampled, not run
        expected = slow_interval(values, MIDDLES[estimator])
        np.testing.assert_allclose((low, high), expected, rtol=1e-9)
    words = estimator.replace("iqm", "interquartile mean")
    assert caption(ax) == f"line: {words} of 5 runs; band: 95 % bootstrap interval"


@pytest.mark.parametrize("band", ["ci", "std", "minmax"])
@pytest.mark.parametrize("estimator", MIDDLES)
def test_all_x_at_once_equal_one_x_after_another(estimator, band):
    rng = np.random.default_rng(2)
    lengths = (700, 450, 700, 30, 700)  # several runs at some x, fewer at others
    runs = [pd.Series(rng.normal(size=n), np.arange(n) * 10.0) for n in lengths]
    x, line, low, high, number = curves.summarize(runs, estimator, band)
    assert x.tolist() == runs[0].index.tolist()
    assert number == [5] * 30 + [4] * 420 + [3] * 250
    for i in (0, 29, 30, 449, 450, 699):
        here = [run[run.index == x[i]] for run in runs if x[i] in run.index]
        alone = curves.summarize(here, estimator, band)
        np.testing.assert_allclose([line[i], low[i], high[i]], np.ravel(alone[1:4]), rtol=1e-9)


def test_a_line_has_no_more_points_than_a_figure_shows():
    times = np.cumsum(np.random.default_rng(0).uniform(1, 2, size=(10, 1000)), axis=1)
    runs = [pd.Series(t * 2, t) for t in times]  # no second is the same in two runs
    x, line, *_ = curves.summarize(runs, band="none")
    assert len(x) == curves.MOST_POINTS and (x[0], x[-1]) == (times.min(), times.max())
    np.testing.assert_allclose(line, 2 * x)


def test_the_bootstrap_interval_is_as_wide_as_theory_says():
    values = np.random.default_rng(0).normal(size=400)
    (low,), (high,) = statistics.interval_at_each_point(values[:, None], "mean")
    assert high - low == pytest.approx(2 * 1.96 * values.std() / 20, rel=0.1)


def test_other_bands(tmp_path):
    write_seeds(tmp_path / "x", [1.0, 0.0], [2.0, 0.0], [6.0, 3.0])
    runs = tables.get_datasets(tmp_path)
    least_and_greatest = draw(runs, band="minmax")
    assert edges(least_and_greatest) == {100: (1, 6), 200: (0, 3)}
    assert caption(least_and_greatest) == "line: mean of 3 runs; band: all runs"
    deviation = draw(runs, band="std")
    np.testing.assert_allclose(edges(deviation)[100], 3 + np.array([-1, 1]) * math.sqrt(7))
    assert caption(deviation) == "line: mean of 3 runs; band: ± standard deviation"
    for without in (draw(runs, band="none"), draw(runs, estimator="max")):
        assert not any(c.get_paths() for c in without.collections)
        assert "band" not in caption(without)


def test_one_seed_is_a_line_without_a_band(tmp_path):
    write_seeds(tmp_path / "x", [1.0, 2.0])
    ax = draw(tables.get_datasets(tmp_path))
    assert not any(c.get_paths() for c in ax.collections)
    assert caption(ax) == "each line: one run"


def test_count_draws_each_run_by_itself(tmp_path):
    write_seeds(tmp_path / "x", [1.0, 2.0], [3.0, 4.0])
    ax = draw(tables.get_datasets(tmp_path), condition="Condition2")
    assert {line.get_label(): line.get_ydata().tolist() for line in ax.lines} == {
        "x-0": [1, 2],
        "x-1": [3, 4],
    }
    assert len({line.get_color() for line in ax.lines}) == 2


def test_a_shorter_run_is_not_continued(tmp_path):
    write_seeds(tmp_path / "x", [0.0, 0.0, 0.0, 0.0], [2.0, 4.0])
    ax = draw(tables.get_datasets(tmp_path), band="minmax")
    assert ax.lines[0].get_ydata().tolist() == [1, 2, 0, 0]
    assert edges(ax) == {100: (0, 2), 200: (0, 4)}
    assert caption(ax).startswith("line: mean of 1 to 2 runs")


def test_missing_epochs_and_values_are_interpolated_within_a_run(tmp_path):
    write_seeds(tmp_path / "x", [0.0, 10.0, 20.0], [0.0, np.nan, 40.0], [np.inf, 6.0, 6.0])
    (line,) = draw(tables.get_datasets(tmp_path)).lines
    assert line.get_ydata().tolist() == [0, 12, 22]


def test_runs_on_different_grids_meet_on_the_union(tmp_path):
    write_run(tmp_path / "x_s0", [0.0, 10.0], Time=[0.0, 10.0])
    write_run(tmp_path / "x_s1", [4.0, 8.0], Time=[5.0, 7.0])
    (line,) = draw(tables.get_datasets(tmp_path), "Time").lines
    assert line.get_xydata().tolist() == [[0, 0], [5, 4.5], [7, 7.5], [10, 10]]


def test_runs_of_one_name_from_two_calls_stay_two_runs(tmp_path):
    for place, result in (("a", 1.0), ("b", 3.0)):
        write_run(tmp_path / place, [result], dict(exp_name="same"))
    ax = draw([*tables.get_datasets(tmp_path / "a"), *tables.get_datasets(tmp_path / "b")])
    assert ax.lines[0].get_ydata().tolist() == [2.0]
    assert caption(ax).startswith("line: mean of 2 runs")


def test_an_experiment_without_the_column_keeps_its_colour_for_other_panels(tmp_path):
    write_run(tmp_path / "a", [1.0, 2.0], dict(exp_name="ppo"))
    write_run(tmp_path / "b", [1.0, 2.0], dict(exp_name="sac"), LossQ=[5.0, 6.0])
    runs = tables.get_datasets(tmp_path)
    (loss,) = draw(runs, value="LossQ").lines
    assert loss.get_label() == "sac" and loss.get_ydata().tolist() == [5, 6]
    assert loss.get_color() == draw(runs).lines[1].get_color() != draw(runs).lines[0].get_color()


# ---------------------------------------------------------------- figures


def test_many_lines_can_be_told_apart(tmp_path):
    for i in range(20):
        write_run(tmp_path / f"run{i:02}", [1.0, i], dict(exp_name=f"e{i}"))
    lines = draw(tables.get_datasets(tmp_path)).lines
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == 20


def test_a_single_epoch_is_a_visible_point(tmp_path):
    write_seeds(tmp_path / "x", [1.0])
    assert draw(tables.get_datasets(tmp_path)).lines[0].get_marker() == "o"


@pytest.mark.parametrize(
    "x, text", [(0, "0"), (0.5, "0.5"), (500, "500"), (10_000, "10k"), (1.5e6, "1.5M"), (3e9, "3G")]
)
def test_large_numbers_on_the_x_axis_are_short(tmp_path, x, text):
    write_seeds(tmp_path / "x", [1.0, 2.0])
    ax = draw(tables.get_datasets(tmp_path))
    assert ax.xaxis.get_major_formatter()(x, 0) == text


def test_a_figure_is_written_beside_the_first_folder_and_named(tmp_path, capsys):
    first = write_seeds(tmp_path / "a", [1.0, 2.0], [2.0, 3.0])
    second = write_seeds(tmp_path / "b", [1.0, 2.0])
    cli_plot.main([str(first), str(second)])
    assert capsys.readouterr().out == f"Wrote {first / 'plot.png'}\n"
    image = imread(first / "plot.png")
    assert image.shape == (660, 960, 4)
    colors = np.unique(np.round(image[..., :3] * 255).astype(int).reshape(-1, 3), axis=0)
    shown = {tuple(color) for color in colors.tolist()}
    for color in curves.COLORS[:2]:
        assert tuple(bytes.fromhex(color[1:])) in shown
    assert tuple(bytes.fromhex(curves.COLORS[2][1:])) not in shown


def test_the_figure_says_what_it_shows(tmp_path, capsys):
    for name in ("a", "b"):
        write_seeds(tmp_path / name, [1.0, 2.0], [2.0, 3.0], environment=dict(id="Walker2d-v5"))
    output = tmp_path / "out.svg"
    cli_plot.main(
        [
            *map(str, (tmp_path / "a", tmp_path / "b")),
            "-o",
            str(output),
            "-y",
            "Performance",
            "Epoch",
            "-l",
            "first",
            "second",
        ]
    )
    text = svg_text(output)
    assert text.count("line: mean of 2 runs; band: 95 % bootstrap interval") == 2  # panels
    for label in ("Walker2d-v5", "TotalEnvInteracts", "first", "second", "(AverageEpRet)", "Epoch"):
        assert label in " ".join(text)
    assert "Wrote" in capsys.readouterr().out
    write_run(tmp_path / "c", [1.0], dict(environment=dict(id="Hopper-v5")))
    curves.make_plots([tmp_path / "a", tmp_path / "c"], output=output)
    assert "-v5" not in " ".join(svg_text(output))  # only what all runs share
    curves.make_plots([tmp_path / "a"], output=output, count=True)
    assert {"a-0", "a-1", "each line: one run"} <= set(svg_text(output))


@pytest.mark.parametrize(
    "suffix, start", [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")]
)
def test_the_ending_chooses_the_format(tmp_path, suffix, start):
    write_seeds(tmp_path / "a", [1.0, 2.0])
    output = tmp_path / f"out.{suffix}"
    curves.make_plots([tmp_path / "a"], output=output)
    assert output.read_bytes().startswith(start) and output.stat().st_size > 5000


@pytest.mark.parametrize(
    "function, expected",
    [
        (curves.plot_data, "data xaxis=Epoch value=AverageEpRet condition=Condition1 smooth=1"),
        (tables.get_datasets, "logdir condition=None"),
        (tables.get_all_datasets, "all_logdirs legend=None select=None exclude=None"),
        (curves.make_plots, "all_logdirs legend=None xaxis=None values=None count=False "
         "font_scale=1.5 smooth=1 select=None exclude=None estimator=mean"),
    ],
)  # fmt: skip
def test_scripts_for_the_original_call_it_the_same_way(function, expected):
    old = [
        p
        for p in inspect.signature(function).parameters.values()
        if p.kind == p.POSITIONAL_OR_KEYWORD
    ]
    shown = [p.name if p.default is p.empty else f"{p.name}={p.default}" for p in old]
    assert " ".join(shown) == expected


def test_all_flags_arrive(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(cli_plot, "make_plots", lambda **kwargs: seen.append(kwargs))
    cli_plot.main(["d"])
    long = "d e --legend L M --xaxis X --value V W --count --smooth 3 --select S --exclude E F"
    cli_plot.main(shlex.split(f"{long} --est median --band std --output o.png"))
    cli_plot.main(shlex.split("d -l L -x X -y V -s 3 -o o.pdf"))
    defaults, everything, short = seen
    assert defaults == dict(
        all_logdirs=["d"],
        legend=None,
        xaxis="TotalEnvInteracts",
        values=None,
        count=False,
        smooth=1,
        select=None,
        exclude=None,
        estimator="mean",
        band="ci",
        output=None,
    )
    assert everything == dict(
        all_logdirs=["d", "e"],
        legend=["L", "M"],
        xaxis="X",
        values=["V", "W"],
        count=True,
        smooth=3,
        select=["S"],
        exclude=["E", "F"],
        estimator="median",
        band="std",
        output="o.png",
    )
    assert short == defaults | dict(legend=["L"], xaxis="X", values=["V"], smooth=3, output="o.pdf")
    for wrong in (["d", "--est", "sum"], ["d", "--band", "sem"], ["d", "--smooth", "x"], []):
        with pytest.raises(SystemExit) as exit:
            cli_plot.main(wrong)
        assert exit.value.code == 2


def test_a_window_opens_where_there_is_a_screen(tmp_path, monkeypatch):
    import matplotlib.pyplot as plt

    write_seeds(tmp_path / "a", [1.0, 2.0])
    shown = []
    monkeypatch.setattr(plt, "show", lambda: shown.append(plt.gcf().axes[0].lines[0].get_label()))
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(matplotlib, "get_backend", lambda: "TkAgg")
    plt.switch_backend("agg")  # stands for the window's, which cannot be made here
    curves.make_plots([tmp_path / "a"])
    plt.close("all")
    assert shown == ["a"] and not (tmp_path / "a" / "plot.png").exists()
    curves.make_plots([tmp_path / "a"], output=tmp_path / "asked.png")
    monkeypatch.setattr(matplotlib, "get_backend", lambda: "agg")  # a screen, but no toolkit
    curves.make_plots([tmp_path / "a"])
    assert shown == ["a"] and (tmp_path / "a" / "plot.png").exists()
    assert (tmp_path / "asked.png").exists() and not plt.get_fignums()


def test_plot_data_draws_on_the_present_axes_of_pyplot(tmp_path):
    import matplotlib.pyplot as plt

    plt.switch_backend("agg")
    write_seeds(tmp_path / "a", [1.0, 2.0])
    ax = curves.plot_data(tables.get_datasets(tmp_path), linewidth=4)
    assert ax is plt.gca() and ax.lines[0].get_linewidth() == 4
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("Epoch", "AverageEpRet")
    plt.close("all")


def test_importing_it_loads_no_heavy_package():
    code = (
        "import spinup.utils.plot, sys; print({'matplotlib', 'pandas', 'torch'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


# ---------------------------------------------------------------- mistakes


@pytest.fixture
def run(tmp_path):
    return write_seeds(tmp_path / "ppo", [1.0, 2.0], [2.0, 3.0])


def test_a_missing_folder_is_named(tmp_path):
    gone = tmp_path / "gone"
    with pytest.raises(UserError, match=f"There is no folder {gone}, and none whose name begins"):
        cli_plot.main([str(gone)])
    with pytest.raises(UserError, match="There is no folder .*/gone/deep, and none"):
        cli_plot.main([str(gone / "deep")])
    with pytest.raises(UserError, match=f"There is no folder {gone}. Give the folder of a run"):
        tables.get_datasets(gone)


def test_a_folder_without_runs_is_named(tmp_path, capsys):
    (tmp_path / "none").mkdir()
    message = "No progress.txt with an epoch in it was found in .*none"
    with pytest.raises(UserError, match=message):
        cli_plot.main([str(tmp_path / "none")])
    write_run(tmp_path / "none" / "x", [])
    with pytest.raises(UserError, match=message):
        cli_plot.main([str(tmp_path / "none")])
    assert "holds no epoch yet" in capsys.readouterr().err


def test_an_unknown_column_is_answered_with_the_nearest(run):
    with pytest.raises(UserError) as error:
        cli_plot.main([str(run), "--value", "Condition"])
    text = str(error.value)
    assert text.startswith(
        "There is no column 'Condition'. Did you mean 'Condition2' or 'Condition1'"
    )
    assert "Known are: Epoch, AverageEpRet, TotalEnvInteracts, Unit" in text
    with pytest.raises(UserError, match="no column 'epoch'. Did you mean 'Epoch'"):
        cli_plot.main([str(run), "-x", "epoch"])


def test_a_run_without_returns_has_no_performance(tmp_path):
    write_run(tmp_path / "x", [1.0, 2.0], column="Loss")
    runs = tables.get_datasets(tmp_path)
    assert draw(runs, value="Loss").lines[0].get_ydata().tolist() == [1, 2]
    with pytest.raises(UserError, match="no column 'Performance'.* Known are: Epoch, Loss,"):
        draw(runs)


def test_a_column_without_numbers_is_named(run):
    message = "No run has numbers under both 'TotalEnvInteracts' and 'Condition1'"
    with pytest.raises(UserError, match=message):
        cli_plot.main([str(run), "-y", "Condition1"])


@pytest.mark.parametrize(
    "settings, message",
    [
        (
            dict(estimator="men"),
            "There is no estimator 'men'. Did you mean 'mean'.* median, iqm, max",
        ),
        (dict(band="sd"), "There is no band 'sd'. Did you mean 'std'.* ci, std, minmax, none"),
        (dict(smooth=0), "smooth is a number of points, 1 or more, not 0"),
        (dict(output="curve.jpeg"), "curve.jpeg should end in .png, .svg or .pdf"),
        (dict(output="curve"), "curve should end in"),
        (dict(output="no/such/folder/x.png"), "Cannot write no.such.* Choose a file with -o"),
        (dict(legend=["a", "b"]), r"2 title\(s\) for 1 folder\(s\)"),
    ],
)
def test_settings_that_make_no_sense(run, settings, message):
    with pytest.raises(UserError, match=message):
        curves.make_plots([run], **settings)
    assert not (run / "plot.png").exists()


@pytest.mark.parametrize("command", ["plot", "compare", "report"])
@pytest.mark.parametrize("harm", ["cut line", "no JSON", "empty table", "no folder"])
def test_damage_ends_in_a_sentence_and_exit_code_2(run, tmp_path, command, harm, capsys):
    from spinup.run import main

    damaged, folder = run / "ppo_s1", run
    table = damaged / "progress.txt"
    if harm == "cut line":
        table.write_text(table.read_text()[:-1])
        sentence = f"{table} ends in the middle of a line; that line is left out."
    elif harm == "no JSON":
        (damaged / "config.json").write_text('{"seed": ')
        sentence = f"{damaged / 'config.json'} cannot be read as JSON ("
    elif harm == "empty table":
        folder = damaged
        table.write_text("")
        sentence = f"No progress.txt with an epoch in it was found in {damaged}."
    else:
        folder = tmp_path / "nowhere"
        sentence = f"There is no folder {folder}, and none whose name begins like that."
    output = tmp_path / dict(plot="out.svg", report="out.html", compare="unused")[command]
    flags = [] if command == "compare" else ["-o", str(output)]
    with pytest.raises(SystemExit) as ended:
        main([command, str(folder), *flags])
    said = capsys.readouterr()
    assert ended.value.code == 2
    assert sentence in said.err.splitlines()[-1] and "Traceback" not in said.err
    if harm in ("cut line", "no JSON"):  # all that is whole is used nevertheless
        assert said.err.endswith("All that is whole was used.\n")
        assert output.exists() or "ppo" in said.out
    else:
        assert not output.exists() and said.out == ""
