"""The status of a run, from the files in its folder alone."""

import os
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from spinup.parts.divergence import Divergence, find_divergence
from spinup.parts.errors import UserError
from spinup.parts.latest import read_latest
from spinup.parts.plain_text import printable, without_colors
from spinup.parts.progress import NO_TABLE, STEPS, Table, performance_column, read_table
from spinup.parts.run_folder import OUTPUT_FILE, leads_out, read_config, read_job
from spinup.parts.run_lock import is_locked
from spinup.parts.settings import environment_name

STATE_STYLES = dict(  # how rich shows a state
    running="cyan", finished="green", stopped="yellow", failed="red", diverged="red"
)
LAST_LINES, LONGEST_LINE = 30, 400  # of a run's output
TRACEBACK = re.compile(r"Traceback \(most recent call last\)")
ERROR = re.compile(r"spinup: |[\w.]*(Error|Exception)\b")
INTERRUPT = re.compile(r"KeyboardInterrupt\b")


@dataclass
class RunStatus:
    """The status of one run; None stands for what its files do not say."""

    state: str  # running, finished, stopped, failed, diverged, or original: by that library
    algorithm: str | None
    environment: str | None
    seed: int | None
    epochs_done: int
    epochs: int | None
    performance: float | None
    steps_per_second: float | None
    folder: str
    problem: str | None  # what cannot be read, in a sentence
    diverged: str | None = None  # what was not finite, and when, in a sentence


class RunFiles:
    """What the files in a run folder hold; a missing one is empty, or None.

    folder: the run folder
    strict: raise a UserError for a file that cannot be read, instead of adding it to `problems`
    """

    def __init__(self, folder: Path | str, strict: bool = False):
        self.folder, self.strict = Path(folder), strict
        self.problems: list[str] = []  # a sentence for each file that cannot be read
        has_config = os.path.lexists(self.folder / "config.json")
        # config.json, which an algorithm writes
        self.config: dict = self._read(read_config, self.folder, {}) if has_config else {}
        # job.json, which a grid writes: settings, and how the run ended
        self.job: dict = self._read(read_job, self.folder, {})
        # which checkpoint is the newest
        self.latest: dict | None = self._read(read_latest, self.folder, None)

    @cached_property
    def table(self) -> Table:
        """progress.txt, which is read when it is first asked for."""
        return self._read(read_table, self.folder / "progress.txt", NO_TABLE)

    def _read(self, reader, path, empty):
        try:
            return reader(path)
        except UserError as error:
            if self.strict:
                raise
            self.problems.append(str(error))
            return empty

    @property
    def ours(self) -> bool:
        """Whether an algorithm of this library, or a copy of one, wrote config.json."""
        return "algorithm" in self.config

    @property
    def epochs(self) -> int | None:
        return self.config.get("epochs", self.job.get("epochs"))

    @property
    def epochs_done(self) -> int:
        # A row whose checkpoint is missing will be computed again.
        saved = self.latest["epoch"] if self.latest else 0
        return saved if self.ours else self.table.num_rows

    @property
    def note(self) -> dict:
        """What the grid wrote about how the run ended."""
        return self.job.get("job") or {}

    @property
    def noted_finished(self) -> bool:
        """Whether a grid noted that the run finished."""
        return self.note.get("state") == "finished"


def run_status(folder: Path) -> RunStatus:
    """The status of the run in a folder; a damaged file is reported in `problem`, not raised."""
    files, running = RunFiles(folder), is_locked(folder)
    diverged = find_divergence(folder, files.config, files.table.names, files.table.rows)
    # A run that is under way has not written everything yet.
    if files.table.problem and not running and not (diverged and not files.table.num_rows):
        files.problems.append(files.table.problem)
    state = "running" if running else _state(files, diverged)
    last = files.table.last
    column, steps, seconds = performance_column(last), last.get(STEPS), last.get("Time")
    return RunStatus(
        state=state,
        algorithm=files.config.get("algorithm") or files.note.get("function"),
        environment=environment_name(files.config) or environment_name(files.job),
        seed=files.config.get("seed", files.job.get("seed")),
        epochs_done=files.epochs_done,
        epochs=files.epochs,
        performance=None if column is None or state == "diverged" else last[column],
        steps_per_second=steps / seconds if steps and seconds else None,
        folder=str(folder),
        problem=" ".join(files.problems) or None,
        diverged=None if diverged is None else diverged.sentence,
    )


def _state(files: RunFiles, diverged: Divergence | None) -> str:
    """The state of a run in whose folder no process is training."""
    if diverged is not None:
        return "diverged"
    if files.config and not files.ours and not files.note:
        return "original"
    if files.ours and files.epochs:
        finished = files.epochs_done >= files.epochs
    else:
        finished = files.noted_finished
    if finished:
        return "finished"
    failed = files.note.get("state") == "failed"
    failed = failed or not files.noted_finished and _ends_in_error(last_lines(files.folder))
    return "failed" if failed else "stopped"


def last_lines(folder: Path) -> list[str]:
    """The last lines of what a run printed, as a terminal would show them."""
    path = folder / OUTPUT_FILE
    if leads_out(path, folder) or not path.is_file():
        return []
    try:
        with open(path, "rb") as file:
            file.seek(max(0, path.stat().st_size - 2**16))
            text = file.read().decode(errors="replace")
    except OSError as error:
        return [f"{path.name} cannot be read ({error.strerror})."]
    text = without_colors(text).rstrip()
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n")]
    return [printable(line)[:LONGEST_LINE] for line in lines[-LAST_LINES:]] if text else []


def _ends_in_error(lines: list[str]) -> bool:
    """Whether the last lines of a run's output are those of an error; Ctrl-C is none."""
    if any(map(INTERRUPT.match, lines[-1:])):
        return False
    return any(map(TRACEBACK.match, lines)) or any(map(ERROR.match, lines[-1:]))
