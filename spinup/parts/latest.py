"""The note `checkpoint/latest` in a run folder: which checkpoint is the newest whole one."""

import json
import os
import zlib
from pathlib import Path

from spinup.parts.errors import START_OVER, UserError, damaged
from spinup.parts.jsonio import json_bytes, read_json_and_bytes, write_json


def write_latest(run_folder: Path | str, epoch: int, checksums: list[int]) -> None:
    """Note which checkpoint is the newest, and the checksum of the file of each process."""
    content = dict(epoch=epoch, num_procs=len(checksums), checksums=checksums)
    content["checksum"] = zlib.crc32(json.dumps(content).encode())  # of this note itself
    write_json(Path(run_folder) / "checkpoint" / "latest", content)


def read_latest(run_folder: Path | str) -> dict | None:
    """Which epoch the newest whole checkpoint is of, and how many processes wrote it.

    With the checksum of the file of each process; None if an earlier version wrote it. None in
    place of all where there is no checkpoint.
    """
    path = Path(run_folder) / "checkpoint" / "latest"
    if not os.path.lexists(path):
        return None
    latest, found = read_json_and_bytes(path)
    if not all(type(latest.get(key)) is int and latest[key] > 0 for key in ("epoch", "num_procs")):
        raise UserError(f"{path} is damaged. {START_OVER}")
    if latest.keys() == {"epoch", "num_procs"}:
        return latest | dict(checksums=None)
    content = {key: latest.get(key) for key in ("epoch", "num_procs", "checksums")}
    noted = content | dict(checksum=zlib.crc32(json.dumps(content).encode()))
    if found != json_bytes(noted):  # every byte counts, also one that JSON ignores
        raise damaged(path)
    return content
