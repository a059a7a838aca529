"""`spinup ls FOLDER…`: the status of every run in a folder."""

import argparse
import json
import math
from dataclasses import asdict

from spinup.parts.jsonio import convert_json
from spinup.parts.plain_text import printable, say
from spinup.parts.run_folder import find_runs
from spinup.parts.run_status import RunStatus, run_status
from spinup.user_config import DEFAULT_DATA_DIR

HEADER = ("State", "Algorithm", "Environment", "Seed", "Epochs", "Return", "Steps/s", "Folder")
TO_THE_RIGHT = {"Seed", "Epochs", "Return", "Steps/s"}


def _cells(run: RunStatus) -> list[str]:
    def shown(value, form):
        return "-" if value is None else format(value, form)

    epochs = f"{run.epochs_done}/{shown(run.epochs, '')}"
    seed = "-" if run.seed is None else run.seed
    cells = [
        run.state, run.algorithm or "-", run.environment or "-", seed,
        epochs, shown(run.performance, ".5g"), shown(run.steps_per_second, ".0f"), run.folder,
    ]  # fmt: skip
    return [printable(cell) for cell in cells]


def as_text(runs: list[RunStatus]) -> str:
    """A table of runs, below it the problems of some of them."""
    rows = [HEADER, *map(_cells, runs)]
    widths = [max(map(len, column)) for column in zip(*rows)]
    sides = [">" if name in TO_THE_RIGHT else "<" for name in HEADER]
    lines = [
        "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths)).rstrip()
        for row in rows
    ]
    below = [printable(f"{run.folder}: {run.diverged}") for run in runs if run.diverged]
    below += [printable(run.problem) for run in runs if run.problem]
    return "\n".join([*lines, *([""] if below else []), *below])


def as_json(runs: list[RunStatus]) -> str:
    """The same as a JSON list; a number that is none, such as NaN, becomes null."""
    finite = [
        {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in run.items()}
        for run in map(asdict, runs)
    ]
    return json.dumps(convert_json(finite), indent=2)


def main(argv=None):
    parser = argparse.ArgumentParser("spinup ls", description="The status of the runs in a folder.")
    parser.add_argument("folder", nargs="*", help="folders that hold runs; data, if not said")
    parser.add_argument("--json", action="store_true", help="as JSON, for programs")
    args = parser.parse_args(argv)
    folders = args.folder or [DEFAULT_DATA_DIR]
    runs = [run_status(folder) for folder in find_runs(folders)]
    if args.json:
        print(as_json(runs))
    elif runs:
        print(as_text(runs))
    else:
        say(f"There is no run in {', '.join(folders)}.")
