"""The diary of a run: progress.txt, config.json, saved models, and what the terminal shows.

Only the first of several processes writes; statistics are those of all of them.
"""

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from tqdm import tqdm

from spinup.parts.backend import Backend, backend_named
from spinup.parts.divergence import DivergenceCheck
from spinup.parts.errors import START_OVER, UserError
from spinup.parts.jsonio import convert_json, regular_file, write_json
from spinup.parts.mpi import broadcast_object, mpi_statistics_scalar, mpi_sum, proc_id
from spinup.parts.plain_text import printable
from spinup.parts.run_folder import (
    DIVERGED_FILE,
    OLDER_RUNS,
    TRACKER_FILES,
    cannot_write,
    refuse_links,
    remove_all,
    run_files,
)
from spinup.parts.trackers import call_all, log_row, open_trackers, require

COLORS = dict(
    gray=30, red=31, green=32, yellow=33, blue=34, magenta=35, cyan=36, white=37, crimson=38
)


def colorize(string, color, bold=False, highlight=False):
    """`string` with the codes that make a terminal show it in `color`."""
    code = COLORS[color] + 10 * highlight
    return f"\x1b[{code}{';1' if bold else ''}m{string}\x1b[0m"


def _temporary_folder():
    parent = Path(tempfile.gettempdir()) / "experiments"
    parent.mkdir(exist_ok=True)
    return tempfile.mkdtemp(prefix=f"{int(time.time())}-", dir=parent)


def format_table(headers, values) -> str:
    """Names and values in two columns, as the terminal shows a row of the table."""
    headers = [printable(key) for key in headers]
    shown = [f"{v:.5g}" if hasattr(v, "__float__") else printable(v) for v in values]
    keys = max(15, *map(len, headers))
    rule = "-" * (keys + 22)
    rows = [f"| {key:>{keys}} | {v:>15} |" for key, v in zip(headers, shown)]
    return "\n".join([rule, *rows, rule])


class Logger:
    """Writes one row of progress.txt per epoch, and saves settings and models beside it."""

    def __init__(
        self,
        output_dir=None,
        output_fname="progress.txt",
        exp_name=None,
        resume=False,
        overwrite=False,
        tensorboard=False,
        wandb=False,
        keep_models=False,
        backend: Backend | None = None,
    ):
        """Open a run folder.

        output_dir: the run folder; without one, a new folder for temporary files
        output_fname: the table's name inside it
        exp_name: what the experiment is called, for plots
        resume: keep what the folder holds, to go on from it, instead of moving it aside
        overwrite: delete what an older run left, instead of moving it aside
        tensorboard: write the rows for TensorBoard too
        wandb: write the rows for Weights & Biases too, offline where there is no account
        keep_models: keep every saved model, under the number of its epoch, not the newest alone
        backend: the framework of the network that is to be saved, where it is known already
        """
        self.exp_name, self.output_fname, self.output_file = exp_name, output_fname, None
        self.log_headers, self.log_current_row, self.first_row = [], {}, True
        self.start_time = time.time()
        self.bar, self.steps_done, self.steps_total = None, 0, None
        self.first_tick = None  # when and at which step this process began, for its speed
        self.keep_models, self.epoch, self.backend = keep_models, None, backend
        self.trackers, self.rows = [], 0
        self.resume, self.config = resume, None
        if output_dir is None:
            output_dir = broadcast_object(_temporary_folder() if proc_id() == 0 else None)
        self.output_dir = str(output_dir)
        self.divergence_check, self.not_finite = (
            DivergenceCheck(self.output_dir),
            [],
        )  # columns, of the present row
        if proc_id() == 0:
            require(tensorboard=tensorboard, wandb=wandb)  # before a file is touched
            try:
                self._open_folder(Path(output_dir), resume, overwrite)
                self.trackers = open_trackers(
                    Path(output_dir), exp_name, tensorboard, wandb, backend
                )
            except OSError as error:
                raise cannot_write(output_dir, error)

    def _open_folder(self, folder, resume, overwrite):
        folder.mkdir(parents=True, exist_ok=True)
        refuse_links(folder, self.output_fname)
        table = folder / self.output_fname
        if overwrite and not resume:
            remove_all(run_files(folder))
        elif not resume:
            self._make_room(folder)
        if os.path.lexists(table):
            regular_file(table)
        mode = "rb+" if resume and table.exists() else "wb+"
        self.output_file = open(table, mode, buffering=0)  # a row is written whole or not at all

    def _make_room(self, folder):
        """Move an older run aside; what a run left that never finished an epoch is not kept."""
        table = folder / self.output_fname
        older = run_files(folder, self.output_fname)
        if not (table.exists() and table.stat().st_size):
            older = [path for path in older if "_save" in path.name or path.suffix == ".pt"]
            remove_all(
                [
                    path
                    for name in ("checkpoint", DIVERGED_FILE, *TRACKER_FILES)
                    for path in folder.glob(name)
                ]
            )
        if not older:
            return
        number = 1
        while (aside := folder / OLDER_RUNS / str(number)).exists():
            number += 1
        aside.mkdir(parents=True)
        for path in older:
            shutil.move(path, aside / path.name)
        moved = f"{folder} held an older run; its files are now in {aside}"
        self.log(printable(moved), color="yellow")

    def log(self, msg, color="green"):
        """Say something on the terminal."""
        if proc_id() == 0:
            self._print(colorize(msg, color, bold=True) if sys.stdout.isatty() else str(msg))

    def _print(self, text):
        tqdm.write(text, file=sys.stdout)
        sys.stdout.flush()

    def progress(self, steps: range, total: int):
        """Go through `steps`, showing on a terminal how far the run is of `total`, and how fast."""
        self.steps_total = total
        if proc_id() == 0 and self.bar is None and sys.stderr.isatty():
            self.bar = tqdm(total=total, initial=steps.start, unit=" steps", dynamic_ncols=True)
            self.bar.set_postfix_str("first epoch")
        if self.first_tick is None:
            self.first_tick = time.time(), steps.start
        for step in steps:
            self.divergence_check.step = step + steps.step
            yield step
            if self.bar is not None:
                self.bar.update(steps.step)
        self.steps_done = steps.stop

    def _speed(self):
        """Environment steps per second, and the seconds left at that speed."""
        began, first_step = self.first_tick
        speed = (self.steps_done - first_step) / max(time.time() - began, 1e-9)
        return speed, (self.steps_total - self.steps_done) / max(speed, 1e-9)

    def log_tabular(self, key, val):
        """Note a value for the row that `dump_tabular` will write."""
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

    def save_config(self, config):
        """Write the settings of the run to config.json."""
        config = convert_json(config)
        self.divergence_check.set_learning_rates(config)
        if self.exp_name is not None:
            config["exp_name"] = self.exp_name
        if self.resume:
            self.config = config  # written once the checkpoint is known to be whole
        elif proc_id() == 0:
            self._write_config(config)

    def resumed(self):
        """Write the settings of a run that continues, now that its checkpoint was whole."""
        if self.config is not None and proc_id() == 0:
            self._write_config(self.config)

    def _write_config(self, config):
        write_json(Path(self.output_dir) / "config.json", config)
        call_all(self.trackers, "settings", config, backend=self.backend)

    def save_state(self, state_dict, itr=None):
        """Save the model, and beside it whatever of `state_dict` is tensors and plain values.

        itr: a number for the model's file name, to keep it when the next one is saved
        """
        if proc_id() != 0:
            return
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
            backend.save_variables(Path(self.output_dir), state_dict, itr)
        if hasattr(self, "pytorch_saver_elements"):
            folder = Path(self.output_dir) / "pyt_save"
            folder.mkdir(exist_ok=True)
            name = "model.pt" if itr is None else f"model{itr}.pt"
            backend.save_model(folder / name, self.pytorch_saver_elements)

    def setup_tf_saver(self, sess, inputs, outputs):
        """Let `save_state` save a TensorFlow graph: its session, its inputs and outputs by name."""
        self.tf_saver_elements = dict(session=sess, inputs=inputs, outputs=outputs)
        self.tf_saver_info = {
            "inputs": {key: tensor.name for key, tensor in inputs.items()},
            "outputs": {key: tensor.name for key, tensor in outputs.items()},
        }

    def _tf_simple_save(self, itr):
        folder = Path(self.output_dir) / f"tf1_save{'' if itr is None else itr}"
        backend_named("tf1").save_graph(folder, **self.tf_saver_elements)

    def setup_pytorch_saver(self, what_to_save):
        """Let `save_state` save this network."""
        if not hasattr(what_to_save, "state_dict"):
            raise UserError(
                f"setup_pytorch_saver wants a torch.nn.Module, not a {type(what_to_save).__name__}."
            )
        self.pytorch_saver_elements = what_to_save
        self.backend = self.backend or backend_named("pytorch")

    def dump_tabular(self):
        """Write the row, show it, and begin the next; a run that has diverged stops instead."""
        values = [self.log_current_row.get(key, "") for key in self.log_headers]
        if proc_id() == 0:
            self._print(format_table(self.log_headers, values))
        if self.not_finite:
            self.divergence_check.stop_for_columns(self.not_finite)
        self.divergence_check.check_weights()
        if proc_id() == 0:
            rows = [self.log_headers] * self.first_row + [values]
            self._write("".join("\t".join(map(str, row)) + "\n" for row in rows))
            if self.first_tick is not None:
                self._show_progress()
            self.rows += 1
            if self.trackers:
                row, began = self.log_current_row, self.start_time
                log_row(self.trackers, row, self.rows, began, self.backend)
        self.divergence_check.rows += 1
        self.epoch = self.log_current_row.get("Epoch")
        self.log_current_row.clear()
        self.first_row = False

    def _write(self, text: str):
        """Add to the table; of a row for which there is no room, nothing stays."""
        data, end = text.encode(errors="backslashreplace"), self.output_file.tell()
        try:
            while data:
                data = data[self.output_file.write(data) :]
        except OSError as error:
            self.output_file.truncate(end)
            raise UserError(
                f"{self.output_file.name} cannot be written ({error.strerror}). The epochs before "
                "this one are saved. Make room, then resume the run."
            )

    def _show_progress(self):
        row = self.log_current_row
        result = row.get("AverageTestEpRet", row.get("AverageEpRet", float("nan")))
        if self.bar is not None:
            self.bar.set_postfix_str(f"return {result:.5g}")
            if self.steps_done >= self.steps_total:
                self.bar.close()
        else:
            speed, left = self._speed()
            self._print(
                f"{self.steps_done} of {self.steps_total} steps, return {result:.5g}, "
                f"{speed:.0f} steps/s, {tqdm.format_interval(left)} left"
            )

    def close(self):
        """Let go of the table and the progress bar."""
        if self.bar is not None:
            self.bar.close()
        if self.output_file is not None:
            self.output_file.close()
        call_all(self.trackers, "close", backend=self.backend)
        self.trackers = []

    def state_dict(self):
        """What a resumed run must know to go on with the same table."""
        if self.output_file is not None:
            os.fsync(self.output_file.fileno())
        return dict(
            headers=self.log_headers,
            first_row=self.first_row,
            elapsed=time.time() - self.start_time,
            table_bytes=0 if self.output_file is None else self.output_file.tell(),
        )

    def load_state_dict(self, state):
        """Go on after the rows that the checkpoint knows; later ones are cut off and made again."""
        self.log_headers, self.first_row = list(state["headers"]), state["first_row"]
        self.start_time = time.time() - state["elapsed"]
        if self.output_file is not None:
            if os.fstat(self.output_file.fileno()).st_size < state["table_bytes"]:
                raise UserError(
                    f"{self.output_file.name} is shorter than when the checkpoint was written. "
                    f"Put the whole file back. {START_OVER}"
                )
            self.output_file.truncate(state["table_bytes"])
            self._read_rows()
            self.output_file.seek(state["table_bytes"])

    def _read_rows(self):
        """Count the rows of the table, and write them to the trackers, which may lack them."""
        self.output_file.seek(0)
        lines = self.output_file.read().decode(errors="replace").split("\n")
        header, *rows = [line.split("\t") for line in lines if line] or [[]]
        self.rows = len(rows)
        if self.trackers:
            for count, row in enumerate(rows, 1):
                values = dict(zip(header, row))
                log_row(self.trackers, values, count, self.start_time, self.backend)
            call_all(self.trackers, "drop_stale", backend=self.backend)


class EpochLogger(Logger):
    """A Logger that collects values during an epoch and writes their statistics.

    Tensors are kept as they are and read when the epoch ends, so that noting a value
    never waits for a device.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.epoch_dict = {}

    def store(self, **values):
        """Note values: numbers, arrays or tensors, whose elements all count alike.

        None is for what there was nothing to measure of; a NaN stops the run.
        """
        for key, value in values.items():
            if value is None:
                continue
            if getattr(value, "requires_grad", False):
                value = value.detach()  # lets go of the graph it came from
            self.epoch_dict.setdefault(key, []).append(value)

    def log_tabular(self, key, val=None, with_min_and_max=False, average_only=False):
        """Note `val`, or else the statistics of all that was stored under `key` in this epoch.

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

    def get_stats(self, key):
        """Mean, standard deviation, least and greatest of what is stored under `key`."""
        return mpi_statistics_scalar(_elements(self.epoch_dict.get(key, []), self.backend), True)

    def dump_epoch(self, columns: str, **values):
        """Log `columns` in order and write the row.

        columns: names apart by blanks; X* stands for AverageX, StdX, MaxX, MinX
        values: the columns that are not statistics; Time is known here
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
        self.epoch_dict.clear()  # what no column asks for must not pile up
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
