"""What a capture relies on without looking into it, and what it refuses by name."""

import sys
import sysconfig
import types
from collections import OrderedDict, defaultdict, deque
from enum import Enum
from pathlib import Path

import numpy as np
import torch
from torch import nn

PLAIN = (
    int,
    float,
    complex,
    bool,
    str,
    bytes,
    type(None),
    type(...),
    range,
    slice,
    np.generic,
    torch.dtype,
    torch.device,
    torch.Size,
    torch.memory_format,
    torch.layout,
    Enum,
    torch.no_grad,
    torch.enable_grad,
)
# Their functions change nothing that a replay would not change, and depend on their arguments only.
TRUSTED = {
    "torch",
    "math",
    "operator",
    "_operator",
    "functools",
    "itertools",
    "typing",
    "contextlib",
    "collections",
    "dataclasses",
    "copy",
    "numbers",
    "numpy",
    "abc",
    "enum",
    "types",
}
TRUSTED_OF_OURS = ("spinup.parts",)
# Built-in functions that do something else than compute.
EFFECTS = {
    "print",
    "open",
    "input",
    "exec",
    "eval",
    "compile",
    "__import__",
    "setattr",
    "delattr",
    "globals",
    "locals",
    "breakpoint",
    "exit",
    "quit",
}
# Methods of a class that an update does not call; those of making one, if it is already made.
NOT_CALLED = {
    "__repr__",
    "__replace__",
    "__init_subclass__",
    "__class_getitem__",
    "__reduce__",
    "__getstate__",
    "__setstate__",
}
CONSTRUCTORS = {"__init__", "__new__", "__post_init__"}
GENERATED = {
    "__init__",
    "__new__",
    "__eq__",
    "__hash__",
    "__lt__",
    "__le__",
    "__gt__",
    "__ge__",
    "__repr__",
    "__setattr__",
    "__delattr__",
    "__replace__",
    "__getnewargs__",
    "_make",
    "_replace",
    "_asdict",
}
# What NumPy does with files.
FILES = {
    "save",
    "savez",
    "savez_compressed",
    "savetxt",
    "load",
    "loadtxt",
    "genfromtxt",
    "tofile",
    "fromfile",
    "memmap",
    "dump",
}
OF_ATTRIBUTES = "LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "STORE_ATTR"
GROWING = nn.Sequential, nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict
CONTAINERS = (dict, list, set, deque, OrderedDict, defaultdict)
# Layers of which only the weights, the hooks and the class matter.
SIMPLE = {nn.Linear, nn.ReLU, nn.Tanh, nn.Identity}
OF_SIMPLE = {kind: vars(kind(1, 1) if kind is nn.Linear else kind()).keys() for kind in SIMPLE}
_INSTALLED = [Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")]


class NotCapturable(Exception):
    """Why an update must run eagerly; the text follows 'because'."""


def is_generated(value) -> bool:
    """Whether a method was written by Python itself, as those of dataclasses are."""
    made = isinstance(value, types.FunctionType) and value.__code__.co_filename == "<string>"
    return made and value.__name__ in GENERATED  # others: of `python -c`


def is_trusted(module: str) -> bool:
    return module.partition(".")[0] in TRUSTED or module.startswith(TRUSTED_OF_OURS)


def is_installed(thing) -> bool:
    """Whether a function, class or module is of Python's library or of an installed package."""
    name = thing.__name__ if isinstance(thing, types.ModuleType) else thing.__module__
    if (name or "").partition(".")[0] == "spinup":
        return False
    top = sys.modules.get((name or "").partition(".")[0])
    file = getattr(top, "__file__", None) or next(iter(getattr(top, "__path__", ())), None)
    if file is None:  # made in a notebook or typed, or built into Python
        return top is not None and name != "__main__"
    return any(folder in Path(file).parents for folder in _INSTALLED)
