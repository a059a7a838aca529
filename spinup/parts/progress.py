"""progress.txt, the table of a run: one row per epoch; how it is read and how it is written."""

import contextlib
import os
from collections.abc import Container
from pathlib import Path
from typing import BinaryIO, NamedTuple

from spinup.parts.errors import START_OVER, UserError
from spinup.parts.run_folder import read_text

STEPS = "TotalEnvInteracts"  # the column of environment steps
PERFORMANCE = ("AverageTestEpRet", "AverageEpRet")  # the first of them that a run has


class Table(NamedTuple):
    """What a progress.txt holds: whole rows, the numbers of the last one, and its problem."""

    num_rows: int
    last: dict[str, float]
    problem: str | None
    names: list[str]
    rows: list[list[str]]  # as texts


NO_TABLE = Table(0, {}, None, [], [])


def performance_column(columns: Container[str]) -> str | None:
    """The column of a run that Performance stands for; None if the run has no such column."""
    return next((name for name in PERFORMANCE if name in columns), None)


def read_table(path: Path) -> Table:
    """Read a progress.txt, which may be missing, empty or cut off."""
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


def open_table(path: Path, keep: bool) -> BinaryIO:
    """Open a table for writing, unbuffered, so that a row is written whole or not at all.

    keep: leave the rows that it has
    """
    return open(path, "rb+" if keep and path.exists() else "wb+", buffering=0)


def append_rows(table: BinaryIO, rows: list[list]) -> None:
    """Add rows to a table; if the disk has no room for all of them, none of them stays."""
    text = "".join("\t".join(map(str, row)) + "\n" for row in rows)
    data, end = text.encode(errors="backslashreplace"), table.tell()
    try:
        while data:
            data = data[table.write(data) :]
    except OSError as error:
        table.truncate(end)
        raise UserError(
            f"{table.name} cannot be written ({error.strerror}). The epochs before this one are "
            "saved. Make room, then resume the run."
        )


def sync_table(table: BinaryIO) -> int:
    """Make sure that a table is on the disk; gives its size in bytes."""
    os.fsync(table.fileno())
    return table.tell()


def cut_table(table: BinaryIO, size: int) -> Table:
    """Cut a table off after `size` bytes, to continue there; gives the rows that are left."""
    if os.fstat(table.fileno()).st_size < size:
        raise UserError(
            f"{table.name} is shorter than when the checkpoint was written. "
            f"Put the whole file back. {START_OVER}"
        )
    table.truncate(size)
    table.seek(size)
    return read_table(Path(table.name))
