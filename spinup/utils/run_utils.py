"""Experiments: the original's name for `spinup.experiments`."""

from spinup.experiments.grids import ExperimentGrid, all_bools, call_experiment, test_eg, valid_str
from spinup.parts.jsonio import convert_json
from spinup.parts.run_folder import setup_logger_kwargs

__all__ = [
    "ExperimentGrid",
    "all_bools",
    "call_experiment",
    "convert_json",
    "setup_logger_kwargs",
    "test_eg",
    "valid_str",
]
