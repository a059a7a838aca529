"""The status board of a grid: what each of its runs is doing."""

import shutil
import sys
import time
from dataclasses import dataclass

from spinup.experiments.job import Run, folder_of
from spinup.parts.plain_text import printable, say
from spinup.parts.progress import PERFORMANCE, read_table
from spinup.parts.terminal import colorize

COLOR = dict(done="green", running="cyan", failed="red", diverged="red", stopped="yellow")


@dataclass
class Board:
    """How all runs stand, for a terminal or as plain lines."""

    runs: list[Run]
    live: bool  # a table that is drawn again and again
    height: int = 0  # of the table that is there now
    drawn: float = 0.0


def _states(runs) -> list[str]:
    order = ("done", "running", "queued", "stopped", "failed", "diverged")
    return [state for state in order if any(run.state == state for run in runs)]


def tell(board: Board, run: Run):
    """Say on a line that a run's state is another; a table shows it by itself."""
    if board.live or run.state == "queued":
        return
    through = sum(run.state in ("done", "failed", "diverged", "stopped") for run in board.runs)
    told = dict(running="started", done="done" if run.began else "finished before")
    state = told.get(run.state, run.state)
    say(f"[{through}/{len(board.runs)}] {_name(run)}: {state}{_how(run)}")


def say_interrupted(board: Board):
    """Answer a Ctrl-C, below the table."""
    print(
        "\nCtrl-C: what is running finishes its epoch and saves; nothing else is started. "
        "Press it again to stop at once and lose the epoch.",
        file=sys.stderr,
        flush=True,
    )
    board.height = 0


def _name(run) -> str:
    """What a run is called: its folder, which has the seed in its name."""
    return printable(folder_of(run.job).name)


def _how(run) -> str:
    """How far a run is, how well it does, and how long it will take or took."""
    from tqdm import tqdm

    if run.state == "queued":
        return ""
    table = read_table(folder_of(run.job) / "progress.txt")
    epochs, seconds = run.job.kwargs.get("epochs"), table.last.get("Time")
    words = [f"epoch {table.rows}" + (f"/{epochs}" if epochs else "")] if table.rows else []
    if run.state != "diverged":
        results = [table.last[name] for name in PERFORMANCE if name in table.last]
        words += [f"return {result:.5g}" for result in results[:1]]
    if run.state == "running" and seconds and epochs:
        left = seconds / table.rows * max(0, epochs - table.rows)
        words.append(f"{tqdm.format_interval(left)} left")
    if run.error and not table.rows:
        words.append(printable(run.error))
    return f"  {', '.join(words)}" if words else ""


def redraw(board: Board, last: bool = False):
    """Draw the table where it was drawn before; at the end, with all that there is to see."""
    if not board.live or not (last or time.time() - board.drawn > 0.5):
        return
    size = shutil.get_terminal_size()
    lines = table(board.runs, size.columns - 1, len(board.runs) + 2 if last else size.lines - 2)
    up = f"\x1b[{board.height}F" if board.height else ""
    sys.stdout.write(up + "\x1b[J" + "".join(f"{line}\n" for line in lines))
    sys.stdout.flush()
    board.height, board.drawn = len(lines), time.time()


def table(runs: list[Run], width: int, height: int) -> list[str]:
    """The lines of the table; where not all runs fit, those that are at work or failed come first.

    width, height: how much room there is
    """
    count = ", ".join(f"{sum(r.state == s for r in runs)} {s}" for s in _states(runs))
    order = ("running", "failed", "diverged", "stopped", "queued", "done")
    first = sorted(runs, key=lambda run: order.index(run.state))
    shown = first if len(runs) < height else first[: max(0, height - 2)]
    longest = max((len(_name(run)) for run in shown), default=0)
    lines = [f"{len(runs)} runs: {count}"[:width]]
    for run in runs:
        if any(run is one for one in shown):
            line = f"  {run.state:8} {_name(run):{longest}} {_how(run)}"[:width].rstrip()
            painted = run.state in COLOR
            lines.append(colorize(line, COLOR[run.state]) if painted else line)
    hidden = len(runs) - len(shown)
    return lines + ([f"  … and {hidden} more"] if hidden else [])
