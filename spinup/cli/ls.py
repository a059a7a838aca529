"""`spinup ls FOLDER…`: the status of every run in a folder."""

import argparse
import io
import json
import math
import sys
from dataclasses import asdict

from spinup.parts.jsonio import convert_json
from spinup.parts.plain_text import printable, say
from spinup.parts.run_folder import find_runs
from spinup.parts.run_status import STATE_STYLES, RunStatus, run_status
from spinup.user_config import DEFAULT_DATA_DIR

HEADER = ("State", "Algorithm", "Environment", "Seed", "Epochs", "Return", "Steps/s", "Folder")
NUMBERS = {"Seed", "Epochs", "Return", "Steps/s"}  # these columns are aligned on the right
UNLIMITED = 10**6  # characters: no line is cut or wrapped, whatever the terminal's width


def _cells(run: RunStatus) -> list[str]:
    def shown(value, form):
        return "-" if value is None else format(value, form)

    cells = [
        run.state,
        run.algorithm or "-",
        run.environment or "-",
        "-" if run.seed is None else run.seed,
        f"{run.epochs_done}/{shown(run.epochs, '')}",
        shown(run.performance, ".5g"),
        shown(run.steps_per_second, ".0f"),
        run.folder,
    ]
    return [printable(cell) for cell in cells]


def as_text(runs: list[RunStatus], color: bool = False) -> str:
    """A table with one line for each run; below it, the problems of some of them.

    color: color the states, for a terminal
    """
    below = [printable(f"{run.folder}: {run.diverged}") for run in runs if run.diverged]
    below += [printable(run.problem) for run in runs if run.problem]
    return "\n".join([*_table(runs, color), *([""] if below else []), *below])


def _table(runs: list[RunStatus], color: bool) -> list[str]:
    # Texts of run folders are data: Text takes them as they are, where a str would be markup.
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
    for name in HEADER:
        table.add_column(Text(name), justify="right" if name in NUMBERS else "left", no_wrap=True)
    for run in runs:
        state, *rest = _cells(run)
        table.add_row(Text(state, style=STATE_STYLES.get(state, "")), *map(Text, rest))
    file = io.StringIO()
    Console(file=file, force_terminal=color, force_jupyter=False, width=UNLIMITED).print(table)
    return [line.rstrip() for line in file.getvalue().splitlines()]


def as_json(runs: list[RunStatus]) -> str:
    """The same as a JSON list; a number that is NaN or infinite becomes null."""
    finite = [
        {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in run.items()}
        for run in (asdict(run) | dict(wrong=run.problem) for run in runs)  # as 1.0 called it
    ]
    return json.dumps(convert_json(finite), indent=2)


def main(argv=None):
    parser = argparse.ArgumentParser("spinup ls", description="The status of the runs in a folder.")
    parser.add_argument("folder", nargs="*", help="folders that hold runs; default: data")
    parser.add_argument("--json", action="store_true", help="as JSON, for programs")
    args = parser.parse_args(argv)
    folders = args.folder or [DEFAULT_DATA_DIR]
    runs = [run_status(folder) for folder in find_runs(folders)]
    if args.json:
        print(as_json(runs))
    elif runs:
        print(as_text(runs, color=sys.stdout.isatty()))
    else:
        say(f"There is no run in {', '.join(folders)}.")
