"""What an update can see besides its batch: the condition under which a capture may stand for it.

A capture replays the operations that an update did once. That is right as long as the update would
do the same operations again, and that depends on everything that it can look at: its settings, the
fields of its learner, the attributes, hooks and storages of its networks, the global variables and
closures of every function that it may call. `Dependencies` walks through all of these once. What it
cannot look into (a file, a generator, a NumPy array, a foreign library) makes a capture impossible;
the rest is compared before a replay (once for a block of updates), in tens of microseconds, like
the guards of `torch.compile`.

The same list tells, after an update has run once, whether it changed something in Python, such as a
counter or a list, and undoes that.
"""

import builtins
import copy
import dis
import functools
import sys
import sysconfig
import types
from collections import OrderedDict, defaultdict, deque
from enum import Enum
from itertools import chain, starmap
from operator import attrgetter, getitem, is_
from pathlib import Path

import numpy as np
import torch
from torch import nn

from spinup.parts.pytorch.fast import private
from spinup.parts.pytorch.fast.guards import Unchanged, same_contents, same_entries


class NotCapturable(Exception):
    """Why an update must run eagerly; the text goes on after 'because'."""


PLAIN = (
    int, float, complex, bool, str, bytes, type(None), type(...), range, slice, np.generic,
    torch.dtype, torch.device, torch.Size, torch.memory_format, torch.layout, Enum,
    torch.no_grad, torch.enable_grad,
)  # fmt: skip
# Their functions change nothing that a replay would not change, and depend on their arguments only.
TRUSTED = {
    "torch", "math", "operator", "_operator", "functools", "itertools", "typing", "contextlib",
    "collections", "dataclasses", "copy", "numbers", "numpy", "abc", "enum", "types",
}  # fmt: skip
TRUSTED_OF_OURS = ("spinup.parts",)
# Built-in functions that do something else than compute.
EFFECTS = {
    "print", "open", "input", "exec", "eval", "compile", "__import__", "setattr", "delattr",
    "globals", "locals", "breakpoint", "exit", "quit",
}  # fmt: skip
# Methods of a class that an update does not call; those of making one, if it is already made.
NOT_CALLED = {
    "__repr__", "__replace__", "__init_subclass__", "__class_getitem__", "__reduce__",
    "__getstate__", "__setstate__",
}  # fmt: skip
MAKING = {"__init__", "__new__", "__post_init__"}
GENERATED = {
    "__init__", "__new__", "__eq__", "__hash__", "__lt__", "__le__", "__gt__", "__ge__", "__repr__",
    "__setattr__", "__delattr__", "__replace__", "__getnewargs__", "_make", "_replace", "_asdict",
}  # fmt: skip
# What NumPy does with files.
FILES = {"save", "savez", "savez_compressed", "savetxt", "load", "loadtxt", "genfromtxt", "tofile",
         "fromfile", "memmap", "dump"}  # fmt: skip
OF_ATTRIBUTES = "LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "STORE_ATTR"
GROWING = nn.Sequential, nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict
CONTAINERS = (dict, list, set, deque, OrderedDict, defaultdict)
# Layers of which only the weights, the hooks and the class matter.
SIMPLE = {nn.Linear, nn.ReLU, nn.Tanh, nn.Identity}
_OF_SIMPLE = {kind: vars(kind(1, 1) if kind is nn.Linear else kind()).keys() for kind in SIMPLE}
MAX_THINGS = 50_000  # that are walked through; more is not what an update looks at
_INSTALLED = [Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")]
_OF_EVERY_MODULE = vars(nn.Module()).keys()
_requires_grad, _contents = attrgetter("requires_grad"), attrgetter("cell_contents")
_CODE = types.FunctionType, property, staticmethod, classmethod, functools.cached_property
_ALIKE = int, float, complex  # of different types, they may be equal
_mro = attrgetter("__mro__")
_body = attrgetter("__code__", "__defaults__", "__kwdefaults__")


class _CountingModule(types.ModuleType):
    """A module that counts how often one of its names is bound to something else."""

    def __setattr__(self, name, value):
        super().__setattr__(name, value)
        _rebindings.count += 1

    def __delattr__(self, name):
        super().__delattr__(name)
        _rebindings.count += 1


class _Rebindings:
    count = 0  # in all modules of ours that updates use


_rebindings = _Rebindings()


class Dependencies:
    """Everything that an update can see, as it was when this was made."""

    def __init__(self, update, learner, batch, settings):
        self.containers, self.copies = [], []  # dicts, lists and the like; what they held
        self.owners = []  # modules and classes of spinup
        self.namespaces, self.namespaces_before = [], []  # their names
        self.sizes, self.lengths = [], []  # dicts of which only the size can change
        self.hooks = []  # dicts that must stay empty
        self.names = []  # (dict of a module or a class, name, value)
        self.classes = {}  # by the id of such a dict of a class
        self.cells = []  # (cell of a closure, value)
        self.functions, self.objects = [], []  # objects: networks, layers, learners, optimizers
        self.kinds = []  # classes whose code is known to depend on those that they inherit from
        self.unhidden = {}  # by the id of a module's dict: it, and the built-in names used there
        self.groups, self.reads_groups = [], False  # of optimizers; whether code looks at them
        self.parameters, self.tensors = [], []  # of networks; all others
        self.moments = []  # of optimizers of ours, whose memory nobody else moves
        self._seen, self._made, self._alive = set(), set(), []
        self._walk(update, "the update")
        self._walk(learner, "learner")
        self._walk_class(type(batch), "the class of the batch")
        for name, value in settings.items():
            self._walk(value, name)
        if self.reads_groups:  # not only the optimizer's own step sees the learning rate
            self.names += [(group, "lr", group["lr"]) for group in self.groups]
        self.names = list(
            {(id(d), name): (d, name, value) for d, name, value in self.names}.values()
        )
        self.fingerprint = self._fingerprint()
        self.hooks_made, self.rebindings = private.hooks_made(), _rebindings.count
        self._prepare_checks()
        del self._seen, self._made, self._alive

    def _prepare_checks(self):
        """Sort what is compared before every replay by what it costs."""
        # Of parameter groups the learning rate may change, if only the optimizer reads it.
        groups = set() if self.reads_groups else set(map(id, self.groups))
        classes = [vars(owner) for owner in self.owners if isinstance(owner, type)]
        dicts = [d for d in self.sizes if id(d) not in groups] + classes
        dicts += [c for c in self.containers if isinstance(c, dict)]
        dicts += [vars(builtins), *map(vars, self.tensors)]
        tensors = self.parameters + self.tensors
        owners = [x for x in self.objects if not isinstance(x, nn.Module)]
        self.unchanged = Unchanged(dicts, tensors, self.objects, owners, self.moments)
        pairs = list(zip(self.containers, self.copies))
        self.lists, self.lists_before = _columns(
            [pair for pair in pairs if not isinstance(pair[0], dict)], 2
        )
        # Of these, `==` does not tell all: 1 and True are equal, 0.0 and -0.0 as well.
        sequences = [pair for pair in pairs if isinstance(pair[0], (list, deque))]
        self.sequences = [now for now, _ in sequences if any(isinstance(x, _ALIKE) for x in now)]
        self.item_types = list(map(type, chain.from_iterable(self.sequences)))
        self.looked_into = [pair for pair in sequences if any(map(_hides, pair[0]))]
        self.inherited = list(map(_mro, self.kinds))
        # Of the names in the user's modules, those that are used: others may change all the time.
        whole = set(map(id, dicts))
        used = [row for row in self.names if id(row[0]) not in whole]
        self.holders, self.used_names, self.used_values = _columns(used, 3)
        found = [*self.holders, *(d for d, _ in self.unhidden.values())]
        self.named_in = list({id(d): d for d in found if type(d) is dict}.values())
        self.has_versions = len(self.named_in) == len(set(map(id, found)))
        self.naming = private.changes_of(self.named_in) if self.has_versions else None
        self.cells_used, self.cell_values = _columns(self.cells, 2)
        self.bodies = list(chain.from_iterable(map(_body, self.functions)))

    # --- What is checked before every replay ---

    def intact(self) -> bool:
        """Whether all is as it was."""
        try:
            return (
                (private.hooks_made() == self.hooks_made or self._no_hooks())
                and (_rebindings.count == self.rebindings or self._no_rebinding())
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
        count = _rebindings.count
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
        for now, before in zip(self.containers, self.copies):
            if now is not None and not _same(now, before):
                return _difference(now, before)
        for now, before in zip(self.namespaces, self.namespaces_before):
            if not _same(now, before):
                return _difference(dict(now), before)
        for size, before in zip(map(len, self.sizes), self.lengths):
            if size != before:
                return "the attributes of a layer, a class or a module"
        for holder, name, value in self.names:
            if _held(holder, name) is not value:
                return f"{name!r}" if isinstance(name, str) else "a list of tensors"
        if any(cell.cell_contents is not value for cell, value in self.cells):
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
        for now, before in zip(self.containers, self.copies):
            if _same(now, before):
                continue
            if isinstance(now, (dict, set)):
                now.clear()
                now.update(before)
            else:
                now.clear()
                now.extend(before)
        for holder, name, value in self.names:
            if _held(holder, name) is value:
                continue
            if isinstance(holder, (dict, list)):
                holder[name] = value
            else:
                setattr(self.classes[id(holder)], name, value)
        for owner, now, before in zip(self.owners, self.namespaces, self.namespaces_before):
            for name in [name for name in before if now.get(name) is not before[name]]:
                setattr(owner, name, before[name])
        for cell, value in self.cells:
            if cell.cell_contents is not value:
                cell.cell_contents = value
        for p, learned in zip(self.parameters, self.fingerprint[2]):
            if p.requires_grad != learned:
                p.requires_grad_(learned)

    # --- The walk ---

    def all_tensors(self) -> list:
        return self.parameters + self.tensors + self.moments

    def refuse_shared(self, batch):
        """Refuse a batch that lies in memory of the learner, which an update changes."""
        own = set(map(private.storage_id, self.all_tensors()))
        if any(torch.is_tensor(x) and private.storage_id(x) in own for x in batch):
            raise NotCapturable("its batch lies in the memory of a weight")

    def _walk(self, thing, path):
        if isinstance(thing, Enum) and not _is_trusted(type(thing).__module__):
            self._look_at_choice(thing, path)
        if isinstance(thing, type):  # which may be called
            self._look_at_making(thing)
        self._walk_class(thing, path)

    def _walk_class(self, thing, path):
        """The same of the class of something that is there already."""
        if isinstance(thing, PLAIN) or id(thing) in self._seen:
            return
        self._seen.add(id(thing))
        self._alive.append(thing)  # while ids are compared, nothing may be freed
        if len(self._alive) > MAX_THINGS:
            raise NotCapturable("too much can be reached from it")
        for kinds, look in self._LOOKS:
            if isinstance(thing, kinds):
                look(self, thing, path)
                return
        self._look_at_object(thing, path)

    def _look_at_tensor(self, tensor, path):
        if type(tensor) not in private.TENSOR_TYPES:
            raise NotCapturable(f"{path} is a {type(tensor).__name__}")
        if not tensor.is_cpu or tensor.layout != torch.strided:
            raise NotCapturable(f"{path} is on {tensor.device}, {tensor.layout}")
        if tensor.grad_fn is not None:
            raise NotCapturable(f"{path} is part of a graph that autograd built before")
        if private.tensor_hooks(tensor):
            raise NotCapturable(f"{path} has a hook")
        learned = isinstance(tensor, nn.Parameter) or tensor.requires_grad
        (self.parameters if learned else self.tensors).append(tensor)
        own = vars(tensor)
        if own:
            self._look_at_container(own, path)
        elif learned:
            self._size(own)

    def _look_at_network(self, module, path):
        if private.has_hooks(module):
            raise NotCapturable(f"{path} has hooks")
        own = vars(module)
        if "forward" in own:
            self._walk(own["forward"], f"{path}.forward")
        self.hooks += [own[name] for name in private.HOOKS]
        self.objects.append(module)
        if type(module) in SIMPLE and own.keys() == _OF_SIMPLE[type(module)]:
            self._size(own)
        else:
            self._container(own)
            self._walk_class(type(module), type(module).__name__)
            for name in own.keys() - _OF_EVERY_MODULE:
                self._walk(own[name], f"{path}.{name}")
        known = _is_trusted(type(module).__module__)  # it does not look for what it has not
        for group in private.HELD:
            if own[group] or not known or isinstance(module, GROWING):
                self._look_at_container(own[group], path)

    def _look_at_container(self, container, path):
        if type(container) not in CONTAINERS:
            raise NotCapturable(f"{path} is a {type(container).__name__}")
        self._container(container)
        items = container.items() if isinstance(container, dict) else enumerate(container)
        if isinstance(container, dict):
            self.names += [(container, k, x) for k, x in items if _is_single(x)]
        elif isinstance(container, (list, deque)):
            self.names += [(container, i, x) for i, x in enumerate(container) if _is_single(x)]
        for key, value in items:
            self._walk(value, f"{path}.{key}" if isinstance(key, str) else f"{path}[{key!r}]")

    def _look_at_tuple(self, values, path):
        if hasattr(values, "_fields"):
            self._walk_class(type(values), type(values).__name__)
        for key, value in zip(getattr(values, "_fields", range(len(values))), values):
            self._walk(value, f"{path}.{key}")

    def _look_at_partial(self, thing, path):
        for part in (thing.func, thing.args, thing.keywords):
            self._walk(part, path)

    def _look_at_method(self, method, path):
        self._walk(method.__self__, path)
        self._walk(method.__func__, path)

    def _look_at_builtin(self, function, path):
        owner = getattr(function, "__self__", None)
        if owner is not None and not isinstance(owner, (types.ModuleType, type)):
            self._walk(owner, path)  # a method of a list, a dict …
            return
        module = getattr(function, "__module__", None) or type(function).__module__
        if function.__name__ in EFFECTS and module == "builtins":
            raise NotCapturable(f"it calls {function.__name__}")
        if not _is_trusted(module) and module != "builtins":
            raise NotCapturable(f"it calls {module}.{function.__name__}")

    def _look_at_function(self, function, path):
        for cell in function.__closure__ or ():
            try:
                value = cell.cell_contents
            except ValueError:  # a variable that has no value yet
                raise NotCapturable(f"a variable around {function.__name__} has no value yet")
            self.cells.append((cell, value))
            self._walk(value, function.__name__)
        module = function.__module__ or ""
        if _is_trusted(module):
            if module.startswith(TRUSTED_OF_OURS):
                self._look_at_names_of(sys.modules[module])
            return
        if _is_installed(function):
            raise NotCapturable(f"it calls {module}.{function.__name__}")
        self.functions.append(function)
        self._look_at_container(vars(function), function.__name__)
        for value in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            self._walk(value, function.__name__)
        if function.__kwdefaults__:
            self._container(function.__kwdefaults__)
        self._look_at_code(function.__code__, function.__globals__)

    def _look_at_names_of(self, owner):
        """A module or a class of ours: what its functions do is known while its names stay."""
        if not any(owner is known for known in self.owners):
            self.owners.append(owner)
            self.namespaces.append(vars(owner))
            self.namespaces_before.append(dict(vars(owner)))
            if not isinstance(owner, type):
                owner.__class__ = _CountingModule  # from now on it counts changes of its names

    def _look_at_code(self, code, namespace):
        loaded, attributes = set(), set()
        for step in dis.get_instructions(code):
            if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                loaded.add(step.argval)
            elif step.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
                raise NotCapturable(f"{code.co_name} changes the global name {step.argval!r}")
            elif step.opname == "IMPORT_NAME" and not _is_trusted(step.argval):
                raise NotCapturable(f"{code.co_name} imports {step.argval}")
            elif step.opname.startswith(OF_ATTRIBUTES):
                attributes.add(step.argval)
            elif isinstance(step.argval, types.CodeType):
                self._look_at_code(step.argval, namespace)  # a comprehension, a lambda
        mentioned = attributes.union(c for c in code.co_consts if isinstance(c, str))  # for getattr
        self.reads_groups = self.reads_groups or not mentioned.isdisjoint(("param_groups", "lr"))
        if files := attributes & FILES:
            raise NotCapturable(f"{code.co_name} calls {min(files)}")
        by_name = not loaded.isdisjoint(("getattr", "vars"))  # it may use any name of a module
        for name in loaded:
            if name in namespace:
                self._name(namespace, name, None if by_name else attributes)
            elif name in EFFECTS:
                raise NotCapturable(f"{code.co_name} calls {name}")
            elif not hasattr(builtins, name):
                raise NotCapturable(f"the name {name!r} in {code.co_name} is not defined yet")
            else:
                self.unhidden.setdefault(id(namespace), (namespace, set()))[1].add(name)

    def _name(self, holder, name, attributes):
        value = holder[name]
        self.names.append((holder, name, value))
        if not isinstance(value, types.ModuleType):
            self._walk(value, name)
        elif value.__name__.startswith(TRUSTED_OF_OURS):
            self._look_at_names_of(value)
        elif not _is_trusted(value.__name__) and id(value) not in self._seen:
            self._look_at_module(value, attributes)

    def _look_at_module(self, module, attributes):
        if not module.__name__.startswith("spinup.") and _is_installed(module):
            raise NotCapturable(f"it uses {module.__name__}")
        own = vars(module)
        values = (*PLAIN, *CONTAINERS, tuple, torch.Tensor)
        # Also what is only a value there: the module may be handed to a function that reads it.
        plain = {name for name, value in own.items() if isinstance(value, values)}
        for name in own.keys() if attributes is None else attributes & own.keys() | plain:
            if not name.startswith("__"):
                self._name(own, name, attributes)

    def _look_at_class(self, kind, path):
        if _is_trusted(kind.__module__) or kind.__module__ == "builtins":
            if kind.__module__.startswith(TRUSTED_OF_OURS):
                self._look_at_names_of(kind)
                self._look_at_names_of(sys.modules[kind.__module__])
                for base in kind.__bases__:
                    self._walk(base, path)
            return
        if _is_installed(kind):
            raise NotCapturable(f"{path} is of {kind.__module__}")
        if not _is_trusted(type(kind).__module__) and type(kind) is not type:
            raise NotCapturable(f"{kind.__name__} has a metaclass of its own")
        own = vars(kind)
        self.classes[id(own)] = kind
        self.kinds.append(kind)
        self._size(own)  # a new name may hide one that it inherited
        for name, value in own.items():
            kept_by_python = name.startswith("__") and not callable(value)
            if name in NOT_CALLED | MAKING or kept_by_python or _is_generated(value):
                continue
            if name.startswith(("__annot", "_abc_")):
                continue
            if type(value).__name__ == "_tuplegetter":  # a field of a named tuple
                continue
            self.names.append((own, name, value))
            self._walk(value, f"{kind.__name__}.{name}")
        for base in kind.__bases__:
            self._walk(base, path)

    def _look_at_making(self, kind):
        """What runs when an update makes an object of a class that its code names."""
        if _is_trusted(kind.__module__) or kind.__module__ == "builtins" or _is_installed(kind):
            return
        if id(kind) in self._made:
            return
        self._made.add(id(kind))
        for field in vars(kind).get("__dataclass_fields__", {}).values():
            self._walk(field.default_factory, f"{kind.__name__}.{field.name}")
        for name in MAKING & vars(kind).keys():
            value = vars(kind)[name]
            if not _is_generated(value):
                self._walk(value, f"{kind.__name__}.{name}")
        for base in kind.__bases__:
            self._look_at_making(base)

    def _look_at_descriptor(self, thing, path):
        for name in ("__func__", "fget", "fset", "func"):
            if hasattr(thing, name):
                self._walk(getattr(thing, name), path)

    def _look_at_module_itself(self, module, path):
        if not _is_trusted(module.__name__):
            raise NotCapturable(f"{path} is the module {module.__name__}")

    def _look_at_choice(self, member, path):
        """A member of an Enum: fine if its class is but a list of names."""
        for kind in type(member).__mro__:
            if kind.__module__ == "enum" or _is_trusted(kind.__module__) or kind is object:
                continue
            if kind.__module__ == "builtins":
                continue
            code = [x for x in vars(kind).values() if isinstance(x, _CODE)]
            if any(getattr(x, "__module__", None) != "enum" for x in code):
                raise NotCapturable(f"{path} is an Enum with methods")

    def _look_at_object(self, thing, path):
        kind = type(thing)
        if hasattr(thing, "param_groups") and kind.__module__.partition(".")[0] == "torch":
            raise NotCapturable(
                f"{path} is a torch.optim.{kind.__name__}, which keeps its state in Python; "
                "spinup.parts.pytorch.learning.Adam can be captured"
            )
        plain = hasattr(thing, "__dict__") and not hasattr(kind, "__slots__")
        if not plain or (_is_installed(kind) and not _is_trusted(kind.__module__)):
            raise NotCapturable(f"{path} is a {kind.__module__}.{kind.__qualname__}")
        if kind.__module__.partition(".")[0] in ("torch", "numpy"):
            raise NotCapturable(f"{path} is a {kind.__module__}.{kind.__qualname__}")
        self._walk_class(kind, kind.__name__)
        self.objects.append(thing)
        live = vars(kind).get("READ_AT_EVERY_STEP", ())  # not of a class derived from it
        self._container(vars(thing))
        self.names += [(vars(thing), k, x) for k, x in vars(thing).items() if _is_single(x)]
        others = len(self.tensors)
        for name, value in vars(thing).items():
            if name not in live:
                self._walk(value, f"{path}.{name}")
        if live:
            self.moments += self.tensors[others:]
            del self.tensors[others:]
        for name in live:
            self._look_at_groups(getattr(thing, name), path)

    def _look_at_groups(self, groups, path):
        """The parameter groups of an optimizer whose learning rate is read at every step."""
        self._container(groups)
        self.groups += groups
        for group in groups:
            for name, value in group.items():
                if name != "lr":
                    self.names.append((group, name, value))
                    self._walk(value, f"{path}.{name}")
            self._size(group)

    _LOOKS = (
        (torch.Tensor, _look_at_tensor),
        (nn.Module, _look_at_network),
        ((dict, list, set, deque), _look_at_container),
        ((tuple, frozenset), _look_at_tuple),
        (types.FunctionType, _look_at_function),
        (types.MethodType, _look_at_method),
        (functools.partial, _look_at_partial),
        (type, _look_at_class),
        (types.ModuleType, _look_at_module_itself),
        ((staticmethod, classmethod, property, functools.cached_property), _look_at_descriptor),
        ((types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType,
          types.MethodWrapperType, types.GetSetDescriptorType, types.MemberDescriptorType,
          np.ufunc), _look_at_builtin),
    )  # fmt: skip

    def _container(self, container):
        self.containers.append(container)
        self.copies.append(copy.copy(container))

    def _size(self, container):
        self.sizes.append(container)
        self.lengths.append(len(container))


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


def _is_single(value) -> bool:
    """Whether it is a tensor of one number, of which `==` tells the value and not which it is."""
    return isinstance(value, torch.Tensor) and value.numel() == 1


def _is_generated(value) -> bool:
    """Whether a method was written by Python itself, as those of dataclasses are."""
    made = isinstance(value, types.FunctionType) and value.__code__.co_filename == "<string>"
    return made and value.__name__ in GENERATED  # others: of `python -c`


def _is_trusted(module: str) -> bool:
    return module.partition(".")[0] in TRUSTED or module.startswith(TRUSTED_OF_OURS)


def _is_installed(thing) -> bool:
    """Whether a function, class or module is of Python's library or of an installed package."""
    name = thing.__name__ if isinstance(thing, types.ModuleType) else thing.__module__
    if (name or "").partition(".")[0] == "spinup":
        return False
    top = sys.modules.get((name or "").partition(".")[0])
    file = getattr(top, "__file__", None) or next(iter(getattr(top, "__path__", ())), None)
    if file is None:  # made in a notebook or typed, or built into Python
        return top is not None and name != "__main__"
    return any(folder in Path(file).parents for folder in _INSTALLED)


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
