"""The logger of a run: the rows of progress.txt, config.json, and saved models.

Only the first of several processes writes; statistics are those of all of them.
"""

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from tqdm import tqdm

from spinup.parts.backend import Backend, backend_named
from spinup.parts.divergence import DivergenceCheck
from spinup.parts.errors import UserError
from spinup.parts.jsonio import convert_json, regular_file, write_json
from spinup.parts.mpi import broadcast_object, mpi_statistics_scalar, mpi_sum, proc_id
from spinup.parts.plain_text import printable
from spinup.parts.progress import append_rows, cut_table, open_table, sync_table
from spinup.parts.run_folder import (
    cannot_write,
    move_older_run,
    older_run,
    refuse_links,
    remove_all,
    run_files,
)
from spinup.parts.terminal import StepCounter, colorize, format_table
from spinup.parts.trackers import call_all, log_row, open_trackers, require


def _temporary_folder() -> str:
    """A new folder, the same in all processes."""

    def make():
        parent = Path(tempfile.gettempdir()) / "experiments"
        parent.mkdir(exist_ok=True)
        return tempfile.mkdtemp(prefix=f"{int(time.time())}-", dir=parent)

    return broadcast_object(make() if proc_id() == 0 else None)


class Logger:
    """Writes one row of progress.txt per epoch, and saves settings and models beside it.

    A folder that holds an older run stays as it is until this one writes its first row or model:
    until then a script can load the older run's model. Then the older run moves to `older_runs`.
    """

    def __init__(
        self,
        output_dir: Path | str | None = None,
        output_fname: str = "progress.txt",
        exp_name: str | None = None,
        resume: bool = False,
        overwrite: bool = False,
        tensorboard: bool = False,
        wandb: bool = False,
        keep_models: bool = False,
        backend: Backend | None = None,
    ):
        """Open a run folder.

        output_dir: the run folder; without one, a new temporary folder
        output_fname: the table's name inside it
        exp_name: what the experiment is called, for plots
        resume: keep what the folder holds, to continue from it, instead of moving it aside
        overwrite: delete what an older run left, instead of moving it aside
        tensorboard: write the rows for TensorBoard too
        wandb: write the rows for Weights & Biases too, offline where there is no account
        keep_models: keep every saved model, under the number of its epoch, not the newest alone
        backend: the framework of the network that is to be saved, where it is known already
        """
        self.output_dir, self.output_fname = str(output_dir or _temporary_folder()), output_fname
        self.exp_name, self.resume, self.keep_models = exp_name, resume, keep_models
        self.backend = backend
        self.config: dict | None = None  # to be written once the run has started or resumed
        self.log_headers: list[str] = []
        self.log_current_row: dict[str, Any] = {}
        self.first_row, self.epoch, self.rows = True, None, 0
        self.start_time, self.counter = time.time(), StepCounter()
        self.divergence_check = DivergenceCheck(self.output_dir)
        self.not_finite: list[str] = []  # columns of the present row
        self.left_out: set[str] = set()  # what save_state has said that it does not save
        self.output_file: BinaryIO | None = None
        self.trackers: list = []
        self.asked_trackers = dict(tensorboard=tensorboard, wandb=wandb)
        if proc_id() == 0:
            self._open_folder(Path(self.output_dir), overwrite and not resume)

    def _open_folder(self, folder, overwrite):
        require(**self.asked_trackers)  # before a file is touched
        try:
            folder.mkdir(parents=True, exist_ok=True)
            refuse_links(folder, self.output_fname)
            if overwrite:
                remove_all(run_files(folder))
            if os.path.lexists(folder / self.output_fname):
                regular_file(folder / self.output_fname)
            if self.resume or not older_run(folder, self.output_fname):
                self.start()
        except OSError as error:
            raise cannot_write(folder, error)

    def start(self) -> None:
        """Make the folder that of this run: move an older run aside, open the table and trackers.

        Whatever writes to the folder calls this first; after the first call it does nothing.
        """
        if self.output_file is not None or proc_id() != 0:
            return
        folder = Path(self.output_dir)
        try:
            aside = None if self.resume else move_older_run(folder, self.output_fname)
            self.output_file = open_table(folder / self.output_fname, keep=self.resume)
            self.trackers = open_trackers(
                folder, self.exp_name, **self.asked_trackers, backend=self.backend
            )
        except OSError as error:
            raise cannot_write(folder, error)
        if aside is not None:
            moved = f"{folder} held an older run; its files are now in {aside}"
            self.log(printable(moved), color="yellow")
        if self.config is not None and not self.resume:
            self._write_config(self.config)

    def log(self, msg: object, color: str = "green") -> None:
        """Print a message on the terminal."""
        if proc_id() == 0:
            self._print(colorize(str(msg), color, bold=True) if sys.stdout.isatty() else str(msg))

    def _print(self, text):
        tqdm.write(text, file=sys.stdout)
        sys.stdout.flush()

    def progress(self, steps: range, total: int) -> Iterator[int]:
        """Go through `steps`, showing on a terminal how far the run is of `total`, and how fast."""
        self.counter.begin(steps.start, total, show_bar=proc_id() == 0 and sys.stderr.isatty())
        for step in steps:
            self.divergence_check.step = step + steps.step
            yield step
            if self.counter.bar is not None:
                self.counter.bar.update(steps.step)
        self.counter.done = steps.stop

    def log_tabular(self, key: str, val: Any) -> None:
        """Set a value of the row that `dump_tabular` will write."""
        if key in self.log_current_row:
            raise UserError(f"The column {key!r} was logged twice in one row; dump_tabular first.")
        if self.first_row:
            self.log_headers.append(key)
        elif key not in self.log_headers:
            raise UserError(
                f"The column {key!r} was not in the first row of {self.output_fname}; "
                "log the same columns in every epoch."
            )
        self.log_current_row[key] = val

    def save_config(self, config: dict) -> None:
        """Write the settings of the run to config.json."""
        config = convert_json(config)
        self.divergence_check.set_learning_rates(config)
        if self.exp_name is not None:
            config["exp_name"] = self.exp_name
        if self.resume or self.output_file is None:
            self.config = config  # written by `resumed`, or by `start`
        else:
            self._write_config(config)

    def resumed(self) -> None:
        """Write the settings of a run that continues, after its checkpoint has been read whole."""
        if self.config is not None and proc_id() == 0:
            self._write_config(self.config)

    def _write_config(self, config):
        write_json(Path(self.output_dir) / "config.json", config)
        call_all(self.trackers, "settings", config, backend=self.backend)

    def save_state(self, state_dict: dict | None, itr: int | None = None) -> None:
        """Save the model, and beside it whatever of `state_dict` is tensors and plain values.

        itr: a number for the model's file name, to keep it when the next one is saved
        """
        if proc_id() != 0:
            return
        self.start()
        if hasattr(self, "pytorch_saver_elements"):  # before a good model is written over
            self.divergence_check.check_weights(dict(model=self.pytorch_saver_elements))
        if self.keep_models and itr is None and self.epoch is not None:
            self._save_state(state_dict, int(self.epoch))
        self._save_state(state_dict, itr)

    def _save_state(self, state_dict, itr):
        if hasattr(self, "tf_saver_elements"):
            self._tf_simple_save(itr)
        if state_dict or hasattr(self, "pytorch_saver_elements"):
            backend = self.backend or backend_named("pytorch")
            left_out = backend.save_variables(Path(self.output_dir), state_dict, itr)
            for what in left_out:
                if what not in self.left_out:
                    self.log(
                        f"save_state leaves out {what}: it saves tensors, arrays, numbers, strings "
                        "and the state of networks and optimizers.",
                        color="yellow",
                    )
            self.left_out.update(left_out)
        if hasattr(self, "pytorch_saver_elements"):
            self._pytorch_simple_save(itr)

    def setup_tf_saver(self, sess: Any, inputs: dict, outputs: dict) -> None:
        """Let `save_state` save a TensorFlow graph: its session, its inputs and outputs by name."""
        self.backend = self.backend or backend_named("tf1")
        self.tf_saver_elements = dict(session=sess, inputs=inputs, outputs=outputs)
        self.tf_saver_info = {
            "inputs": {key: tensor.name for key, tensor in inputs.items()},
            "outputs": {key: tensor.name for key, tensor in outputs.items()},
        }

    def _tf_simple_save(self, itr=None):
        """Save the graph of `setup_tf_saver` alone, to tf1_save."""
        if not hasattr(self, "tf_saver_elements"):
            raise UserError("There is no graph to save; call setup_tf_saver first.")
        if proc_id() == 0:
            self.start()
            folder = Path(self.output_dir) / f"tf1_save{'' if itr is None else itr}"
            backend_named("tf1").save_graph(folder, **self.tf_saver_elements)

    def setup_pytorch_saver(self, what_to_save: Any) -> None:
        """Let `save_state` save this network."""
        if not hasattr(what_to_save, "state_dict"):
            raise UserError(
                f"setup_pytorch_saver needs a torch.nn.Module, not a {type(what_to_save).__name__}."
            )
        self.pytorch_saver_elements = what_to_save
        self.backend = self.backend or backend_named("pytorch")

    def _pytorch_simple_save(self, itr=None):
        """Save the network of `setup_pytorch_saver` alone, to pyt_save."""
        if not hasattr(self, "pytorch_saver_elements"):
            raise UserError("There is no network to save; call setup_pytorch_saver first.")
        if proc_id() == 0:
            self.start()
            folder = Path(self.output_dir) / "pyt_save"
            folder.mkdir(exist_ok=True)
            name = "model.pt" if itr is None else f"model{itr}.pt"
            self.backend.save_model(folder / name, self.pytorch_saver_elements)

    def dump_tabular(self) -> None:
        """Write the row, show it, and begin the next; a run that has diverged stops instead."""
        self.start()
        row, values = (
            self.log_current_row,
            [self.log_current_row.get(k, "") for k in self.log_headers],
        )
        if proc_id() == 0:
            self._print(format_table(self.log_headers, values))
        if self.not_finite:
            self.divergence_check.stop_for_columns(self.not_finite)
        self.divergence_check.check_weights()
        if self.output_file is not None:
            append_rows(self.output_file, [self.log_headers] * self.first_row + [values])
            result = row.get("AverageTestEpRet", row.get("AverageEpRet", float("nan")))
            if line := self.counter.epoch_line(result):
                self._print(line)
            self.rows += 1
            if self.trackers:
                log_row(self.trackers, row, self.rows, self.start_time, self.backend)
        self.divergence_check.rows += 1
        self.epoch = row.get("Epoch")
        row.clear()
        self.first_row = False

    def close(self) -> None:
        """Close the table, the progress bar and the trackers."""
        self.counter.close()
        if self.output_file is not None:
            self.output_file.close()
        call_all(self.trackers, "close", backend=self.backend)
        self.trackers = []

    def state_dict(self) -> dict:
        """What a resumed run must know to continue the same table."""
        self.start()
        return dict(
            headers=self.log_headers,
            first_row=self.first_row,
            elapsed=time.time() - self.start_time,
            table_bytes=0 if self.output_file is None else sync_table(self.output_file),
        )

    def load_state_dict(self, state: dict) -> None:
        """Continue after the rows that the checkpoint knows; cut off and recompute later ones."""
        self.start()
        self.log_headers, self.first_row = list(state["headers"]), state["first_row"]
        self.start_time = time.time() - state["elapsed"]
        if self.output_file is None:
            return
        table = cut_table(self.output_file, state["table_bytes"])
        self.rows = table.rows
        if self.trackers:  # they may lack rows
            for count, texts in enumerate(table.texts, 1):
                row = dict(zip(table.names, texts, strict=True))
                log_row(self.trackers, row, count, self.start_time, self.backend)
            call_all(self.trackers, "drop_stale", backend=self.backend)


class EpochLogger(Logger):
    """A Logger that collects values during an epoch and writes their statistics.

    Tensors are kept as they are and read when the epoch ends, so that storing a value never waits
    for a device.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.epoch_dict: dict[str, list] = {}

    def store(self, **values: Any) -> None:
        """Store values: numbers, arrays or tensors, whose elements all count alike.

        None stands for a value that could not be measured, and is skipped; a NaN stops the run.
        """
        for key, value in values.items():
            if value is None:
                continue
            if getattr(value, "requires_grad", False):
                value = value.detach()  # or its graph would stay in memory
            self.epoch_dict.setdefault(key, []).append(value)

    def log_tabular(
        self,
        key: str,
        val: Any = None,
        with_min_and_max: bool = False,
        average_only: bool = False,
    ) -> None:
        """Log `val`, or else the statistics of all that was stored under `key` in this epoch.

        with_min_and_max: also the greatest and the least value
        average_only: only the mean, under the name of the key itself
        """
        if val is not None:
            super().log_tabular(key, val)
            return
        values = _elements(self.epoch_dict.pop(key, []), self.backend)
        stats = mpi_statistics_scalar(values, with_min_and_max)
        # No value at all gives NaN, too. The statistics, and so this `if`, are those of all
        # processes.
        if not np.isfinite(stats[0]) and mpi_sum(float(values.size)):
            self.not_finite.append(key)
        super().log_tabular(key if average_only else "Average" + key, stats[0])
        if not average_only:
            super().log_tabular("Std" + key, stats[1])
        if with_min_and_max:
            super().log_tabular("Max" + key, stats[3])
            super().log_tabular("Min" + key, stats[2])

    def get_stats(self, key: str, with_min_and_max: bool = False) -> tuple[float, ...]:
        """Mean and standard deviation of what is stored under `key` in this epoch.

        with_min_and_max: also the least and the greatest value
        """
        values = _elements(self.epoch_dict.get(key, []), self.backend)
        return mpi_statistics_scalar(values, with_min_and_max)

    def dump_epoch(self, columns: str, **values: Any) -> None:
        """Log `columns` in order and write the row.

        columns: names with spaces between them; X* stands for AverageX, StdX, MaxX, MinX
        values: the columns that are not statistics; Time is added
        """
        values.setdefault("Time", time.time() - self.start_time)
        for column in columns.split():
            if column in values:
                super().log_tabular(column, values[column])
            else:
                spread = column.endswith("*")
                self.log_tabular(
                    column.rstrip("*"), with_min_and_max=spread, average_only=not spread
                )
        self.epoch_dict.clear()  # what no column asks for must not fill the memory
        self.dump_tabular()


def _elements(values, backend: Backend | None = None):
    """All elements of numbers, arrays or tensors in one flat array, read from a device at once."""
    tensors = [value for value in values if hasattr(value, "detach")]
    arrays = [np.ravel(value) for value in values if not hasattr(value, "detach")]
    if tensors and backend is not None:
        arrays.append(backend.concatenate(tensors))
    else:
        arrays += [tensor.detach().cpu().numpy().ravel() for tensor in tensors]
    return np.concatenate(arrays) if arrays else np.zeros(0)
