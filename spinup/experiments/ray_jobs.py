"""Runs as tasks of a Ray cluster, wherever it has CPUs free.

A task starts the run as processes of its own, as `jobs` does here. Where it does not see the
driver's folder, it trains in one of its own machine, and what is new there is sent to the driver
with every checkpoint. A task whose node dies begins again elsewhere, from what the driver has.
"""

import contextlib
import hashlib
import os
import shutil
import signal
import socket
import tempfile
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from spinup.experiments import jobs, processes
from spinup.experiments.board import Board, redraw, say_interrupted, tell
from spinup.experiments.job import OUTPUT_FILE, Run, folder_of
from spinup.parts.errors import UserError
from spinup.parts.imports import STARTED_IN, Elsewhere
from spinup.parts.jsonio import read_json, write_json, write_whole
from spinup.parts.mpi import THREADS
from spinup.parts.plain_text import say
from spinup.parts.run_folder import DIVERGED_FILE, read_latest
from spinup.parts.run_lock import is_locked, lock, unlock

SCRATCH = "SPINUP_SCRATCH"  # on a node: train in this folder of its own, whatever else it sees
LATEST = "checkpoint/latest"
MAX_ATTEMPTS = 5  # in a row without a new checkpoint, until a run whose nodes die is given up
TIMEOUT = 60  # seconds that the processes of a node or driver that died may take to end


class FolderDelta(NamedTuple):
    """What is new in a run folder: for each file, from where on and what; and which files are."""

    news: dict[str, tuple[int, bytes]]
    files: list[str]


class Started(NamedTuple):
    """A run has started on a node."""

    output_offset: int  # the bytes that its output.txt held then
    shared: bool  # it trains in the very folder that the driver sees


def _import_ray():
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Ray's own notices, of nodes that die and the like, would run through the table.
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")
    try:
        import ray
    except ImportError:
        raise UserError("Running on a cluster needs Ray: pip install 'spinup[ray]'")
    return ray


@contextlib.contextmanager
def _connected(address):
    """Ray, connected to a cluster, or to one of our own that ends with us.

    A connection that a script already has is used, and kept.
    """
    ray = _import_ray()
    if ray.is_initialized():
        yield ray
        return
    with contextlib.ExitStack() as stack:
        settings = dict(log_to_driver=False, logging_level="ERROR")
        if address == "local":
            settings |= stack.enter_context(_cluster_of_our_own())
        stack.callback(ray.shutdown)
        try:
            if address != "local":
                _check_port(address)  # Ray itself would try for minutes
            with Elsewhere():  # Ray's processes have the current folder on their path
                ray.init(address=address, **settings)
        except (OSError, RuntimeError, ValueError) as error:
            reason = str(error).strip().split("\n")[0]
            raise UserError(
                f"There is no Ray cluster at {address} that this machine is part of ({reason}). "
                f"Let it join with: ray start --address={address}"
            )
        yield ray


@contextlib.contextmanager
def _cluster_of_our_own():
    """How to start a Ray that leaves nothing behind.

    Ray lets nobody in without a token, and would write one into the user's home folder.
    """
    names = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN")
    before = {name: os.environ[name] for name in names if name in os.environ}
    os.environ.setdefault("RAY_AUTH_TOKEN", _own_token())
    folder = tempfile.mkdtemp(prefix="ray-")
    try:
        yield dict(num_cpus=processes.cores(), include_dashboard=False, _temp_dir=folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        for name in names:
            os.environ.pop(name, None)
        os.environ.update(before)


@cache
def _own_token() -> str:
    return uuid.uuid4().hex + uuid.uuid4().hex


def _check_port(address):
    """Raise unless something listens at HOST:PORT."""
    host, _, port = address.rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()


@dataclass
class Attempt:
    """A run that was handed to the cluster."""

    run: Run
    token: Path  # a file in its folder, by which a task knows whether it sees the same one
    number: int = 1  # of attempts since the last checkpoint
    epoch: int = 0  # of the checkpoint it begins from


class DriverActor:
    """What tasks ask of the driver's machine; an actor there."""

    def __init__(self):
        self.interrupts = 0

    def interrupt(self):
        self.interrupts += 1

    def interrupted(self) -> int:
        return self.interrupts

    def fetch(self, folder: str) -> FolderDelta:
        """All that the driver has of a run."""
        return pack(Path(folder), {})


def run_on_ray(board: Board, address: str, interrupts: list):
    """Run what is queued as tasks that ask for a CPU per process, and see them through."""
    runs = [run for run in board.runs if run.state == "queued"]
    if not runs:
        return
    with _connected(address) as ray:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        driver = ray.remote(DriverActor).options(num_cpus=0, scheduling_strategy=here).remote()
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        largest = max((resources.get("CPU", 0) for resources in nodes), default=0)
        for run in runs:
            if run.job.num_cpu > largest:
                print(
                    f"{run.job.exp_name} asks for {run.job.num_cpu} CPUs, and no node has more "
                    f"than {largest:g}; it waits for one that has."
                )
        deadline = time.time() + TIMEOUT
        attempts = [
            Attempt(run, token) for run in runs if (token := _prepare(board, run, deadline))
        ]
        try:
            going = {_submit(ray, one, driver): one for one in attempts}
            _poll(ray, board, going, driver, interrupts)
        finally:
            for one in attempts:
                one.token.unlink(missing_ok=True)
    redraw(board, last=True)


def _prepare(board, run, deadline) -> Path | None:
    """Ready the run's folder, with a file in it by which a task knows whether it is the same."""
    folder = folder_of(run.job).absolute()
    try:
        _wait_until_free(folder, deadline)
        jobs.prepare_folder(run.job)
        for path in folder.glob(".driver-*"):  # of a driver that was killed
            path.unlink()
        token = folder / f".driver-{uuid.uuid4().hex}"
        token.touch()
    except (UserError, OSError) as error:
        run.state, run.error = "failed", str(error)
        tell(board, run)
        return None
    return token


def _submit(ray, one, driver):
    import cloudpickle

    job = one.run.job
    task = ray.remote(train).options(
        num_cpus=job.num_cpu,
        num_gpus=int(str(job.kwargs.get("device") or "cpu").startswith("cuda")),
        num_returns="streaming",
        max_retries=0,  # it is submitted again below, where what it has sent is known
        scheduling_strategy="SPREAD",
        name=folder_of(job).name,
    )
    threads = {name: os.environ[name] for name in processes.THREAD_VARIABLES if name in os.environ}
    threads = threads or dict.fromkeys((*processes.THREAD_VARIABLES, THREADS), "1")
    here = processes.process_env(1, 1)
    variables, paths = threads | {STARTED_IN: here[STARTED_IN]}, here["PYTHONPATH"]
    return task.remote(cloudpickle.dumps(job), str(one.token), variables, paths, driver)


def _poll(ray, board, going, driver, interrupts):
    """Take in what tasks send until all have ended; those whose node died begin again."""
    passed_on = 0
    while going:
        for _ in interrupts[passed_on:]:
            passed_on += 1
            say_interrupted(board)
            driver.interrupt.remote()
            for task, one in going.items():
                if one.run.state == "queued":
                    ray.cancel(task)
        ready, _ = ray.wait(list(going), timeout=0.5)
        for task in ready:
            try:
                _handle(board, going[task].run, ray.get(next(task)), interrupts)
                continue
            except StopIteration:
                error = None
            except ray.exceptions.RayError as raised:
                error = raised
            one = going.pop(task)
            unlock(folder_of(one.run.job))
            if error and (again := _after(ray, board, one, error, interrupts)):
                going[_submit(ray, again, driver)] = again
        redraw(board)


def _after(ray, board, one, error, interrupts) -> Attempt | None:
    """What to try after a task that did not end by itself."""
    run = one.run
    name, epoch = folder_of(run.job).name, _epoch(run)
    number = 1 if epoch > one.epoch else one.number + 1
    if interrupts:
        run.state = "queued" if run.state == "queued" else "stopped"
    elif _was_lost(ray, error) and number <= MAX_ATTEMPTS:
        run.state, board.height = "queued", 0
        say(f"{name}: its node was lost after epoch {epoch}; it continues on another node.")
        return Attempt(run, one.token, number, epoch)
    else:
        run.state = "failed"
        run.error = "\n    ".join(str(error).strip().splitlines()[-jobs.LAST_LINES :])
        tell(board, run)
    return None


def _epoch(run) -> int:
    return (read_latest(folder_of(run.job)) or {"epoch": 0})["epoch"]


def _was_lost(ray, error) -> bool:
    """Whether a task ended for no fault of its own."""
    lost = ("NodeDiedError", "WorkerCrashedError", "LocalRayletDiedError", "ObjectLostError",
            "OwnerDiedError", "OutOfMemoryError")  # fmt: skip
    return isinstance(error, tuple(getattr(ray.exceptions, name) for name in lost))


def _handle(board, run, news, interrupts):
    """Note what a task sends: that it began, what is new, how it ended."""
    folder = folder_of(run.job)
    if isinstance(news, FolderDelta):
        unpack(news, folder)
        if "config.json" in news.news:
            _name_folder(folder)
        return
    if isinstance(news, Started):
        run.state, run.began, run.output_offset = "running", time.time(), news.output_offset
        if not news.shared:
            lock(folder)  # for the run, which holds only the folder of its own machine
    else:
        jobs.ended(run, news, interrupts)
    tell(board, run)


def _name_folder(folder):
    """Let the config.json that was fetched say where the run is kept now."""
    config = read_json(folder / "config.json")
    if isinstance(config.get("logger_kwargs"), dict):
        config["logger_kwargs"]["output_dir"] = str(folder)
        write_json(folder / "config.json", config)


def train(job: bytes, token: str, variables: dict, paths: str, driver):
    """Run a job on this node; yields that it began, then news, then its exit code.

    token: a file in the driver's run folder
    variables: of the run's environment: where it was started, how many threads each process has
    paths: where the driver finds modules
    driver: the actor at the driver
    """
    # Waiting for an answer, a task's main thread would lend its CPU to another task.
    aside = ThreadPoolExecutor(1)

    def ask(question, *args):
        return aside.submit(_import_ray().get, question.remote(*args)).result()

    folder, sent = Path(token).parent, {}
    shared = Path(token).exists() and SCRATCH not in os.environ
    if not shared:
        folder = Path(tempfile.mkdtemp(prefix="spinup-", dir=_scratch()))
        unpack(ask(driver.fetch, str(Path(token).parent)), folder)
        pack(folder, sent)  # the driver has all of this
    _wait_until_free(folder, time.time() + TIMEOUT)
    paths = filter(None, [os.environ.get("PYTHONPATH"), paths])
    variables = os.environ | variables | dict(PYTHONPATH=os.pathsep.join(paths))
    if heard := ask(driver.interrupted):
        return
    with open(folder / OUTPUT_FILE, "ab") as output:
        began = Started(output.tell(), shared)
        process = processes.start_process(job, variables, output, folder)
    yield began
    try:
        while process.poll() is None:
            time.sleep(0.5)
            if ask(driver.interrupted) > heard:
                heard += 1
                process.send_signal(signal.SIGINT)
            if not shared and _latest_differs(folder, sent) and (news := pack(folder, sent)):
                yield news
        if not shared:
            yield pack(folder, sent)
        yield process.returncode
    finally:
        process.kill()
        process.wait()
        processes.forget_job_file(process)
        if not shared:
            shutil.rmtree(folder, ignore_errors=True)


def _scratch() -> str | None:
    """The folder of this node in which runs are trained; None for that of temporary files."""
    scratch = os.environ.get(SCRATCH)
    if scratch:
        Path(scratch).mkdir(parents=True, exist_ok=True)
    return scratch


def _wait_until_free(folder, deadline):
    """Wait for processes whose node or driver is gone, and who may not know it yet."""
    while is_locked(folder) and time.time() < deadline:
        time.sleep(0.5)


def _latest_differs(folder, sent) -> bool:
    path = folder / LATEST
    return path.exists() and path.stat().st_mtime_ns != sent.get(LATEST, (0, 0, 0))[1]


def pack(folder: Path, sent: dict) -> FolderDelta | None:
    """What is new in a run folder since the last time; None if its run was just writing.

    It is taken so that the checkpoint in it is whole. What a file had before is not sent again.

    sent: for each file its size, time and digest when it was last sent; brought up to date
    """
    for _ in range(5):
        try:
            before = _bytes_of(folder / LATEST)
            known, news = dict(sent), {}
            files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*")
                           if path.is_file() and path.suffix != ".new"
                           and not path.name.startswith("."))  # fmt: skip
            for name in files:
                _pack_file(folder / name, name, known, news)
            if _bytes_of(folder / LATEST) == before:
                sent.clear()
                sent.update({name: known[name] for name in files})
                return FolderDelta(news, files)
        except FileNotFoundError:  # a new checkpoint has come, and the old one is removed
            continue
    return None


def _bytes_of(path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def _pack_file(path, name, known, news):
    with open(path, "rb") as file:
        stat = os.fstat(file.fileno())
        size, moment, digest = known.get(name, (0, 0, None))
        if (size, moment) == (stat.st_size, stat.st_mtime_ns) and digest:
            return
        content = hashlib.blake2b()
        left = size
        while left and (part := file.read(min(left, 2**20))):
            content.update(part)
            left -= len(part)
        if left or content.digest() != digest:  # not merely longer than it was
            content, size = hashlib.blake2b(), 0
            file.seek(0)
        tail = file.read()
        content.update(tail)
        known[name] = size + len(tail), stat.st_mtime_ns, content.digest()
        news[name] = size, tail


def unpack(delta: FolderDelta, folder: Path):
    """Bring a run folder up to date, so that it holds a whole checkpoint at every instant."""
    for name, (start, content) in sorted(delta.news.items(), key=lambda item: item[0] == LATEST):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if start:
            with open(path, "r+b") as file:
                file.seek(start)
                file.write(content)
                file.truncate()
                os.fsync(file.fileno())
        else:
            write_whole(path, content)
    for path in ((folder / DIVERGED_FILE), *(folder / "checkpoint").rglob("*")):
        if path.is_file() and str(path.relative_to(folder)) not in delta.files:
            path.unlink()
