"""What the code of fast versions asks about the thread it runs in: is an update being captured?"""

import threading
from contextlib import contextmanager


class _Current(threading.local):
    busy, trace = False, None


_current = _Current()


def is_capturing() -> bool:
    """Whether an update is being traced or verified in this thread."""
    return _current.busy


@contextmanager
def capturing(trace=None):
    """Within this, updates inside an update run eagerly, and nothing is sent over MPI.

    trace: writes down what is done
    """
    before = _current.busy, _current.trace
    _current.busy, _current.trace = True, trace
    try:
        yield
    finally:
        _current.busy, _current.trace = before


def note_gradients(params):
    """Note that the gradients of these parameters are about to be replaced."""
    trace = _current.trace
    if trace is not None:
        trace.graded |= set(map(id, params))


def opaque(function, *args, writes):
    """Carry out `function(*args)`, which a capture keeps as one operation.

    function: does its work again at every replay, so it may look at Python values; if it has a
        method `prepared`, that gives a function without arguments which does the same
    args: tensors, lists of tensors, and anything else
    writes: the places of those among them that it changes
    """
    trace = _current.trace
    if trace is None:
        function(*args)
    else:
        trace.opaque(function, args, writes)
