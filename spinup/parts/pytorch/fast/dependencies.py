"""What an update can see besides its batch: the condition under which a capture may stand for it.

A capture replays the operations that an update did once. That is right as long as the update would
do the same operations again, and that depends on everything that it can look at: its settings, the
fields of its learner, the attributes, hooks and storages of its networks, the global variables and
closures of every function that it may call. `Reachable` walks through all of these once
(reachable.py), and what it cannot look into makes a capture impossible. `Dependencies` compares
what it has found before a replay (once for a block of updates), in tens of microseconds, like the
guards of `torch.compile`.

The same list tells, after an update has run once, whether it changed something in Python, such as a
counter or a list, and undoes that.
"""

import builtins
from collections import deque
from itertools import chain, starmap
from operator import attrgetter, getitem, is_

import torch
from torch import nn

from spinup.parts.pytorch.fast import private
from spinup.parts.pytorch.fast.guards import Unchanged, rebindings, same_contents, same_entries
from spinup.parts.pytorch.fast.reachable import Reachable
from spinup.parts.pytorch.fast.trusted import NotCapturable

_requires_grad, _contents = attrgetter("requires_grad"), attrgetter("cell_contents")
_ALIKE = int, float, complex  # of different types, they may be equal
_mro = attrgetter("__mro__")
_body = attrgetter("__code__", "__defaults__", "__kwdefaults__")


class Dependencies:
    """Everything that an update can see, as it was when this was made."""

    def __init__(self, update, learner, batch, settings):
        self.found = found = Reachable(update, learner, batch, settings)
        self.parameters, self.tensors, self.moments = found.parameters, found.tensors, found.moments
        self.hooks, self.unhidden = found.hooks, found.unhidden
        self.functions, self.kinds = found.functions, found.kinds
        self.namespaces, self.namespaces_before = found.namespaces, found.namespaces_before
        self.fingerprint = self._fingerprint()
        self.hooks_made, self.rebindings = private.hooks_made(), rebindings.count
        self._prepare_checks(found)

    def _prepare_checks(self, found):
        """Sort what is compared before every replay by what it costs."""
        # Of parameter groups the learning rate may change, if only the optimizer reads it.
        groups = set() if found.reads_groups else set(map(id, found.groups))
        classes = [vars(owner) for owner in found.owners if isinstance(owner, type)]
        dicts = [d for d in found.sizes if id(d) not in groups] + classes
        dicts += [c for c in found.containers if isinstance(c, dict)]
        dicts += [vars(builtins), *map(vars, self.tensors)]
        tensors = self.parameters + self.tensors
        owners = [x for x in found.objects if not isinstance(x, nn.Module)]
        self.unchanged = Unchanged(dicts, tensors, found.objects, owners, self.moments)
        pairs = list(zip(found.containers, found.copies))
        self.lists, self.lists_before = _columns(
            [pair for pair in pairs if not isinstance(pair[0], dict)], 2
        )
        # Of these, `==` does not tell all: 1 and True are equal, 0.0 and -0.0 as well.
        sequences = [pair for pair in pairs if isinstance(pair[0], (list, deque))]
        self.sequences = [now for now, _ in sequences if any(isinstance(x, _ALIKE) for x in now)]
        self.item_types = list(map(type, chain.from_iterable(self.sequences)))
        self.looked_into = [pair for pair in sequences if any(map(_hides, pair[0]))]
        self.inherited = list(map(_mro, found.kinds))
        # Of the names in the user's modules, those that are used: others may change all the time.
        whole = set(map(id, dicts))
        used = [row for row in found.names if id(row[0]) not in whole]
        self.holders, self.used_names, self.used_values = _columns(used, 3)
        used_in = [*self.holders, *(d for d, _ in found.unhidden.values())]
        self.named_in = list({id(d): d for d in used_in if type(d) is dict}.values())
        self.has_versions = len(self.named_in) == len(set(map(id, used_in)))
        self.naming = private.changes_of(self.named_in) if self.has_versions else None
        self.cells_used, self.cell_values = _columns(found.cells, 2)
        self.bodies = list(chain.from_iterable(map(_body, found.functions)))

    # --- What is checked before every replay ---

    def intact(self) -> bool:
        """Whether all is as it was."""
        try:
            return (
                (private.hooks_made() == self.hooks_made or self._no_hooks())
                and (rebindings.count == self.rebindings or self._no_rebinding())
                and self.unchanged.intact()
                and self.lists == self.lists_before
                and list(map(type, chain.from_iterable(self.sequences))) == self.item_types
                and (not self.looked_into or all(starmap(same_contents, self.looked_into)))
                and self._same_names()
                and all(map(is_, map(_contents, self.cells_used), self.cell_values))
                and all(map(is_, map(_mro, self.kinds), self.inherited))
                and all(map(is_, chain.from_iterable(map(_body, self.functions)), self.bodies))
            )
        except Exception:  # such as a name that is gone, or tensors that cannot be compared
            return False

    def _same_names(self) -> bool:
        """Whether the names in modules that are used mean what they did."""
        naming = private.changes_of(self.named_in)
        if naming is not None and naming == self.naming:
            return True
        same = all(map(is_, map(getitem, self.holders, self.used_names), self.used_values))
        same = same and all(d.keys().isdisjoint(names) for d, names in self.unhidden.values())
        if same and self.has_versions:
            self.naming = naming  # other names have changed
        return same

    def _no_hooks(self) -> bool:
        """Whether hooks that somebody has made since are none on what this update uses."""
        made = private.hooks_made()
        if private.hooked_everywhere() or any(self.hooks):
            return False
        if any(map(private.gradient_hooks, self.parameters)):
            return False
        self.hooks_made = made
        return True

    def _no_rebinding(self) -> bool:
        """Whether names that somebody has rebound in a module of ours are none that count here."""
        count = rebindings.count
        if self.namespaces != self.namespaces_before:
            return False
        self.rebindings = count
        return True

    def _fingerprint(self):
        """Where the tensors lie, and how; and whether they learn."""
        shapes = list(map(torch.Tensor.stride, self.parameters))
        places = list(map(torch.Tensor.data_ptr, self.parameters))
        places += map(torch.Tensor.data_ptr, self.tensors)
        return places, shapes, list(map(_requires_grad, self.parameters))

    # --- What is asked after an update has run once ---

    def changed(self) -> str | None:
        """What an update has changed in Python, in words; None where it has changed nothing."""
        found = self.found
        for now, before in zip(found.containers, found.copies):
            if now is not None and not _same(now, before):
                return _difference(now, before)
        for now, before in zip(self.namespaces, self.namespaces_before):
            if not _same(now, before):
                return _difference(dict(now), before)
        for size, before in zip(map(len, found.sizes), found.lengths):
            if size != before:
                return "the attributes of a layer, a class or a module"
        for holder, name, value in found.names:
            if _held(holder, name) is not value:
                return f"{name!r}" if isinstance(name, str) else "a list of tensors"
        if any(cell.cell_contents is not value for cell, value in found.cells):
            return "a variable of the function around it"
        if any(self.hooks):
            return "the hooks of a module"
        places, shapes, learned = self._fingerprint()
        if (places, shapes) != self.fingerprint[:2]:
            return "where a parameter lies in memory"
        if learned != self.fingerprint[2] or any(map(private.gradient_hooks, self.parameters)):
            return "the requires_grad or the hooks of a parameter"
        return None

    def restore(self):
        """Undo what an update has changed in Python."""
        found = self.found
        for now, before in zip(found.containers, found.copies):
            if _same(now, before):
                continue
            if isinstance(now, (dict, set)):
                now.clear()
                now.update(before)
            else:
                now.clear()
                now.extend(before)
        for holder, name, value in found.names:
            if _held(holder, name) is value:
                continue
            if isinstance(holder, (dict, list)):
                holder[name] = value
            else:
                setattr(found.classes[id(holder)], name, value)
        for owner, now, before in zip(found.owners, self.namespaces, self.namespaces_before):
            for name in [name for name in before if now.get(name) is not before[name]]:
                setattr(owner, name, before[name])
        for cell, value in found.cells:
            if cell.cell_contents is not value:
                cell.cell_contents = value
        for p, learned in zip(self.parameters, self.fingerprint[2]):
            if p.requires_grad != learned:
                p.requires_grad_(learned)

    def all_tensors(self) -> list:
        return self.parameters + self.tensors + self.moments

    def refuse_shared(self, batch):
        """Refuse a batch that lies in memory of the learner, which an update changes."""
        own = set(map(private.storage_id, self.all_tensors()))
        if any(torch.is_tensor(x) and private.storage_id(x) in own for x in batch):
            raise NotCapturable("its batch lies in the memory of a weight")


def _columns(rows, count):
    """Rows as so many columns, also where there is none."""
    return zip(*rows) if rows else ((),) * count


def _held(holder, name):
    """What a dict, or a list, holds under a name."""
    try:
        return holder[name]
    except (KeyError, IndexError):
        return None


def _hides(value) -> bool:
    """Whether a value of the same type may be equal to this one without being the same."""
    return isinstance(value, (tuple, complex)) or (isinstance(value, float) and not value)


def _same(now, before) -> bool:
    if isinstance(now, dict):
        return same_entries(now, before)
    try:
        return bool(now == before)
    except Exception:  # tensors that are not the same ones
        return False


def _difference(now, before) -> str:
    if isinstance(now, dict):
        for key in {**now, **before}:
            if key not in now or key not in before or now[key] is not before[key]:
                return f"{key!r}" if isinstance(key, str) else f"the entry {key!r} of a dict"
    return f"a {type(now).__name__} that it shares with the rest of the program"
