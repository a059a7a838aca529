"""The status of a run, by the files in its folder alone."""

import os
from dataclasses import dataclass
from pathlib import Path

from spinup.parts.divergence import find_divergence
from spinup.parts.errors import UserError
from spinup.parts.progress import NO_TABLE, PERFORMANCE, read_table
from spinup.parts.run_folder import is_claimed, read_config, read_job, read_latest


@dataclass
class Standing:
    """How one run stands; None is what its files do not tell."""

    state: str  # running, finished, stopped, failed, diverged, or original: by that library
    algorithm: str | None
    environment: str | None
    seed: int | None
    epochs_done: int
    epochs: int | None
    performance: float | None
    steps_per_second: float | None
    folder: str
    wrong: str | None  # what cannot be read, in a sentence
    diverged: str | None = None  # what was not finite, and when, in a sentence


def standing(folder: Path) -> Standing:
    """How the run in a folder stands, by its files alone; what is broken is told, not raised."""
    wrong = []

    def read(reader, path):
        try:
            return reader(path) or {}
        except UserError as error:
            wrong.append(str(error))
            return {}

    has_config = os.path.lexists(folder / "config.json")
    config, job = read(read_config, folder) if has_config else {}, read(read_job, folder)
    latest, table = read(read_latest, folder), read(read_table, folder / "progress.txt")
    table = table or NO_TABLE
    running, ours = is_claimed(folder), "algorithm" in config
    # A row whose checkpoint is missing will be made again.
    done = latest.get("epoch", 0) if ours else table.rows
    epochs = config.get("epochs", job.get("epochs"))
    note = job.get("job") or {}
    diverged = find_divergence(folder, config, table.names, table.texts)
    # A run that is under way has not written everything yet.
    if table.wrong and not running and not (diverged and not table.rows):
        wrong.append(table.wrong)
    if running:
        state = "running"
    elif diverged is not None:
        state = "diverged"
    elif config and not ours and not note:
        state = "original"
    elif (done >= epochs) if ours and epochs else note.get("state") == "finished":
        state = "finished"
    else:
        state = "failed" if note.get("state") == "failed" else "stopped"
    results = [table.last[name] for name in PERFORMANCE if name in table.last]
    steps, seconds = table.last.get("TotalEnvInteracts"), table.last.get("Time")
    return Standing(
        state=state,
        algorithm=config.get("algorithm") or note.get("function"),
        environment=_environment(config) or _environment(job),
        seed=config.get("seed", job.get("seed")),
        epochs_done=done,
        epochs=epochs,
        performance=None if state == "diverged" else next(iter(results), None),
        steps_per_second=steps / seconds if steps and seconds else None,
        folder=str(folder),
        wrong=" ".join(wrong) or None,
        diverged=None if diverged is None else diverged.sentence,
    )


def _environment(config) -> str | None:
    """What a run is trained on: as Gymnasium calls it, or as it was typed."""
    described, maker = config.get("environment") or {}, config.get("env_fn")
    found = [described.get("id") or described.get("made_by")]
    found += [maker.get("env_name")] if isinstance(maker, dict) else []
    return next(filter(None, [*found, config.get("env_name")]), None)
