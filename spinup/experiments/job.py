"""A job: one run of an experiment, what to call and with what."""

import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from spinup.parts.jsonio import convert_json, write_json
from spinup.parts.run_folder import JOB_FILE


@dataclass
class Job:
    """One run of an experiment: what to call and with what, in how many processes."""

    exp_name: str
    thunk: Callable  # a training function, or any function that takes these keywords
    kwargs: dict  # settings, with seed, env_name (and env_kwargs) or env_fn, and logger_kwargs
    num_cpu: int = 1
    overwrite: bool = False  # start over, deleting what the folder holds


@dataclass
class Run:
    """A job and its state."""

    job: Job
    state: str = "queued"  # then running, then finished, failed, diverged or stopped
    began: float = 0.0
    output_offset: int = 0  # the bytes that output.txt held before this start
    process: subprocess.Popen | None = None
    output_thread: threading.Thread | None = None  # shows what the run prints
    error: str = ""  # why it failed, where the run itself could not print it


def folder_of(job: Job) -> Path:
    """The job's run folder."""
    return Path(job.kwargs["logger_kwargs"]["output_dir"])


def in_folder(job: Job, folder: Path | str) -> Job:
    """The same job, kept in another folder."""
    where = job.kwargs["logger_kwargs"] | dict(output_dir=str(folder))
    return replace(job, kwargs=job.kwargs | dict(logger_kwargs=where))


def write_job_file(job: Job, state: str) -> None:
    """Write to job.json, in the run's folder, what the job is and its state.

    A state is 'started', 'finished', 'failed' or 'diverged'.
    For a function that is no algorithm of ours, only this file tells whether it is finished.
    """
    name = convert_json(job.thunk)
    write_json(
        folder_of(job) / JOB_FILE, settings_of(job) | dict(job=dict(state=state, function=name))
    )


def settings_of(job: Job) -> dict:
    """What a job is called with, as JSON can hold it; the logger's arguments left out."""
    kwargs = {key: value for key, value in job.kwargs.items() if key != "logger_kwargs"}
    return convert_json(kwargs | dict(num_procs=job.num_cpu))
