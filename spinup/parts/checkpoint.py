"""Checkpoints: every part of a run is saved, so that a killed run goes on as if never stopped."""

import io
import json
import os
import random
import shlex
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np

try:
    import fcntl
except ImportError:  # Windows has no such locks
    fcntl = None

from spinup.utils.errors import START_OVER, UserError
from spinup.utils.logx import cannot_write
from spinup.utils.mpi_tools import barrier, broadcast_object, mpi_max, num_procs, proc_id
from spinup.utils.serialization_utils import read_json, regular_file, write_json, write_whole


class Stopped(KeyboardInterrupt):
    """The user pressed Ctrl-C; the run has saved a checkpoint and says how to go on."""


class Checkpoint:
    """Saves named parts (anything with `state_dict`) and every random stream of this process.

    Each process writes a file of its own; the name `latest` moves only when all of them have,
    so that a run killed at any instant finds one whole checkpoint.
    """

    def __init__(self, folder, **parts):
        self.run_folder, self.folder = Path(folder), Path(folder) / "checkpoint"
        self.parts = {name: part for name, part in parts.items() if part is not None}
        self.interrupts, self.epoch_began = 0, time.time()

    def epochs(self, epochs: int, resume: bool):
        """Yield the number of each epoch still to do, and save a checkpoint after each.

        Ctrl-C is heard at the end of the epoch, when the checkpoint is whole;
        a second one stops at once, and the epoch is lost.
        """
        first = self.restore() if resume or is_restartable(self.run_folder) else 0
        if first >= epochs and proc_id() == 0:
            print(f"{self.run_folder} has its {first} epochs; a larger epochs would extend it.")
        previous = self._listen()
        try:
            for epoch in range(first, epochs):
                self.epoch_began = time.time()
                yield epoch
                self.save(epoch + 1)
                if mpi_max(float(self.interrupts)) and epoch + 1 < epochs:
                    if "logger" in self.parts:
                        self.parts["logger"].save_state({})  # the agent as it is now, to be watched
                    self._stop(f"Stopped after {epoch + 1} of {epochs} epochs; all is saved.")
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
            for part in self.parts.values():
                if hasattr(part, "close"):
                    part.close()
            release(self.run_folder)

    def _stop(self, what):
        folder = shlex.quote(str(self.run_folder))
        raise Stopped(f"{what} Go on with: spinup resume {folder} (in a script: resume=True)")

    def _listen(self):
        """Take over the signals of Ctrl-C; gives what handled them before."""
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

    def save(self, epoch: int):
        """Save every part; after this the run can be killed without losing this epoch."""
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
        write_tree(self._file(epoch), dict(state, random_streams=random_streams()))
        barrier()
        if proc_id() == 0:
            write_json(self.folder / "latest", dict(epoch=epoch, num_procs=num_procs()))
        barrier()
        for path in self.folder.glob(f"epoch*.rank{proc_id()}.npz"):
            if path != self._file(epoch):
                path.unlink()
        for ring in rings.values():
            ring.log.forget()

    def restore(self) -> int:
        """Put every part back; gives the number of epochs already done (0: nothing saved)."""
        latest = broadcast_object(read_latest(self.run_folder) if proc_id() == 0 else None)
        if latest is None:
            return 0
        if latest["num_procs"] != num_procs():
            raise UserError(
                f"{self.run_folder} was trained by {latest['num_procs']} process(es), not "
                f"{num_procs()}. Start as many again."
            )
        state = read_tree(self._file(latest["epoch"]))
        try:
            for name, part in self.parts.items():
                part.load_state_dict(state[name])
                if hasattr(part, "ring"):
                    part.ring.read_log(self._log_folder(name))
            set_random_streams(state["random_streams"])  # last: making a part may draw from them
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


def read_latest(run_folder) -> dict | None:
    """Which epoch the newest whole checkpoint is of, and how many processes wrote it."""
    path = Path(run_folder) / "checkpoint" / "latest"
    if not os.path.lexists(path):
        return None
    latest = read_json(path)
    if not all(type(latest.get(key)) is int and latest[key] > 0 for key in ("epoch", "num_procs")):
        raise UserError(f"{path} is damaged. {START_OVER}")
    return latest


_locks = {}  # the run folders that this process has claimed


def claim(run_folder):
    """Keep other processes from training in the same folder at the same time."""
    folder = Path(run_folder).resolve()
    if folder in _locks:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(folder / ".lock"):
            regular_file(folder / ".lock")
        lock = open(folder / ".lock", "w")
    except OSError as error:
        raise cannot_write(folder, error)
    patience = time.time() + 5  # a process that was killed a moment ago may still be ending
    while fcntl is not None:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except OSError:
            if time.time() > patience:
                raise UserError(
                    f"Another process is training in {folder}. Wait for it, or stop it."
                )
            time.sleep(0.1)
    _locks[folder] = lock


def release(run_folder):
    """Let other processes train there again."""
    if lock := _locks.pop(Path(run_folder).resolve(), None):
        lock.close()


def is_claimed(run_folder) -> bool:
    """Whether a process is training there now, as far as can be seen."""
    try:
        with open(regular_file(Path(run_folder) / ".lock")) as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (OSError, UserError, AttributeError):  # there is no lock, or none on this system
        pass
    return False


_restartable = set()  # folders in which this process goes on from a checkpoint, asked or not


def make_restartable(folder):
    """Let whatever is trained in `folder` and below go on from its checkpoint, if it has one.

    So a job that is started again need not be told, whatever function it calls.
    """
    _restartable.add(Path(folder).resolve())


def is_restartable(run_folder) -> bool:
    folder = Path(run_folder).resolve()
    return not _restartable.isdisjoint((folder, *folder.parents))


def random_streams() -> dict:
    """The state of every global random stream, PyTorch's too if it is loaded."""
    kind, keys, *rest = np.random.get_state()
    streams = dict(numpy=[kind, keys, *rest], python=list(random.getstate()))
    if "torch" in sys.modules:
        torch = sys.modules["torch"]
        streams["torch"] = torch.get_rng_state()
        if torch.cuda.is_initialized():
            streams["cuda"] = torch.cuda.get_rng_state_all()
    return streams


def set_random_streams(streams: dict):
    np.random.set_state(tuple(streams["numpy"]))
    version, state, gauss = streams["python"]
    random.setstate((version, tuple(state), gauss))
    if "torch" in streams:
        import torch

        torch.set_rng_state(streams["torch"])
        if "cuda" in streams:
            torch.cuda.set_rng_state_all(streams["cuda"])


def write_tree(path: Path, tree):
    """Write nested dicts, lists, numbers, texts, arrays and tensors to one file.

    It is NumPy's own format: reading it cannot run code.
    """
    arrays = {}
    outline = json.dumps(_outline(tree, arrays))
    buffer = io.BytesIO()
    np.savez(buffer, outline=np.frombuffer(outline.encode(), np.uint8), **arrays)
    write_whole(path, buffer.getvalue())


def read_tree(path: Path):
    """Read what `write_tree` wrote, bit for bit."""
    try:
        with np.load(regular_file(path), allow_pickle=False) as arrays:
            return _rebuilt(json.loads(arrays["outline"].tobytes()), arrays)
    except UserError as error:
        raise UserError(f"{error} {START_OVER}")
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


def _rebuilt(outline, arrays):
    if isinstance(outline, list):
        return [_rebuilt(item, arrays) for item in outline]
    if not isinstance(outline, dict):
        return outline
    ((kind, content),) = outline.items()
    if kind == "dict":
        return {_rebuilt(k, arrays): _rebuilt(v, arrays) for k, v in content}
    if kind == "array":
        return arrays[content]
    import torch

    return torch.tensor(arrays[content])
