"""A replay buffer on disk: what is new is appended, so that a checkpoint is quick."""

import os
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from spinup.parts.errors import START_OVER, UserError, damaged
from spinup.parts.jsonio import regular_file


class ReplayLog:
    """A ring on disk that is only ever appended to, so that saving costs what is new.

    Row k of the run lies in the file `k // rows_per_file`. A file is removed once all its rows
    have left the ring and a checkpoint that no longer needs them is complete. The checksum of a
    file grows with it and is kept in the checkpoint, so appending stays a single write.
    """

    FILES_PER_RING = 8

    def __init__(self, folder: Path, row: np.dtype, max_size: int):
        self.folder, self.max_size, self.total = Path(folder), max_size, 0
        self.rows_per_file = max(1, -(-max_size // self.FILES_PER_RING))
        self.row = row
        # Of each file by its number: bytes written, and their CRC-32.
        self.checksums: dict[int, list[int]] = {}

    def _file(self, number) -> Path:
        return self.folder / f"{number}.rows"

    def append(self, first: int, rows: np.ndarray) -> None:
        """Append rows of which the first is row `first` of the run."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.total = first + len(rows)
        while len(rows):
            number, offset = divmod(first, self.rows_per_file)
            part = rows[: self.rows_per_file - offset].tobytes()
            written, checksum = self.checksums.get(number, (0, 0))
            part = bytes(offset * self.row.itemsize - written) + part  # rows never saved are zeros
            with open(self._file(number), "r+b" if self._file(number).exists() else "w+b") as file:
                file.seek(written)
                file.write(part)
                file.truncate()  # a run that was killed may have left rows of its own here
                file.flush()
                os.fsync(file.fileno())
            self.checksums[number] = [written + len(part), zlib.crc32(part, checksum)]
            first, rows = first + self.rows_per_file - offset, rows[self.rows_per_file - offset :]
        for number in [n for n in self.checksums if n < self._oldest_needed()]:
            del self.checksums[number]

    def _oldest_needed(self) -> int:
        """The number of the first file that holds a row which the ring still has."""
        return max(0, self.total - self.max_size) // self.rows_per_file

    def prune(self) -> None:
        """Remove files that the newest checkpoint does not need; call when it is complete."""
        for path in self.folder.glob("*.rows"):
            if path.stem.isdecimal() and int(path.stem) < self._oldest_needed():
                path.unlink()

    def read(self, total: int, checksums: dict | None = None) -> Iterator[tuple[int, np.ndarray]]:
        """Yield (first row, rows) until row `total`, from the oldest the ring still holds.

        checksums: of each file, how many of its bytes were noted and their checksum
        """
        self.total, first = total, max(0, total - self.max_size)
        while first < total:
            number, offset = divmod(first, self.rows_per_file)
            count = min(self.rows_per_file - offset, total - first)
            path, size = self._file(number), (offset + count) * self.row.itemsize
            try:
                content = b""
                if os.path.lexists(path):
                    with open(regular_file(path), "rb") as file:
                        content = file.read(size)
            except OSError as error:
                raise UserError(f"{path} cannot be read ({error.strerror}). {START_OVER}")
            if len(content) < size:
                missing = -(-(size - len(content)) // self.row.itemsize)
                raise UserError(
                    f"{path} lacks {missing} of the transitions that the checkpoint "
                    f"counts on. Put the whole file back. {START_OVER}"
                )
            self.checksums[number] = [size, zlib.crc32(content)]
            if checksums is not None and list(checksums[number]) != self.checksums[number]:
                raise damaged(path)
            yield first, np.frombuffer(content, self.row, offset=offset * self.row.itemsize)
            first += count
