"""What a run shows on the terminal: colours, a row as a table, how far the run is and how fast."""

import time
from collections.abc import Iterable
from typing import Any

from tqdm import tqdm

from spinup.parts.plain_text import printable

COLORS = dict(
    gray=30, red=31, green=32, yellow=33, blue=34, magenta=35, cyan=36, white=37, crimson=38
)


def colorize(string: str, color: str, bold: bool = False, highlight: bool = False) -> str:
    """`string` with the codes that make a terminal show it in `color`."""
    code = COLORS[color] + 10 * highlight
    return f"\x1b[{code}{';1' if bold else ''}m{string}\x1b[0m"


def format_table(headers: Iterable[str], values: Iterable[Any]) -> str:
    """Names and values in two columns, as the terminal shows a row of progress.txt."""
    headers = [printable(key) for key in headers]
    shown = [f"{v:.5g}" if hasattr(v, "__float__") else printable(v) for v in values]
    keys = max(15, *map(len, headers))
    rule = "-" * (keys + 22)
    rows = [f"| {key:>{keys}} | {v:>15} |" for key, v in zip(headers, shown)]
    return "\n".join([rule, *rows, rule])


class StepCounter:
    """How many steps of a run are done, as a progress bar on a terminal and as a line elsewhere."""

    def __init__(self) -> None:
        self.bar: tqdm | None = None
        self.done, self.total = 0, 0
        self.start: tuple[float, int] | None = None  # when and at which step this process began

    def begin(self, first_step: int, total: int, show_bar: bool) -> None:
        """Count from `first_step`; the first call starts the clock and, if wanted, the bar."""
        self.total = total
        if show_bar and self.bar is None:
            self.bar = tqdm(total=total, initial=first_step, unit=" steps", dynamic_ncols=True)
            self.bar.set_postfix_str("first epoch")
        if self.start is None:
            self.start = time.time(), first_step

    def epoch_line(self, result: float) -> str | None:
        """Show the return of an epoch on the bar; without a bar, gives a line to print."""
        if self.bar is not None:
            self.bar.set_postfix_str(f"return {result:.5g}")
            if self.done >= self.total:
                self.bar.close()
            return None
        if self.start is None:  # the script counts no steps
            return None
        speed, left = self._speed(*self.start)
        return (
            f"{self.done} of {self.total} steps, return {result:.5g}, "
            f"{speed:.0f} steps/s, {tqdm.format_interval(left)} left"
        )

    def _speed(self, start_time, first_step):
        """Environment steps per second, and the seconds left at that speed."""
        speed = (self.done - first_step) / max(time.time() - start_time, 1e-9)
        return speed, (self.total - self.done) / max(speed, 1e-9)

    def close(self) -> None:
        """Remove the bar."""
        if self.bar is not None:
            self.bar.close()
