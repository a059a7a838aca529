"""The process that `call_experiment` starts: it runs one experiment and ends."""

import sys
from pathlib import Path

from spinup.run import guarded
from spinup.utils.mpi_tools import mpi_fork
from spinup.utils.run_utils import with_env_fn


def run(job):
    import cloudpickle

    thunk, kwargs, num_cpu = cloudpickle.loads(Path(job).read_bytes())
    mpi_fork(num_cpu)
    thunk(**with_env_fn(kwargs))


if __name__ == "__main__":
    guarded(lambda: run(sys.argv[1]))
