"""Keep a copy of a run folder up to date by sending only what is new in it."""

import hashlib
import os
from pathlib import Path
from typing import NamedTuple

from spinup.parts.jsonio import write_whole
from spinup.parts.run_folder import DIVERGED_FILE

LATEST = "checkpoint/latest"
Sent = dict[str, tuple[int, int, bytes]]  # the size, time and digest of each file that was sent


class FolderDelta(NamedTuple):
    """What is new in a run folder."""

    news: dict[str, tuple[int, bytes]]  # for each file: where its new part begins, and that part
    files: list[str]  # all that the folder holds


def has_new_checkpoint(folder: Path, sent: Sent) -> bool:
    """Whether the folder has another checkpoint than the one that was sent."""
    path = folder / LATEST
    return path.exists() and path.stat().st_mtime_ns != sent.get(LATEST, (0, 0, 0))[1]


def pack(folder: Path, sent: Sent) -> FolderDelta | None:
    """What is new in a run folder since the last time; None if its run is writing just now.

    The checkpoint in it is complete. Of a file that only became longer, only the end is sent.

    sent: for each file its size, time and digest when it was last sent; updated here
    """
    for _ in range(5):
        try:
            before = _bytes_of(folder / LATEST)
            known, news = dict(sent), dict[str, tuple[int, bytes]]()
            files = sorted(str(path.relative_to(folder)) for path in _files_of(folder))
            for name in files:
                _pack_file(folder / name, name, known, news)
            if _bytes_of(folder / LATEST) == before:
                sent.clear()
                sent.update({name: known[name] for name in files})
                return FolderDelta(news, files)
        except FileNotFoundError:  # a new checkpoint has come, and the old one is removed
            continue
    return None


def _files_of(folder) -> list[Path]:
    """The files of a run folder, except those that are being written or belong to the driver."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return [path for path in files if path.suffix != ".new" and not path.name.startswith(".")]


def _bytes_of(path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def _pack_file(path, name, known, news):
    with open(path, "rb") as file:
        stat = os.fstat(file.fileno())
        size, moment, digest = known.get(name, (0, 0, None))
        if (size, moment) == (stat.st_size, stat.st_mtime_ns) and digest:
            return
        content = hashlib.blake2b()
        left = size
        while left and (part := file.read(min(left, 2**20))):
            content.update(part)
            left -= len(part)
        if left or content.digest() != digest:  # not merely longer than it was
            content, size = hashlib.blake2b(), 0
            file.seek(0)
        tail = file.read()
        content.update(tail)
        known[name] = size + len(tail), stat.st_mtime_ns, content.digest()
        news[name] = size, tail


def unpack(delta: FolderDelta, folder: Path) -> None:
    """Apply what is new to a copy of a run folder; its checkpoint is complete at every instant."""
    for name, (start, content) in sorted(delta.news.items(), key=lambda item: item[0] == LATEST):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if start:
            with open(path, "r+b") as file:
                file.seek(start)
                file.write(content)
                file.truncate()
                os.fsync(file.fileno())
        else:
            write_whole(path, content)
    for path in ((folder / DIVERGED_FILE), *(folder / "checkpoint").rglob("*")):
        if path.is_file() and str(path.relative_to(folder)) not in delta.files:
            path.unlink()
