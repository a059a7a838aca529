"""MPI: the original's name for `spinup.parts.mpi`."""

from spinup.parts.mpi import (
    allreduce,
    barrier,
    broadcast,
    mpi_avg,
    mpi_fork,
    mpi_op,
    mpi_statistics_scalar,
    mpi_sum,
    msg,
    num_procs,
    proc_id,
)

__all__ = [
    "allreduce",
    "barrier",
    "broadcast",
    "mpi_avg",
    "mpi_fork",
    "mpi_op",
    "mpi_statistics_scalar",
    "mpi_sum",
    "msg",
    "num_procs",
    "proc_id",
]
