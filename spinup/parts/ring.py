"""A ring: the last rows of a table with a fixed number of rows, saved by appending what is new."""

from pathlib import Path
from typing import Any

import numpy as np

from spinup.parts.errors import UserError, shown
from spinup.parts.memory import require_memory
from spinup.parts.replay_log import ReplayLog


def combined_shape(length: int, shape: Any = None) -> tuple[int, ...]:
    """The shape of `length` things of shape `shape` (a number, a tuple, or None for numbers)."""
    if shape is None:
        return (length,)
    return (length, int(shape)) if np.ndim(shape) == 0 else (length, *shape)


class Ring:
    """A table of the last `size` rows, which is saved by appending what is new.

    Rows lie one behind the other with their fields side by side, so that sampling a batch of them
    touches memory once per row, and writing them to disk is one call.
    """

    def __init__(self, size: float, **fields: tuple[Any, Any]):
        """Allocate the rows.

        fields: the shape (a number, a tuple, or None for numbers) and the type of each
        """
        shaped = [(name, t, combined_shape(1, shape)[1:]) for name, (shape, t) in fields.items()]
        row = np.dtype(shaped, align=True)
        require_memory(int(size) * row.itemsize, f"replay_size {shown(size)}")
        self.storage = np.zeros(int(size), row)
        self.columns = {name: self.storage[name] for name in fields}  # views of the same memory
        self.total, self.max_size = 0, int(size)  # total: rows since the start
        self.log: ReplayLog | None = None
        self.checksums: dict | None = None  # of the files of a log that is still to be read

    @property
    def size(self) -> int:
        """How many rows there are now."""
        return min(self.total, self.max_size)

    @property
    def ptr(self) -> int:
        """Where the next row is going to stand."""
        return self.total % self.max_size

    def move_to(self, total: int) -> None:
        """Count `total` rows since the start, for a script that fills the columns itself."""
        if self.log is not None and total < self.log.total:
            raise ValueError(
                "A checkpoint has saved rows of this buffer that would no longer count. "
                "Make a new buffer instead."
            )
        self.total = total

    def store(self, n: int, *values: Any) -> slice | np.ndarray:
        """Add `n` rows, given field by field; gives where they now are."""
        first = self.total % self.max_size
        where: slice | np.ndarray
        if first + n <= self.max_size:
            where = slice(first, first + n)
        else:
            where = np.arange(first, first + n) % self.max_size
        for column, new in zip(self.columns.values(), values):
            column[where] = new
        self.total += n
        return where

    def state_dict(self) -> dict:
        checksums = None if self.log is None else dict(self.log.checksums)
        return dict(total=self.total, max_size=self.max_size, checksums=checksums)

    def load_state_dict(self, state: dict) -> None:
        self.checksums = state.get("checksums")  # the version before had none
        if state["max_size"] != self.max_size:
            raise UserError(
                f"The run was saved with replay_size {state['max_size']}, not {self.max_size}."
            )
        self.total = state["total"]

    def append_log(self, folder: Path) -> None:
        """Write the rows that are new since the last call; rows written before stay as they are."""
        self.log = self.log or ReplayLog(folder, self.storage.dtype, self.max_size)
        first = max(self.log.total, self.total - self.max_size)
        # As plain bytes: copied field by field, the gaps between fields would hold anything.
        whole = self.storage.view(np.dtype((np.void, self.storage.dtype.itemsize)))
        self.log.append(first, whole[np.arange(first, self.total) % self.max_size])

    def read_log(self, folder: Path) -> None:
        """Read every row that a run had when it was saved."""
        self.log = ReplayLog(folder, self.storage.dtype, self.max_size)
        for first, saved in self.log.read(self.total, self.checksums):
            self.storage[np.arange(first, first + len(saved)) % self.max_size] = saved
