"""Makes strings of others harmless: for terminals, spreadsheets, Markdown and plots.

The names, settings and tables of a run folder may come from anywhere. A terminal obeys escape
sequences, a spreadsheet formulas, Markdown tags, and Matplotlib typesets what is between dollars.
"""

import re
from typing import Any

UNPRINTABLE = "\N{REPLACEMENT CHARACTER}"
FORMULA = "=+-@\uff1d\uff0b\uff0d\uff20"  # what a formula begins with, in East Asian widths too
_COLORS = re.compile(r"\x1b\[[\d;?]*[A-Za-z]")


def printable(text: object, keep: str = "") -> str:
    """A string whose every character is shown and none obeyed: no escape, no change of direction.

    keep: characters to leave as they are, such as the ends of lines
    """
    return "".join(c if c.isprintable() or c in keep else UNPRINTABLE for c in str(text))


def paragraph(text: object) -> str:
    """The same for a string of several lines."""
    return printable(text, keep="\n")


def without_colors(text: str) -> str:
    """What a program has written to a terminal, without the codes for colours and the cursor."""
    return _COLORS.sub("", text)


def say(text: object = "", **to: Any) -> None:
    """Print a string that may hold parts of a run folder, such as its name."""
    print(paragraph(text), **to, flush=True)


def csv_cell(value: Any) -> Any:
    """A value for a CSV file; a quote before a string keeps a spreadsheet from computing it."""
    if not isinstance(value, str):
        return value
    text = printable(value)
    return f"'{text}" if value.lstrip()[:1] in [*FORMULA] or value[:1] in [*"\t\r\n"] else text


def markdown_cell(text: object) -> str:
    """A string for Markdown, escaped: no link, no tag, no end of a cell."""
    text = re.sub(r"([\\|`\[\]])", r"\\\1", printable(text))
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def plot_label(text: object) -> str:
    """A string for Matplotlib, which would typeset what is between dollars and hide a leading _."""
    text = printable(text).replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text
