"""Checkpoints: every part of a run is saved, so that a killed run goes on as if never stopped."""

import io
import json
import os
import random
import signal
import sys
import threading
import time
import zlib
from pathlib import Path

import numpy as np

try:
    import fcntl
except ImportError:  # Windows has no such locks
    fcntl = None

from spinup.parts.divergence import Watch, forget_divergence, read_divergence
from spinup.parts.plain_text import say
from spinup.parts.pytorch.earlier import only_known
from spinup.parts.run_folder import how_to_resume, real_path
from spinup.utils.errors import START_OVER, UserError, damaged
from spinup.utils.logx import cannot_write, refuse_links
from spinup.utils.mpi_tools import (
    barrier,
    mpi_max,
    mpi_sum,
    num_procs,
    on_first_process,
    proc_id,
)
from spinup.utils.serialization_utils import (
    json_bytes,
    read_json_and_bytes,
    regular_file,
    write_json,
    write_whole,
)


class Stopped(KeyboardInterrupt):
    """The user pressed Ctrl-C; the run has saved a checkpoint and says how to go on.

    agreed: all processes of the job stop here, together
    """

    def __init__(self, message, agreed=False):
        super().__init__(message)
        self.agreed = agreed


class Checkpoint:
    """Saves a learner, named parts and every random stream of this process.

    Parts, and fields of the learner, that have a `state_dict` save that; other fields of the
    learner, such as a counter, are saved as they are.

    Each process writes a file of its own; the name `latest` moves only when all of them have,
    so that a run killed at any instant finds one whole checkpoint.
    """

    def __init__(self, folder, learner=None, **parts):
        self.run_folder, self.folder = Path(folder), Path(folder) / "checkpoint"
        self.learner, fields = learner, {} if learner is None else vars(learner)
        fields = {name: part for name, part in fields.items() if hasattr(part, "state_dict")}
        self.parts = fields | {name: part for name, part in parts.items() if part is not None}
        plain_fields(learner)  # or says what cannot be saved, before anything is trained
        self.interrupts, self.epoch_began = 0, time.time()
        logger = self.parts.get("logger")
        self.watch = Watch(folder) if logger is None else logger.watch
        self.watch.attach(self.parts)

    def epochs(self, epochs: int, resume: bool):
        """Yield the number of each epoch still to do, and save a checkpoint after each.

        Ctrl-C is heard at the end of the epoch, when the checkpoint is whole;
        a second one stops at once, and the epoch is lost.
        """
        first = self.restore() if resume or is_restartable(self.run_folder) else 0
        if first >= epochs and proc_id() == 0:
            say(f"{self.run_folder} has its {first} epochs; a larger epochs would extend it.")
        self._say_diverged_before(first, epochs)
        previous = self._listen()
        try:
            for epoch in range(first, epochs):
                self.epoch_began, self.watch.epochs_done = time.time(), epoch
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
            release(self.run_folder)

    def _say_diverged_before(self, first, epochs):
        found = read_divergence(self.run_folder)
        if found is not None and first < epochs and proc_id() == 0:
            at = "" if found.step is None else f" at step {found.step}"
            print(
                f"{self.run_folder} diverged before{at}. It goes on after epoch {first} and stops "
                "at the same step again, unless its environment or the code is another now.",
                flush=True,
            )

    def _stop(self, what, agreed=False):
        raise Stopped(f"{what} {how_to_resume(self.run_folder)}", agreed)

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
        self.watch.check_weights()
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
        state |= dict(plain_fields=plain_fields(self.learner), random_streams=random_streams())
        state |= dict(fast=_fast_path().state_dict()) if _fast_path() else {}
        write_tree(self._file(epoch), state)
        mine = np.arange(num_procs()) == proc_id()
        checksums = mpi_sum(mine * float(file_checksum(self._file(epoch)))).astype(int).tolist()
        if proc_id() == 0:
            write_latest(self.run_folder, epoch, checksums)
            forget_divergence(self.run_folder, epoch)
        barrier()
        for path in self.folder.glob(f"epoch*.rank{proc_id()}.npz"):
            if path != self._file(epoch):
                path.unlink()
        for ring in rings.values():
            ring.log.forget()

    def restore(self) -> int:
        """Put every part back; gives the number of epochs already done (0: nothing saved)."""
        latest = on_first_process(lambda: _read_latest(self.run_folder))
        if latest is None:
            return 0
        if latest["num_procs"] != num_procs():
            raise UserError(
                f"{self.run_folder} was trained by {latest['num_procs']} process(es), not "
                f"{num_procs()}. Start as many again."
            )
        path = self._file(latest["epoch"])
        checksums = latest["checksums"]  # the version before had none
        state = read_tree(path, checksums and checksums[proc_id()])
        try:
            for name, part in self.parts.items():
                part.load_state_dict(_for_part(part, state[name]))
                if hasattr(part, "ring"):
                    part.ring.read_log(self._log_folder(name))
            if _fast_path() and "fast" in state:  # the first version did not save it
                _fast_path().load_state_dict(state["fast"])
            for name, value in state.get("plain_fields", {}).items():
                _restore_field(self.learner, name, value)
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


def _for_part(part, state: dict) -> dict:
    """The saved state of a part; that of a network with the names its numbers have today."""
    return only_known(state, part.state_dict()) if hasattr(part, "named_parameters") else state


def _fast_path():
    """What decides which updates are captured, and must decide the same when a run resumes."""
    return sys.modules.get("spinup.parts.pytorch.fast")


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


def plain_fields(learner) -> dict:
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


def write_latest(run_folder, epoch: int, checksums: list[int]):
    """Note which checkpoint is the newest, and the checksum of the file of each process."""
    content = dict(epoch=epoch, num_procs=len(checksums), checksums=checksums)
    content["checksum"] = zlib.crc32(json.dumps(content).encode())  # of this note itself
    write_json(Path(run_folder) / "checkpoint" / "latest", content)


def read_latest(run_folder) -> dict | None:
    """Which epoch the newest whole checkpoint is of, and how many processes wrote it."""
    latest = _read_latest(run_folder)
    return latest and {key: latest[key] for key in ("epoch", "num_procs")}


def _read_latest(run_folder) -> dict | None:
    """The same with the checksum of each process's file; None where the version before wrote it."""
    path = Path(run_folder) / "checkpoint" / "latest"
    if not os.path.lexists(path):
        return None
    latest, found = read_json_and_bytes(path)
    if not all(type(latest.get(key)) is int and latest[key] > 0 for key in ("epoch", "num_procs")):
        raise UserError(f"{path} is damaged. {START_OVER}")
    if latest.keys() == {"epoch", "num_procs"}:
        return latest | dict(checksums=None)
    content = {key: latest.get(key) for key in ("epoch", "num_procs", "checksums")}
    noted = content | dict(checksum=zlib.crc32(json.dumps(content).encode()))
    if found != json_bytes(noted):  # every byte counts, also one that JSON ignores
        raise damaged(path)
    return content


_locks = {}  # the run folders that this process has claimed


def claim(run_folder):
    """Keep other processes from training in the same folder at the same time."""
    folder = real_path(run_folder)
    if folder in _locks:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        refuse_links(folder)
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
    if lock := _locks.pop(real_path(run_folder), None):
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
    _restartable.add(real_path(folder))


def is_restartable(run_folder) -> bool:
    folder = real_path(run_folder)
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


def read_tree(path: Path, checksum: int | None = None):
    """Read what `write_tree` wrote, bit for bit.

    checksum: what `file_checksum` said of the file when it was written
    """
    try:
        content = regular_file(path).read_bytes()
    except (UserError, OSError) as error:
        raise UserError(f"{error} {START_OVER}")
    if checksum is not None and zlib.crc32(content) != checksum:
        raise damaged(path)
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            return _rebuilt(json.loads(arrays["outline"].tobytes()), arrays)
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
