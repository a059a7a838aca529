"""Updates that are captured once and then replayed, like a CUDA graph but on the CPU.

A small network on a CPU spends most of an update between its matrix products: in Python, in
autograd, in finding memory for results. An update does the same operations every time, only with
other numbers. So the first call is traced: the operations that PyTorch carried out below autograd
are written down, and from then on only they are carried out, into memory that is already there;
tiny ones by NumPy, which is called in a tenth of the time.

What the code says is what happens. A capture stands for an update only while everything that the
update can see is as it was (dependencies.py), for batches of the same shapes and for the same
settings; otherwise another capture is made. It is trusted only after two batches, its own and the
next: its operations, carried out by PyTorch, gave to the last bit what eager execution gave; every
faster kernel agreed with its operation to rounding; and the results of a whole replay agreed with
eager ones. Updates that read numbers back (`.item()`, `if loss > …`), that change
something in Python (a counter, a list), sample from NumPy's or Python's random streams, or use what
cannot be looked into run eagerly, and one printed line says why. A capture that is given up has
changed nothing.
"""

import random
import threading
import types
import weakref
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial, wraps
from sys import getrefcount

import numpy as np
import torch
from torch import from_numpy
from torch.overrides import TorchFunctionMode

from spinup.parts.mpi import num_procs
from spinup.parts.pytorch.fast import private, switch
from spinup.parts.pytorch.fast.concurrency import exclusive, note_call, turn
from spinup.parts.pytorch.fast.context import capturing, is_capturing
from spinup.parts.pytorch.fast.dependencies import Dependencies, NotCapturable
from spinup.parts.pytorch.fast.fused_critics import arrange_critics
from spinup.parts.pytorch.fast.guards import same_contents
from spinup.parts.pytorch.fast.kernels import replay_kernel, tolerance
from spinup.parts.pytorch.fast.private import tree_flatten, tree_map_only, tree_unflatten
from spinup.parts.pytorch.fast.threads import Threads, may_choose

aten = torch.ops.aten
CLOSE = 1e-2  # what results may differ by, as a share of the greatest
MAX_CAPTURES = 8  # of one update and learner; an update that needs more changes at every call
# What these give depends on no number.
CONSTANT_OPS = {
    aten.ones_like.default, aten.zeros_like.default, aten.new_zeros.default, aten.full.default,
    aten.zeros.default, aten.ones.default, aten.full_like.default, aten.new_ones.default,
    aten.scalar_tensor.default, aten.arange.default, aten.arange.start, aten.arange.start_step,
}  # fmt: skip
# These only ask for memory.
EMPTY_OPS = {
    aten.empty_like.default, aten.empty.memory_format, aten.new_empty.default,
    aten.empty_strided.default, aten.new_empty_strided.default,
}  # fmt: skip
_Tensor = torch.Tensor
# What lets numbers, memory or Python functions pass between PyTorch and the rest of a program.
HOST_READS = {
    _Tensor.numpy, _Tensor.__array__, _Tensor.tolist, _Tensor.item, _Tensor.__bool__,
    _Tensor.__float__, _Tensor.__int__, _Tensor.__index__, _Tensor.__complex__, _Tensor.__repr__,
    _Tensor.__format__, _Tensor.__contains__, _Tensor.__dlpack__, _Tensor.data_ptr,
    _Tensor.storage, _Tensor.untyped_storage, _Tensor.backward, _Tensor.register_hook,
    _Tensor.retain_grad, _Tensor.apply_, _Tensor.map_, _Tensor.set_, _Tensor.__deepcopy__,
    _Tensor.__reduce_ex__, _Tensor.data.__set__, _Tensor.requires_grad_,
    _Tensor.requires_grad.__set__,
}  # fmt: skip


@dataclass
class Report:
    """How the calls of an update with one learner were answered."""

    captures: int = 0  # that are trusted
    replays: int = 0
    eager_calls: int = 0
    reason: str | None = None  # why this update runs eagerly from now on


# Updates that run eagerly in this run, by name, and why; and those of which a checkpoint says so,
# so that a resumed run goes the way of the one that was stopped.
given_up: dict[str, str] = {}
restored: dict[str, str] = {}


def recorded(update):
    """Let `update(learner, batch, **settings)` be replayed where that gives what its code says.

    learner: has networks and optimizers, or is a network
    batch: a named tuple of tensors, and None for columns that are absent
    settings: whatever else it needs
    """
    name = f"{update.__module__}.{update.__qualname__}"
    known = {}  # the captures of each learner that is alive, by its id

    def captures_of(learner):
        if id(learner) not in known:
            try:
                weakref.finalize(learner, known.pop, id(learner), None)
            except TypeError:
                known[id(learner)] = _Captures(
                    name, f"its learner is a {type(learner).__name__}; make it a dataclass", learner
                )
            else:
                known[id(learner)] = _Captures(name)
        return known[id(learner)]

    @wraps(update)
    def replayed(learner, batch, **settings):
        if not switch.enabled() or is_capturing():
            return update(learner, batch, **settings)
        return captures_of(learner).call(update, learner, batch, settings)

    def each(learner, calls):
        """What it gives for each of many batches and settings, between which nothing happens."""
        if not switch.enabled() or is_capturing():
            return [update(learner, batch, **settings) for batch, settings in calls]
        return captures_of(learner).call_each(update, learner, calls)

    replayed.eager, replayed.each = update, each
    replayed.report = lambda learner: captures_of(learner).report()
    return replayed


_alive = weakref.WeakSet()


def reports() -> dict[str, Report]:
    """How each update of this process is answered, by its name, over all learners alive."""
    found = {}
    for captures in _alive:
        seen, new = found.get(captures.name, Report()), captures.report()
        found[captures.name] = Report(
            seen.captures + new.captures,
            seen.replays + new.replays,
            seen.eager_calls + new.eager_calls,
            seen.reason or new.reason,
        )
    return found


class _Captures:
    """The captures of one update and one learner, the latest used first."""

    def __init__(self, name, reason=None, learner=None):
        _alive.add(self)
        self.lock = threading.Lock()
        self.name, self.all, self.replays, self.eager_calls = name, [], 0, 0
        self.reason = reason or restored.get(name)
        self.learner = learner  # kept alive where its id could else be another's one day
        if self.reason:
            _tell(name, self.reason)

    def call(self, update, learner, batch, settings):
        reason = self.reason
        if reason is None:
            capture = self._find(batch, settings)
            if capture is not None and capture.trusted:
                return self._replay(capture, batch)
            if private.modes_active():  # only for now, such as autocast or torch.func
                return self._eager(update, learner, batch, settings)
            try:
                with exclusive():
                    if capture is None:
                        capture = self._new(update, learner, batch, settings)
                    else:
                        capture.verify_next(update, learner, batch, settings)
                    capture.take(batch)
                    note_call(capture)
                    self.replays += 1
                    return capture.replay()
            except NotCapturable as why:
                reason = str(why)
            except Exception as error:  # of the update itself, or of a kernel
                reason = f"{type(error).__name__}: {_first_line(error)}"
            result = self._eager(update, learner, batch, settings)
            self._give_up(reason)  # after the call: if it fails too, its own error is the story
            return result
        return self._eager(update, learner, batch, settings)

    def call_each(self, update, learner, calls) -> list:
        """The same for many batches and settings, each capture checked once."""
        results, checked = [], []
        for batch, settings in calls:
            capture = next((c for c in checked if c.is_for(batch, settings)), None)
            if capture is None and self.reason is None:
                capture = self._find(batch, settings)
                if capture is not None and capture.trusted:
                    checked.append(capture)
            if capture is not None and capture.trusted:
                results.append(self._replay(capture, batch))
            else:
                results.append(self.call(update, learner, batch, settings))
                checked = []  # the update itself has run, and may have changed anything
        return results

    def _replay(self, capture, batch):
        with turn(), self.lock:  # two threads may train one learner, in turn
            capture.take(batch)
            self.replays += 1
            note_call(capture)
            return capture.replay()

    def report(self) -> Report:
        trusted = sum(capture.trusted for capture in self.all)
        return Report(trusted, self.replays, self.eager_calls, self.reason)

    def _find(self, batch, settings):
        """The capture that stands for this call; None where there is none yet."""
        for i, capture in enumerate(self.all):
            if capture.fits(batch, settings):
                if i:
                    self.all.insert(0, self.all.pop(i))
                return None if private.modes_guards_miss() else capture
        return None

    def _new(self, update, learner, batch, settings):
        if len(self.all) >= MAX_CAPTURES:
            raise NotCapturable(
                f"it met more than {MAX_CAPTURES} different settings, shapes or states; put a "
                "value that changes often into the batch as a tensor, a learning rate into "
                "optimizer.lr"
            )
        capture = Capture(update, learner, batch, settings)
        self.all.insert(0, capture)
        return capture

    def _eager(self, update, learner, batch, settings):
        note_call(None)
        self.eager_calls += 1
        return update(learner, batch, **settings)

    def _give_up(self, reason):
        self.reason, self.all = reason, []
        given_up[self.name] = reason
        _tell(self.name, reason)


def _tell(name, reason):
    switch.tell_once(f"{name.replace('.<locals>', '')} runs eagerly, because {reason}.")


def _first_line(error) -> str:
    return (str(error).splitlines() or [""])[0][:200]


class _HostReadGuard(TorchFunctionMode):
    """Refuses what would let numbers out of PyTorch's sight."""

    def __init__(self):
        super().__init__()
        self.refused = None  # kept, for an update may catch every exception

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function in HOST_READS:
            self.refused = NotCapturable(f"it uses {_name_of(function)} on a tensor")
            raise self.refused
        return function(*args, **(kwargs or {}))


def _name_of(function) -> str:
    """What a reader calls one of HOST_READS; and what to use instead, where there is something."""
    owner = getattr(function, "__self__", None)  # of a property's setter: the property
    name = getattr(owner if owner is not None else function, "__name__", str(function))
    return "backward (gradient_step can be captured)" if name == "backward" else name


class Opaque:
    """A function that a capture keeps as one operation; it gives nothing back."""

    tags = ()

    def __init__(self, function, writes):
        self.function, self.writes = function, writes

    def __call__(self, *args):
        return self.function(*args)


class Trace(private.DispatchMode):
    """Writes down every operation below autograd."""

    def __init__(self):
        super().__init__()
        self.calls, self.made, self.written, self.paused = [], set(), set(), False
        self.graded = set()  # ids of the parameters whose gradients gradient_step has set
        self.literals = set()  # tensors made of numbers that stand in the code
        self.refused = None

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if self.paused:
            return operation(*args, **kwargs)
        try:
            _refuse(operation, args, kwargs)
        except NotCapturable as why:
            self.refused = why
            raise
        given = _storages((args, kwargs))
        if operation is aten.lift_fresh.default:
            self.literals |= given
        self.written |= _storages(_overwritten(operation, args, kwargs))
        with private.DisableTorchFunction():  # how an operation works inside is its own affair
            result = operation(*args, **kwargs)
        self.calls.append((operation, args, kwargs, result))
        for tensor in _tensors((args, kwargs, result)):
            if not tensor.is_cpu or tensor.layout != torch.strided:
                self.refused = NotCapturable(f"it has a tensor on {tensor.device}, {tensor.layout}")
                raise self.refused
        self.made |= _storages(result) - given
        return result

    def opaque(self, function, args, writes):
        self.written |= _storages([args[i] for i in writes])
        self.paused = True
        try:
            with private.DisableTorchFunction():
                result = function(*args)
        finally:
            self.paused = False
        self.calls.append((Opaque(function, writes), args, {}, result))
        return result


def _refuse(operation, args, kwargs):
    """Refuse operations whose replay could do something else than they do now."""
    if operation.namespace == "profiler":
        raise NotCapturable("it uses an optimizer of torch.optim or a profiler's label")
    if torch.Tag.inplace_view in operation.tags:
        raise NotCapturable(f"{operation} changes the shape of a tensor in place")
    if kwargs.get("generator") is not None or any(isinstance(a, torch.Generator) for a in args):
        raise NotCapturable("it draws from a random generator of its own")
    if operation is aten.index.Tensor:  # integer indices are fine, boolean masks are not
        by_truth = any(t.dtype in (torch.bool, torch.uint8) for t in _tensors(args[1]))
    else:
        tags = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
        by_truth = bool(tags & set(operation.tags))
    if by_truth:
        raise NotCapturable(
            f"the shape of what {operation} gives depends on the data, as with boolean masks"
        )


class Snapshot:
    """The state of everything that an update can change, to be put back."""

    def __init__(self, dependencies):
        self.dependencies = dependencies
        self.tensors = dependencies.all_tensors()
        self.values = [t.detach().clone() for t in self.tensors]
        self.grads = [p.grad for p in dependencies.parameters]
        self.grad_values = [None if g is None else g.detach().clone() for g in self.grads]
        self.streams = torch.get_rng_state(), np.random.get_state(), random.getstate()

    @torch.no_grad()
    def restore(self):
        self.dependencies.restore()
        for tensor, value in zip(self.tensors, self.values):
            tensor.detach().copy_(value)
        for p, grad, value in zip(self.dependencies.parameters, self.grads, self.grad_values):
            p.grad = grad
            if grad is not None:
                grad.detach().copy_(value)
        torch.set_rng_state(self.streams[0])
        np.random.set_state(self.streams[1])
        random.setstate(self.streams[2])

    def moved_streams(self) -> str | None:
        """Which random stream besides PyTorch's has moved since."""
        now = np.random.get_state()
        if any(not np.array_equal(a, b) for a, b in zip(now, self.streams[1])):
            return "NumPy"
        return None if random.getstate() == self.streams[2] else "Python's random module"

    def outcome(self, result) -> list:
        """What an update has done: the new values of all that it changed, and what it gave."""
        changed = [torch.get_rng_state(), *(t.detach().clone() for t in self.tensors)]
        grads = [p.grad for p in self.dependencies.parameters]
        grads = [None if g is None else g.detach().clone() for g in grads]
        leaves = [x.detach().clone() if torch.is_tensor(x) else x for x in tree_flatten(result)[0]]
        return [*changed, *grads, *leaves]


class Capture:
    """The operations of one update, to be carried out again for each batch."""

    def __init__(self, update, learner, batch, settings):
        if not isinstance(batch, tuple):
            raise NotCapturable(f"its batch is a {type(batch).__name__}; make it a named tuple")
        if any(torch.is_tensor(x) and x.requires_grad for x in batch):
            raise NotCapturable("its batch is part of a graph that autograd built before")
        _refuse_attributes(batch)
        arrange_critics(learner)
        self.trusted = False
        self.batch_type, self.column_types = type(batch), list(map(type, batch))
        self.settings, self.setting_types = dict(settings), list(map(type, settings.values()))
        # Of these, `==` and the type tell all; of -0.0 and 0.0, lists and objects they do not.
        whole = (int, str, types.NoneType)
        self.looked_into = [
            k for k, x in settings.items()
            if not (isinstance(x, whole) or isinstance(x, float) and x)
        ]  # fmt: skip
        self.may_have_attributes = bool(type(batch).__dictoffset__)
        self.with_grad, self.default_dtype = torch.is_grad_enabled(), torch.get_default_dtype()
        self.full = all(map(torch.is_tensor, batch))  # no column is absent
        self.are_alike = private.tensor_check((), [x for x in batch if torch.is_tensor(x)])
        self.dependencies = dependencies = Dependencies(update, learner, batch, settings)
        dependencies.refuse_shared(batch)
        snapshot, trace = Snapshot(dependencies), Trace()
        self.inputs = _copied(batch)
        result, grads, expected = self._trace(update, learner, settings, snapshot, trace)
        self._build(trace, result, grads)
        self._verify(snapshot, expected, "on its own batch")
        self._compare_with_plain(update, learner, settings, snapshot, expected)
        threads = torch.get_num_threads()
        free = may_choose(threads) and num_procs() == 1  # other processes would have to wait
        free = free and self._is_the_same_with_one_thread(snapshot)
        self.run = Threads(threads).run if free else _carry_out

    # --- What happens once ---

    def _trace(self, update, learner, settings, snapshot, trace):
        try:
            with capturing(trace), trace, _HostReadGuard() as guard:
                result = update(learner, self.inputs, **settings)
            if refused := trace.refused or guard.refused:
                raise refused
            grads = [p.grad for p in self.dependencies.parameters]
            expected = snapshot.outcome(result)
            if (what := self.dependencies.changed()) is not None:
                raise NotCapturable(f"it changes {what}")
            if (stream := snapshot.moved_streams()) is not None:
                raise NotCapturable(f"it draws random numbers from {stream}, not from PyTorch")
            known = set(map(private.storage_id, snapshot.tensors))
            known |= trace.made | _storages(self.inputs) | trace.literals - trace.written
            if not {s for call in trace.calls for s in _storages(call[1:])} <= known:
                raise NotCapturable("it uses a tensor from elsewhere, such as a NumPy array's")
            for tensor, before, after in zip(snapshot.tensors, snapshot.values, expected[1:]):
                if private.storage_id(tensor) not in trace.written and not _equal(before, after):
                    raise NotCapturable("an operation in it changes a tensor without saying so")
            if _storages(self.inputs) & trace.written:
                raise NotCapturable("it changes its batch")
        finally:
            snapshot.restore()
        return result, grads, expected

    def _build(self, trace, result, grads):
        leaves, self.shape = tree_flatten(result)
        if not all(x is None or isinstance(x, (_Tensor, int, float, str, bool)) for x in leaves):
            raise NotCapturable("it gives back something else than tensors and plain values")
        nested = isinstance(result, dict) and any(
            isinstance(x, (dict, list, tuple)) for x in result.values()
        )
        flat = isinstance(result, dict) and len(leaves) == len(result) and not nested
        steps = trace.written & set(map(private.storage_id, self.dependencies.parameters))
        if not steps and any(torch.is_tensor(x) and x.requires_grad for x in leaves):
            raise NotCapturable("it gives back a loss whose gradient it does not take itself")
        if _storages(leaves) & set(map(private.storage_id, self.dependencies.all_tensors())):
            raise NotCapturable("it gives back a tensor of its learner, which goes on changing")
        self.rebuilt = partial(_named, list(result)) if flat else partial(_unflattened, self.shape)
        new = _storages([g for g in grads if g is not None]) & trace.made
        # Of the parameters whose gradient this update has found; others may be another's.
        pairs = list(zip(self.dependencies.parameters, grads))
        if any(p.grad is not g and id(p) not in trace.graded for p, g in pairs):
            raise NotCapturable("it sets gradients otherwise than by gradient_step")
        self.params = [p for p, g in pairs if g is not None and private.storage_id(g) in new]
        kept = [g for _, g in pairs if g is not None and private.storage_id(g) in new]
        if any(p.grad is not g and not any(g is k for k in kept) for p, g in pairs):
            raise NotCapturable("it sets the gradient of a parameter to one from elsewhere")
        constants = _constants(trace)
        placed = _plan_memory(trace, [*leaves, *kept], constants)
        threads = torch.get_num_threads()
        self.draws = any(torch.Tag.nondeterministic_seeded in call[0].tags for call in trace.calls)
        self.steps, self.checks = [], []
        for operation, *rest in trace.calls:
            nothing = operation in EMPTY_OPS or _is_view(operation, *rest)
            if nothing or _storages(rest[-1]) & constants:
                continue
            here = tree_map_only(_Tensor, placed, rest)
            self.steps.append(replay_kernel(operation, *here, threads))
            self.checks.append((operation, *here))
        self.grads = [placed(g) for g in kept]
        self.given = [g.detach() for g in self.grads]  # what the parameters show of them
        self.references = [_references()] * len(self.given)
        used = {s for call in trace.calls for s in _storages(call[1:])}
        # What it reads and what it changes of its learner, for who decides about threads.
        self.reads = used - trace.made - _storages(self.inputs)
        self.writes = trace.written & self.reads | _storages(self.params)
        self.results = [placed(x).numpy() if torch.is_tensor(x) else x for x in leaves]
        self.copies = [x.copy if isinstance(x, np.ndarray) else None for x in self.results]
        read = {s for call in trace.calls for s in _storages(call[1:3])} | _storages(leaves)
        used = [x is not None and private.storage_id(x) in read for x in self.inputs]
        self.columns = [i for i, is_used in enumerate(used) if is_used]
        self.places = [self.inputs[i] for i in self.columns]

    def _verify(self, snapshot, expected, where):
        """Compare with eager execution: operation by operation, and a whole replay."""
        try:
            with capturing(), torch.no_grad(), np.errstate(all="ignore"):
                for p, grad in zip(self.params, self.grads):
                    p.grad = grad
                for step, check in zip(self.steps, self.checks):
                    _check_step(step, *check)
                copies = [torch.tensor(r) if isinstance(r, np.ndarray) else r for r in self.results]
                found = snapshot.outcome(copies)
        finally:
            snapshot.restore()
        if len(found) != len(expected) or not all(map(_equal, found, expected)):
            raise NotCapturable(f"its operations gave other numbers than eager execution {where}")
        try:
            with capturing(), np.errstate(all="ignore"):
                _carry_out(self.steps)
                found = [r.copy() if isinstance(r, np.ndarray) else r for r in self.results]
        finally:
            snapshot.restore()
        if not _results_agree(found, expected):
            raise NotCapturable(f"its replay gave other results than eager execution {where}")

    def _compare_with_plain(self, update, learner, settings, snapshot, expected):
        """Refuse if fused layers lead to results that differ from those of PyTorch's own layers."""
        try:
            with capturing(), switch.plain():
                found = tree_flatten(update(learner, self.inputs, **settings))[0]
        finally:
            snapshot.restore()
        if not _results_agree(found, expected):
            raise NotCapturable("its fused layers give other numbers than plain ones")

    def verify_next(self, update, learner, batch, settings):
        """Compare a replay with eager execution on a second batch, and trust it from then on."""
        _refuse_attributes(batch)
        self.dependencies.refuse_shared(batch)
        snapshot = Snapshot(self.dependencies)
        try:
            with capturing():
                # Copied, for small products round in another way where rows lie apart.
                expected = snapshot.outcome(update(learner, _copied(batch), **settings))
            if self.dependencies.changed() is not None or snapshot.moved_streams() is not None:
                raise NotCapturable("its second call did something that its first did not")
        finally:
            snapshot.restore()
        self.take(batch)
        self._verify(snapshot, expected, "on the next batch")
        self.trusted, self.checks = True, None

    def _is_the_same_with_one_thread(self, snapshot) -> bool:
        """Whether the steps give the same bits however they are shared out; they are undone."""
        threads, found = torch.get_num_threads(), []
        try:
            with capturing(), np.errstate(all="ignore"):
                for number in (1, threads):
                    torch.set_num_threads(number)
                    _carry_out(self.steps)
                    results = [r.tobytes() for r in self.results if isinstance(r, np.ndarray)]
                    outcome = [t for t in snapshot.outcome(None) if torch.is_tensor(t)]
                    found.append([t.numpy().tobytes() for t in outcome] + results)
                    snapshot.restore()
        finally:
            torch.set_num_threads(threads)
            snapshot.restore()
        return found[0] == found[1]

    # --- What happens at every call ---

    def fits(self, batch, settings) -> bool:
        """Whether the update would do now what it did when it was captured."""
        return self.is_for(batch, settings) and self.dependencies.intact()

    def is_for(self, batch, settings) -> bool:
        """Whether it was captured for such a batch and these settings."""
        try:
            return (
                type(batch) is self.batch_type
                and (self.full or list(map(type, batch)) == self.column_types)
                and settings == self.settings
                and list(map(type, settings.values())) == self.setting_types
                and (not self.looked_into or self._same_contents(settings))
                and not (self.may_have_attributes and vars(batch))
                and torch.is_grad_enabled() is self.with_grad
                and torch.get_default_dtype() is self.default_dtype
                and self.are_alike(*(batch if self.full else [x for x in batch if x is not None]))
            )
        except Exception:  # settings that cannot be compared, such as tensors
            return False

    def _same_contents(self, settings) -> bool:
        return all(same_contents(settings[k], self.settings[k]) for k in self.looked_into)

    def _leave_kept_gradients(self):
        """Give gradients that somebody has kept memory of their own, before the steps write."""
        for i, count in enumerate(map(getrefcount, self.given)):
            if count > self.references[i]:
                self.given[i].data = self.given[i].clone()
                self.given[i] = self.params[i].grad = self.grads[i].detach()

    def take(self, batch):
        """Copy a batch to where the steps look for it."""
        if self.places:
            private.foreach_copy_(self.places, [batch[i] for i in self.columns])

    def replay(self):
        for p, p.grad in zip(self.params, self.given):  # another capture leaves them elsewhere
            pass  # and no name of ours keeps the last one, for references are counted next
        if list(map(getrefcount, self.given)) != self.references:
            self._leave_kept_gradients()
        _quiet_context().run(self.run, self.steps)
        # For the caller to keep: the next replay writes to the same place.
        pairs = zip(self.copies, self.results)
        return self.rebuilt([from_numpy(copy()) if copy else value for copy, value in pairs])


def _references() -> int:
    """How many Python counts to a gradient that a list holds and nobody else."""
    p, held = torch.nn.Parameter(torch.zeros(1)), [torch.zeros(1)]
    p.grad = held[0]
    return list(map(getrefcount, held))[0]


def _refuse_attributes(batch):
    """Refuse a batch that carries more than its columns: an update could look at it."""
    if type(batch).__dictoffset__ and vars(batch):
        raise NotCapturable("its batch has attributes besides its columns")
    if any(torch.is_tensor(x) and vars(x) for x in batch):
        raise NotCapturable("a column of its batch has attributes of its own")


def _copied(batch):
    """A batch whose columns are tensors of their own, without gaps."""
    return _rebuilt(batch, [None if x is None else x.detach().clone() for x in batch])


def _rebuilt(batch, columns):
    return type(batch)(*columns) if hasattr(batch, "_fields") else tuple(columns)


def _quiet_context():
    """A context in which NumPy says nothing of infinities, as PyTorch, for this thread.

    NumPy's errstate, entered at every replay, would take longer.
    """
    if not hasattr(_quiet, "context"):
        _quiet.context = copy_context()
        _quiet.context.run(np.seterr, all="ignore")
    return _quiet.context


_quiet = threading.local()


def _carry_out(steps):
    for step in steps:
        step()


def _named(names, values):
    return dict(zip(names, values))


def _unflattened(shape, values):
    return tree_unflatten(values, shape)


def _equal(found, expected) -> bool:
    """Whether two results are the same to the last bit; not-a-number equals itself."""
    if not torch.is_tensor(expected) or not torch.is_tensor(found):
        return found is expected or found == expected
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return False
    return bool(
        torch.eq(found, expected).logical_or_(found.ne(found) & expected.ne(expected)).all()
    )


def _results_agree(results, expected) -> bool:
    """Whether results are close to those at the end of an outcome, so far as they are numbers."""
    for found, b in zip(results, expected[-len(results) :] if results else []):
        found = torch.as_tensor(found) if isinstance(found, np.ndarray) else found
        if torch.is_tensor(found) and found.is_floating_point() and found.numel():
            a, b = found.detach(), b.detach()
            if a.shape != b.shape:
                return False
            allowed = CLOSE * (b.abs().max() + 1e-3)
            if not ((a - b).abs() <= allowed).logical_or(a.isnan() | (a == b)).all():
                return False
    return True


def _check_step(step, operation, args, kwargs, result):
    """Carry out a step, then PyTorch's own operation in its place, and compare the two."""
    stream = torch.get_rng_state()
    written = _overwritten(operation, args, kwargs)
    places = written if written else _tensors(result)
    before = [t.clone() for t in written]
    step()
    found = [t.clone() for t in places]
    for tensor, value in zip(written, before):
        tensor.copy_(value)
    torch.set_rng_state(stream)
    given = operation(*args, **kwargs)
    if not written:
        for place, new in zip(places, _tensors(given)):
            place.copy_(new)
    bound = tolerance(operation, before or None, args, kwargs)
    for a, b in zip(found, places):
        if not _within(a, b, bound):
            raise NotCapturable(f"the fast version of {operation} gives other numbers than PyTorch")


def _within(found, expected, bound) -> bool:
    if not expected.is_floating_point():
        return bool((found == expected).all())
    allowed = bound(expected)
    close = (found.double() - expected.double()).abs() <= allowed
    same = (found == expected) | (found.isnan() & expected.isnan())
    return bool((close | same).all())


def _tensors(tree) -> list:
    return [leaf for leaf in tree_flatten(tree)[0] if torch.is_tensor(leaf)]


def _storages(tree) -> set:
    return {private.storage_id(tensor) for tensor in _tensors(tree)}


def _overwritten(operation, args, kwargs) -> list:
    """The tensors that an operation changes."""
    if isinstance(operation, Opaque):
        # By place, for the same lists with other tensors in them stand for them in a capture.
        return _tensors([args[i] for i in operation.writes])
    if not private.schema(operation).is_mutable:
        return []
    given = zip(private.schema(operation).arguments, args)
    named = [(a, kwargs[a.name]) for a in private.schema(operation).arguments if a.name in kwargs]
    changed = [x for a, x in (*given, *named) if a.alias_info is not None and a.alias_info.is_write]
    return _tensors(changed)


def _is_view(operation, args, kwargs, result) -> bool:
    """Whether the result is only another look at an argument, and nothing was computed."""
    if isinstance(operation, Opaque) or private.schema(operation).is_mutable:
        return False
    results = _tensors(result)
    return bool(results) and _storages(results) <= _storages((args, kwargs))


def _constants(trace) -> set:
    """Where results lie that are the same in every replay, such as ones and zeros."""
    constants = set()
    for operation, args, kwargs, result in trace.calls:
        if isinstance(operation, Opaque) or private.schema(operation).is_mutable:
            continue
        from_nothing = operation in CONSTANT_OPS or (
            _storages((args, kwargs)) and _storages((args, kwargs)) <= constants
        )
        if from_nothing and torch.Tag.nondeterministic_seeded not in operation.tags:
            constants |= _storages(result) & trace.made - trace.written
    return constants


def _plan_memory(trace, results, constants):
    """What finds the tensor that stands for one of the trace, in memory that is reused.

    Memory is given to a result when it is made and taken back after its last use, so that an update
    stays within the processor's cache. Constants and what was there before keep their places.
    """
    last_use = {}
    for number, (_, *rest) in enumerate(trace.calls):
        last_use |= dict.fromkeys(_storages(rest), number)
    last_use |= dict.fromkeys(_storages(results), len(trace.calls))
    free, memory = [], {}
    for number, (*_, result) in enumerate(trace.calls):
        for tensor in _tensors(result):
            place, size = private.storage_id(tensor), tensor.untyped_storage().nbytes()
            if place in trace.made - constants and place not in memory:
                fitting = [block for block in free if size <= block.nbytes <= 2 * size]
                block = min(fitting, key=lambda b: b.nbytes) if fitting else _block(size)
                free = [other for other in free if other is not block]
                memory[place] = block
        free += [memory[place] for place in memory if last_use[place] == number]

    def placed(tensor):
        block = memory.get(private.storage_id(tensor))
        if block is None:
            return tensor.detach()
        return block.view(tensor.dtype).as_strided(
            tensor.shape, tensor.stride(), tensor.storage_offset()
        )

    return placed


def _block(size):
    return torch.zeros(-(-max(size, 1) // 64) * 64, dtype=torch.uint8)
