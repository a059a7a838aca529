"""The lock of a run folder: only one process at a time trains in it.

It is an flock on the file `.lock`, which the system frees at once when its process is killed.
The library filelock frees its FileLock as fast, but that lock cannot be asked about another process
without being taken: two `spinup ls` at the same time would each report the other as a running run.
"""

import os
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from spinup.parts.errors import UserError
from spinup.parts.jsonio import regular_file
from spinup.parts.run_folder import cannot_write, real_path, refuse_links

try:
    import fcntl
except ImportError:  # Windows has no such locks
    fcntl = None  # type: ignore[assignment]

LOCK_FILE = ".lock"
TIMEOUT = 5  # seconds; a process that was killed a moment ago may still be ending
_locks: dict[Path, TextIO] = {}  # open lock files, by the run folder that this process has locked
_releases: dict[Path, weakref.finalize] = {}  # what frees a lock that belongs to a RunLock


def lock(run_folder: Path | str) -> None:
    """Keep other processes from training in this folder; make the folder if there is none."""
    folder = real_path(run_folder)
    if folder in _locks:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        refuse_links(folder)
        if os.path.lexists(folder / LOCK_FILE):
            regular_file(folder / LOCK_FILE)
        file = open(folder / LOCK_FILE, "w")
    except OSError as error:
        raise cannot_write(folder, error)
    deadline = time.time() + TIMEOUT
    while fcntl is not None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except OSError:
            if time.time() > deadline:
                file.close()
                raise UserError(
                    f"Another process is training in {folder}. Wait for it, or stop it."
                )
            time.sleep(0.1)
    _locks[folder] = file


def unlock(run_folder: Path | str) -> None:
    """Let other processes train in this folder again; does nothing if it is not locked."""
    folder = real_path(run_folder)
    if release := _releases.pop(folder, None):
        release.detach()
    if file := _locks.pop(folder, None):
        file.close()


class RunLock:
    """The lock of a run folder as a part of the run: whoever owns this object owns the lock.

    It is freed by `release`, or when nothing refers to this object any more, as after an error in a
    training function.
    """

    def __init__(self) -> None:
        self._free: weakref.finalize | None = None

    def take(self, run_folder: Path | str) -> None:
        """Lock a folder; from a RunLock that this process has for it already, it is taken over."""
        lock(run_folder)
        folder = real_path(run_folder)
        if before := _releases.pop(folder, None):
            before.detach()  # then it frees nothing any more
        self._free = _releases[folder] = weakref.finalize(self, unlock, folder)

    def release(self) -> None:
        """Free the lock, if it is this object's."""
        if self._free is not None:
            self._free()


@contextmanager
def locked(run_folder: Path | str) -> Iterator[None]:
    """Hold the lock of a folder within a `with` block."""
    lock(run_folder)
    try:
        yield
    finally:
        unlock(run_folder)


def is_locked(run_folder: Path | str) -> bool:
    """Whether a process is training in this folder now; asking does not take the lock."""
    try:
        with open(regular_file(Path(run_folder) / LOCK_FILE)) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (OSError, UserError, AttributeError):  # there is no lock, or none on this system
        pass
    return False
