"""Environments of the old Gym, and those without a base class, behind Gymnasium's interface.

What differs is adapted: the space classes; `reset()` that takes no seed or returns no info; `step`
that returns (obs, reward, done, info); and methods and attributes that are not there.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from spinup.parts.errors import UserError, shown
from spinup.parts.spaces import as_gymnasium

BASES = ("gymnasium.core", "gym.core")  # where the base classes of environments are
TIME_LIMIT = "TimeLimit.truncated"  # in the info of an old step: only the time limit was reached


class AdaptedEnv(gym.Env):
    """An environment with an older or partial interface, adapted to Gymnasium's.

    The seed reaches it as far as its interface allows: by `reset(seed=…)`, by `seed(n)`, or by the
    `np_random` of its base class. All other attributes are those of the environment inside.
    """

    def __init__(self, env: Any):
        """Adapt `env`, which has `reset`, `step`, `observation_space` and `action_space`."""
        self.adapted = without_broken_checker(env)
        self.observation_space = gymnasium_space(env, "observation_space")
        self.action_space = gymnasium_space(env, "action_space")
        self.metadata = getattr(env, "metadata", None) or {"render_modes": []}
        self.render_mode = getattr(env, "render_mode", None)
        self.spec = getattr(env, "spec", None)
        self._seeding = _seeding(env)
        self._render_takes_mode = _takes(getattr(env, "render", None), "mode")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "adapted":  # not there yet, while it is copied
            raise AttributeError(name)
        return getattr(self.adapted, name)

    def __str__(self) -> str:
        inner = innermost(self.adapted)
        env_id = getattr(self.spec, "id", None)
        return f"<{type(inner).__name__}{'' if env_id is None else f'<{env_id}>'}>"

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        given = {} if seed is None else self._seeding(self.adapted, seed)
        return obs_and_info(self, self.adapted.reset(**given))

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict]:
        return five_values(self, self.adapted.step(action))

    def render(self) -> Any:
        if self._render_takes_mode:
            return self.adapted.render(mode=self.render_mode or "human")
        return self.adapted.render()

    def close(self) -> None:
        close = getattr(self.adapted, "close", None)
        if callable(close):
            close()


def innermost(env: Any) -> Any:
    """The environment below all wrappers; one without `unwrapped` is that itself."""
    return getattr(env, "unwrapped", None) or env


def needs_adapting(env: Any) -> bool:
    """Whether `reset` or the base class shows that an environment needs an AdaptedEnv."""
    return not isinstance(env, gym.Env) or not _takes(env.reset, "seed")


def obs_and_info(env: gym.Env, result: Any) -> tuple[Any, dict]:
    """What `reset` returned, as (obs, info); the old interface returns the observation alone."""
    if isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict):
        space = env.observation_space
        if not (isinstance(space, spaces.Tuple) and space.contains(result)):
            return result
    return result, {}


def five_values(env: gym.Env, result: Any) -> tuple[Any, Any, bool, bool, dict]:
    """What `step` returned, as (obs, reward, terminated, truncated, info).

    Of the four values of the old interface, `done` stands for both ends of an episode; info says
    whether only the time limit was reached.
    """
    if isinstance(result, (tuple, list)) and len(result) == 5:
        return tuple(result)
    if not isinstance(result, (tuple, list)) or len(result) != 4:
        raise UserError(
            f"{env.unwrapped} returned {shown(result)} from step, which must be (obs, reward, "
            "terminated, truncated, info), or (obs, reward, done, info) as in the old Gym."
        )
    obs, reward, done, info = result
    info = info or {}
    only_time = bool(done) and bool(info.get(TIME_LIMIT, False))
    return obs, reward, bool(done) and not only_time, only_time, info


def _seeding(env) -> Callable[[Any, int], dict]:
    """How to seed an episode: a function that seeds `env`, or gives the arguments for `reset`.

    It gets the environment with each call, for a copy of an AdaptedEnv must seed its own.
    """
    inner = innermost(env)
    if "seed" in _parameters(inner.reset):
        return _by_argument if _takes(env.reset, "seed") else _by_inner_reset
    if callable(getattr(env, "seed", None)):
        return _by_method
    if _takes(inner.reset, "seed") and _takes(env.reset, "seed"):  # by **kwargs
        return _by_argument
    base = _base_class(inner)
    if base is not None and "seed" in _parameters(base.reset):
        return _by_base_class
    return _not_at_all


def _by_argument(env, seed) -> dict:
    return dict(seed=seed)


def _by_inner_reset(env, seed) -> dict:  # the wrappers do not pass the seed on
    innermost(env).reset(seed=seed)
    return {}


def _by_method(env, seed) -> dict:
    env.seed(seed)
    return {}


def _by_base_class(env, seed) -> dict:
    inner = innermost(env)
    _base_class(inner).reset(inner, seed=seed)  # sets np_random
    return {}


def _not_at_all(env, seed) -> dict:
    return {}


def _base_class(inner) -> Any:
    """The class `Env` of Gymnasium or Gym that an environment inherits from; None without one."""
    bases = (k for k in type(inner).__mro__ if k.__module__ in BASES and k.__name__ == "Env")
    return next(bases, None)


def _parameters(function) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):  # no function, or one that does not tell
        return {}


def _takes(function, name) -> bool:
    """Whether a function can be given an argument of this name."""
    known = _parameters(function)
    return name in known or any(p.kind is p.VAR_KEYWORD for p in known.values())


def without_broken_checker(env: Any) -> Any:
    """Take the checker of Gym 0.26 off, which uses `numpy.bool8`; NumPy 2 no longer has it."""
    if hasattr(np, "bool8"):
        return env
    if _is_checker(env):
        return without_broken_checker(env.env)
    level = env
    while "env" in getattr(level, "__dict__", {}):
        if _is_checker(level.env):
            level.env = level.env.env
        else:
            level = level.env
    return env


def _is_checker(env) -> bool:
    kind = type(env)
    return kind.__module__ == "gym.wrappers.env_checker" and kind.__name__ == "PassiveEnvChecker"


# --- Spaces ---


def gymnasium_space(env: Any, name: str) -> spaces.Space:
    """A space of `env` as one of Gymnasium's; found by its attributes, whatever class it is of."""
    space = getattr(env, name, None)
    found = as_gymnasium(space)
    if found is None:
        raise UserError(
            f"The {name} of {type(innermost(env)).__name__} is {shown(space)}, but must be a space "
            "of Gymnasium or Gym, such as gymnasium.spaces.Box or Discrete."
        )
    return found
