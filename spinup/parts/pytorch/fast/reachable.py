"""Everything that an update can reach: found by walking from its code and its learner.

The walk goes through the settings, the fields of the learner, the attributes, hooks and storages of
its networks, the global variables and closures of every function that may be called. It refuses
what it cannot look into: a file, a generator, a NumPy array, a foreign library.
"""

import builtins
import copy
import dis
import functools
import sys
import types
from collections import deque
from enum import Enum

import numpy as np
import torch
from torch import nn

from spinup.parts.pytorch.fast import private
from spinup.parts.pytorch.fast.guards import CountingModule
from spinup.parts.pytorch.fast.trusted import (
    CONSTRUCTORS,
    CONTAINERS,
    EFFECTS,
    FILES,
    GROWING,
    NOT_CALLED,
    OF_ATTRIBUTES,
    OF_SIMPLE,
    PLAIN,
    SIMPLE,
    TRUSTED_OF_OURS,
    NotCapturable,
    is_generated,
    is_installed,
    is_trusted,
)

MAX_THINGS = 50_000  # that are walked through; more is not what an update looks at
_OF_EVERY_MODULE = vars(nn.Module()).keys()
_CODE = types.FunctionType, property, staticmethod, classmethod, functools.cached_property


class Reachable:
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
        self._seen, self._constructed, self._alive = set(), set(), []
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
        del self._seen, self._constructed, self._alive

    def _walk(self, thing, path):
        if isinstance(thing, Enum) and not is_trusted(type(thing).__module__):
            self._look_at_enum_member(thing, path)
        if isinstance(thing, type):  # which may be called
            self._look_at_constructors(thing)
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
        if type(module) in SIMPLE and own.keys() == OF_SIMPLE[type(module)]:
            self._size(own)
        else:
            self._container(own)
            self._walk_class(type(module), type(module).__name__)
            for name in own.keys() - _OF_EVERY_MODULE:
                self._walk(own[name], f"{path}.{name}")
        known = is_trusted(type(module).__module__)  # it does not look for what it has not
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
        if not is_trusted(module) and module != "builtins":
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
        if is_trusted(module):
            if module.startswith(TRUSTED_OF_OURS):
                self._keep_names_of(sys.modules[module])
            return
        if is_installed(function):
            raise NotCapturable(f"it calls {module}.{function.__name__}")
        self.functions.append(function)
        self._look_at_container(vars(function), function.__name__)
        for value in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            self._walk(value, function.__name__)
        if function.__kwdefaults__:
            self._container(function.__kwdefaults__)
        self._look_at_code(function.__code__, function.__globals__)

    def _keep_names_of(self, owner):
        """A module or a class of ours: what its functions do is known while its names stay."""
        if not any(owner is known for known in self.owners):
            self.owners.append(owner)
            self.namespaces.append(vars(owner))
            self.namespaces_before.append(dict(vars(owner)))
            if not isinstance(owner, type):
                owner.__class__ = CountingModule  # from now on it counts changes of its names

    def _look_at_code(self, code, namespace):
        loaded, attributes = set(), set()
        for step in dis.get_instructions(code):
            if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                loaded.add(step.argval)
            elif step.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
                raise NotCapturable(f"{code.co_name} changes the global name {step.argval!r}")
            elif step.opname == "IMPORT_NAME" and not is_trusted(step.argval):
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
            self._keep_names_of(value)
        elif not is_trusted(value.__name__) and id(value) not in self._seen:
            self._look_at_module(value, attributes)

    def _look_at_module(self, module, attributes):
        if not module.__name__.startswith("spinup.") and is_installed(module):
            raise NotCapturable(f"it uses {module.__name__}")
        own = vars(module)
        values = (*PLAIN, *CONTAINERS, tuple, torch.Tensor)
        # Also what is only a value there: the module may be handed to a function that reads it.
        plain = {name for name, value in own.items() if isinstance(value, values)}
        for name in own.keys() if attributes is None else attributes & own.keys() | plain:
            if not name.startswith("__"):
                self._name(own, name, attributes)

    def _look_at_class(self, kind, path):
        if is_trusted(kind.__module__) or kind.__module__ == "builtins":
            if kind.__module__.startswith(TRUSTED_OF_OURS):
                self._keep_names_of(kind)
                self._keep_names_of(sys.modules[kind.__module__])
                for base in kind.__bases__:
                    self._walk(base, path)
            return
        if is_installed(kind):
            raise NotCapturable(f"{path} is of {kind.__module__}")
        if not is_trusted(type(kind).__module__) and type(kind) is not type:
            raise NotCapturable(f"{kind.__name__} has a metaclass of its own")
        own = vars(kind)
        self.classes[id(own)] = kind
        self.kinds.append(kind)
        self._size(own)  # a new name may hide one that it inherited
        for name, value in own.items():
            kept_by_python = name.startswith("__") and not callable(value)
            if name in NOT_CALLED | CONSTRUCTORS or kept_by_python or is_generated(value):
                continue
            if name.startswith(("__annot", "_abc_")):
                continue
            if type(value).__name__ == "_tuplegetter":  # a field of a named tuple
                continue
            self.names.append((own, name, value))
            self._walk(value, f"{kind.__name__}.{name}")
        for base in kind.__bases__:
            self._walk(base, path)

    def _look_at_constructors(self, kind):
        """What runs when an update makes an object of a class that its code names."""
        if is_trusted(kind.__module__) or kind.__module__ == "builtins" or is_installed(kind):
            return
        if id(kind) in self._constructed:
            return
        self._constructed.add(id(kind))
        for field in vars(kind).get("__dataclass_fields__", {}).values():
            self._walk(field.default_factory, f"{kind.__name__}.{field.name}")
        for name in CONSTRUCTORS & vars(kind).keys():
            value = vars(kind)[name]
            if not is_generated(value):
                self._walk(value, f"{kind.__name__}.{name}")
        for base in kind.__bases__:
            self._look_at_constructors(base)

    def _look_at_descriptor(self, thing, path):
        for name in ("__func__", "fget", "fset", "func"):
            if hasattr(thing, name):
                self._walk(getattr(thing, name), path)

    def _look_at_module_itself(self, module, path):
        if not is_trusted(module.__name__):
            raise NotCapturable(f"{path} is the module {module.__name__}")

    def _look_at_enum_member(self, member, path):
        """A member of an Enum: fine if its class is but a list of names."""
        for kind in type(member).__mro__:
            if kind.__module__ == "enum" or is_trusted(kind.__module__) or kind is object:
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
        if not plain or (is_installed(kind) and not is_trusted(kind.__module__)):
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
        (
            (
                types.BuiltinFunctionType,
                types.MethodDescriptorType,
                types.WrapperDescriptorType,
                types.MethodWrapperType,
                types.GetSetDescriptorType,
                types.MemberDescriptorType,
                np.ufunc,
            ),
            _look_at_builtin,
        ),
    )

    def _container(self, container):
        self.containers.append(container)
        self.copies.append(copy.copy(container))

    def _size(self, container):
        self.sizes.append(container)
        self.lengths.append(len(container))


def _is_single(value) -> bool:
    """Whether it is a tensor of one number, of which `==` tells the value and not which it is."""
    return isinstance(value, torch.Tensor) and value.numel() == 1
