"""Train runs as tasks of a Ray cluster, wherever it has CPUs free.

A task starts the run as processes of its own, as `jobs` does here. Where it does not see the
driver's folder, it trains in one of its own machine, and what is new there is sent to the driver
with every checkpoint. A task whose node dies starts again elsewhere, from what the driver has.
"""

import os
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from spinup.experiments import jobs, ray_task
from spinup.experiments.board import Board, announce, redraw, report_state, say_interrupted
from spinup.experiments.folder_delta import FolderDelta, unpack
from spinup.experiments.job import Run, folder_of
from spinup.experiments.processes import THREAD_VARIABLES, process_env
from spinup.experiments.ray_cluster import connected
from spinup.parts.errors import UserError
from spinup.parts.imports import STARTED_IN
from spinup.parts.jsonio import read_json, write_json
from spinup.parts.latest import read_latest
from spinup.parts.mpi import THREADS
from spinup.parts.run_lock import lock, unlock

MAX_ATTEMPTS = 5  # in a row without a new checkpoint, until a run whose nodes die is given up
# Errors of Ray that are not the run's own fault.
LOST = (
    "NodeDiedError",
    "WorkerCrashedError",
    "LocalRayletDiedError",
    "ObjectLostError",
    "OwnerDiedError",
    "OutOfMemoryError",
)


@dataclass
class Attempt:
    """A run that was handed to the cluster."""

    run: Run
    token: Path  # a file in its folder, by which a task knows whether it sees the same one
    number: int = 1  # of attempts since the last checkpoint
    epoch: int = 0  # of the checkpoint it begins from


def run_on_ray(board: Board, address: str, interrupts: list[float]) -> None:
    """Run what is queued as tasks that ask for a CPU per process, and wait until all have ended."""
    runs = [run for run in board.runs if run.state == "queued"]
    if not runs:
        return
    with connected(address) as ray:
        driver = _start_driver_actor(ray)
        _warn_of_too_many_cpus(ray, board, runs)
        deadline = time.time() + ray_task.TIMEOUT
        attempts = [
            Attempt(run, token) for run in runs if (token := _prepare(board, run, deadline))
        ]
        try:
            tasks = {_submit(ray, one, driver): one for one in attempts}
            _poll(ray, board, tasks, driver, interrupts)
        finally:
            for one in attempts:
                one.token.unlink(missing_ok=True)


def _start_driver_actor(ray):
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    actor = ray.remote(ray_task.DriverActor)
    return actor.options(num_cpus=0, scheduling_strategy=here).remote()


def _warn_of_too_many_cpus(ray, board, runs):
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    largest = max((resources.get("CPU", 0) for resources in nodes), default=0)
    for run in runs:
        if run.job.num_cpu > largest:
            announce(
                board,
                f"{run.job.exp_name} asks for {run.job.num_cpu} CPUs, and no node has more "
                f"than {largest:g}; it waits for one that has.",
            )


def _prepare(board, run, deadline) -> Path | None:
    """Prepare the run's folder; put a file there by which a task sees whether it is the same."""
    folder = folder_of(run.job).absolute()
    try:
        ray_task.wait_until_free(folder, deadline)
        jobs.prepare_folder(run.job)
        for path in folder.glob(".driver-*"):  # of a driver that was killed
            path.unlink()
        token = folder / f".driver-{uuid.uuid4().hex}"
        token.touch()
    except (UserError, OSError) as error:
        run.state, run.error = "failed", str(error)
        report_state(board, run)
        return None
    return token


def _submit(ray, one, driver):
    import cloudpickle

    job = one.run.job
    task = ray.remote(ray_task.train).options(
        num_cpus=job.num_cpu,
        num_gpus=int(str(job.kwargs.get("device") or "cpu").startswith("cuda")),
        num_returns="streaming",
        max_retries=0,  # it is submitted again below, where what it has sent is known
        scheduling_strategy="SPREAD",
        name=folder_of(job).name,
    )
    threads = {name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ}
    threads = threads or dict.fromkeys((*THREAD_VARIABLES, THREADS), "1")
    here = process_env(1, 1)
    variables, paths = threads | {STARTED_IN: here[STARTED_IN]}, here["PYTHONPATH"]
    return task.remote(cloudpickle.dumps(job), str(one.token), variables, paths, driver)


def _poll(ray, board, tasks, driver, interrupts):
    """Handle what tasks send until all have ended; submit those again whose node died."""
    passed_on = 0
    while tasks:
        for _ in interrupts[passed_on:]:
            passed_on += 1
            say_interrupted(board)
            driver.interrupt.remote()
            for task, one in tasks.items():
                if one.run.state == "queued":
                    ray.cancel(task)
        ready, _ = ray.wait(list(tasks), timeout=0.5)
        for task in ready:
            try:
                _handle(board, tasks[task].run, ray.get(next(task)), interrupts)
                continue
            except StopIteration:
                error = None
            except ray.exceptions.RayError as raised:
                error = raised
            one = tasks.pop(task)
            unlock(folder_of(one.run.job))
            if error and (again := _after(ray, board, one, error, interrupts)):
                tasks[_submit(ray, again, driver)] = again
        redraw(board)


def _after(ray, board, one, error, interrupts) -> Attempt | None:
    """What to try after a task that did not end by itself."""
    run = one.run
    name, epoch = folder_of(run.job).name, _epoch(run)
    number = 1 if epoch > one.epoch else one.number + 1
    if interrupts:
        run.state = "queued" if run.state == "queued" else "stopped"
    elif _was_lost(ray, error) and number <= MAX_ATTEMPTS:
        run.state = "queued"
        text = f"{name}: its node was lost after epoch {epoch}; it continues on another node."
        announce(board, text)
        return Attempt(run, one.token, number, epoch)
    else:
        run.state = "failed"
        run.error = "\n    ".join(str(error).strip().splitlines()[-jobs.LAST_LINES :])
        report_state(board, run)
    return None


def _epoch(run) -> int:
    return (read_latest(folder_of(run.job)) or {"epoch": 0})["epoch"]


def _was_lost(ray, error) -> bool:
    """Whether a task ended for no fault of its own."""
    return isinstance(error, tuple(getattr(ray.exceptions, name) for name in LOST))


def _handle(board, run, news, interrupts):
    """Handle what a task sends: that its run started, what is new, or an exit code."""
    folder = folder_of(run.job)
    if isinstance(news, FolderDelta):
        unpack(news, folder)
        if "config.json" in news.news:
            _name_folder(folder)
        return
    if isinstance(news, ray_task.Started):
        run.state, run.began, run.output_offset = "running", time.time(), news.output_offset
        if not news.shared:
            lock(folder)  # for the run, which holds only the folder of its own machine
    else:
        jobs.set_ended(run, news, interrupts)
    report_state(board, run)


def _name_folder(folder):
    """Let the config.json that was fetched say where the run is kept now."""
    config = read_json(folder / "config.json")
    if isinstance(config.get("logger_kwargs"), dict):
        config["logger_kwargs"]["output_dir"] = str(folder)
        write_json(folder / "config.json", config)
