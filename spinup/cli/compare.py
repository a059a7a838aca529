"""`spinup compare FOLDER…`: a table of results, and how sure one can be of them."""

import argparse
import json
import sys

from spinup.cli import plot as cli_plot
from spinup.parts.plain_text import say
from spinup.parts.progress import PERFORMANCE
from spinup.results import tables
from spinup.results.compare import comparison
from spinup.results.compare_formats import as_dict, as_text, write_csv


def add_compare_flags(parser: argparse.ArgumentParser):
    """Add the flags that say by which number to compare runs, in the words of `compare`."""
    add = parser.add_argument
    column = f"column of progress.txt to compare by (Performance: {', or else '.join(PERFORMANCE)})"
    scores = "the scores on an environment that become 0 and 1; may be given for each"
    add("-y", "--value", default="Performance", help=column)
    add("--last", type=int, help="mean over so many of the last epochs (a tenth of them)")
    add("--at", type=float, metavar="STEPS", help="leave out what came after so many steps")
    add("--pool", action="store_true", help="take all environments of an experiment together")
    add("--scale", nargs=3, action="append", metavar=("ENV", "LOW", "HIGH"), help=scores)


def main(argv=None):
    """Print the comparison that the command line asks for."""
    parser = argparse.ArgumentParser(
        "spinup compare", description="Compare how well experiments end, and how surely."
    )
    cli_plot.add_folders(parser)
    add_compare_flags(parser)
    form = parser.add_mutually_exclusive_group()
    for name in ("json", "csv", "markdown"):
        form.add_argument(f"--{name}", action="store_true", help=f"print {name.upper()}")
    args = parser.parse_args(argv)
    runs = tables.get_all_datasets(args.all_logdirs, args.legend, args.select, args.exclude)
    found = comparison(runs, args)
    if args.json:
        print(json.dumps(as_dict(found), indent=2))
    elif args.csv:
        write_csv(found, sys.stdout)
        for warning in found.warnings:
            say(warning, file=sys.stderr)
    else:
        print(as_text(found, args.markdown))
    tables.refuse_damage(runs)
