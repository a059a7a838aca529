"""Hidden state of environments: does an episode follow from its seed and its actions alone?

A checkpoint saves an environment by its seed and actions. State that an environment carries from
one episode to the next, and randomness that no seed sets, are lost when a run is stopped. They are
looked for before a run begins, and reported.
"""

import copy
import warnings
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

from spinup.parts.adapted_env import AdaptedEnv, innermost
from spinup.parts.backend import Backend
from spinup.parts.envs import VectorEnv
from spinup.parts.seeds import preserve_rng
from spinup.parts.standardize import simulator, standardize

STEPS = 10  # of each episode that is tried; hidden state mostly shows at the next reset


def find_hidden_state(
    env_fn: Callable, env: VectorEnv, backend: Backend | None = None
) -> str | None:
    """The name of what carries state between episodes, or has randomness that no seed sets.

    Gymnasium's own wrappers are known. All else is tried with an environment that is made for it
    and thrown away: the same seed and actions must give the same episode twice, with another in
    between. The run itself is not touched, and neither are the global random streams.
    """
    known = [
        type(level).__name__
        for level in _levels(env.envs[0])
        if isinstance(level, (gym.wrappers.NormalizeObservation, gym.wrappers.NormalizeReward))
        and level.update_running_mean
    ]
    if known:
        return " and ".join(known)
    if getattr(env.envs[0], "render_mode", None) == "human":
        return None  # closing a second window would close the first
    try:
        with preserve_rng(backend), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # said when the environments of the run were made
            return _try_out(env_fn, env)
    except Exception:  # it cannot be copied, or not be stepped at random: then it is not known
        return None


def _try_out(env_fn, env):
    trial = standardize(env_fn())
    if any(simulator(trial) is simulator(used) for used in env.envs):
        trial = copy.deepcopy(trial)  # env_fn always gives the same one
    try:
        if _repeats(trial):
            return None
        culprits = (level for level in reversed(_levels(trial)) if not _repeats(level))
        culprit: Any = next(culprits, simulator(trial))
        if isinstance(culprit, AdaptedEnv):
            culprit = innermost(culprit.adapted)
        return type(culprit).__name__
    finally:
        trial.close()


def _levels(env) -> list[gym.Env]:
    """An environment and all that is inside it, from the outermost wrapper inwards."""
    levels = [env]
    while isinstance(levels[-1], gym.Wrapper):
        levels.append(levels[-1].env)
    return levels


def _repeats(env) -> bool:
    """Whether an episode is the same again after another one."""
    space = copy.deepcopy(env.action_space)
    space.seed(0)
    one, other = ([space.sample() for _ in range(STEPS)] for _ in range(2))
    first = _episode(env, 1, one)
    _episode(env, 2, other)
    return _episode(env, 1, one) == first


def _episode(env, seed, actions) -> list:
    seen = [_exact(env.reset(seed=seed)[0])]
    for action in actions:
        *step, _ = env.step(copy.deepcopy(action))
        seen.append(_exact(step))
        if any(step[2:]):
            break
    return seen


def _exact(value):
    """Something that is equal only for equal bits, of arrays and of what is made of them."""
    if isinstance(value, dict):
        return {key: _exact(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_exact(part) for part in value]
    array = np.asarray(value)
    return array.dtype.str, array.shape, array.tobytes()


def explain(name: str, resumed: bool) -> str:
    """What hidden state in the environment or wrapper `name` means for a run; what to do."""
    consequence = (
        "This run cannot be resumed exactly: from here on it differs from one never stopped."
        if resumed
        else "If this run is stopped and resumed, it will differ from one never stopped."
    )
    instead = (
        "To normalise observations use --ac_kwargs:normalize True (in a script "
        "ac_kwargs=dict(normalize=True)) of ppo, vpg, trpo or reinforce, which is saved with the "
        "policy."
    )
    if "NormalizeReward" in name:
        instead += (
            " To scale rewards use a constant: "
            "gymnasium.wrappers.TransformReward(env, lambda r: 0.1 * r)."
        )
    elif "NormalizeObservation" not in name:
        fix = "Let reset(seed=…) set all randomness and reset all state."
        instead = f"{fix} {instead}"
    return (
        "State carried between episodes, or randomness that reset(seed=…) does not set, is in "
        f"{name}; a checkpoint cannot save that. {consequence} {instead}"
    )
