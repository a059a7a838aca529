"""Updates that are captured once and then replayed, like a CUDA graph but on the CPU.

A small network on a CPU spends most of an update between its matrix products: in Python, in
autograd, in finding memory for results. An update does the same operations every time, only with
other numbers. So the first call is traced: the operations that PyTorch carried out below autograd
are written down (trace.py), and from then on only they are carried out, into memory that is already
there (memory_plan.py); tiny ones by NumPy, which is called in a tenth of the time (kernels.py).

What the code says is what happens. A capture stands for an update only while everything that the
update can see is as it was (dependencies.py), for batches of the same shapes and for the same
settings; otherwise another capture is made (recording.py). It is trusted only after two batches,
its own and the next (verification.py): its operations, carried out by PyTorch, gave to the last bit
what eager execution gave; every faster kernel agreed with its operation to rounding; and the
results of a whole replay agreed with eager ones. In between, everything that the update changed is
put back (snapshot.py). An update runs eagerly, and one printed line says why, if it reads numbers
back (`.item()`, `if loss > …`), changes something in Python (a counter, a list), samples from
NumPy's or Python's random streams, or uses what cannot be looked into. A capture that is given up
has changed nothing.
"""

import threading
import types
from contextvars import copy_context
from functools import partial
from sys import getrefcount

import numpy as np
import torch
from torch import from_numpy

from spinup.parts.mpi import num_procs
from spinup.parts.pytorch.fast import private, switch
from spinup.parts.pytorch.fast.context import capturing
from spinup.parts.pytorch.fast.dependencies import Dependencies
from spinup.parts.pytorch.fast.fused_critics import arrange_critics
from spinup.parts.pytorch.fast.guards import same_contents
from spinup.parts.pytorch.fast.kernels import replay_kernel
from spinup.parts.pytorch.fast.memory_plan import computes_nothing, constants_of, plan_memory
from spinup.parts.pytorch.fast.private import tree_flatten, tree_map_only, tree_unflatten
from spinup.parts.pytorch.fast.snapshot import Snapshot
from spinup.parts.pytorch.fast.threads import Threads, may_choose
from spinup.parts.pytorch.fast.trace import HostReadGuard, Trace, storages_in
from spinup.parts.pytorch.fast.trusted import NotCapturable
from spinup.parts.pytorch.fast.verification import check_step, results_agree, same_bits


class Capture:
    """The operations of one update, to be carried out again for each batch."""

    def __init__(self, update, learner, batch, settings):
        _refuse_batch(batch)
        arrange_critics(learner)
        self.trusted = False
        self._note_call(batch, settings)
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

    def _note_call(self, batch, settings):
        """Note what a batch and settings must be like for this capture to stand for the update."""
        self.batch_type, self.column_types = type(batch), list(map(type, batch))
        self.settings, self.setting_types = dict(settings), list(map(type, settings.values()))
        # Of these, `==` and the type tell all; of -0.0 and 0.0, lists and objects they do not.
        whole = (int, str, types.NoneType)
        self.looked_into = [
            k
            for k, x in settings.items()
            if not (isinstance(x, whole) or isinstance(x, float) and x)
        ]
        self.may_have_attributes = bool(type(batch).__dictoffset__)
        self.with_grad, self.default_dtype = torch.is_grad_enabled(), torch.get_default_dtype()
        self.full = all(map(torch.is_tensor, batch))  # no column is absent
        self.are_alike = private.tensor_check((), [x for x in batch if torch.is_tensor(x)])

    def _trace(self, update, learner, settings, snapshot, trace):
        try:
            with capturing(trace), trace, HostReadGuard() as guard:
                result = update(learner, self.inputs, **settings)
            if refused := trace.refused or guard.refused:
                raise refused
            grads = [p.grad for p in self.dependencies.parameters]
            expected = snapshot.outcome(result)
            if (what := self.dependencies.changed()) is not None:
                raise NotCapturable(f"it changes {what}")
            if (stream := snapshot.moved_streams()) is not None:
                raise NotCapturable(f"it samples random numbers from {stream}, not from PyTorch")
            known = set(map(private.storage_id, snapshot.tensors))
            known |= trace.made | storages_in(self.inputs) | trace.literals - trace.written
            if not {s for call in trace.calls for s in storages_in(call[1:])} <= known:
                raise NotCapturable("it uses a tensor from elsewhere, such as a NumPy array's")
            for tensor, before, after in zip(snapshot.tensors, snapshot.values, expected[1:]):
                if private.storage_id(tensor) not in trace.written and not same_bits(before, after):
                    raise NotCapturable("an operation in it changes a tensor without saying so")
            if storages_in(self.inputs) & trace.written:
                raise NotCapturable("it changes its batch")
        finally:
            snapshot.restore()
        return result, grads, expected

    def _build(self, trace, result, grads):
        leaves = self._keep_form(trace, result)
        kept = self._keep_gradients(trace, grads)
        constants = constants_of(trace)
        placed = plan_memory(trace, [*leaves, *kept], constants)
        self._build_steps(trace, placed, constants)
        self.grads = [placed(g) for g in kept]
        self.given = [g.detach() for g in self.grads]  # what the parameters show of them
        self.references = [_references()] * len(self.given)
        self.results = [placed(x).numpy() if torch.is_tensor(x) else x for x in leaves]
        self.copies = [x.copy if isinstance(x, np.ndarray) else None for x in self.results]
        self._note_reads_and_writes(trace, leaves)

    def _keep_form(self, trace, result):
        """The tensors and values in a result; how they are put together again is kept."""
        leaves, self.shape = tree_flatten(result)
        values = torch.Tensor, int, float, str, bool
        if not all(x is None or isinstance(x, values) for x in leaves):
            raise NotCapturable("it gives back something else than tensors and plain values")
        steps = trace.written & set(map(private.storage_id, self.dependencies.parameters))
        if not steps and any(torch.is_tensor(x) and x.requires_grad for x in leaves):
            raise NotCapturable("it gives back a loss whose gradient it does not take itself")
        if storages_in(leaves) & set(map(private.storage_id, self.dependencies.all_tensors())):
            raise NotCapturable("it gives back a tensor of its learner, which keeps changing")
        nested = isinstance(result, dict) and any(
            isinstance(x, (dict, list, tuple)) for x in result.values()
        )
        flat = isinstance(result, dict) and len(leaves) == len(result) and not nested
        self.rebuilt = partial(_named, list(result)) if flat else partial(_unflattened, self.shape)
        return leaves

    def _keep_gradients(self, trace, grads):
        """The gradients that this update has computed itself."""
        new = storages_in([g for g in grads if g is not None]) & trace.made
        pairs = list(zip(self.dependencies.parameters, grads))
        if any(p.grad is not g and id(p) not in trace.graded for p, g in pairs):
            raise NotCapturable("it sets gradients otherwise than by gradient_step")
        own = [(p, g) for p, g in pairs if g is not None and private.storage_id(g) in new]
        self.params, kept = [p for p, _ in own], [g for _, g in own]
        if any(p.grad is not g and not any(g is k for k in kept) for p, g in pairs):
            raise NotCapturable("it sets the gradient of a parameter to one from elsewhere")
        return kept

    def _build_steps(self, trace, placed, constants):
        threads = torch.get_num_threads()
        random = torch.Tag.nondeterministic_seeded
        self.samples = any(random in call[0].tags for call in trace.calls)
        self.steps, self.checks = [], []
        for call in trace.calls:
            if computes_nothing(call) or storages_in(call[-1]) & constants:
                continue
            operation, *rest = call
            here = tree_map_only(torch.Tensor, placed, rest)
            self.steps.append(replay_kernel(operation, *here, threads))
            self.checks.append((operation, *here))

    def _note_reads_and_writes(self, trace, leaves):
        """What it reads and changes of its learner, for run_concurrently; the columns it reads."""
        used = {s for call in trace.calls for s in storages_in(call[1:])}
        self.reads = used - trace.made - storages_in(self.inputs)
        self.writes = trace.written & self.reads | storages_in(self.params)
        read = {s for call in trace.calls for s in storages_in(call[1:3])} | storages_in(leaves)
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
                    check_step(step, *check)
                copies = [torch.tensor(r) if isinstance(r, np.ndarray) else r for r in self.results]
                found = snapshot.outcome(copies)
        finally:
            snapshot.restore()
        if len(found) != len(expected) or not all(map(same_bits, found, expected)):
            raise NotCapturable(f"its operations gave other numbers than eager execution {where}")
        try:
            with capturing(), np.errstate(all="ignore"):
                _carry_out(self.steps)
                found = [r.copy() if isinstance(r, np.ndarray) else r for r in self.results]
        finally:
            snapshot.restore()
        if not results_agree(found, expected):
            raise NotCapturable(f"its replay gave other results than eager execution {where}")

    def _compare_with_plain(self, update, learner, settings, snapshot, expected):
        """Refuse if fused layers lead to results that differ from those of PyTorch's own layers."""
        try:
            with capturing(), switch.plain():
                found = tree_flatten(update(learner, self.inputs, **settings))[0]
        finally:
            snapshot.restore()
        if not results_agree(found, expected):
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


def _refuse_batch(batch):
    if not isinstance(batch, tuple):
        raise NotCapturable(f"its batch is a {type(batch).__name__}; make it a named tuple")
    if any(torch.is_tensor(x) and x.requires_grad for x in batch):
        raise NotCapturable("its batch is part of a graph that autograd built before")
    _refuse_attributes(batch)


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
