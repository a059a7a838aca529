"""Whether dicts and tensors are what they were, in a few microseconds.

Between two updates the weights run through the processor's cache and push everything else out of
it. Then a check costs as much as it looks at different objects, whatever it does with them. So of a
dict only its version is read, a number that grows with every change of the dict; only where that
has grown is the dict compared. All tensors are checked in one call.
"""

import gc
import types

import torch

from spinup.parts.pytorch.fast import private

_data_ptr = torch.Tensor.data_ptr


class Unchanged:
    """Dicts and tensors as they were when this was made."""

    def __init__(self, dicts, tensors):
        """Take note of them.

        dicts: those whose every entry matters; also the names of classes, as `vars` gives them
        tensors: of these it matters where they lie, in which shape, and whether they learn
        """
        dicts = list({id(d): d for d in map(_behind, dicts)}.values())
        self.dicts = [d for d in dicts if type(d) is dict]
        self.others = [d for d in dicts if type(d) is not dict]  # without a version that tells all
        self.before = list(map(dict, self.dicts + self.others))
        self.changes = private.changes_of(self.dicts)
        self.tensors = list(tensors)
        self.places = list(map(_data_ptr, self.tensors))
        self.are_alike = private.tensor_check(self.tensors)

    def intact(self) -> bool:
        """Whether all is as it was."""
        changes = private.changes_of(self.dicts)
        if changes is None or changes != self.changes or self.others:
            if not all(map(same_entries, self.dicts + self.others, self.before)):
                return False
            self.changes = changes  # all is as before again, or an equal number has replaced one
        places = list(map(_data_ptr, self.tensors))
        return places == self.places and self.are_alike(*self.tensors)


def same_entries(now: dict, before: dict) -> bool:
    """Whether a dict holds the very same objects, or equal plain values, in the same order."""
    return list(now) == list(before) and all(map(same_value, now.values(), before.values()))


def same_value(now, before) -> bool:
    """Whether it is the same object, or an equal plain value of the same type."""
    if now is before:
        return True
    if type(now) is not type(before):
        return False
    if isinstance(now, float):
        return now.hex() == before.hex()  # 0.0 and -0.0 are not the same
    return isinstance(now, (int, str, bytes, types.NoneType)) and now == before


def _behind(names):
    """The dict in which a class keeps its names, where only a view of it was given."""
    if isinstance(names, dict):
        return names
    found = [d for d in gc.get_referents(names) if type(d) is dict and d == names]
    return found[0] if len(found) == 1 else names
