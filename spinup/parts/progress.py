"""progress.txt, the table of a run: one row per epoch."""

import contextlib
import os
from pathlib import Path
from typing import NamedTuple

from spinup.parts.run_folder import read_text

PERFORMANCE = ("AverageTestEpRet", "AverageEpRet")  # the first of them that a run has


class Table(NamedTuple):
    """What a progress.txt holds: whole rows, the numbers of the last one, and its problem."""

    rows: int
    last: dict[str, float]
    problem: str | None
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
    problem = f"{path} ends in the middle of a line." if cut else None
    problem = problem if rows or cut else f"{path} holds no epoch."
    return Table(len(rows), last, problem, names, rows)
