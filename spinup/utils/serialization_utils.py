"""Anything at all as something JSON can hold; and files that are never half written."""

import dataclasses
import json
import os
from pathlib import Path

import numpy as np

from spinup.utils.errors import UserError


def convert_json(obj, _inside=()):
    """Turn `obj` into dicts, lists, texts, numbers, booleans and None.

    Functions and classes become their names, other objects a readable text.
    """
    if obj is None or isinstance(obj, (bool, int, float, str)):
        return obj if type(obj) in (bool, int, float, str, type(None)) else _plain(obj)
    if isinstance(obj, np.generic):
        return convert_json(obj.item()) if not isinstance(obj, np.void) else str(obj)
    if id(obj) in _inside:
        return "..."  # it holds itself
    inside = (*_inside, id(obj))
    if isinstance(obj, dict):
        return {_text(key): convert_json(value, inside) for key, value in obj.items()}
    if isinstance(obj, (list, tuple)):
        return [convert_json(item, inside) for item in obj]
    if isinstance(obj, (set, frozenset)):
        return sorted((convert_json(item, inside) for item in obj), key=_text)
    if isinstance(obj, np.ndarray):
        return convert_json(obj.tolist(), inside)
    if dataclasses.is_dataclass(obj) and not isinstance(obj, type):
        fields = {f.name: getattr(obj, f.name) for f in dataclasses.fields(obj)}
        return convert_json(fields, inside)
    name = getattr(obj, "__name__", None)
    return name if callable(obj) and isinstance(name, str) else _text(obj)


def _plain(obj):
    """The bare value of a subclass of bool, int, float or str (an enumeration, say)."""
    kind = next(k for k in (bool, int, float, str) if isinstance(obj, k))
    try:
        return kind(obj)
    except Exception:
        return _text(obj)


def _text(obj) -> str:
    try:
        return str(obj)
    except Exception:  # an object may do anything in its __str__
        return f"<{type(obj).__name__}>"


def write_whole(path: Path, data: bytes):
    """Write a file so that a reader, and a run killed at any instant, finds the old or the new."""
    new = path.with_name(path.name + ".new")
    with open(new, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)


def write_json(path: Path, obj):
    """Write `obj`, whatever it is, as a JSON text that people can read."""
    write_whole(Path(path), json.dumps(convert_json(obj), indent=4, sort_keys=True).encode())


def read_json(path: Path) -> dict:
    """Read a JSON file that holds a dict, or say what is wrong with it."""
    try:
        found = json.loads(Path(path).read_bytes())
    except FileNotFoundError:
        raise UserError(f"There is no {path}.")
    except (ValueError, OSError, RecursionError) as error:
        raise UserError(f"{path} cannot be read as JSON ({error}).")
    if not isinstance(found, dict):
        raise UserError(f"{path} should hold a JSON object, but holds a {type(found).__name__}.")
    return found
