"""TensorFlow in graph mode, as `tf`; where it is missing, a sentence that says what to install."""

import contextlib
import os
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from spinup.parts.errors import UserError

HOW_TO_INSTALL = "This needs TensorFlow, which is not installed: pip install 'spinup[tf]'"


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Drop what TensorFlow's C++ code writes to stderr while it loads, whatever its log level."""
    sys.stderr.flush()
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _import_tensorflow() -> Any:
    if find_spec("tensorflow") is None:
        raise UserError(HOW_TO_INSTALL)
    if "tensorflow" in sys.modules:  # a script has imported it, and set its log level
        return import_module("tensorflow.compat.v1")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # errors come as exceptions
    with _quiet():
        found = import_module("tensorflow.compat.v1")
    found.get_logger().setLevel("ERROR")  # graph mode is deprecated, and says so at every turn
    return found


tf = _import_tensorflow()
