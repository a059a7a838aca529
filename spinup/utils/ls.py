"""How runs stand: `spinup ls FOLDER…`, and what the table of a grid shows."""

import argparse
import contextlib
import json
import math
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from spinup.parts.plain_text import printable, say
from spinup.parts.run_folder import find_runs, read_config, read_job, read_text
from spinup.user_config import DEFAULT_DATA_DIR
from spinup.utils.errors import UserError
from spinup.utils.serialization_utils import convert_json

PERFORMANCE = ("AverageTestEpRet", "AverageEpRet")  # the first of them that a run has


@dataclass
class Standing:
    """How one run stands; None is what its files do not tell."""

    state: str  # running, finished, stopped, failed, diverged, or original: by that library
    algorithm: str | None
    environment: str | None
    seed: int | None
    epochs_done: int
    epochs: int | None
    performance: float | None
    steps_per_second: float | None
    folder: str
    wrong: str | None  # what cannot be read, in a sentence
    diverged: str | None = None  # what was not finite, and when, in a sentence


def standing(folder: Path) -> Standing:
    """How the run in a folder stands, by its files alone; what is broken is told, not raised."""
    from spinup.parts.checkpoint import is_claimed, read_latest
    from spinup.parts.divergence import find_divergence

    wrong = []

    def read(reader, path):
        try:
            return reader(path) or {}
        except UserError as error:
            wrong.append(str(error))
            return {}

    has_config = os.path.lexists(folder / "config.json")
    config, job = read(read_config, folder) if has_config else {}, read(read_job, folder)
    latest, table = read(read_latest, folder), read(read_table, folder / "progress.txt")
    table = table or NO_TABLE
    running, ours = is_claimed(folder), "algorithm" in config
    # A row whose checkpoint is missing will be made again.
    done = latest.get("epoch", 0) if ours else table.rows
    epochs = config.get("epochs", job.get("epochs"))
    note = job.get("job") or {}
    diverged = find_divergence(folder, config, table.names, table.texts)
    # A run that is under way has not written everything yet.
    if table.wrong and not running and not (diverged and not table.rows):
        wrong.append(table.wrong)
    if running:
        state = "running"
    elif diverged is not None:
        state = "diverged"
    elif config and not ours and not note:
        state = "original"
    elif (done >= epochs) if ours and epochs else note.get("state") == "finished":
        state = "finished"
    else:
        state = "failed" if note.get("state") == "failed" else "stopped"
    results = [table.last[name] for name in PERFORMANCE if name in table.last]
    steps, seconds = table.last.get("TotalEnvInteracts"), table.last.get("Time")
    return Standing(
        state=state,
        algorithm=config.get("algorithm") or note.get("function"),
        environment=_environment(config) or _environment(job),
        seed=config.get("seed", job.get("seed")),
        epochs_done=done,
        epochs=epochs,
        performance=None if state == "diverged" else next(iter(results), None),
        steps_per_second=steps / seconds if steps and seconds else None,
        folder=str(folder),
        wrong=" ".join(wrong) or None,
        diverged=None if diverged is None else diverged.sentence,
    )


def _environment(config) -> str | None:
    """What a run is trained on: as Gymnasium calls it, or as it was typed."""
    described, maker = config.get("environment") or {}, config.get("env_fn")
    found = [described.get("id") or described.get("made_by")]
    found += [maker.get("env_name")] if isinstance(maker, dict) else []
    return next(filter(None, [*found, config.get("env_name")]), None)


class Table(NamedTuple):
    """What a progress.txt holds: whole rows, the numbers of the last one, and what is wrong."""

    rows: int
    last: dict[str, float]
    wrong: str | None
    names: list[str]
    texts: list[list[str]]  # of the whole rows


NO_TABLE = Table(0, {}, None, [], [])


def read_table(path: Path) -> Table:
    """Look at the end of a progress.txt, which may be missing, empty or cut off."""
    if not os.path.lexists(path):
        return NO_TABLE
    *lines, cut = read_text(path).split("\n")
    names, *rows = [line.split("\t") for line in lines if line] or [[]]
    rows = [row for row in rows if len(row) == len(names)]
    last = {}
    for name, text in zip(names, rows[-1] if rows else ()):
        with contextlib.suppress(ValueError):
            last[name] = float(text)
    wrong = f"{path} ends in the middle of a line." if cut else None
    wrong = wrong if rows or cut else f"{path} holds no epoch."
    return Table(len(rows), last, wrong, names, rows)


HEADER = ("State", "Algorithm", "Environment", "Seed", "Epochs", "Return", "Steps/s", "Folder")
TO_THE_RIGHT = {"Seed", "Epochs", "Return", "Steps/s"}


def _cells(run: Standing) -> list[str]:
    def shown(value, form):
        return "-" if value is None else format(value, form)

    epochs = f"{run.epochs_done}/{shown(run.epochs, '')}"
    seed = "-" if run.seed is None else run.seed
    cells = [
        run.state, run.algorithm or "-", run.environment or "-", seed,
        epochs, shown(run.performance, ".5g"), shown(run.steps_per_second, ".0f"), run.folder,
    ]  # fmt: skip
    return [printable(cell) for cell in cells]


def as_text(runs: list[Standing]) -> str:
    """A table of runs, below it what is wrong with some of them."""
    rows = [HEADER, *map(_cells, runs)]
    widths = [max(map(len, column)) for column in zip(*rows)]
    sides = [">" if name in TO_THE_RIGHT else "<" for name in HEADER]
    lines = [
        "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths)).rstrip()
        for row in rows
    ]
    below = [printable(f"{run.folder}: {run.diverged}") for run in runs if run.diverged]
    below += [printable(run.wrong) for run in runs if run.wrong]
    return "\n".join([*lines, *([""] if below else []), *below])


def as_json(runs: list[Standing]) -> str:
    """The same as a JSON list; a number that is none, such as NaN, becomes null."""
    finite = [
        {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in run.items()}
        for run in map(asdict, runs)
    ]
    return json.dumps(convert_json(finite), indent=2)


def main(argv=None):
    parser = argparse.ArgumentParser("spinup ls", description="How the runs in a folder stand.")
    parser.add_argument("folder", nargs="*", help="folders that hold runs; data, if not said")
    parser.add_argument("--json", action="store_true", help="as JSON, for programs")
    args = parser.parse_args(argv)
    folders = args.folder or [DEFAULT_DATA_DIR]
    runs = [standing(folder) for folder in find_runs(folders)]
    if args.json:
        print(as_json(runs))
    elif runs:
        print(as_text(runs))
    else:
        say(f"There is no run in {', '.join(folders)}.")
