"""Runs one after the other, until what runs many at once is here."""

import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from spinup.utils.errors import UserError
from spinup.utils.serialization_utils import convert_json


@dataclass
class Job:
    """One run of an experiment: what to call and with what, in how many processes."""

    exp_name: str
    thunk: Callable
    kwargs: dict
    num_cpu: int = 1
    overwrite: bool = False


class JobsFailed(Exception):
    """Some runs failed, and the others are through."""

    def __init__(self, message: str, failures: list):
        super().__init__(message)
        self.failures = failures


def run_jobs(jobs: list[Job], at_once: int = 1, ray_address: str | None = None) -> None:
    """Run jobs one after the other, each in a process of its own."""
    import cloudpickle

    from spinup.parts.checkpoint import read_latest
    from spinup.utils.run_utils import is_algorithm, what_to_do

    known = {}
    for job in jobs:
        folder = job.kwargs["logger_kwargs"]["output_dir"]
        first = known.setdefault(folder, job)
        if convert_json(first.kwargs) != convert_json(job.kwargs):
            raise UserError(f"Two variants would be kept in {folder}.")
    failures, refused = [], []
    for folder, job in known.items():
        try:
            todo = what_to_do(job.thunk, job.kwargs, job.num_cpu, job.overwrite)
        except UserError as error:
            refused.append(error)
            failures.append((job.exp_name, Path(folder)))
            continue
        if todo == "finished":
            print(f"{folder} is finished")
            continue
        resume = dict(resume=todo == "resume") if is_algorithm(job.thunk) else {}
        where = job.kwargs["logger_kwargs"] | dict(overwrite=job.overwrite)
        kwargs = job.kwargs | resume | dict(logger_kwargs=where)
        with tempfile.TemporaryDirectory(prefix="spinup-") as temporary:
            path = Path(temporary) / "job"
            path.write_bytes(cloudpickle.dumps((job.thunk, kwargs, job.num_cpu)))
            command = [sys.executable, "-m", "spinup.utils.run_entrypoint", str(path)]
            code = subprocess.run(command).returncode
        if code == 130:
            raise KeyboardInterrupt
        if code != 0:
            failures.append((job.exp_name, Path(folder)))
        elif read_latest(folder) is None and Path(folder).is_dir():
            from spinup.utils.serialization_utils import write_json

            note = job.kwargs | dict(num_procs=job.num_cpu, job=dict(state="finished"))
            write_json(Path(folder) / "job.json", note)
    if refused and len(refused) == len(known):
        raise UserError("\n".join(map(str, refused)))
    if failures:
        told = "\n".join(f"{name} failed: {folder}" for name, folder in failures)
        raise JobsFailed(told, failures)
