"""Checkpoints save every part of a run, so that a killed run resumes as if never stopped."""

import io
import json
import signal
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from spinup.parts.backend import Backend
from spinup.parts.divergence import DivergenceCheck, clear_divergence, read_divergence
from spinup.parts.errors import START_OVER, UserError, damaged
from spinup.parts.jsonio import regular_file, write_whole
from spinup.parts.latest import read_latest, write_latest
from spinup.parts.mpi import barrier, mpi_max, mpi_sum, num_procs, on_first_process, proc_id
from spinup.parts.plain_text import say
from spinup.parts.run_folder import auto_resumes, how_to_resume
from spinup.parts.seeds import rng_state, set_rng_state


class Stopped(KeyboardInterrupt):
    """The user pressed Ctrl-C; the run has saved a checkpoint and says how to resume.

    agreed: all processes of the job stop here, together
    """

    def __init__(self, message: str, agreed: bool = False):
        super().__init__(message)
        self.agreed = agreed


class Checkpoint:
    """Saves a learner, named parts and every random stream of this process.

    Parts, and fields of the learner, that have a `state_dict` save that; other fields of the
    learner, such as a counter, are saved as they are.

    Each process writes a file of its own; the name `latest` moves only when all of them have,
    so that a run killed at any instant finds one whole checkpoint.
    """

    def __init__(
        self,
        learner: Any = None,
        logger: Any = None,
        folder: Path | str | None = None,
        backend: Backend | None = None,
        **parts: Any,
    ):
        """Name what is to be saved.

        logger: of the run; the checkpoint lies in its folder
        folder: the run folder, where there is no logger
        backend: the framework whose tensors and random streams are saved; by default the logger's
        """
        folder = Path(logger.output_dir if folder is None else folder)
        self.run_folder, self.folder = folder, folder / "checkpoint"
        parts |= dict(logger=logger)
        self.learner, fields = learner, {} if learner is None else vars(learner)
        fields = {name: part for name, part in fields.items() if hasattr(part, "state_dict")}
        self.parts = fields | {name: part for name, part in parts.items() if part is not None}
        plain_fields(learner)  # or says what cannot be saved, before anything is trained
        self.interrupts, self.epoch_began = 0, time.time()
        self.divergence_check = (
            DivergenceCheck(folder) if logger is None else logger.divergence_check
        )
        self.own_backend = backend
        # Without the logger: nothing the logger refers to may refer to it, or an error before the
        # loop would leave it, and with it the lock of the folder, to Python's garbage collector.
        checked = {name: part for name, part in self.parts.items() if part is not logger}
        self.divergence_check.attach(checked)

    @property
    def backend(self) -> Backend | None:
        """The framework that is saved too; that of the logger may become known only later."""
        return self.own_backend or getattr(self.parts.get("logger"), "backend", None)

    def epochs(self, epochs: int, resume: bool) -> Iterator[int]:
        """Yield the number of each epoch still to do; what a `for` loop over it does, in order:

        1. Restore: with `resume`, read the newest checkpoint and continue after its epoch. Without,
           the logger moves an older run aside and the first epoch is 0.
        2. Take over Ctrl-C (SIGINT, and SIGUSR1 under MPI).
        3. Yield the number of an epoch, for which the body of the loop trains.
        4. Save a checkpoint of every part, after which the epoch can no longer be lost.
        5. If Ctrl-C was pressed during the epoch, save the model and raise `Stopped`, in all
           processes; a second Ctrl-C stops at once and loses the epoch. Else continue with 3.
        6. At the end, however the loop is left: put the signal handlers back and close every part
           that has a `close`: environments, and the logger, which unlocks the run folder.
        """
        previous: dict = {}
        try:
            first = self._first_epoch(epochs := int(epochs), resume)  # 1e3 is allowed
            previous = self._install_handlers()
            for epoch in range(first, epochs):
                self.epoch_began, self.divergence_check.epochs_done = time.time(), epoch
                yield epoch
                self.save(epoch + 1)
                if mpi_max(float(self.interrupts)) and epoch + 1 < epochs:
                    if "logger" in self.parts:
                        self.parts["logger"].save_state({})  # the agent as it is now, to be watched
                    done = f"Stopped after {epoch + 1} of {epochs} epochs; all is saved."
                    self._stop(done, agreed=True)
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
            for part in self.parts.values():
                if hasattr(part, "close"):
                    part.close()

    def _first_epoch(self, epochs, resume) -> int:
        """Restore what is to be resumed; gives the number of the first epoch still to do."""
        self._start_logger()
        first = self.restore() if resume or auto_resumes(self.run_folder) else 0
        if first >= epochs and proc_id() == 0:
            say(f"{self.run_folder} has its {first} epochs; a larger epochs would extend it.")
        self._say_diverged_before(first, epochs)
        return first

    def _start_logger(self):
        """Let the logger move an older run aside, and with it that run's checkpoint."""
        if hasattr(self.parts.get("logger"), "start"):
            self.parts["logger"].start()
        barrier()  # before another process writes into a folder that is about to move

    def _say_diverged_before(self, first, epochs):
        found = read_divergence(self.run_folder)
        if found is not None and first < epochs and proc_id() == 0:
            at = "" if found.step is None else f" at step {found.step}"
            print(
                f"{self.run_folder} diverged before{at}. It resumes after epoch {first} and stops "
                "at the same step again, unless its environment or the code has changed.",
                flush=True,
            )

    def _stop(self, what, agreed=False):
        raise Stopped(f"{what} {how_to_resume(self.run_folder)}", agreed)

    def _install_handlers(self):
        """Take over the signals of Ctrl-C; gives the handlers before."""
        if threading.current_thread() is not threading.main_thread():
            return {}
        # mpi_fork passes Ctrl-C on as SIGUSR1.
        numbers = [signal.SIGINT, signal.SIGUSR1] if num_procs() > 1 else [signal.SIGINT]
        return {number: signal.signal(number, self._interrupted) for number in numbers}

    def _interrupted(self, *_):
        self.interrupts += 1
        if self.interrupts > 1:
            self._stop("Stopped at once. The epochs before this one are saved.")
        if proc_id() == 0:
            print(
                f"\nCtrl-C: finishing this epoch ({time.time() - self.epoch_began:.0f} s old), "
                "then saving. Press it again to stop at once and lose the epoch.",
                file=sys.stderr,
            )

    def save(self, epoch: int) -> None:
        """Save every part; after this the run can be killed without losing this epoch."""
        self._start_logger()
        self.divergence_check.check_weights()
        try:
            self._save(epoch)
        except OSError as error:
            raise UserError(
                f"The checkpoint of epoch {epoch} could not be written to {self.folder} "
                f"({error.strerror}); the one before it is whole. Make room, then resume."
            )

    def _save(self, epoch):
        self.folder.mkdir(parents=True, exist_ok=True)
        rings = {name: part.ring for name, part in self.parts.items() if hasattr(part, "ring")}
        for name, ring in rings.items():
            ring.append_log(self._log_folder(name))
        state = {name: part.state_dict() for name, part in self.parts.items()}
        state |= dict(plain_fields=plain_fields(self.learner), rng_state=rng_state(self.backend))
        if self.backend is not None:
            state["fast"] = self.backend.state_dict()
        write_tree(self._file(epoch), state)
        mine = np.arange(num_procs()) == proc_id()
        checksums = mpi_sum(mine * float(file_checksum(self._file(epoch)))).astype(int).tolist()
        if proc_id() == 0:
            write_latest(self.run_folder, epoch, checksums)
            clear_divergence(self.run_folder, epoch)
        barrier()
        for path in self.folder.glob(f"epoch*.rank{proc_id()}.npz"):
            if path != self._file(epoch):
                path.unlink()
        for ring in rings.values():
            ring.log.prune()

    def restore(self) -> int:
        """Load the newest checkpoint into every part; gives how many epochs it has (0: none)."""
        self._start_logger()
        latest = on_first_process(lambda: read_latest(self.run_folder))
        if latest is None:
            return 0
        if latest["num_procs"] != num_procs():
            raise UserError(
                f"{self.run_folder} was trained by {latest['num_procs']} process(es), not "
                f"{num_procs()}. Start as many again."
            )
        path = self._file(latest["epoch"])
        checksums = latest["checksums"]  # the version before had none
        state = read_tree(path, checksums and checksums[proc_id()], self.backend)
        try:
            for name, part in self.parts.items():
                saved = state[name]
                part.load_state_dict(
                    saved if self.backend is None else self.backend.for_part(part, saved)
                )
                if hasattr(part, "ring"):
                    part.ring.read_log(self._log_folder(name))
            if self.backend is not None and "fast" in state:  # the first version did not save it
                self.backend.load_state_dict(state["fast"])
            for name, value in state.get("plain_fields", {}).items():
                _restore_field(self.learner, name, value)
            streams = state["rng_state"] if "rng_state" in state else state["random_streams"]
            set_rng_state(streams, self.backend)  # last: making a part may move them
        except UserError:
            raise
        except Exception as error:  # whatever a wrong value leads to in one of the parts
            raise UserError(
                f"The checkpoint in {self.folder} does not fit this run ({_reason(error)}). "
                f"Resume with the settings it was started with. {START_OVER}"
            )
        for part in self.parts.values():
            if hasattr(part, "resumed"):
                part.resumed()
        return latest["epoch"]

    def _file(self, epoch) -> Path:
        return self.folder / f"epoch{epoch}.rank{proc_id()}.npz"

    def _log_folder(self, name) -> Path:
        return self.folder / f"{name}.rank{proc_id()}"


def _restore_field(learner, name, value):
    """Give a field its saved value; tensors and arrays keep their place: others may share it."""
    here = getattr(learner, name, None)
    if hasattr(here, "detach"):
        here.detach().copy_(value)
    elif isinstance(here, np.ndarray) and here.shape == np.shape(value):
        here[...] = value
    elif isinstance(here, tuple):
        setattr(learner, name, type(here)(*value) if hasattr(here, "_fields") else tuple(value))
    else:
        setattr(learner, name, value)


def plain_fields(learner: Any) -> dict:
    """The fields of a learner that are plain values, such as a counter or a flag."""
    fields = {} if learner is None else vars(learner)
    found = {name: x for name, x in fields.items() if not hasattr(x, "state_dict")}
    for name, value in found.items():
        try:
            _outline(value, {})
        except TypeError:
            raise UserError(
                f"learner.{name} is a {type(value).__name__}, which a checkpoint cannot hold. Use "
                "numbers, strings, arrays, lists and dicts of them, or give it a state_dict."
            )
    return found


def file_checksum(path: Path) -> int:
    """A checksum (CRC-32) of all bytes of a file: any one that changes, changes it."""
    checksum = 0
    with open(path, "rb") as file:
        while part := file.read(2**20):
            checksum = zlib.crc32(part, checksum)
    return checksum


def write_tree(path: Path, tree: Any) -> None:
    """Write nested dicts, lists, numbers, strings, arrays and tensors to one file.

    It is NumPy's own format: reading it cannot run code.
    """
    arrays: dict[str, Any] = {}
    outline = json.dumps(_outline(tree, arrays))
    buffer = io.BytesIO()
    np.savez(buffer, outline=np.frombuffer(outline.encode(), np.uint8), **arrays)
    write_whole(path, buffer.getvalue())


def read_tree(path: Path, checksum: int | None = None, backend: Backend | None = None) -> Any:
    """Read what `write_tree` wrote, bit for bit.

    checksum: what `file_checksum` said of the file when it was written
    backend: makes the tensors; without one they are arrays
    """
    try:
        content = regular_file(path).read_bytes()
    except (UserError, OSError) as error:
        raise UserError(f"{error} {START_OVER}")
    if checksum is not None and zlib.crc32(content) != checksum:
        raise damaged(path)
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            return _rebuilt(json.loads(arrays["outline"].tobytes()), arrays, backend)
    except Exception as error:  # whatever damage leads to in a ZIP file, in NumPy or in PyTorch
        raise UserError(f"{path} is not a checkpoint of spinup, or is damaged ({_reason(error)}).")


def _reason(error) -> str:
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__


def _outline(value, arrays):
    """`value` as JSON, in which each array is only named; `arrays` collects them."""
    if isinstance(value, dict):
        items = [[_outline(k, arrays), _outline(v, arrays)] for k, v in value.items()]
        return {"dict": items}
    if isinstance(value, (list, tuple)):
        return [_outline(v, arrays) for v in value]
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray) or hasattr(value, "detach"):
        kind, name = "array", f"a{len(arrays)}"
        if not isinstance(value, np.ndarray):
            kind, value = "tensor", value.detach().cpu().numpy()
        arrays[name] = value
        return {kind: name}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"a checkpoint cannot hold a {type(value).__name__}")


def _rebuilt(outline, arrays, backend):
    if isinstance(outline, list):
        return [_rebuilt(item, arrays, backend) for item in outline]
    if not isinstance(outline, dict):
        return outline
    ((kind, content),) = outline.items()
    if kind == "dict":
        return {_rebuilt(k, arrays, backend): _rebuilt(v, arrays, backend) for k, v in content}
    if kind == "array" or backend is None:
        return arrays[content]
    return backend.tensor(arrays[content])
