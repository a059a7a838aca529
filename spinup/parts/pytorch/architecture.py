"""How a network was built, as JSON: what a saved model says besides its tensors."""

import inspect
import json
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import numpy as np
from gymnasium.spaces import Box, Discrete, Space
from torch import nn

from spinup.parts.errors import UserError
from spinup.parts.jsonio import convert_json
from spinup.parts.spaces import as_gymnasium

Network = TypeVar("Network", bound=type[nn.Module])
SPACES = ("observation_space", "action_space")
NOTE = "_how_it_was_built"  # the attribute of a network, which no class of a user has


def records_architecture(network_class: Network) -> Network:
    """Let a class of networks note the arguments of its constructor, for the saved model.

    Spaces of the old Gym become those of Gymnasium.

    A subclass changes what its arguments mean, so it is noted only if it is decorated too.
    """
    build = network_class.__init__
    signature = inspect.signature(build)

    @wraps(build)
    def init(self, *args: Any, **kwargs: Any) -> None:
        bound = signature.bind(self, *args, **kwargs)
        for name in SPACES:  # scripts may pass those of the old Gym
            if name in bound.arguments:
                space = bound.arguments[name]
                bound.arguments[name] = as_gymnasium(space) or space
        args, kwargs = bound.args[1:], bound.kwargs
        build(self, *args, **kwargs)
        if type(self) is network_class:
            given = _arguments(signature, self, *args, **kwargs)
            if all(name in given for name in SPACES):
                observation_space, action_space = (given.pop(name) for name in SPACES)
                record_architecture(self, network_class, observation_space, action_space, given)

    network_class.__init__ = init  # type: ignore[method-assign]
    return network_class


def _arguments(signature, *args, **kwargs) -> dict:
    """The arguments of a constructor by name; those that only *args holds have none."""
    given = dict(signature.bind(*args, **kwargs).arguments)
    given.pop(next(iter(given)))  # self
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            given |= given.pop(name, {})
        elif parameter.kind is parameter.VAR_POSITIONAL:
            given.pop(name, None)
    return given


def record_architecture(
    network: nn.Module,
    actor_critic: Callable,
    observation_space: Space,
    action_space: Space,
    ac_kwargs: dict,
) -> None:
    """Note in a network how it was built, as one string: an update looks at all that it holds."""
    network.__dict__[NOTE] = json.dumps(
        dict(
            network=dotted_name(actor_critic),
            observation_space=space_to_json(observation_space),
            action_space=space_to_json(action_space),
            ac_kwargs=convert_json(ac_kwargs),
        )
    )


def architecture_of(network: nn.Module) -> dict:
    """How a network was built; the name of its class alone where nothing was noted."""
    noted = vars(network).get(NOTE)
    return json.loads(noted) if noted is not None else dict(network=dotted_name(type(network)))


def dotted_name(actor_critic: Callable) -> str:
    """Where a class or a function is to be found; a partial one goes by what is inside."""
    named = getattr(actor_critic, "func", actor_critic)
    return f"{named.__module__}.{getattr(named, '__qualname__', type(named).__qualname__)}"


def space_to_json(space: Space) -> dict:
    """The bounds, shape and dtype of a space; the kind alone of one that networks do not take."""
    if isinstance(space, Discrete):
        return dict(kind="Discrete", n=int(space.n), start=int(space.start))
    if isinstance(space, Box):
        bounds = {k: getattr(space, k).ravel() for k in ("low", "high")}
        bounds = {k: b[:1] if len(b) and (b == b[0]).all() else b for k, b in bounds.items()}
        shape, dtype = list(space.shape), space.dtype.name
        lists = {k: b.tolist() for k, b in bounds.items()}
        return dict(kind="Box", shape=shape, dtype=dtype, **lists)
    return dict(kind=type(space).__name__)


def space_from_json(saved: dict) -> Box | Discrete:
    """The space that `space_to_json` has described."""
    if saved["kind"] == "Discrete":
        return Discrete(saved["n"], start=saved["start"])
    if saved["kind"] == "Box":
        shape, dtype = tuple(saved["shape"]), np.dtype(saved["dtype"])
        low, high = (np.array(saved[k], dtype) for k in ("low", "high"))
        low, high = (np.full(shape, b[0]) if len(b) == 1 else b.reshape(shape) for b in (low, high))
        return Box(low, high, dtype=dtype.type)
    raise UserError(f"A saved network cannot be built for a space of kind {saved['kind']!r}.")
