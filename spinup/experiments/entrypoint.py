"""The process of one run: it reads a job from a file, does it, and ends.

    python … spinup.experiments.entrypoint JOB_FILE [FOLDER]

It is started by `start_without_current_folder`; the job's file is this user's own, and its package
of environments, if it names one, is imported as it was where the command was given.

FOLDER stands for the job's own output_dir, on a machine that does not see that one.
"""

import os
import signal
import sys
from pathlib import Path

from spinup.experiments.job import Job, folder_of, in_folder, write_job_file
from spinup.parts.divergence import Divergence, read_divergence, write_divergence
from spinup.parts.errors import Diverged
from spinup.parts.imports import STARTED_IN
from spinup.parts.make_env import allow_env, with_env_fn
from spinup.parts.memory import explain_memory
from spinup.parts.mpi import barrier, mpi_fork, on_first_process, proc_id
from spinup.parts.report_errors import report_errors
from spinup.parts.run_folder import enable_auto_resume
from spinup.parts.run_lock import lock


def run(job_file: str, folder: str | None = None) -> None:
    """Do the job in a file.

    folder: where to keep the run, instead of the job's own folder
    """
    import cloudpickle

    job = cloudpickle.loads(Path(job_file).read_bytes())
    job = job if folder is None else in_folder(job, folder)
    allow_env(job.kwargs.get("env_name"), os.environ.get(STARTED_IN))
    mpi_fork(job.num_cpu)
    barrier()
    if proc_id() == 0:
        Path(job_file).unlink()  # all have read it, and nobody else should
    on_first_process(lambda: _begin(job))
    enable_auto_resume(folder_of(job))
    try:
        with explain_memory(job.kwargs):
            job.thunk(**with_env_fn(job.kwargs))
    except Diverged as error:  # one that knows no run folder, such as an environment being made
        if proc_id() == 0 and read_divergence(folder_of(job)) is None:
            write_divergence(folder_of(job), Divergence(str(error), None, 0))
        raise
    if proc_id() == 0:
        write_job_file(job, "finished")


def _begin(job: Job):
    lock(folder_of(job))
    write_job_file(job, "started")


if __name__ == "__main__":
    if hasattr(signal, "pthread_sigmask"):  # inherited from Ray's workers, which block Ctrl-C
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    report_errors(lambda: run(*sys.argv[1:]))
