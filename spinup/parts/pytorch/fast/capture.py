"""Updates that are recorded once and then replayed.

A small network on a CPU spends most of an update between its products: in Python, in autograd, in
finding memory for results. An update does the same operations every time, only with other numbers.
So the first call is watched, the operations that autograd and PyTorch really carried out are
written down, and from then on they alone are carried out, into memory that is already there; tiny
ones by NumPy, which is called in a tenth of the time.

That is right because of how an update is written here: all that it reads and writes is in its
learner, all that changes from call to call is in its batch, and every other argument is a plain
value, for each of which a recording of its own is made. Random numbers must be PyTorch's. What
cannot be recorded (networks of a user's own, another device, tensors from elsewhere, a decision
that depends on a number) runs as it is written. So does everything if `RECORD_UPDATES` in
user_config.py is False, to go through an update line by line.
"""

import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from functools import partial, wraps

import numpy as np
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten

from spinup import user_config
from spinup.parts.pytorch.fast.kernels import again
from spinup.parts.pytorch.fast.threads import Threads, may_choose
from spinup.utils.mpi_pytorch import average_over_processes
from spinup.utils.mpi_tools import num_procs

aten = torch.ops.aten
MOST_RECORDINGS = 8  # of one learner; a setting that is new at every call is not worth recording
# What these give depends on no number.
FILLED = {
    aten.ones_like.default, aten.zeros_like.default, aten.new_zeros.default, aten.full.default,
    aten.zeros.default, aten.ones.default, aten.full_like.default, aten.new_ones.default,
    aten.scalar_tensor.default, aten.arange.default, aten.arange.start, aten.arange.start_step,
}  # fmt: skip
# Ways out of PyTorch: what a program does with the numbers then, nobody sees.
EXITS = {
    torch.Tensor.numpy, torch.Tensor.__array__, torch.Tensor.tolist, torch.Tensor.item,
    torch.Tensor.__bool__, torch.Tensor.__repr__, torch.Tensor.__format__,
}  # fmt: skip
# Noted, but not carried out while recording: the other processes may not be recording now.
ONLY_NOTED = {average_over_processes}


_one_at_a_time = threading.Lock()


class NotRecordable(Exception):
    """The update must run as it is written."""


def recorded(update):
    """Let `update(learner, batch, **settings)` be replayed after its first call.

    learner: has networks, or is one
    batch: a named tuple of tensors
    settings: plain values
    """
    recordings = {}  # of each learner that is alive, by its id

    @wraps(update)
    def replayed(learner, batch, **settings):
        of_learner = recordings.get(id(learner))
        if of_learner is None:
            weakref.finalize(learner, recordings.pop, id(learner), None)
            of_learner = recordings[id(learner)] = {} if is_ours(learner) else None
        if of_learner is None:
            return update(learner, batch, **settings)
        key = (*settings.items(), batch[0].shape)  # all columns have as many rows as the first
        if key not in of_learner:
            of_learner[key] = _recording(update, learner, batch, settings, len(of_learner))
        recording = of_learner[key]
        return update(learner, batch, **settings) if recording is None else recording(batch)

    replayed.as_written = update
    return replayed


def _networks(learner) -> list:
    """The networks of a learner, or the one network that it is."""
    parts = [learner, *vars(learner).values()]
    return [part for part in parts if isinstance(part, nn.Module)]


def _places(learner, settings) -> set:
    """Where the numbers of networks and optimizers lie, those among the settings included."""
    owners = [learner, *vars(learner).values(), *settings.values()]
    modules = [owner for owner in owners if isinstance(owner, nn.Module)]
    tensors = [t for module in modules for t in (*module.parameters(), *module.buffers())]
    states = [owner.state_dict() for owner in owners if hasattr(owner, "param_groups")]
    return _made((tensors, states))


def is_ours(learner) -> bool:
    """Whether all networks are made of our parts and PyTorch's, on a CPU: nothing hides in them."""
    networks = _networks(learner)
    modules = [module for network in networks for module in network.modules()]
    known = all(type(m).__module__.split(".")[0] in ("spinup", "torch") for m in modules)
    tensors = [t for network in networks for t in (*network.parameters(), *network.buffers())]
    return known and all(t.is_cpu for t in tensors)


def _recording(update, learner, batch, settings, number):
    """A recording of this call, which itself changes nothing; None where there can be none."""
    if number >= MOST_RECORDINGS or not user_config.RECORD_UPDATES:
        return None
    try:
        with _one_at_a_time:
            return Recording(update, learner, batch, settings)
    except NotRecordable:
        return None


def side_by_side(ac, first, second):
    """The statistics that `first()` and `second()` give; both at once, if that is safe and helps.

    It is safe where networks are ours, so that a policy and a value share nothing that changes, and
    where there are no other processes, whose exchanges would get mixed up. Then each has a thread,
    and is quicker than if both took turns in using two: small products are hard to share.
    """
    threads = torch.get_num_threads()
    if threads < 2 or num_procs() > 1 or not is_ours(ac):
        return first() | second()
    try:
        torch.set_num_threads(1)
        with ThreadPoolExecutor(1, initializer=torch.set_num_threads, initargs=(1,)) as other:
            from_second = other.submit(second)
            return first() | from_second.result()
    finally:
        torch.set_num_threads(threads)


class _Exits(TorchFunctionMode):
    """Refuses what would let numbers out of PyTorch's sight."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function in EXITS:
            raise NotRecordable(function)
        return function(*args, **(kwargs or {}))


class _Watch(TorchDispatchMode):
    """Writes down every operation below autograd, and what it overwrites that was there before."""

    @classmethod
    def _should_skip_dynamo(cls):
        return False  # else PyTorch loads its compiler, for a second and a half, to tell it so

    def __init__(self):
        super().__init__()
        self.calls, self.made, self.before = [], set(), {}

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if _depends_on_numbers(operation, args):
            raise NotRecordable(operation)
        self._keep(_overwritten(operation, args, kwargs))
        with torch._C.DisableTorchFunction():  # an operation's own way of working is its own affair
            result = None if operation in ONLY_NOTED else operation(*args, **kwargs)
        self.calls.append((operation, args, kwargs, result))
        for tensor in _tensors((args, kwargs)):
            if not tensor.is_cpu:
                raise NotRecordable(tensor.device)
        if not _is_view(operation) and not operation._schema.is_mutable:
            self.made |= _made(result)
        return result

    def _keep(self, overwritten):
        """Remember the value of what the update is about to change in its learner."""
        for tensor in overwritten:
            if _place(tensor) not in self.made:
                self.before.setdefault(id(tensor), (tensor, tensor.detach().clone()))

    def undo(self):
        for tensor, value in reversed(self.before.values()):
            tensor.detach().copy_(value)


class Recording:
    """The operations of one update, to be carried out again for each batch."""

    def __init__(self, update, learner, batch, settings):
        self.inputs = type(batch)(*(None if x is None else x.clone() for x in batch))
        random, watch = torch.get_rng_state(), _Watch()
        try:
            with watch, _Exits():
                result = update(learner, self.inputs, **settings)
        finally:
            torch.set_rng_state(random)
            watch.undo()
        used = {place for _, *rest in watch.calls for place in _made(rest)}
        if not used <= watch.made | _places(learner, settings) | _made(self.inputs):
            raise NotRecordable("a tensor from elsewhere, which may be another next time")
        leaves, shape = tree_flatten(result)
        flat = isinstance(result, dict) and len(leaves) == len(result)
        self.rebuilt = partial(_named, list(result)) if flat else partial(_unflattened, shape)
        params = [p for network in _networks(learner) for p in network.parameters()]
        # Only those that this update has found: others may be another thread's.
        params = [p for p in params if p.grad is not None and _place(p.grad) in watch.made]
        constants = _constants(watch)
        placed = _placed(watch, [*leaves, *(p.grad for p in params)], constants)
        threads = torch.get_num_threads()
        self.steps = [
            again(operation, *tree_map_only(torch.Tensor, placed, rest), threads)
            for operation, *rest in watch.calls
            if not _is_view(operation) and not _made(rest[-1]) & constants
        ]
        self.params, self.grads = params, [placed(p.grad) for p in params]
        self.results = [placed(leaf).numpy() if torch.is_tensor(leaf) else leaf for leaf in leaves]
        self.arrays = [None if x is None else x.numpy() for x in self.inputs]
        self.batch = None
        free = may_choose(threads) and num_procs() == 1  # other processes would have to wait
        free = free and self._is_the_same_with_one_thread(watch, random)
        self.run = Threads(threads).run if free else _carry_out

    def _is_the_same_with_one_thread(self, watch, random) -> bool:
        """Whether the steps give the same bits however they are shared out; they are undone."""
        made = [tensor.detach().numpy() for tensor, _ in watch.before.values()]
        made += [grad.numpy() for grad in self.grads]
        made += [result for result in self.results if isinstance(result, np.ndarray)]
        threads, found = torch.get_num_threads(), []
        try:
            for number in (1, threads):
                torch.set_num_threads(number)
                _carry_out(self.steps)
                found.append([array.tobytes() for array in made])
                watch.undo()
                torch.set_rng_state(random)
        finally:
            torch.set_num_threads(threads)
        return found[0] == found[1]

    def __call__(self, batch):
        if batch is not self.batch:  # a whole rollout comes many times in a row
            self.batch = batch
            for here, given in zip(self.arrays, batch):
                if given is not None:
                    np.copyto(here, given.numpy())
        for p, grad in zip(self.params, self.grads):
            p.grad = grad  # another recording leaves it elsewhere
        self.run(self.steps)
        return self.rebuilt([_copy(result) for result in self.results])


def _carry_out(steps):
    for step in steps:
        step()


def _named(names, values):
    return dict(zip(names, values))


def _unflattened(shape, values):
    return tree_unflatten(values, shape)


def _copy(result):
    """A result for the caller to keep: the next replay writes to the same place."""
    return torch.from_numpy(result.copy()) if isinstance(result, np.ndarray) else result


def _tensors(tree) -> list:
    return [leaf for leaf in tree_flatten(tree)[0] if torch.is_tensor(leaf)]


def _place(tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _made(result) -> set:
    return {_place(tensor) for tensor in _tensors(result)}


def _depends_on_numbers(operation, args) -> bool:
    """Whether numbers decide what comes next, or the size of the result."""
    if operation is aten.index.Tensor:  # rows chosen by number are fine, those chosen by truth not
        return any(t.dtype == torch.bool for t in _tensors(args[1]))
    tags = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
    return bool(tags & set(operation.tags))


def _overwritten(operation, args, kwargs) -> list:
    """The tensors that an operation changes."""
    if not operation._schema.is_mutable:
        return []
    given = zip(operation._schema.arguments, args)
    named = [(a, kwargs[a.name]) for a in operation._schema.arguments if a.name in kwargs]
    changed = [x for a, x in (*given, *named) if a.alias_info is not None and a.alias_info.is_write]
    return _tensors(changed)


def _is_view(operation) -> bool:
    """Whether the result is only another look at an argument."""
    returns = operation._schema.returns
    return any(r.alias_info is not None and not r.alias_info.is_write for r in returns)


def _constants(watch) -> set:
    """Where results lie that are the same in every replay, such as ones and zeros."""
    written, constants = set(), set()
    for operation, args, kwargs, _ in watch.calls:
        written |= _made(_overwritten(operation, args, kwargs))
    for operation, args, kwargs, result in watch.calls:
        from_nothing = operation in FILLED or _made((args, kwargs)) <= constants
        random = torch.Tag.nondeterministic_seeded in operation.tags
        if from_nothing and not random and not operation._schema.is_mutable:
            constants |= _made(result) & watch.made - written
    return constants


def _placed(watch, results, constants):
    """What finds the tensor that stands for one of the recording, in memory that is reused.

    Memory is given to a result when it is made and taken back after its last use, so that an update
    stays within the processor's cache. Constants and what was there before keep their places.
    """
    last_use = {}
    for number, (_, *rest) in enumerate(watch.calls):
        last_use |= dict.fromkeys(_made(rest), number)
    last_use |= dict.fromkeys(_made(results), len(watch.calls))
    free, memory = [], {}
    for number, (*_, result) in enumerate(watch.calls):
        for tensor in _tensors(result):
            place, size = _place(tensor), tensor.untyped_storage().nbytes()
            if place in watch.made - constants and place not in memory:
                fitting = [block for block in free if size <= block.nbytes <= 2 * size]
                block = min(fitting, key=lambda b: b.nbytes) if fitting else _block(size)
                free = [other for other in free if other is not block]
                memory[place] = block
        free += [memory[place] for place in memory if last_use[place] == number]

    def placed(tensor):
        block = memory.get(_place(tensor))
        if block is None:
            return tensor.detach()
        return block.view(tensor.dtype).as_strided(
            tensor.shape, tensor.stride(), tensor.storage_offset()
        )

    return placed


def _block(size):
    return torch.zeros(-(-max(size, 1) // 64) * 64, dtype=torch.uint8)
