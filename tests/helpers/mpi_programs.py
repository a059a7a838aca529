"""Programs that run in several processes under MPI."""

import os
import subprocess
import sys
from pathlib import Path

from spinup.parts.mpi import mpiexec

REPOSITORY = Path(__file__).parents[2]
# The first lines of a program that counts what is summed over processes, in the list `calls`.
COUNT_EXCHANGES = """
from mpi4py import MPI
calls = []
class Counting(MPI.Intracomm):
    def Allreduce(self, *args, **kwargs):
        calls.append("Allreduce")
        return super().Allreduce(*args, **kwargs)
MPI.COMM_WORLD = Counting(MPI.COMM_WORLD)
"""


def under_mpiexec(program, n=2, timeout=120):
    """Run a Python program in `n` processes."""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [mpiexec(), "-n", str(n), sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
