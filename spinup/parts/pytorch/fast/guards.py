"""Whether dicts, objects and tensors are what they were, found out quickly.

Between two updates the weights run through the processor's cache and push everything else out of
it. Then a check costs as much as it looks at different objects, whatever it does with them. So of a
dict only its version is read, a number that grows with every change of the dict; only where that
has grown is the dict compared. All tensors are checked in one call.
"""

import gc
import types
from dataclasses import is_dataclass
from operator import attrgetter, is_

import numpy as np
import torch

from spinup.parts.pytorch.fast import private

_data_ptr, _own = torch.Tensor.data_ptr, attrgetter("__dict__")


class Unchanged:
    """Dicts, objects and tensors as they were when this was made."""

    def __init__(self, dicts, tensors, objects=(), owners=(), memory=()):
        """Take note of them.

        dicts: those whose every entry matters; also the names of classes, as `vars` gives them
        tensors: of these it matters where they lie, in which shape, and whether they learn
        objects: of these it matters of which class they are
        owners: those of them whose dict a program might replace by another
        memory: tensors of which it only matters where they lie
        """
        dicts = list({id(d): d for d in map(_behind, dicts)}.values())
        self.dicts = [d for d in dicts if type(d) is dict]
        self.others = [d for d in dicts if type(d) is not dict]  # without a version that tells all
        self.before = list(map(dict, self.dicts + self.others))
        self.changes = private.changes_of(self.dicts)
        self.objects = list(objects)
        self.kinds = list(map(type, self.objects))
        self.owners, self.own = list(owners), list(map(_own, owners))
        self.tensors = list(tensors)
        self.in_memory = [*self.tensors, *memory]
        self.places = list(map(_data_ptr, self.in_memory))
        self.are_alike = private.tensor_check(self.tensors)

    def intact(self) -> bool:
        """Whether all is as it was."""
        changes = private.changes_of(self.dicts)
        if changes is None or changes != self.changes or self.others:
            if not all(map(same_entries, self.dicts + self.others, self.before)):
                return False
            self.changes = changes  # all is as before again, or an equal number has replaced one
        return (
            list(map(type, self.objects)) == self.kinds
            and all(map(is_, map(_own, self.owners), self.own))
            and list(map(_data_ptr, self.in_memory)) == self.places
            and self.are_alike(*self.tensors)
        )


class CountingModule(types.ModuleType):
    """A module that counts how often one of its names is bound to something else."""

    def __setattr__(self, name, value):
        super().__setattr__(name, value)
        rebindings.count += 1

    def __delattr__(self, name):
        super().__delattr__(name)
        rebindings.count += 1


class _Rebindings:
    count = 0  # in all modules of ours that updates use


rebindings = _Rebindings()


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
    if isinstance(now, complex):
        return same_value((now.real, now.imag), (before.real, before.imag))
    if type(now) is tuple:
        return len(now) == len(before) and all(map(same_value, now, before))
    return isinstance(now, (int, str, bytes, types.NoneType)) and now == before


def same_contents(now, before) -> bool:
    """The same for settings, which may be lists, dicts or plain objects made for each call."""
    if same_value(now, before):
        return True
    if type(now) is not type(before):
        return False
    if isinstance(now, (list, tuple)):
        return len(now) == len(before) and all(map(same_contents, now, before))
    if isinstance(now, dict):
        same = list(now) == list(before)
        return same and all(map(same_contents, now.values(), before.values()))
    if isinstance(now, (set, frozenset)):
        return {(type(x), x) for x in now} == {(type(x), x) for x in before}
    if is_dataclass(now) and hasattr(now, "__dict__"):
        return same_contents(vars(now), vars(before))  # also what its own `==` leaves out
    if isinstance(now, np.generic):
        return now.tobytes() == before.tobytes()
    if isinstance(now, (int, float, str, bytes)):
        return False  # else it would be the same value
    known = type(now).__module__.partition(".")[0] in ("builtins", "torch")
    return known and not isinstance(now, torch.Tensor) and now == before


def _behind(names):
    """The dict in which a class keeps its names, where only a view of it was given."""
    if isinstance(names, dict):
        return names
    found = [d for d in gc.get_referents(names) if type(d) is dict and d == names]
    return found[0] if len(found) == 1 else names
