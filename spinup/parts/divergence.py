"""Divergence: a run stops within the epoch in which a number becomes NaN or infinite.

Observations, rewards and actions are looked at in every step; losses and weights at its end.
"""

import contextlib
import math
import os
import re
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from spinup.parts.errors import Diverged, UserError
from spinup.parts.jsonio import read_json, write_json
from spinup.parts.mpi import abort, num_procs, proc_id
from spinup.parts.run_folder import DIVERGED_FILE, resume_command

MEND_ENVIRONMENT = (
    "Mend the environment, which must give finite numbers (it may end an episode where its "
    "simulation breaks), then resume the run."
)
# In config.json: in progress.txt of such a run, NaN stands only for what was not measured.
STOPS = "stops_when_not_finite"
STEPS = "TotalEnvInteracts"
UNJUDGED = ("Epoch", "Time", STEPS)
# Columns that are NaN where no episode ended, or where an environment does not tell.
OF_EPISODES = re.compile(r"EpRet|EpLen|SuccessRate|^Performance$")
PURPOSES = dict(env=" in training", test_env=" in evaluation")


class Divergence(NamedTuple):
    """What a run folder says about a run that diverged."""

    sentence: str
    step: int | None  # environment steps done by then
    epochs_done: int  # whole epochs before it


def all_finite(values: np.ndarray) -> bool:
    """Whether an array holds neither NaN nor infinity."""
    # The bytes of a few booleans are searched in half the time that `.all()` takes.
    return values.dtype.kind not in "fc" or b"\0" not in np.isfinite(values).tobytes()


def first_not_finite(values: np.ndarray) -> int:
    """The first row that holds NaN or infinity."""
    return int(np.isfinite(values.reshape(len(values), -1)).all(axis=1).argmin())


def kind_of(values: np.ndarray) -> str:
    return "NaN" if np.isnan(values).any() else "infinite"


class DivergenceCheck:
    """Stops a run whose numbers are no longer finite; the parts of a run share one.

    folder: the run folder, which is told; None where there is none
    """

    def __init__(self, folder: Path | str | None = None):
        self.folder = None if folder is None else Path(folder)
        self.parts: dict[str, Any] = {}
        self.learning_rates: dict[str, float] = {}
        # Kept up to date by the logger and, where there is one, by the checkpoint.
        self.step: int | None = None
        self.rows = 0
        self.epochs_done: int | None = None

    def attach(self, parts: dict) -> None:
        """Check these parts of a run, by their names."""
        self.parts = dict(parts)
        for part in self.parts.values():
            if hasattr(part, "divergence_check"):
                part.divergence_check = self

    def set_learning_rates(self, config: dict) -> None:
        """Take note of the settings that a sentence on divergence should name."""
        rates = {key: value for key, value in config.items() if key.split("_")[-1] == "lr"}
        self.learning_rates = {k: v for k, v in rates.items() if isinstance(v, (int, float))}

    def stop_for_environment(self, what: str, env: Any) -> NoReturn:
        """Stop because of what an environment gave."""
        self.stop(what + self._purpose(env), MEND_ENVIRONMENT)

    def stop_for_action(self, what: str, env: Any) -> NoReturn:
        """Stop because of what the policy chose."""
        self.stop(what + self._purpose(env), self._advice())

    def stop_for_columns(self, names: list[str]) -> NoReturn:
        """Stop because of statistics, which are the same in all processes."""
        what = f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} not finite"
        self.stop(what, self._advice(), agreed=True)

    def check_weights(self, parts: dict | None = None) -> None:
        """Stop if a network or an optimizer holds a number that is not finite."""
        for name, part in (self.parts if parts is None else parts).items():
            bad = [key for key, values in _tensors(part) if not _is_finite(values)]
            if bad:
                more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
                self.stop(f"the weights of {name} ({bad[0]}{more}) are not finite", self._advice())

    def _purpose(self, env) -> str:
        name = next((name for name, part in self.parts.items() if part is env), None)
        return "" if name is None else PURPOSES.get(name, f" in {name}")

    def _advice(self) -> str:
        rates = ", ".join(f"{key} is {value:g}" for key, value in self.learning_rates.items())
        rates = f" ({rates})" if rates else ""
        return (
            f"Try a smaller learning rate{rates} or rewards of a smaller scale, with a new "
            "--exp_name; resumed as it is, the run would diverge again at the same step."
        )

    def stop(self, what: str, advice: str, agreed: bool = False) -> NoReturn:
        """Write down that the run has diverged, and raise `Diverged`.

        Where other processes do not know of it, they are ended with this one: they would wait for
        it forever.

        agreed: all processes are here, and stop together
        """
        when = "" if self.step is None else f" at step {self.step}"
        when += "" if self.epochs_done is None else f" (epoch {self.epochs_done + 1})"
        kept = ""
        if self.epochs_done is not None:
            kept = f" The checkpoint of epoch {self.epochs_done} and the last model are kept."
            kept = kept if self.epochs_done else " No epoch was completed before."
        elif self.folder is not None:
            kept = " The model saved last is kept."
        sentence = f"The run diverged: {what}{when}. {advice}{kept}"
        if self.folder is not None and (proc_id() == 0 or not agreed):
            done = self.rows if self.epochs_done is None else self.epochs_done
            write_divergence(self.folder, Divergence(sentence, self.step, done))
        if num_procs() > 1 and not agreed:
            abort(1, f"spinup: {sentence}")
        raise Diverged(sentence)


def _tensors(part):
    """The weights of a network or the state of an optimizer, by name; of any other part, none."""
    if hasattr(part, "named_arrays"):  # all that TensorFlow keeps in a session
        return part.named_arrays()
    if hasattr(part, "named_parameters"):
        learned = [(name, p) for name, p in part.named_parameters() if p.requires_grad]
        return [*learned, *((n, b) for n, b in part.named_buffers() if b.is_floating_point())]
    return _inside(part.state_dict(), "state") if hasattr(part, "param_groups") else []


def _is_finite(values):
    if isinstance(values, (np.ndarray, np.generic)):
        return all_finite(np.asarray(values))
    return bool(values.isfinite().all())


def _inside(tree, name):
    if isinstance(tree, dict):
        tree = tree.items()
    elif isinstance(tree, (list, tuple)):
        tree = enumerate(tree)
    else:
        return [(name, tree)] if hasattr(tree, "isfinite") else []
    return [found for key, value in tree for found in _inside(value, f"{name}.{key}")]


# --- What a run folder says ---


def write_divergence(folder: Path | str, divergence: Divergence) -> None:
    """Let a run folder say that its run diverged; a full disk does not hide the sentence itself."""
    with contextlib.suppress(OSError):
        new = Path(folder) / f"{DIVERGED_FILE}.{proc_id()}"  # several processes may write
        write_json(new, divergence._asdict())
        os.replace(new, Path(folder) / DIVERGED_FILE)


def read_divergence(folder: Path | str) -> Divergence | None:
    """What a run folder says about a run that diverged; None of one that did not."""
    path = Path(folder) / DIVERGED_FILE
    if not path.exists():
        return None
    with contextlib.suppress(UserError):
        saved = read_json(path)
        step, epochs = saved.get("step"), saved.get("epochs_done")
        if isinstance(saved.get("sentence"), str) and isinstance(epochs, int):
            return Divergence(saved["sentence"], step if isinstance(step, int) else None, epochs)
    return Divergence(f"The run diverged; {path} is damaged and does not say how.", None, 0)


def explain_diverged(folder: Path | str) -> str:
    """What to say where a run that has diverged is asked for once more."""
    command, found = resume_command(folder), read_divergence(folder)
    said = "" if found is None else f" It said: {found.sentence}"
    resumed = f"{command}, or " if command.startswith("spinup ") else ""
    return (
        f"{folder} diverged, and is not trained again: equal settings diverge at the same step. "
        f"Change a setting, such as the learning rate, and give it a new --exp_name. Once its "
        f"environment is mended: {resumed}start over with --overwrite."
        f"{said}"
    )


def find_divergence(
    folder: Path | str, config: dict, names: list[str], rows: list
) -> Divergence | None:
    """Whether a run diverged: by what its folder says; of a run that did not stop, by its table.

    Runs of the original library, and ours before they stopped, continued and wrote NaN. Such a run
    diverged if a column is NaN from some epoch to the last one, and was a number before; or if it
    is infinite there. What never was a number was never measured.

    config: what config.json holds
    names, rows: the header of progress.txt and its whole rows, as texts
    """
    found = read_divergence(folder)
    if found is not None or config.get(STOPS) is True or not rows:
        return found
    every, epoch = (config.get(key) for key in ("update_every", "steps_per_epoch"))
    # Where an epoch may have no update, it may have no loss.
    rarely = isinstance(every, int) and isinstance(epoch, int) and every > epoch
    starts = {}
    for i, name in enumerate(names):
        if name in UNJUDGED or math.isfinite(_number(rows[-1][i])):
            continue
        values = np.array([_number(row[i]) for row in rows])
        finite = np.isfinite(values).nonzero()[0]
        start = int(finite[-1]) + 1 if len(finite) else 0
        unmeasured = not start or rarely or OF_EPISODES.search(name)
        if not unmeasured or np.isinf(values[start:]).any():
            starts[name] = start
    if not starts:
        return None
    start = min(starts.values())
    first = [name for name, epoch in starts.items() if epoch == start]
    step = _number(rows[start][names.index(STEPS)]) if STEPS in names else math.nan
    return Divergence(
        f"The run diverged: {', '.join(first)} {'is' if len(first) == 1 else 'are'} not finite "
        f"from epoch {start + 1} of progress.txt to the last.",
        int(step) if math.isfinite(step) else None,
        start,
    )


def _number(text) -> float:
    try:
        return float(text)
    except ValueError:  # an empty cell or a word; only NaN and infinity are looked for
        return 0.0


def clear_divergence(folder: Path | str, epochs_done: int) -> None:
    """Let a resumed run that has got beyond the epoch in which it diverged be a run like others."""
    found = read_divergence(folder)
    if found is not None and epochs_done > found.epochs_done:
        (Path(folder) / DIVERGED_FILE).unlink(missing_ok=True)
