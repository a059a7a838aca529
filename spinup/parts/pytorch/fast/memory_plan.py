"""Where the results of a captured update lie: in blocks of memory, reused as soon as possible.

Blocks are given out and taken back in the order of the operations, so that an update stays within
the processor's cache. Results that are the same in every replay are computed once and kept.
"""

import torch

from spinup.parts.pytorch.fast import private
from spinup.parts.pytorch.fast.trace import Opaque, is_view, storages_in, tensors_in

aten = torch.ops.aten
# What these give depends on no number.
CONSTANT_OPS = {
    aten.ones_like.default,
    aten.zeros_like.default,
    aten.new_zeros.default,
    aten.full.default,
    aten.zeros.default,
    aten.ones.default,
    aten.full_like.default,
    aten.new_ones.default,
    aten.scalar_tensor.default,
    aten.arange.default,
    aten.arange.start,
    aten.arange.start_step,
}
# These only ask for memory.
EMPTY_OPS = {
    aten.empty_like.default,
    aten.empty.memory_format,
    aten.new_empty.default,
    aten.empty_strided.default,
    aten.new_empty_strided.default,
}


def computes_nothing(call) -> bool:
    """Whether an operation only asks for memory, or gives another view of an argument."""
    operation, *rest = call
    return operation in EMPTY_OPS or is_view(operation, *rest)


def constants_of(trace) -> set:
    """Where results lie that are the same in every replay, such as ones and zeros."""
    constants = set()
    for operation, args, kwargs, result in trace.calls:
        if isinstance(operation, Opaque) or private.schema(operation).is_mutable:
            continue
        from_nothing = operation in CONSTANT_OPS or (
            storages_in((args, kwargs)) and storages_in((args, kwargs)) <= constants
        )
        if from_nothing and torch.Tag.nondeterministic_seeded not in operation.tags:
            constants |= storages_in(result) & trace.made - trace.written
    return constants


def plan_memory(trace, results, constants):
    """What finds the tensor that stands for one of the trace, in memory that is reused.

    Memory is given to a result when it is made and taken back after its last use, so that an update
    stays within the processor's cache. Constants and what was there before keep their places.
    """
    last_use = {}
    for number, (_, *rest) in enumerate(trace.calls):
        last_use |= dict.fromkeys(storages_in(rest), number)
    last_use |= dict.fromkeys(storages_in(results), len(trace.calls))
    free, memory = [], {}
    for number, (*_, result) in enumerate(trace.calls):
        for tensor in tensors_in(result):
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
