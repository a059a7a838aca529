"""Spaces: what is an image, which actions an algorithm takes, and what a buffer must hold."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete
from numpy.typing import ArrayLike

from spinup.parts.errors import UserError

if TYPE_CHECKING:  # it imports this module
    from spinup.parts.envs import VectorEnv

SMALLEST_IMAGE = 10  # pixels in height and in width
MAX_NUMBERED = 100_000  # combinations of actions that still make sense as one discrete action


def is_image(space: gym.Space) -> bool:
    """Whether observations are images: bytes up to 255 in two dimensions or three.

    A fourth dimension, frames one after the other, is an image too.
    """
    if not isinstance(space, Box) or space.dtype != np.uint8 or not 2 <= len(space.shape) <= 4:
        return False
    _, height, width, _ = image_layout(space.shape)
    return min(height, width) >= SMALLEST_IMAGE and bool((space.high == 255).all())


def image_layout(shape: Sequence[int]) -> tuple[int, int, int, bool]:
    """Channels (of all frames), height, width, and whether the channels of a frame come last.

    The shape tells: of (4, 84, 84) and (84, 84, 3), the smaller end counts the channels.
    """
    frames, image = (shape[:-3], shape[-3:]) if len(shape) > 2 else ((), (1, *shape))
    last = image[-1] < image[0]
    height, width = image[:2] if last else image[1:]
    channels = int(np.prod(frames)) * (image[-1] if last else image[0])
    return channels, height, width, last


def refuse_images(space: Box, algorithm: str) -> None:
    """Refuse images where the networks of `algorithm` have no encoder for them."""
    colors = space.dtype == np.uint8 and len(space.shape) == 3  # also those too small to encode
    if colors or is_image(space):
        raise UserError(
            f"{algorithm} has no encoder for images, but observations are images of shape "
            f"{space.shape}. Use ppo or dqn, pass an actor_critic of your own that takes images, "
            "or wrap the environment in gymnasium.wrappers.FlattenObservation to do without."
        )


def require_actions(space: gym.Space, kinds: tuple, algorithm: str, instead: str) -> None:
    """Refuse an action space that `algorithm` has no policy for, and say what to use instead.

    instead: what to do with actions of the other one of the two kinds that others have
    """
    if not isinstance(space, kinds):
        names = " or ".join({Box: "continuous", Discrete: "discrete"}[kind] for kind in kinds)
        if not isinstance(space, (Box, Discrete)):
            instead = _how_to_number(space, "" if Discrete in kinds else " and use ppo or dqn")
        raise UserError(f"{algorithm} needs {names} actions, but these are {space}. {instead}")


def _how_to_number(space, then: str) -> str:
    """How to make one number of several, for actions that no algorithm takes as they are.

    then: which algorithm to take, where another one than now
    """
    values = space.nvec if isinstance(space, MultiDiscrete) else np.full(space.shape or (), 2)
    several = isinstance(space, (MultiDiscrete, MultiBinary))
    if not several or math.prod(values.ravel().tolist()) > MAX_NUMBERED:
        return (
            "Make one Box or Discrete of them with gymnasium.wrappers.TransformAction(env, "
            "function, space)."
        )
    action = f"np.array(np.unravel_index(a, {values.ravel().tolist()}))"
    action += f".reshape({space.shape})" if values.ndim > 1 else ""
    start = np.asarray(getattr(space, "start", 0))
    action += f" + {start.tolist()}" if start.any() else ""
    return (
        f"Number their combinations{then}: gymnasium.wrappers.TransformAction(env, "
        f"lambda a: {action}, gymnasium.spaces.Discrete({values.prod()}))."
    )


def clip_to_space(space: Box | Discrete, actions: ArrayLike) -> np.ndarray:
    """One action per row as an environment takes it: inside the box, or counted from `start`."""
    if not isinstance(space, Box):
        actions = np.asarray(actions).reshape(-1)
        return actions + space.start if space.start else actions
    if space.dtype.kind == "f":
        actions = np.asarray(actions, space.dtype)
        if actions.ndim != len(space.shape) + 1 or actions.shape[1:] != space.shape:
            actions = actions.reshape(-1, *space.shape)
        return np.minimum(np.maximum(actions, space.low), space.high)
    return _integers_within(space, np.asarray(actions).reshape(-1, *space.shape))


def _integers_within(space, actions):
    """The nearest integers inside the box; clipped before they are cast, which would wrap."""
    low, high = space.low, space.high
    if np.result_type(actions, space.dtype).kind in "biu":
        return np.minimum(np.maximum(actions, low), high).astype(space.dtype)
    if np.isnan(actions).any():
        raise UserError(
            f"An action is not a number (NaN), so it is none of {space}. The policy has "
            "diverged: try a smaller learning rate."
        )
    actions = np.rint(actions)
    inside = np.where((actions > low) & (actions < high), actions, 0).astype(space.dtype)
    # The bounds as they are: one of 64 bits has no exact float.
    return np.where(actions <= low, low, np.where(actions >= high, high, inside))


def space_dims(env: "VectorEnv") -> dict:
    """How a buffer must be made for the observations and actions of `env`."""
    discrete = isinstance(env.action_space, Discrete)
    return dict(
        obs_dim=env.observation_space.shape,
        act_dim=None if discrete else int(np.prod(env.action_space.shape)),
        obs_dtype=env.obs_dtype,
        act_dtype=np.int64 if discrete else np.float32,
    )


def as_gymnasium(space: Any) -> gym.Space | None:
    """A space as one of Gymnasium's, found by its attributes, whatever class it is of.

    None for what is no space, or one that Gymnasium has no counterpart of.
    """
    if isinstance(space, spaces.Space):
        return space
    inside: Any = getattr(space, "spaces", None)
    if hasattr(inside, "items"):
        named: dict[str, Any] = {key: as_gymnasium(part) for key, part in inside.items()}
        return None if None in named.values() else spaces.Dict(named)
    if isinstance(inside, (tuple, list)):
        parts = [found for part in inside if (found := as_gymnasium(part)) is not None]
        return spaces.Tuple(parts) if len(parts) == len(inside) else None
    if hasattr(space, "low") and hasattr(space, "high"):
        shape = getattr(space, "shape", None)
        shape = np.broadcast_shapes(np.shape(space.low), np.shape(space.high), shape or ())
        dtype: Any = getattr(space, "dtype", None) or np.float32
        low, high = (np.broadcast_to(np.asarray(b, dtype), shape) for b in (space.low, space.high))
        return spaces.Box(low, high, shape, dtype)
    if hasattr(space, "nvec"):
        start = getattr(space, "start", None)
        return spaces.MultiDiscrete(np.asarray(space.nvec), start=start)
    if hasattr(space, "n"):
        if type(space).__name__ == "MultiBinary":
            return spaces.MultiBinary(space.n)
        return spaces.Discrete(int(space.n), start=int(getattr(space, "start", 0)))
    return None
