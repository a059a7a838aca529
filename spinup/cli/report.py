"""`spinup report FOLDER`: one page of curves, results, settings and videos."""

import argparse
import os
from pathlib import Path

from spinup.cli import compare as cli_compare
from spinup.cli import plot as cli_plot
from spinup.parts.errors import UserError
from spinup.parts.jsonio import write_whole
from spinup.parts.plain_text import say
from spinup.parts.run_folder import real_path
from spinup.results import tables
from spinup.results.report import collect, page


def main(argv=None):
    """Write the page that the command line asks for."""
    parser = argparse.ArgumentParser(
        "spinup report", description="Write one page with curves, results, settings and videos."
    )
    cli_plot.add_folders(parser)
    cli_compare.add_compare_flags(parser)
    add = parser.add_argument
    add("-o", "--output", metavar="FILE", help="the page to write (report.html in the folder)")
    add("--title", help="of the page; by default the folder's name")
    args = parser.parse_args(argv)
    first = Path(args.all_logdirs[0])
    path = Path(args.output or (first if os.path.isdir(first) else Path()) / "report.html")
    if path.suffix not in (".html", ".htm"):
        raise UserError(f"{path} should end in .html, for that is what is written.")
    runs = tables.get_all_datasets(args.all_logdirs, args.legend, args.select, args.exclude)
    folders = tables.matching_folders(args.all_logdirs, args.select, args.exclude)
    title = args.title or real_path(first).name
    text = page(title, collect(runs, folders, args))
    try:
        write_whole(path, text.encode(errors="backslashreplace"))
    except OSError as error:
        raise UserError(f"Cannot write {path} ({error.strerror}). Choose a file with -o.")
    say(f"Wrote {path}")
    tables.refuse_damage(runs)
