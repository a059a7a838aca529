"""Learning curves: the original's name for `spinup.results`; run as a file, `spinup plot`."""

import sys

from spinup.cli.plot import main
from spinup.parts.plain_text import say
from spinup.results import tables
from spinup.results.curves import make_plots, plot_data

__all__ = ["get_all_datasets", "get_datasets", "main", "make_plots", "plot_data"]

DIV_LINE_WIDTH = 50  # of the lines around the names of folders

# Of all the runs that this process has read with the functions below: how many there are, and how
# many of each Condition1. The next ones are numbered from there, so tables can be concatenated.
exp_idx = 0
units: dict[str, int] = {}


def get_datasets(logdir, condition=None):
    """As `spinup.results.tables.get_datasets`; runs are numbered across calls."""
    return _numbered(tables.get_datasets(logdir, condition))


def get_all_datasets(all_logdirs, legend=None, select=None, exclude=None):
    """As `spinup.results.tables.get_all_datasets`, which also prints the folders."""
    folders = tables.matching_folders(all_logdirs, select, exclude)
    line = "=" * DIV_LINE_WIDTH
    say("\n".join(["Plotting from...", line, "", *map(str, folders), "", line]))
    return _numbered(tables.get_all_datasets(all_logdirs, legend, select, exclude))


def _numbered(runs):
    module = sys.modules[__name__]  # whose numbers a notebook may set back
    module.exp_idx = tables.number_runs(runs, module.exp_idx, module.units)
    return runs


if __name__ == "__main__":
    from spinup.parts.report_errors import report_errors

    report_errors(main)
