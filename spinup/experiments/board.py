"""The status board of a grid: what each of its runs is doing."""

import contextlib
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spinup.experiments.job import Run, folder_of
from spinup.parts.plain_text import printable, say
from spinup.parts.progress import performance_column, read_table
from spinup.parts.run_status import STATE_STYLES

if TYPE_CHECKING:  # rich is imported only where a table is drawn
    from rich.console import Group
    from rich.live import Live

ENDED = ("finished", "failed", "diverged", "stopped")
SECONDS_PER_DRAWING = 0.5


@dataclass
class Board:
    """The states of all runs, as a table on a terminal or as one line per change."""

    runs: list[Run]
    live: bool  # a table that is drawn again and again
    display: "Live | None" = None  # draws it
    drawn: float = 0.0  # when


def count_states(runs: list[Run]) -> dict[str, int]:
    """How many runs are in each state, without the states that no run is in."""
    order = ("finished", "running", "queued", "stopped", "failed", "diverged")
    counts = {state: sum(run.state == state for run in runs) for state in order}
    return {state: count for state, count in counts.items() if count}


@contextlib.contextmanager
def displayed(board: Board) -> Iterator[None]:
    """Draw the board's table while runs train; at the end, with all that there is to see."""
    if not board.live:
        yield
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(force_terminal=True, force_jupyter=False)
    board.display = Live(console=console, auto_refresh=False, transient=True)
    try:
        with board.display:
            console.show_cursor(True)  # a process that is killed would leave it hidden
            yield
    finally:  # in full, also where it is taller than the terminal
        console.print(table(board.runs, len(board.runs) + 2))


def redraw(board: Board) -> None:
    """Draw the table where it was drawn before, unless that was a moment ago."""
    if board.display is None or time.time() - board.drawn < SECONDS_PER_DRAWING:
        return
    height = shutil.get_terminal_size().lines - 2
    board.display.update(table(board.runs, height), refresh=True)
    board.drawn = time.time()


def announce(board: Board, text: str) -> None:
    """Print a line; above the table, where there is one."""
    if board.display is None:
        say(text)
        return
    from rich.text import Text

    board.display.console.print(Text(printable(text)))


def report_state(board: Board, run: Run) -> None:
    """Print a line about a run whose state has changed; a table shows it by itself."""
    if board.live or run.state == "queued":
        return
    ended = sum(run.state in ENDED for run in board.runs)
    words = dict(running="started", finished="finished" if run.began else "finished before")
    state = words.get(run.state, run.state)
    say(f"[{ended}/{len(board.runs)}] {_name(run)}: {state}{_progress(run)}")


def say_interrupted(board: Board) -> None:
    """Answer a Ctrl-C."""
    text = (
        "Ctrl-C: what is running finishes its epoch and saves; nothing else is started. "
        "Press it again to stop at once and lose the epoch."
    )
    if board.live:
        announce(board, text)
    else:
        print(f"\n{text}", file=sys.stderr, flush=True)


def _name(run: Run) -> str:
    """What a run is called: its folder, which has the seed in its name."""
    return printable(folder_of(run.job).name)


def _progress(run: Run) -> str:
    """How far a run is, how well it does, and how long it will take."""
    from tqdm import tqdm

    if run.state == "queued":
        return ""
    table = read_table(folder_of(run.job) / "progress.txt")
    epochs, seconds = run.job.kwargs.get("epochs"), table.last.get("Time")
    words = [f"epoch {table.num_rows}" + (f"/{epochs}" if epochs else "")] if table.num_rows else []
    performance = performance_column(table.last)
    if performance and run.state != "diverged":
        words.append(f"return {table.last[performance]:.5g}")
    if run.state == "running" and seconds and epochs:
        left = seconds / table.num_rows * max(0, epochs - table.num_rows)
        words.append(f"{tqdm.format_interval(left)} left")
    if run.error and not table.num_rows:
        words.append(printable(run.error))
    return f"  {', '.join(words)}" if words else ""


def table(runs: list[Run], height: int) -> "Group":
    """The table; where not all runs fit, those that are at work or failed come first.

    height: how many lines there is room for
    """
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    order = ("running", "failed", "diverged", "stopped", "queued", "finished")
    first = sorted(runs, key=lambda run: order.index(run.state))
    shown = first if len(runs) < height else first[: max(0, height - 2)]
    rows = Table.grid(padding=(0, 1))
    rows.add_column(min_width=10, no_wrap=True)
    rows.add_column(no_wrap=True)
    rows.add_column()
    for run in runs:
        if any(run is one for one in shown):
            cells = (f"  {run.state}", _name(run), _progress(run))  # data, and no markup
            rows.add_row(
                *(Text(cell, no_wrap=True, overflow="ellipsis") for cell in cells),
                style=STATE_STYLES.get(run.state, ""),
            )
    counts = ", ".join(f"{count} {state}" for state, count in count_states(runs).items())
    head = Text(f"{len(runs)} runs: {counts}", no_wrap=True, overflow="ellipsis")
    hidden = len(runs) - len(shown)
    return Group(head, rows, *([Text(f"  … and {hidden} more")] if hidden else []))
