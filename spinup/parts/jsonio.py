"""JSON of any object, and files that are never half written."""

import contextlib
import dataclasses
import json
import os
import stat
from pathlib import Path
from typing import Any

import numpy as np

from spinup.parts.errors import UserError


def is_json_serializable(v: object) -> bool:
    """Whether `json.dumps` takes `v` as it is."""
    try:
        json.dumps(v)
    except Exception:  # an object may do anything when it is asked
        return False
    return True


def convert_json(obj: object) -> Any:
    """Turn `obj` into dicts, lists, strings, numbers, booleans and None.

    Functions and classes become their names, other objects a readable string.
    """
    return _converted(obj, ())


def _converted(obj, outside):
    if id(obj) in outside:
        return "..."  # it holds itself
    try:
        return _plain(obj, (*outside, id(obj)))
    except Exception:  # an object may do anything when it is asked
        return _text(obj)


def _plain(obj, inside):
    if obj is None or isinstance(obj, (bool, float)):
        return None if obj is None else bool(obj) if isinstance(obj, bool) else float(obj)
    if isinstance(obj, int):
        return int(obj) if abs(obj) < 2**1024 else _text(obj)  # Python will not print longer ones
    if isinstance(obj, str):
        return str(obj)
    if isinstance(obj, (np.bool_, np.integer, np.floating)):
        kind = bool if isinstance(obj, np.bool_) else int if isinstance(obj, np.integer) else float
        return kind(obj)
    if isinstance(obj, dict):
        return {_text(key): _converted(value, inside) for key, value in obj.items()}
    if isinstance(obj, (list, tuple)):
        return [_converted(item, inside) for item in obj]
    if isinstance(obj, (set, frozenset)):
        return sorted((_converted(item, inside) for item in obj), key=_text)
    if isinstance(obj, np.ndarray):
        return [_converted(item, inside) for item in obj] if obj.ndim else _plain(obj[()], inside)
    if dataclasses.is_dataclass(obj) and not isinstance(obj, type):
        return {f.name: _converted(getattr(obj, f.name), inside) for f in dataclasses.fields(obj)}
    if callable(obj) and isinstance(getattr(obj, "__name__", None), str):
        return obj.__name__
    return _text(obj)


def _text(obj) -> str:
    try:
        return str(obj)
    except Exception:
        return f"<{type(obj).__name__}>"


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that a reader, and a run killed at any instant, finds the old or the new."""
    new = path.with_name(path.name + ".new")
    try:
        new.unlink(missing_ok=True)  # of a run that was killed, or a link that leads elsewhere
        with open(new, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            new.unlink()
        raise OSError(error.errno, error.strerror or str(error), str(path))


def write_json(path: Path | str, obj: object) -> None:
    """Write `obj`, whatever it is, as a JSON text that people can read."""
    write_whole(Path(path), json_bytes(obj))


def json_bytes(obj: object) -> bytes:
    """What `write_json` writes of `obj`."""
    return json.dumps(convert_json(obj), indent=4, sort_keys=True).encode()


def read_json(path: Path | str) -> dict:
    """Read a JSON file that holds a dict, or say what is wrong with it."""
    return read_json_and_bytes(path)[0]


def read_json_and_bytes(path: Path | str) -> tuple[dict, bytes]:
    """The same with its bytes, of one moment: another process may replace the file at any time."""
    try:
        content = regular_file(path).read_bytes()
        found = json.loads(content)
    except UserError:
        raise
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}).")
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} cannot be read as JSON ({error}).")
    if not isinstance(found, dict):
        raise UserError(f"{path} should hold a JSON object, but holds a {type(found).__name__}.")
    return found, content


def regular_file(path: Path | str) -> Path:
    """The path of a file that can be read to its end; a pipe or a folder there is refused."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        raise UserError(f"There is no {path}.")
    except (OSError, ValueError) as error:  # a loop of links, a folder closed to us, a NUL
        raise UserError(f"{path} cannot be read ({getattr(error, 'strerror', None) or error}).")
    if not stat.S_ISREG(mode):
        raise UserError(f"{path} should be a file, but is a {_kind_of_file(mode)}.")
    return Path(path)


def _kind_of_file(mode) -> str:
    return "folder" if stat.S_ISDIR(mode) else "pipe" if stat.S_ISFIFO(mode) else "device"
