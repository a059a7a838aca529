"""`spinup ls` lists runs of every kind and state, and says what is wrong with broken ones."""

import contextlib
import io
import json
import re
import shutil

import pytest
import small_grid
from rich.cells import cell_len

import spinup
from spinup.experiments.job import write_job_file
from spinup.parts.divergence import Divergence, write_divergence
from spinup.parts.errors import UserError
from spinup.parts.latest import write_latest
from spinup.parts.make_env import EnvMaker
from spinup.parts.progress import read_table
from spinup.parts.run_lock import lock, unlock
from spinup.run import dispatch


def listed(*argv) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        dispatch(["ls", *map(str, argv)])
    return shown.getvalue()


def by_name(*argv) -> dict:
    return {run["folder"].rpartition("/")[2]: run for run in json.loads(listed(*argv, "--json"))}


def write(folder, config=None, table=None, job=None):
    folder.mkdir(parents=True)
    for name, text in (("config.json", config), ("progress.txt", table), ("job.json", job)):
        if text is not None:
            (folder / name).write_text(text if isinstance(text, str) else json.dumps(text))


def train(folder, algorithm, epochs):
    with contextlib.redirect_stdout(io.StringIO()):
        getattr(spinup, f"{algorithm}_pytorch")(
            EnvMaker("CartPole-v1"),
            seed=3,
            epochs=epochs,
            resume=True,
            steps_per_epoch=100,
            ac_kwargs=dict(hidden_sizes=[8]),
            logger_kwargs=dict(output_dir=str(folder), exp_name="try"),
            **(small_grid.DQN if algorithm == "dqn" else dict(train_v_iters=1)),
        )


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Runs of every kind."""
    data = tmp_path_factory.mktemp("data")
    train(data / "done", "vpg", 3)
    train(data / "tested", "dqn", 2)
    for name in ("stopped", "held", "failed"):
        train(data / name, "vpg", 1)
        path = data / name / "config.json"
        path.write_text(path.read_text().replace('"epochs": 1', '"epochs": 4'))
    write(data / "half_failed", job={"seed": 1, "job": {"state": "failed", "function": "f"}})
    failed = small_grid.job("failed", print, {}, 3, data)
    failed.kwargs["logger_kwargs"]["output_dir"] = str(data / "failed")
    write_job_file(failed, "failed")
    header = "Epoch\tAverageEpRet\tTotalEnvInteracts\tTime\n"
    rows = "0\t20.5\t4000\t2.0\n1\t31.25\t8000\t4.0\n"
    original = dict(exp_name="old", seed=7, epochs=2, env_fn="<function <lambda> at 0x7f>")
    write(data / "original", original, header + rows)
    write(data / "cut", dict(original, algorithm="vpg_pytorch"), header + rows + "2\t4")
    write(data / "empty", dict(original, algorithm="vpg_pytorch"), "")
    write(data / "no_json", "{ 'epochs': ", header + rows)
    write(data / "a_list", "[1, 2]", header + rows)
    write(
        data / "function",
        None,
        None,
        {
            "seed": 4,
            "env_name": "Acrobot-v1",
            "job": {"state": "finished", "function": "mine"},
        },
    )
    (data / "no_run").mkdir()
    write(data / "done" / "older_runs" / "1", original, header + rows)
    return data


def test_each_run_is_told_by_its_state(data):
    lock(data / "held")
    try:
        runs = by_name(data)
    finally:
        unlock(data / "held")
    assert {name: run["state"] for name, run in runs.items()} == dict(
        done="finished",
        tested="finished",
        stopped="stopped",
        held="running",
        failed="failed",
        half_failed="failed",
        original="original",
        cut="stopped",
        empty="stopped",
        no_json="stopped",
        a_list="stopped",
        function="finished",
    )
    done = runs["done"]
    assert (done["algorithm"], done["environment"], done["seed"]) == (
        "vpg_pytorch",
        "CartPole-v1",
        3,
    )
    assert (done["epochs_done"], done["epochs"]) == (3, 3)
    last = read_table(data / "done" / "progress.txt").last
    assert done["performance"] == last["AverageEpRet"]
    assert done["steps_per_second"] == pytest.approx(300 / last["Time"])
    last = read_table(data / "tested" / "progress.txt").last
    assert runs["tested"]["performance"] == last["AverageTestEpRet"] != last["AverageEpRet"]
    assert (runs["stopped"]["epochs_done"], runs["stopped"]["epochs"]) == (1, 4)
    old = runs["original"]
    assert (old["seed"], old["epochs_done"], old["epochs"]) == (7, 2, 2)
    assert (old["performance"], old["steps_per_second"]) == (31.25, 2000)
    assert (runs["function"]["algorithm"], runs["function"]["environment"]) == (
        "mine",
        "Acrobot-v1",
    )


ERROR = "Epoch 3\nTraceback (most recent call last):\n  …\nValueError: no such room\n"


def test_the_report_page_says_the_same(data, tmp_path):
    runs = tmp_path / "runs"
    shutil.copytree(data, runs)
    shutil.copytree(runs / "done", runs / "no_checkpoint")
    shutil.rmtree(runs / "no_checkpoint" / "checkpoint")
    shutil.copytree(runs / "done", runs / "one_checkpoint_less")
    write_latest(runs / "one_checkpoint_less", 2, [0])
    for source, name, output in (
        ("stopped", "error", ERROR),
        ("stopped", "ctrl_c", ERROR.replace("ValueError: no such room", "KeyboardInterrupt")),
        ("stopped", "told", "Epoch 1\nStopped after 1 of 4 epochs; all is saved.\n"),
        ("done", "error_at_exit", ERROR),
    ):
        shutil.copytree(runs / source, runs / name)
        (runs / name / "output.txt").write_text(output)
    write_divergence(runs / "tested", Divergence("The run diverged.", 100, 1))
    with pytest.raises(UserError, match="All that is whole was used"):  # some are damaged
        dispatch(["report", str(runs)])
    page = (runs / "report.html").read_text()
    shown = json.loads(re.search(r'id="data"[^>]*>(.*?)</script>', page, re.DOTALL)[1])
    listed = by_name(runs)
    assert {run["run"]: run["state"] for run in shown["listed"]} == {
        name: run["state"] for name, run in listed.items() if run["performance"] or name == "tested"
    }
    for run in shown["listed"]:
        one = listed[run["run"]]
        epochs = f"{one['epochs_done']}" + (f" of {one['epochs']}" if one["epochs"] else "")
        assert (run["epochs"], run["environment"]) == (epochs, one["environment"])
    ended = {name for name, run in listed.items() if run["state"] in ("failed", "diverged")}
    assert {failure["run"] for failure in shown["failures"]} == ended
    assert {name: listed[name]["state"] for name in ("no_checkpoint", "one_checkpoint_less")} == {
        "no_checkpoint": "stopped",
        "one_checkpoint_less": "stopped",
    }
    states = {name: listed[name]["state"] for name in ("error", "ctrl_c", "told", "error_at_exit")}
    assert states == dict(
        error="failed", ctrl_c="stopped", told="stopped", error_at_exit="finished"
    )


def test_broken_runs_are_listed_with_what_is_wrong(data):
    runs = by_name(data)
    assert "ends in the middle of a line" in runs["cut"]["problem"]
    assert runs["cut"]["performance"] == 31.25  # of the last whole row
    assert "holds no epoch" in runs["empty"]["problem"]
    assert "cannot be read as JSON" in runs["no_json"]["problem"]
    assert "should hold a JSON object" in runs["a_list"]["problem"]
    assert {name for name, run in runs.items() if run["problem"]} == {
        "cut",
        "empty",
        "no_json",
        "a_list",
    }
    assert all(run["wrong"] == run["problem"] for run in runs.values())  # as 1.0 called it
    text = listed(data)
    for name in ("cut", "empty", "no_json", "a_list"):
        assert f"\n{data / name}/" in text  # the sentence begins with the file


def test_the_table_has_a_line_for_each(data):
    lines = listed(data / "done", data / "original", data / "done").splitlines()
    assert len(lines) == 3
    assert lines[0].split() == [
        "State",
        "Algorithm",
        "Environment",
        "Seed",
        "Epochs",
        "Return",
        "Steps/s",
        "Folder",
    ]
    assert lines[1].split()[:5] == ["finished", "vpg_pytorch", "CartPole-v1", "3", "3/3"]
    assert lines[2].split() == [
        "original",
        "-",
        "-",
        "7",
        "2/2",
        "31.25",
        "2000",
        str(data / "original"),
    ]
    assert len({line.index(str(data)) for line in lines[1:]}) == 1  # below each other


def test_folders_without_runs(data, tmp_path):
    assert listed(data / "no_run") == f"There is no run in {data / 'no_run'}.\n"
    assert listed(data / "no_run", "--json") == "[]\n"
    with pytest.raises(UserError, match="There is no folder"):
        listed(tmp_path / "nowhere")


def test_numbers_that_are_none_are_still_json(tmp_path):
    write(tmp_path / "run", {"seed": 0}, "Epoch\tAverageEpRet\tTime\n0\tnan\tinf\n")
    run = by_name(tmp_path)["run"]
    assert run["performance"] is None and run["steps_per_second"] is None
    assert " nan " in listed(tmp_path)


def test_texts_of_runs_are_no_markup(tmp_path):
    name = "[bold]x[/bold] :smile: [link=http://x]"
    write(tmp_path / "run", dict(algorithm=name, seed=0), "Epoch\tTime\n0\t1\n")
    assert name in listed(tmp_path)


def test_columns_stand_below_each_other_in_every_script(tmp_path):
    for folder, name in (("a", "強化学習"), ("b", "CartPole-v1")):
        config = dict(algorithm="x", environment=dict(id=name), seed=0)
        write(tmp_path / folder, config, "Epoch\tTime\n0\t1\n")
    lines = listed(tmp_path).splitlines()[1:]
    places = {cell_len(line.partition(str(tmp_path))[0]) for line in lines}
    assert len(lines) == 2 and len(places) == 1


@pytest.mark.parametrize("variable", ["FORCE_COLOR", "COLUMNS", "TTY_COMPATIBLE"])
def test_a_pipe_gets_plain_lines_that_are_not_cut(variable, tmp_path, monkeypatch):
    monkeypatch.setenv(variable, "1")
    folder = tmp_path / ("long" * 40)
    write(folder, dict(algorithm="vpg_pytorch", seed=0), "Epoch\tTime\n0\t1\n")
    lines = listed(tmp_path).splitlines()
    assert len(lines) == 2 and lines[1].endswith(str(folder)) and "\x1b" not in lines[1]
