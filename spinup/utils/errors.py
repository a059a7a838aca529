"""What ends a run or a command with a sentence or two instead of a traceback."""

import difflib

from spinup.parts.plain_text import paragraph


class UserError(ValueError):
    """Says what is wrong and what to do; the command line shows the text alone and exits with 2.

    What it quotes from a file cannot steer the terminal that shows it.
    """

    def __init__(self, message: str):
        super().__init__(paragraph(message))


class Diverged(ArithmeticError):
    """A number of a run is NaN or infinite; the command line shows the text and exits with 1."""


def damaged(path) -> UserError:
    return UserError(
        f"{path} is damaged: its checksum is not the one noted when it was written. "
        "Put a copy of the file back, or start over with --overwrite."
    )


def did_you_mean(name: str, known, count: int = 1) -> str:
    """A question naming the known words nearest to `name`, or nothing where none is near."""
    near = difflib.get_close_matches(name, list(known), n=count, cutoff=0.5)
    return f" Did you mean {' or '.join(repr(word) for word in near)}?" if near else ""
