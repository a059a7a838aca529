"""Experiments: the original's name for `spinup.experiments`."""

from spinup.experiments.grids import (
    DIV_LINE_WIDTH,
    ExperimentGrid,
    all_bools,
    call_experiment,
    test_eg,
    valid_str,
)
from spinup.parts.jsonio import convert_json
from spinup.parts.logger import colorize
from spinup.parts.mpi import mpi_fork
from spinup.parts.run_folder import setup_logger_kwargs
from spinup.user_config import (
    DEFAULT_DATA_DIR,
    DEFAULT_SHORTHAND,
    FORCE_DATESTAMP,
    WAIT_BEFORE_LAUNCH,
)

__all__ = [
    "DEFAULT_DATA_DIR",
    "DEFAULT_SHORTHAND",
    "DIV_LINE_WIDTH",
    "ExperimentGrid",
    "FORCE_DATESTAMP",
    "WAIT_BEFORE_LAUNCH",
    "all_bools",
    "call_experiment",
    "colorize",
    "convert_json",
    "mpi_fork",
    "setup_logger_kwargs",
    "test_eg",
    "valid_str",
]
