"""On a real Ray cluster of two nodes, one of which dies, a grid ends as it does on one machine."""

import os
import re
import shutil
import signal
import tempfile
import threading
import time
from pathlib import Path

import pytest
import small_grid

from spinup.experiments import folder_delta, ray_cluster, ray_task
from spinup.experiments.jobs import run_jobs
from spinup.parts.errors import JobsFailed, UserError
from spinup.parts.latest import read_latest

MANY = 30  # epochs, so that no run ends while its node is being taken away
QUICK = dict(
    health_check_initial_delay_ms=500, health_check_period_ms=500, health_check_failure_threshold=4
)  # a node that dies is noticed in seconds


@pytest.fixture(scope="module")
def cluster():
    """The head of a cluster on loopback, without a CPU of its own."""
    temporary = tempfile.mkdtemp(prefix="r")  # a short path: sockets are kept in it
    before = os.environ.get("RAY_TMPDIR")
    os.environ["RAY_TMPDIR"] = temporary
    ray_cluster.import_ray()
    from ray.cluster_utils import Cluster

    head = dict(num_cpus=0, include_dashboard=False, _system_config=QUICK)
    cluster = Cluster(initialize_head=True, head_node_args=head)
    yield cluster
    cluster.shutdown()
    shutil.rmtree(temporary, ignore_errors=True)
    if before is None:
        del os.environ["RAY_TMPDIR"]


@pytest.fixture
def add_node(cluster):
    """Adds a node of one CPU, which leaves when the test ends."""
    nodes = []

    def add(**variables):
        nodes.append(cluster.add_node(num_cpus=1, env_vars=variables))
        return nodes[-1]

    yield add
    for node in nodes:
        if node in cluster.list_all_nodes():
            cluster.remove_node(node)


def meanwhile(condition, act):
    """Do `act` as soon as `condition` holds, while the test continues; gives what calls it off."""

    def watch():
        while not done.wait(0.02):
            if condition():
                act()
                return

    done = threading.Event()
    threading.Thread(target=watch, daemon=True).start()
    return done


def epochs_of(data) -> list[int]:
    return [latest["epoch"] for path in data.glob("*/*") if (latest := read_latest(path))]


def trained_by(mark) -> list[Path]:
    """The folders of the runs whose processes have a mark."""
    commands = small_grid.marked(mark)
    return [Path(words[-1]) for words in commands if "spinup.experiments.entrypoint" in words]


def in_the_middle(folder) -> bool:
    """Far enough to have a checkpoint, too far from the end to get there before it is killed."""
    return 1 <= (read_latest(folder) or {"epoch": 0})["epoch"] <= MANY // 10


def check_it_resumed(data, output):
    """One run lost its node, and continued from the checkpoint that it had."""
    ((lost, epoch),) = re.findall(r"(\w+): its node was lost after epoch (\d+)", output)
    folder = data / lost.partition("_")[0] / lost
    names, first, *_ = (line.split("\t") for line in (folder / "progress.txt").open())
    begin = int(first[names.index("Epoch")])
    *_, last = small_grid.sessions(folder)  # what it said before may be lost with its node
    assert last[0] == begin + int(epoch) > begin


def check_folders(data):
    for folder in data.glob("*/*"):
        assert (folder / "pyt_save/model.pt").exists()
        assert f'"output_dir": "{folder}"' in (folder / "config.json").read_text()
        assert not list(folder.glob(".driver-*"))


def test_a_node_dies_and_all_finish(cluster, add_node, tmp_path, capsys):
    data, mark = tmp_path / "data", f"{tmp_path.name}-{os.getpid()}"
    add_node(MARK=f"{mark}-safe")
    doomed = add_node(MARK=f"{mark}-doomed")
    at_once = set()

    def doomed_has_a_checkpoint():
        at_once.add(len(trained_by(mark)))
        return any(map(in_the_middle, trained_by(f"{mark}-doomed")))

    done = meanwhile(
        doomed_has_a_checkpoint, lambda: cluster.remove_node(doomed, allow_graceful=False)
    )
    run_jobs(small_grid.twelve(data, MANY), ray_address=cluster.address)
    done.set()
    assert max(at_once) == 2  # a CPU each
    check_it_resumed(data, capsys.readouterr().out)
    check_folders(data)
    small_grid.train_here(small_grid.twelve(tmp_path / "alone", MANY))
    assert len(small_grid.tables(data)) == 12
    assert small_grid.tables(data) == small_grid.tables(tmp_path / "alone")
    run_jobs(small_grid.twelve(data, MANY))  # here, where all of them are known to be finished
    assert capsys.readouterr().out.count("finished before") == 12


def test_without_a_shared_folder_too(cluster, add_node, tmp_path, capsys):
    """Long runs that keep a replay: what is sent is sent while they train."""
    data, epochs = tmp_path / "data", MANY
    own = {ray_task.SCRATCH: str(tmp_path / "scratch")}
    add_node(**own)
    doomed = add_node(**own)

    def grid(folder):
        jobs = small_grid.twelve(folder, epochs, seeds=range(3))
        return [job for job in jobs if job.exp_name == "dqn"]

    def both_have_sent():
        return sum(1 < epoch < epochs for epoch in epochs_of(data)) == 2

    done = meanwhile(both_have_sent, lambda: cluster.remove_node(doomed, allow_graceful=False))
    run_jobs(grid(data), ray_address=cluster.address)
    done.set()
    check_it_resumed(data, capsys.readouterr().out)
    check_folders(data)
    small_grid.train_here(grid(tmp_path / "alone"))
    assert len(small_grid.tables(data)) == 3
    assert small_grid.tables(data) == small_grid.tables(tmp_path / "alone")
    assert list(data.glob("*/*/checkpoint/*/*.rows"))
    assert (tmp_path / "scratch").exists()


def test_ctrl_c_reaches_the_nodes(cluster, add_node, tmp_path):
    assert threading.current_thread() is threading.main_thread()
    add_node(**{ray_task.SCRATCH: str(tmp_path / "scratch")})
    data, many = tmp_path / "data", 2000
    done = meanwhile(lambda: epochs_of(data), lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt, match="Stopped") as stopped:
        run_jobs(small_grid.twelve(data, epochs=many)[:2], ray_address=cluster.address)
    done.set()
    assert "(1 queued; 1 stopped)" in str(stopped.value)
    (epoch,) = epochs_of(data)
    assert 0 < epoch < many
    (output,) = data.glob("*/*/output.txt")
    assert f"Stopped after {epoch} of {many} epochs" in output.read_text()


def test_a_ray_of_our_own_leaves_nothing_behind(tmp_path, monkeypatch):
    """Two processes that train one policy are one task of two CPUs."""
    token, temporary = Path.home() / ".ray", Path(tempfile.mkdtemp(prefix="r"))  # a short path
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", None)
    known, variables = token.exists(), dict(os.environ)
    pair = small_grid.twelve(tmp_path, epochs=2)[0]
    pair.num_cpu = 2
    broken = small_grid.job("broken", lambda **settings: 1 / 0, small_grid.SMALL, 0, tmp_path)
    with pytest.raises(JobsFailed, match="ZeroDivisionError"):
        run_jobs([pair, broken], ray_address="local")
    latest = read_latest(tmp_path / "vpg" / "vpg_s0")
    assert latest.items() >= dict(epoch=2, num_procs=2).items()
    assert list(temporary.iterdir()) == []
    temporary.rmdir()
    assert token.exists() is known
    # Ray sets some of its own when it is first used in a process; what is secret must be gone.
    left = {name for name in os.environ if name.startswith("RAY_AUTH")}
    assert left == {name for name in variables if name.startswith("RAY_AUTH")}
    assert variables.items() <= os.environ.items()


def test_no_cluster_is_told_in_a_sentence(tmp_path):
    with pytest.raises(UserError, match="There is no Ray cluster at 127.0.0.1:1 .*refused"):
        run_jobs(small_grid.twelve(tmp_path), ray_address="127.0.0.1:1")
    with pytest.raises(UserError, match="There is no Ray cluster at nowhere"):
        run_jobs(small_grid.twelve(tmp_path), ray_address="nowhere")
    assert not any(tmp_path.iterdir())


def test_a_folder_delta_has_what_is_new_and_nothing_else(tmp_path):
    here, there, sent = tmp_path / "here", tmp_path / "there", {}
    (here / "checkpoint" / "ring").mkdir(parents=True)
    there.mkdir()

    def save(epoch, rows, table):
        (here / "checkpoint" / "ring" / "0.rows").write_bytes(rows)
        (here / "progress.txt").write_text(table)
        (here / "checkpoint" / f"epoch{epoch}.npz").write_bytes(b"%d" % epoch)
        (here / "checkpoint" / "latest").write_bytes(b"%d" % epoch)
        for path in (here / "checkpoint").glob("epoch*"):
            if path.name != f"epoch{epoch}.npz":
                path.unlink()

    def contents(folder):
        files = [path for path in folder.rglob("*") if path.is_file()]
        return {str(path.relative_to(folder)): path.read_bytes() for path in files}

    (here / ".lock").touch()
    save(1, b"abc", "one\n")
    first = folder_delta.pack(here, sent)
    assert ".lock" not in first.files and first.news["progress.txt"] == (0, b"one\n")
    folder_delta.unpack(first, there)
    (here / ".lock").unlink()
    assert contents(there) == contents(here)
    time.sleep(0.02)  # beyond what the clock of files may miss
    save(2, b"abcdef", "One\ntwo\n")
    second = folder_delta.pack(here, sent)
    assert second.news["checkpoint/ring/0.rows"] == (3, b"def")
    assert second.news["progress.txt"] == (0, b"One\ntwo\n")  # not only longer: another
    folder_delta.unpack(second, there)
    assert contents(there) == contents(here)
    assert folder_delta.pack(here, sent).news == {}
