"""`spinup plot RUN…`: plot learning curves."""

import argparse

from spinup.parts.imports import OutsideCurrentFolder
from spinup.parts.progress import PERFORMANCE, STEPS
from spinup.results.curves import BANDS, ESTIMATORS, make_plots
from spinup.results.tables import refuse_damage


def add_folders(parser: argparse.ArgumentParser):
    """Add the flags that say which runs to read, in the words of `get_all_datasets`."""
    add, several = parser.add_argument, dict(nargs="*")
    add("all_logdirs", metavar="logdir", nargs="+", help="folders, or how their names begin")
    add("-l", "--legend", **several, help="a title for each folder")
    add("--select", **several, help="only folders whose paths contain all of these")
    add("--exclude", **several, help="only folders whose paths contain none of these")


def main(argv=None):
    """Plot what the command line asks for."""
    parser = argparse.ArgumentParser("spinup plot", description="Plot learning curves.")
    add, several = parser.add_argument, dict(nargs="*")
    add_folders(parser)
    add("-x", "--xaxis", default=STEPS, help="column of progress.txt (%(default)s)")
    columns = f"(Performance: {', or else '.join(PERFORMANCE)})"
    panels = f"columns of progress.txt, a panel for each {columns}"
    add("-y", "--value", dest="values", **several, help=panels)
    add("--count", action="store_true", help="plot each run by itself")
    add("-s", "--smooth", type=int, default=1, help="average over so many points (%(default)s)")
    estimators = dict(default="mean", choices=list(ESTIMATORS))
    add("--est", dest="estimator", **estimators, help="line (%(default)s)")
    add("--band", default="ci", choices=list(BANDS), help="around it (%(default)s)")
    add("-o", "--output", metavar="FILE", help="write a .png, .svg or .pdf instead of showing it")
    args = parser.parse_args(argv)
    with OutsideCurrentFolder():  # Matplotlib would obey a matplotlibrc in the current folder
        import matplotlib  # noqa: F401
    refuse_damage(make_plots(**vars(args)) or [])
