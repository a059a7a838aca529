"""MPI with TensorFlow: the original's name for `spinup.parts.tf1.mpi`."""

from spinup.parts.tf1.mpi import (
    MpiAdamOptimizer,
    assign_params_from_flat,
    flat_concat,
    sync_all_params,
    sync_params,
)

__all__ = [
    "MpiAdamOptimizer",
    "assign_params_from_flat",
    "flat_concat",
    "sync_all_params",
    "sync_params",
]
