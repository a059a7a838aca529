"""MPI with PyTorch: the original's name for `spinup.parts.pytorch.mpi`."""

from spinup.parts.pytorch.mpi import mpi_avg_grads, setup_pytorch_for_mpi, sync_params

__all__ = ["mpi_avg_grads", "setup_pytorch_for_mpi", "sync_params"]
