"""A grid that is killed or interrupted or has a bad variant ends, restarted, as one left alone."""

import fcntl
import io
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pyte
import pytest
import small_grid
from rich.cells import cell_len
from rich.console import Console

from spinup.experiments import board, jobs, processes
from spinup.experiments.jobs import run_jobs
from spinup.parts.errors import JobsFailed, UserError
from spinup.parts.latest import read_latest
from spinup.parts.mpi import THREADS
from spinup.parts.progress import read_table
from spinup.parts.run_lock import is_locked


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The tables of the twelve runs as each is by itself."""
    folder = tmp_path_factory.mktemp("alone")
    small_grid.train_here(small_grid.twelve(folder))
    return small_grid.tables(folder)


def start(*words, mark="") -> subprocess.Popen:
    environment = {**os.environ, "MARK": mark, "PYTHONPATH": str(small_grid.REPOSITORY)}
    return subprocess.Popen(
        [sys.executable, small_grid.__file__, *map(str, words)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def wait_for(condition, what, seconds=120):
    for _ in range(100 * seconds):
        if condition():
            return
        time.sleep(0.01)
    pytest.fail(f"waited in vain: {what}")


def epochs_done(data_dir) -> dict:
    folders = sorted(Path(data_dir).glob("*/*"))
    return {path.name: (read_latest(path) or {"epoch": 0})["epoch"] for path in folders}


def is_under_way(data_dir, before, through) -> bool:
    """Whether so many runs are through, and another is in the middle and further than before."""
    now = epochs_done(data_dir)
    some = any(before.get(name, 0) + 1 < now[name] < small_grid.EPOCHS for name in now)
    return some and list(now.values()).count(small_grid.EPOCHS) >= through


def test_killed_three_times_it_ends_as_one_left_alone(alone, tmp_path):
    data, mark, finished = tmp_path / "data", f"{tmp_path.name}-{os.getpid()}", {}
    for through in (0, 3, 6):
        before = epochs_done(data)
        grid = start(data, 2, mark=mark)
        wait_for(lambda a=before, b=through: is_under_way(data, a, b), f"more than {through} runs")
        grid.kill()  # the grid's own process alone
        output = grid.communicate()[0]
        assert grid.returncode == -signal.SIGKILL
        assert "Another process" not in output
        wait_for(lambda: not small_grid.marked(mark), "runs that ended with their grid", 10)
        folders = list(data.glob("*/*"))
        wait_for(lambda folders=folders: not any(map(is_locked, folders)), "free folders", 10)
        done = [name for name, epoch in epochs_done(data).items() if epoch == small_grid.EPOCHS]
        for path in data.glob("*/*/progress.txt"):
            if path.parent.name in done:
                finished.setdefault(path, path.stat().st_mtime_ns)
    grid = start(data, 2, mark=mark)
    output = grid.communicate(timeout=180)[0]

    assert grid.returncode == 1, output  # for the one that raises
    assert small_grid.tables(data) == alone
    assert len(finished) >= 6
    assert {path: path.stat().st_mtime_ns for path in finished} == finished  # not trained twice
    for path in finished:
        assert f"{path.parent.name}: finished before" in output
    starts = {path.name: small_grid.sessions(path) for path in data.glob("*/*_s*")}
    assert all(map(small_grid.continues, starts.values())), starts
    assert sum(len(sessions) - 1 for sessions in starts.values() if sessions) >= 3
    assert re.search(r"broken failed: .*broken_s0\n", output)
    assert "    RuntimeError: the wheels came off\n" in output
    assert "1 of 13 runs failed; the other 12 are finished" in output
    assert not small_grid.marked(mark)

    refused_and_extended(data)


def refused_and_extended(data):
    """Of a finished grid: nothing to do, other settings, more epochs. All this starts one run."""
    before = small_grid.tables(data)
    run_jobs(small_grid.twelve(data))
    assert small_grid.tables(data) == before

    changed = small_grid.twelve(data)
    changed[0].kwargs["gamma"] = changed[2].kwargs["lr"] = 0.5
    with pytest.raises(JobsFailed) as failed:
        run_jobs(changed, at_once=2)
    assert [name for name, _ in failed.value.failures] == ["vpg", "wrapped"]
    assert "gamma is 0.99 there, 0.5 here" in str(failed.value)
    assert "lr is 0.01 there, 0.5 here" in str(failed.value)
    with pytest.raises(UserError, match="gamma is 0.99 there, 0.5 here"):
        run_jobs(changed[:1])
    assert small_grid.tables(data) == before

    longer = small_grid.twelve(data)
    longer[2].kwargs["epochs"] += 2  # of a function around an algorithm
    run_jobs(longer, at_once=2)
    after = small_grid.tables(data)
    assert len(after["wrapped_s0"]) == len(before["wrapped_s0"]) + 2
    assert after["wrapped_s0"][: len(before["wrapped_s0"])] == before["wrapped_s0"]


def test_ctrl_c_lets_epochs_end_and_starts_nothing_else(tmp_path):
    many = 2000  # more epochs than anybody waits for
    grid = start(tmp_path, 2, many)
    wait_for(lambda: sum(e > 0 for e in epochs_done(tmp_path).values()) == 2, "two runs")
    grid.send_signal(signal.SIGINT)
    output = grid.communicate(timeout=60)[0]
    assert grid.returncode == 130, output
    assert "Ctrl-C: what is running finishes its epoch and saves" in output
    assert "Stopped (10 queued; 2 stopped; 1 failed). The same command again resumes" in output
    assert "Traceback" not in output.replace("Traceback (most recent call last)", "", 1)
    stopped = {name: epoch for name, epoch in epochs_done(tmp_path).items() if epoch}
    assert len(stopped) == 2
    for name, epoch in stopped.items():
        folder = tmp_path / name.partition("_")[0] / name
        assert 0 < epoch < many
        assert read_table(folder / "progress.txt").num_rows == epoch
        assert f"Stopped after {epoch} of {many} epochs" in (folder / "output.txt").read_text()


# --- Functions that are no algorithm of ours ---


def noting():
    """A function that notes when it began and ended, and what threads it was given.

    It is made here so that it travels by itself, without this module and all that it imports.
    """
    names = processes.THREAD_VARIABLES

    def noted(path, pause=0.0, fail=False, **settings):
        import json
        import os
        import time

        began = time.time()
        time.sleep(pause)
        with open(path, "a") as file:
            threads = {name: os.environ.get(name) for name in names}
            file.write(json.dumps([began, time.time(), threads]) + "\n")
        if fail:
            raise OSError("no more paper")

    return noted


def notes(path):
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def test_any_function_runs_until_it_is_through_and_then_no_more(tmp_path):
    def make(**settings):
        return small_grid.job(
            "any", noting(), dict(path=str(tmp_path / "n"), **settings), 0, tmp_path
        )

    with pytest.raises(JobsFailed, match="no more paper"):
        run_jobs([make(fail=True)])
    run_jobs([make(fail=False)])  # nothing was made that other settings could contradict
    run_jobs([make(fail=False)])
    assert len(notes(tmp_path / "n")) == 2
    with pytest.raises(UserError, match="fail is False there, True here"):
        run_jobs([make(fail=True)])
    again = make(fail=False)
    again.overwrite = True
    run_jobs([again])
    assert len(notes(tmp_path / "n")) == 3


def test_cores_are_shared_out(tmp_path, monkeypatch):
    for name in processes.THREAD_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(processes, "cores", lambda: 6)
    path = str(tmp_path / "notes")
    grid = [
        small_grid.job("j", noting(), dict(path=path, pause=0.4), s, tmp_path) for s in range(5)
    ]
    grid[2].num_cpu, grid[2].kwargs["pause"] = 2, 2.0  # long enough to be seen beside the others
    run_jobs(grid, at_once=2)
    found = notes(path)
    assert len(found) == 6  # one of them in two processes
    busiest = max(sum(b <= moment < e for b, e, _ in found) for moment, *_ in found)
    assert busiest == 2
    assert all(set(variables.values()) == {"3"} for *_, variables in found)

    monkeypatch.setenv("OMP_NUM_THREADS", "5")  # the user has the last word
    assert processes.process_env(2, 1)["OMP_NUM_THREADS"] == "5"
    assert "MKL_NUM_THREADS" not in processes.process_env(2, 1)
    assert THREADS not in processes.process_env(2, 1)


def test_mistakes_are_told_before_anything_starts(tmp_path):
    def one(**settings):
        return small_grid.job("m", small_grid.vpg_pytorch, small_grid.SMALL | settings, 0, tmp_path)

    with pytest.raises(UserError, match="gamma must be a number from 0 to 1"):
        run_jobs([*small_grid.twelve(tmp_path), one(gamma=2)])
    with pytest.raises(UserError, match="'gama'"):
        run_jobs([one(gama=0.9)])
    with pytest.raises(UserError, match="CartPole-v7"):
        run_jobs([one(env_name="CartPole-v7")])
    with pytest.raises(UserError, match="Two variants would be kept in"):
        run_jobs([one(gamma=0.9), one(gamma=0.8)])
    with pytest.raises(UserError, match="ask for 1 or more"):
        run_jobs([one()], at_once=0)
    assert not any(tmp_path.iterdir())


def test_a_run_without_checkpoint_is_not_written_over(tmp_path):
    job = small_grid.job("old", small_grid.vpg_pytorch, small_grid.SMALL, 0, tmp_path)
    folder = Path(job.kwargs["logger_kwargs"]["output_dir"])
    folder.mkdir(parents=True)
    (folder / "progress.txt").write_text("Epoch\tAverageEpRet\n0\t3.5\n")
    with pytest.raises(UserError, match="cannot be resumed, for it has no checkpoint"):
        run_jobs([job])
    assert (folder / "progress.txt").read_text().endswith("3.5\n")


# --- What is seen ---

PROGRAM = """
import sys, time
from spinup.run import report_errors
from spinup.experiments.jobs import Job, run_jobs
def talk(epochs, seed, logger_kwargs):
    from spinup.utils.logx import Logger
    logger = Logger(**logger_kwargs)
    for epoch in range(epochs):
        time.sleep(0.3)
        logger.log_tabular("Epoch", epoch)
        logger.log_tabular("AverageEpRet", 10 * seed + epoch)
        logger.log_tabular("Time", 0.3 * (epoch + 1))
        logger.dump_tabular()
    if seed == 3:
        raise ValueError("three is too much")
at_once, data, epochs = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
grid = [Job("t", talk, dict(epochs=epochs, seed=s, logger_kwargs=dict(
    output_dir=f"{data}/t_s{s}", exp_name="t"))) for s in range(5)]
report_errors(lambda: run_jobs(grid, at_once))
"""


def on_a_terminal(command, columns=70, rows=40):
    """Every screen that a terminal shows while a program runs, and its exit code."""
    environment = {**os.environ, "PYTHONPATH": str(small_grid.REPOSITORY)}
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    process = subprocess.Popen(command, env=environment, stdin=its, stdout=its, stderr=its)
    os.close(its)
    screen = pyte.Screen(columns, rows)
    stream, screens = pyte.ByteStream(screen), []
    while True:
        try:
            stream.feed(os.read(ours, 65536))
        except OSError:  # hung up
            break
        screens.append("\n".join(line.rstrip() for line in screen.display).rstrip())
    os.close(ours)
    return screens, process.wait()


def test_a_terminal_shows_one_table_that_changes(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    screens, code = on_a_terminal([sys.executable, tmp_path / "program.py", "2", tmp_path, "5"])
    assert code == 1
    assert all(screen_text.count("5 runs:") <= 1 for screen_text in screens)
    some = "\n".join(screens)
    assert "5 runs: 2 running, 3 queued" in some
    assert re.search(r"  running  t_s1   epoch [1-4]/5, return 1[0-3], 00:0[01] left\n", some)
    assert re.search(r"  queued   t_s4\n", some)
    last = screens[-1]
    assert "5 runs: 4 finished, 1 failed" in last
    assert "  finished t_s4   epoch 5/5, return 44" in last
    assert "  failed   t_s3   epoch 5/5, return 34" in last
    assert f"t failed: {tmp_path}/t_s3" in last.replace("\n", "")
    assert "ValueError: three is too much" in last
    assert "|" not in last  # what a run says is in its folder
    assert "AverageEpRet |              44" in (tmp_path / "t_s4" / "output.txt").read_text()


def test_a_small_terminal_shows_what_matters(tmp_path):
    runs = [jobs.Run(job) for job in small_grid.twelve(tmp_path)]
    runs[7].state, runs[9].state, runs[10].state = "running", "failed", "running"
    console = Console(file=io.StringIO(), width=30)
    console.print(board.table(runs, height=7))
    shown = console.file.getvalue()
    lines = shown.splitlines()
    assert len(lines) == 7 and all(cell_len(line) <= 30 for line in lines)
    assert "12 runs: 2 running, 9 queued," in shown
    assert all(name in shown for name in ("dqn_s2", "vpg_s3", "dqn_s3", "… and 7 more"))


def test_one_after_the_other_is_shown_and_kept(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, tmp_path / "program.py", "1", tmp_path, "1"]
    environment = {**os.environ, "PYTHONPATH": str(small_grid.REPOSITORY)}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert ended.returncode == 1
    assert re.findall(r"\] (t_s\d: \w+)", ended.stdout) == [
        f"t_s{seed}: {word}"
        for seed in range(5)
        for word in ("started", "failed" if seed == 3 else "finished")
    ]
    kept = (tmp_path / "t_s2" / "output.txt").read_text()
    assert kept in ended.stdout and kept.count("AverageEpRet") == 1
    assert "three is too much" in ended.stdout and "three is too much" in ended.stderr
    again = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert again.stdout.count("finished before") == 4
    assert (tmp_path / "t_s2" / "output.txt").read_text() == kept
