"""The task that trains one run on a node of a Ray cluster, and what it sends to the driver."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from spinup.experiments.folder_delta import FolderDelta, Sent, has_new_checkpoint, pack, unpack
from spinup.experiments.processes import forget_job_file, start_process
from spinup.experiments.ray_cluster import import_ray
from spinup.parts.run_folder import OUTPUT_FILE
from spinup.parts.run_lock import is_locked

SCRATCH = "SPINUP_SCRATCH"  # on a node: train in this folder of its own, whatever else it sees
TIMEOUT = 60  # seconds that the processes of a node or driver that died may take to end


class Started(NamedTuple):
    """A run has started on a node."""

    output_offset: int  # the bytes that its output.txt held then
    shared: bool  # it trains in the very folder that the driver sees


class DriverActor:
    """What tasks ask of the driver's machine; an actor there."""

    def __init__(self):
        self.interrupts = 0

    def interrupt(self) -> None:
        self.interrupts += 1

    def interrupted(self) -> int:
        return self.interrupts

    def fetch(self, folder: str) -> FolderDelta | None:
        """All that the driver has of a run."""
        return pack(Path(folder), {})


def train(
    job: bytes, token: str, variables: dict, paths: str, driver: Any
) -> Iterator[Started | FolderDelta | int | None]:
    """Run a job on this node; yields that it started, then what is new, then its exit code.

    token: a file in the driver's run folder
    variables: environment variables: where the run was started, threads per process
    paths: where the driver finds modules
    driver: the actor at the driver
    """
    ask = _make_ask()
    shared = Path(token).exists() and SCRATCH not in os.environ
    sent: Sent = {}
    folder = Path(token).parent
    if not shared:
        folder = _fetched(lambda: ask(driver.fetch, str(Path(token).parent)), sent)
    wait_until_free(folder, time.time() + TIMEOUT)
    if heard := ask(driver.interrupted):
        return
    with open(folder / OUTPUT_FILE, "ab") as output:
        began = Started(output.tell(), shared)
        process = start_process(job, _variables(variables, paths), output, folder)
    yield began
    try:
        while process.poll() is None:
            time.sleep(0.5)
            if ask(driver.interrupted) > heard:
                heard += 1
                process.send_signal(signal.SIGINT)
            if not shared and has_new_checkpoint(folder, sent) and (news := pack(folder, sent)):
                yield news
        if not shared:
            yield pack(folder, sent)
        yield process.returncode
    finally:
        _end(process)
        if not shared:
            shutil.rmtree(folder, ignore_errors=True)


def _make_ask() -> Callable:
    """A function that asks the driver's actor for something and waits for the answer."""
    # A task's main thread that waits for an answer would lend its CPU to another task.
    aside = ThreadPoolExecutor(1)

    def ask(question, *args):
        return aside.submit(import_ray().get, question.remote(*args)).result()

    return ask


def _fetched(fetch: Callable[[], FolderDelta], sent: Sent) -> Path:
    """A new folder on this node, with all that the driver has of the run."""
    scratch = os.environ.get(SCRATCH)  # None: the folder for temporary files
    if scratch:
        Path(scratch).mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="spinup-", dir=scratch or None))
    unpack(fetch(), folder)
    pack(folder, sent)  # notes what the driver has
    return folder


def _variables(variables: dict, paths: str) -> dict:
    """The environment variables of the run's processes, with this node's modules first."""
    everywhere = filter(None, [os.environ.get("PYTHONPATH"), paths])
    return os.environ | variables | dict(PYTHONPATH=os.pathsep.join(everywhere))


def _end(process: subprocess.Popen):
    process.kill()
    process.wait()
    forget_job_file(process)


def wait_until_free(folder: Path, deadline: float) -> None:
    """Wait for processes whose node or driver is gone, and which may not know it yet."""
    while is_locked(folder) and time.time() < deadline:
        time.sleep(0.5)
