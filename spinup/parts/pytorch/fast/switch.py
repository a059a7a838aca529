"""The one switch for everything that exists only for speed."""

import sys
from contextlib import contextmanager
from contextvars import ContextVar

from spinup import user_config
from spinup.parts.pytorch.fast import private

_plain = ContextVar("whether plain code is asked for here", default=False)
_told = set()


def enabled() -> bool:
    """Whether fast versions may stand in for plain code now."""
    if not user_config.FAST or _plain.get():
        return False
    if private.MISSING:
        tell_once(
            f"This PyTorch has no {', '.join(private.MISSING)}; spinup runs its plain code, which "
            "gives the same numbers more slowly."
        )
        return False
    return True


@contextmanager
def plain():
    """Within this, plain code runs, whatever the switch says."""
    before = _plain.set(True)
    try:
        yield
    finally:
        _plain.reset(before)


def tell_once(sentence: str):
    """Print a sentence to stderr, the first time that it is true in this process."""
    if sentence not in _told:
        _told.add(sentence)
        print(sentence, file=sys.stderr)
