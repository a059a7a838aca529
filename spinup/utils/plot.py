"""Learning curves: the original's name for `spinup.results`; run as a file, `spinup plot`."""

from spinup.cli.plot import main
from spinup.results.curves import make_plots, plot_data
from spinup.results.tables import get_all_datasets, get_datasets

__all__ = ["get_all_datasets", "get_datasets", "main", "make_plots", "plot_data"]


if __name__ == "__main__":
    from spinup.parts.report_errors import report_errors

    report_errors(main)
