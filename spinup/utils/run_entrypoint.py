"""The process of one run: it is given a job, does it, and ends.

    python -m spinup.utils.run_entrypoint JOB_FILE [FOLDER]

FOLDER stands for the job's own output_dir, on a machine that does not see that one.
"""

import signal
import sys
from pathlib import Path

from spinup.run import guarded
from spinup.utils.mpi_tools import barrier, mpi_fork, on_first_process, proc_id
from spinup.utils.run_utils import with_env_fn


def run(job_file, folder=None):
    import cloudpickle

    from spinup.parts.checkpoint import claim, make_restartable
    from spinup.parts.memory import explain_memory
    from spinup.utils.jobs import folder_of, in_folder, note

    job = cloudpickle.loads(Path(job_file).read_bytes())
    job = job if folder is None else in_folder(job, folder)
    mpi_fork(job.num_cpu)
    barrier()
    if proc_id() == 0:
        Path(job_file).unlink()  # all have read it, and it is nobody else's business
    on_first_process(lambda: (claim(folder_of(job)), note(job, "started")))
    make_restartable(folder_of(job))
    with explain_memory(job.kwargs):
        job.thunk(**with_env_fn(job.kwargs))
    if proc_id() == 0:
        note(job, "finished")


if __name__ == "__main__":
    if hasattr(signal, "pthread_sigmask"):  # Ray's workers are deaf to Ctrl-C, and so we would be
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    guarded(lambda: run(*sys.argv[1:]))
