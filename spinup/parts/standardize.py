"""Environments of every kind, brought to one interface: Gymnasium's, old Gym's, duck-typed."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box

from spinup.parts.adapted_env import AdaptedEnv, innermost, needs_adapting
from spinup.parts.errors import UserError


def standardize(env: Any) -> gym.Env:
    """Any environment as the algorithms expect it.

    One with the interface of the old Gym, or without a base class, is adapted; observations that
    are not arrays (one of n integers, a dict, a tuple) are flattened to one array, an integer to
    its one-hot vector.
    """
    _require_env(env)
    if needs_adapting(env):
        env = AdaptedEnv(env)
    if not isinstance(env.observation_space, Box):
        with suppress(NotImplementedError, TypeError, ValueError):
            env = gym.wrappers.FlattenObservation(env)
    if not isinstance(env.observation_space, Box):
        raise UserError(
            f"Observations of {env.observation_space} cannot be made one array; spaces made of "
            "Box, Discrete, MultiDiscrete, MultiBinary, Dict and Tuple can."
        )
    if 0 in env.observation_space.shape:
        raise UserError(
            f"Observations of {env.unwrapped} have shape {env.observation_space.shape}, which "
            "holds no number, but a network needs one. Let it observe a constant, such as 1."
        )
    if 0 in (env.action_space.shape or ()):
        raise UserError(
            f"Actions of {env.unwrapped} have shape {env.action_space.shape}, which holds no "
            "number, so there is nothing to choose."
        )
    return env


def simulator(env: gym.Env) -> Any:
    """The innermost environment, below all wrappers, adapters and bridges to the old Gym."""
    inner = env.unwrapped
    bridged = "adapted" if isinstance(inner, AdaptedEnv) else "gym_env"  # as shimmy calls it
    return innermost(getattr(inner, bridged, inner))


def refuse_shared(envs: list[gym.Env], others: Sequence[gym.Env] = ()) -> None:
    """Refuse environments of which two are one: each would disturb the episodes of the other.

    others: environments already in use
    """
    used = [simulator(env) for env in others]
    for env in envs:
        inside = simulator(env)
        if any(inside is other for other in used):
            raise UserError(
                f"env_fn gave the same {type(inside).__name__} object twice, but each copy, and "
                "the evaluation, needs an environment of its own. Make a new one at each call: "
                "env_fn=lambda: gymnasium.make(…)."
            )
        used.append(inside)


def _require_env(env):
    if not (callable(getattr(env, "step", None)) and callable(getattr(env, "reset", None))):
        raise UserError(f"env_fn must make an environment, but made a {type(env).__name__}.")


def reward_number(env: gym.Env, reward: Any) -> float:
    """A reward as a number; an array of a single one is taken, too."""
    if isinstance(reward, float):
        return float(reward)
    found = np.asarray(reward)
    if found.size != 1 or found.dtype.kind not in "biuf":
        raise UserError(f"{env.unwrapped} gave the reward {reward!r}, but it must be one number.")
    return float(found.item())
