"""What ends a run or a command with a sentence or two instead of a traceback."""

import difflib
from collections.abc import Iterable
from pathlib import Path

from spinup.parts.plain_text import paragraph

START_OVER = "To start the run over, give the command that trained it again with --overwrite."


class UserError(ValueError):
    """Says what is wrong and what to do; the command line shows the text alone and exits with 2.

    What it quotes from a file cannot steer the terminal that shows it.
    """

    def __init__(self, message: str):
        super().__init__(paragraph(message))


class Diverged(ArithmeticError):
    """A number of a run is NaN or infinite; the command line shows the text and exits with 1."""


class JobsFailed(Exception):
    """Some runs failed or diverged; `failures` has their names and folders. The others finished."""

    def __init__(self, message: str, failures: list[tuple[str, Path]]):
        super().__init__(message)
        self.failures = failures


class Finished(Exception):
    """There is nothing left to train, and that is no mistake."""


def damaged(path: Path) -> UserError:
    return UserError(
        f"{path} is damaged: its checksum is not the one noted when it was written. "
        f"Put a copy of the file back. {START_OVER}"
    )


def did_you_mean(name: str, known: Iterable[str], count: int = 1) -> str:
    """A question naming the known words nearest to `name`, or nothing where none is near."""
    near = difflib.get_close_matches(name[:100], list(known), n=count, cutoff=0.6)
    return f" Did you mean {' or '.join(repr(word) for word in near)}?" if near else ""


def shown(value: object, longest: int = 80) -> str:
    """A value as a sentence can quote it: cut where it is long."""
    try:
        text = repr(value)
    except ValueError:  # Python does not print integers of thousands of digits
        text = f"a {type(value).__name__} too long to print"
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def os_sentence(error: OSError) -> str:
    """What the operating system refused, and of which file."""
    reason = error.strerror or str(error) or type(error).__name__
    where = error.filename if isinstance(error.filename, (str, bytes)) else "a file"
    where = where.decode(errors="replace") if isinstance(where, bytes) else where
    return (
        f"{where} cannot be read or written ({reason}). Nothing that was saved before is lost; "
        "fix the cause and give the same command again."
    )
