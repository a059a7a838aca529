"""The status of a run, from the files in its folder alone."""

import os
from dataclasses import dataclass
from pathlib import Path

from spinup.parts.divergence import Divergence, find_divergence
from spinup.parts.errors import UserError
from spinup.parts.latest import read_latest
from spinup.parts.progress import NO_TABLE, PERFORMANCE, Table, read_table
from spinup.parts.run_folder import read_config, read_job
from spinup.parts.run_lock import is_locked


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


@dataclass
class _Files:
    """The contents of the files in a run folder; empty if a file is missing or unreadable."""

    config: dict
    job: dict  # job.json, what a grid wrote about the run
    latest: dict  # which checkpoint is the newest
    table: Table
    problems: list[str]  # a sentence for each file that cannot be read

    @property
    def ours(self) -> bool:
        """Whether an algorithm of this library wrote config.json."""
        return "algorithm" in self.config

    @property
    def epochs(self) -> int | None:
        return self.config.get("epochs", self.job.get("epochs"))

    @property
    def epochs_done(self) -> int:
        # A row whose checkpoint is missing will be computed again.
        return self.latest.get("epoch", 0) if self.ours else self.table.rows

    @property
    def note(self) -> dict:
        """What the grid wrote about how the run ended."""
        return self.job.get("job") or {}


def run_status(folder: Path) -> RunStatus:
    """The status of the run in a folder; a damaged file is reported in `problem`, not raised."""
    files, running = _read_files(Path(folder)), is_locked(folder)
    diverged = find_divergence(folder, files.config, files.table.names, files.table.texts)
    # A run that is under way has not written everything yet.
    if files.table.problem and not running and not (diverged and not files.table.rows):
        files.problems.append(files.table.problem)
    state = "running" if running else _state(files, diverged)
    last = files.table.last
    results = [last[name] for name in PERFORMANCE if name in last]
    steps, seconds = last.get("TotalEnvInteracts"), last.get("Time")
    return RunStatus(
        state=state,
        algorithm=files.config.get("algorithm") or files.note.get("function"),
        environment=_environment(files.config) or _environment(files.job),
        seed=files.config.get("seed", files.job.get("seed")),
        epochs_done=files.epochs_done,
        epochs=files.epochs,
        performance=None if state == "diverged" else next(iter(results), None),
        steps_per_second=steps / seconds if steps and seconds else None,
        folder=str(folder),
        problem=" ".join(files.problems) or None,
        diverged=None if diverged is None else diverged.sentence,
    )


def _read_files(folder: Path) -> _Files:
    problems = []

    def read(reader, path, empty):
        try:
            return reader(path) or empty
        except UserError as error:
            problems.append(str(error))
            return empty

    has_config = os.path.lexists(folder / "config.json")
    return _Files(
        config=read(read_config, folder, {}) if has_config else {},
        job=read(read_job, folder, {}),
        latest=read(read_latest, folder, {}),
        table=read(read_table, folder / "progress.txt", NO_TABLE),
        problems=problems,
    )


def _state(files: _Files, diverged: Divergence | None) -> str:
    """The state of a run in whose folder no process is training."""
    if diverged is not None:
        return "diverged"
    if files.config and not files.ours and not files.note:
        return "original"
    if files.ours and files.epochs:
        finished = files.epochs_done >= files.epochs
    else:
        finished = files.note.get("state") == "finished"
    if finished:
        return "finished"
    return "failed" if files.note.get("state") == "failed" else "stopped"


def _environment(config: dict) -> str | None:
    """What a run is trained on: as Gymnasium calls it, or as it was typed."""
    described, maker = config.get("environment") or {}, config.get("env_fn")
    found = [described.get("id") or described.get("made_by")]
    found += [maker.get("env_name")] if isinstance(maker, dict) else []
    return next(filter(None, [*found, config.get("env_name")]), None)
