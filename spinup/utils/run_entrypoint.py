"""The process of one run: the original's name for `spinup.experiments.entrypoint`."""

from spinup.experiments.entrypoint import run

__all__ = ["run"]
