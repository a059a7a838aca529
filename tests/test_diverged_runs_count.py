"""A run that diverged counts, visibly, in every comparison and in every curve."""

import csv
import io
import json

import matplotlib.pyplot as plt
import numpy as np
import pytest

from spinup.cli import compare as cli_compare
from spinup.cli import plot as cli_plot
from spinup.cli import report as cli_report
from spinup.parts.divergence import Divergence, write_divergence
from spinup.parts.errors import UserError
from spinup.parts.run_status import run_status
from spinup.results import compare, curves, tables

HEADER = "Epoch\tAverageEpRet\tTotalEnvInteracts\tLossQ"


def write_run(folder, returns, losses=None, diverged=None, **config):
    """A run of 100 steps an epoch.

    diverged: the epochs it had done, for a run of ours that stopped by itself
    """
    folder.mkdir(parents=True)
    losses = losses or [0.5] * len(returns)
    rows = [f"{i}\t{r}\t{(i + 1) * 100}\t{q}" for i, (r, q) in enumerate(zip(returns, losses))]
    table = "".join(f"{line}\n" for line in [HEADER, *rows]) if rows else ""
    (folder / "progress.txt").write_text(table)
    (folder / "config.json").write_text(json.dumps(config | dict(environment=dict(id="E-v0"))))
    if diverged is not None:
        step = diverged * 100 + 50
        write_divergence(folder, Divergence(f"The run diverged at step {step}.", step, diverged))


@pytest.fixture
def data(tmp_path):
    """Five seeds of a, of which one stopped after 3 epochs and one in its first; two of b."""
    for seed in range(3):
        write_run(tmp_path / f"a_s{seed}", [1, 2, 3, 4, 5, 10], exp_name="a", seed=seed)
    write_run(tmp_path / "a_s3", [1, 2, 900], diverged=3, exp_name="a", seed=3)
    write_run(tmp_path / "a_s4", [], diverged=0, exp_name="a", seed=4)
    for seed in range(2):
        write_run(tmp_path / f"b_s{seed}", [-7, 2, 3, 4, 5, 6], exp_name="b", seed=seed)
    return tmp_path


def told(capsys, *argv):
    cli_compare.main([str(word) for word in argv])
    return capsys.readouterr().out


def test_compare_scores_them_by_the_worst_number_of_all(data, capsys):
    found = json.loads(told(capsys, data, "--json"))
    rows = {row["experiment"]: row for row in found["experiments"]}
    assert rows["a"]["scores"] == {"E-v0": [10, 10, 10, -7, -7]}
    assert (rows["a"]["seeds"], rows["a"]["diverged"], rows["b"]["diverged"]) == (5, 2, 0)
    assert rows["a"]["mean"] == pytest.approx(16 / 5) and rows["a"]["steps"] == 600
    assert found["warnings"][0] == (
        "2 of 7 runs on E-v0 diverged; each is scored by the worst Performance of any run on "
        f"E-v0, -7: {data / 'a_s3'}, {data / 'a_s4'}."
    )
    lines = told(capsys, data).splitlines()
    assert lines[3].split()[:4] == ["b", "2", "600", "6.00"]
    assert lines[4].split()[:6] == ["a", "5", "(2", "diverged)", "600", "3.20"]
    assert "| 5 (2 diverged) |" in told(capsys, data, "--markdown")
    rows = list(csv.DictReader(io.StringIO(told(capsys, data, "--csv"))))
    assert [row["diverged"] for row in rows] == ["0", "2"]


def test_before_it_diverged_a_run_is_a_run_like_others(data):
    runs = tables.get_all_datasets([data])
    found = compare.compare(runs, at=300)
    scores = {result.experiment: result.scores["E-v0"].tolist() for result in found.results}
    assert scores == dict(a=[3, 3, 3, 900, -7], b=[3, 3])
    assert found.warnings[0].startswith("1 of 7 runs on E-v0 diverged; ")


def test_a_scale_that_turns_costs_into_scores_turns_the_worst(data):
    found = compare.compare(tables.get_all_datasets([data]), scale={"E-v0": (900, 0)})
    (a,) = (result for result in found.results if result.experiment == "a")
    assert a.scores["E-v0"].tolist()[3:] == [0, 0]


def test_nothing_but_diverged_runs(tmp_path):
    write_run(tmp_path / "a_s0", [], diverged=0, exp_name="a", seed=0)
    for command in (cli_compare.main, cli_plot.main, cli_report.main):
        with pytest.raises(UserError, match="No epoch was done in .*: 1 run diverged in its first"):
            command([str(tmp_path)])


def plotted(runs, **settings):
    ax = curves.plot_data(
        runs, "TotalEnvInteracts", "Performance", ax=plt.figure().add_subplot(), **settings
    )
    plt.close(ax.figure)
    lines = {line.get_label(): line for line in ax.lines if not line.get_label().startswith("_")}
    return ax, lines


def test_a_line_ends_where_a_run_diverged(data):
    (data / "a_s4").rename(data.parent / "elsewhere")  # the one without an epoch
    ax, lines = plotted(tables.get_all_datasets([data]))
    assert list(lines) == ["a (1 of 4 diverged)", "b"]
    line = lines["a (1 of 4 diverged)"]
    assert line.get_xdata().tolist() == [100, 200, 300]
    assert line.get_ydata().tolist() == [1, 2, 909 / 4]
    assert lines["b"].get_xdata().tolist() == [100, 200, 300, 400, 500, 600]
    (mark,) = (line for line in ax.lines if line.get_label() == "_diverged")
    assert mark.get_xdata() == [300] and mark.get_marker() == "X"
    assert "X: a run diverged" in ax.texts[0].get_text()
    ax, lines = plotted(tables.get_all_datasets([data]), condition="Condition2")  # --count
    assert sum("(1 of 1 diverged)" in label for label in lines) == 1 and len(lines) == 6


def test_a_run_that_diverged_in_its_first_epoch_is_in_the_legend(data):
    _, lines = plotted(tables.get_all_datasets([data]))
    assert list(lines) == ["a (2 of 5 diverged)", "b"]
    assert len(lines["a (2 of 5 diverged)"].get_xdata()) == 0


def test_the_page_ends_lines_there_too(data):
    cli_report.main([str(data)])
    page = (data / "report.html").read_text()
    assert "7 runs in 2 experiments, 2 diverged." in page
    assert page.count('"diverged":true') == 2 and page.count('"state":"diverged"') == 2
    assert '{"run":"a_s3","lines":["The run diverged at step 350."]}' in page


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    "returns, losses, config, diverged",
    [
        ([1, 2, 3, 4], [0.5, 0.5, NAN, NAN], {}, 2),  # continued as a policy of NaN
        ([1, 2, NAN, NAN], [0.5, 0.5, 0.5, NAN], {}, 3),
        ([1, 2, 3, 4], [0.5, INF, INF, INF], {}, 1),
        ([1, 2, 3, -INF], [0.5, 0.5, 0.5, 0.5], {}, 3),
        ([1, 2, 3, 4], [NAN, 0.5, 0.5, 0.5], {}, None),  # no update in the first epoch
        ([1, 2, 3, 4], [NAN, NAN, NAN, NAN], {}, None),  # no update at all
        ([1, 2, 3, 4], [0.5, INF, 0.5, 0.5], {}, None),  # it came back
        ([1, 2, 3, NAN], [0.5, 0.5, 0.5, 0.5], {}, None),  # no episode ended
        ([1, 2, 3, 4], [0.5, 0.5, 0.5, NAN], dict(stops_when_not_finite=True), None),
        ([1, 2, 3, 4], [0.5, 0.5, 0.5, NAN], dict(update_every=300, steps_per_epoch=100), None),
    ],
)
def test_old_tables_tell_by_their_numbers(returns, losses, config, diverged, tmp_path):
    write_run(tmp_path / "old_s0", returns, losses, exp_name="old", seed=0, **config)
    (run,) = tables.get_all_datasets([tmp_path])
    assert (run.attrs["diverged"] is not None) == (diverged is not None)
    state = run_status(tmp_path / "old_s0").state
    assert state == ("original" if diverged is None else "diverged")
    if diverged is not None:
        assert run.attrs["diverged"].epochs_done == diverged == len(run)
        assert run.attrs["diverged"].step == 100 * (diverged + 1)
        assert compare.final_score(run, "Performance") is None
        assert np.isfinite(run["LossQ"]).all()


def test_an_epoch_cut_short_is_no_divergence(tmp_path):
    write_run(tmp_path / "old_s0", [1, 2, 3], exp_name="old", seed=0)
    with open(tmp_path / "old_s0" / "progress.txt", "a") as table:
        table.write("3\tnan\t400\tn")
    (run,) = tables.get_all_datasets([tmp_path])
    assert run.attrs["diverged"] is None and compare.final_score(run, "Performance") == (3, 300)
    assert "ends in the middle of a line" in run.attrs["damage"][0]


def test_runs_of_unequal_length_say_so(tmp_path):
    for seed, epochs in enumerate((6, 4, 6)):
        write_run(tmp_path / f"a_s{seed}", [1.0] * epochs, exp_name="a", seed=seed, epochs=6)
    ax, lines = plotted(tables.get_all_datasets([tmp_path]))
    assert list(lines) == ["a (3 runs, 2 after 400)"]
    assert "mean of 2 to 3 runs" in ax.texts[0].get_text()
    warnings = compare.compare(tables.get_all_datasets([tmp_path])).warnings
    assert "ended after different numbers of steps, 400 to 600; --at 400" in warnings[-1]


def test_a_run_that_never_wrote_a_table_counts_too(data):
    """Of a grid, whose environment was broken when it was made."""
    folder = data / "b" / "b_s2"
    folder.mkdir(parents=True)
    (folder / "job.json").write_text(json.dumps(dict(env_name="E-v0", seed=2, job={})))
    write_divergence(folder, Divergence("The run diverged.", None, 0))
    found = compare.compare(tables.get_all_datasets([data]))
    rows = {result.experiment: (result.seeds, result.diverged) for result in found.results}
    assert rows == dict(a=(5, 2), b=(3, 1))


def test_where_every_run_on_an_environment_diverged_at_once(data, capsys):
    """There is no number of another run by which they could be scored."""
    write_run(data / "c_s0", [], diverged=0, exp_name="c", seed=0)
    config = dict(exp_name="c", seed=0, environment=dict(id="Other-v0"))
    (data / "c_s0" / "config.json").write_text(json.dumps(config))
    text = told(capsys, data)
    assert "1 of 1 runs on Other-v0 diverged: " in text
