"""Mistakes that a user can mend, told in a sentence or two."""

import difflib

START_OVER = "To start the run over, give the command that trained it again with --overwrite."


class UserError(ValueError):
    """Says what is wrong and what to do; the command line shows the text alone and exits with 2."""


def did_you_mean(name: str, known, count: int = 1) -> str:
    """A question naming the known words nearest to `name`, or nothing where none is near."""
    near = difflib.get_close_matches(name[:100], list(known), n=count, cutoff=0.6)
    return f" Did you mean {' or '.join(repr(word) for word in near)}?" if near else ""


def shown(value, longest: int = 80) -> str:
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
        "mend the cause and give the same command again."
    )
