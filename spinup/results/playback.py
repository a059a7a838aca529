"""Watching a trained agent: its environment is made again, and it plays in it."""

import contextlib
import os
import shlex
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from spinup.parts.errors import UserError
from spinup.parts.make_env import env_from_description, trust_env
from spinup.parts.plain_text import paragraph, say
from spinup.parts.run_folder import read_config, require_run
from spinup.parts.standardize import clip_to_space, reward_number, standardize
from spinup.parts.terminal import format_table
from spinup.results.agents import is_tf_run, load_network, load_tf_policy, policy_of_network
from spinup.results.video import (
    cannot_render,
    open_video,
    real_fps,
    render_without_screen,
    show_on_screen,
)

LIMITS = dict(episodes=(1, 10**6), len=(0, 10**9), seed=(0, 2**63 - 1))


def load_policy_and_env(
    fpath: Path | str,
    itr: int | str = "last",
    deterministic: bool = False,
    actor_critic: Callable | None = None,
    env_fn: Callable | None = None,
    render_mode: str | None = None,
) -> tuple[gym.Env | None, Callable]:
    """The environment of a run, and a function that gives the agent's action for an observation.

    Where the environment cannot be made again, it is None, and a warning says why.

    fpath: the run folder
    itr: which saved model; 'last', or the number of one that was kept
    deterministic: the greedy action of the agent, instead of a sampled one
    actor_critic: the class of the networks, where it is one of your own
    env_fn: makes the environment, where it was one of your own
    render_mode: how the environment shows itself, 'human' or 'rgb_array'
    """
    folder = require_run(fpath, "To load a policy one")
    env = None
    try:
        env = make_run_env(folder, env_fn, render_mode)
    except UserError as error:
        if env_fn is not None or render_mode is not None:  # what the user asks for in this call
            raise
        warnings.warn(
            paragraph(f"{error} The environment is None; the policy is loaded."), stacklevel=2
        )
    return env, load_policy_for(folder, env, itr, deterministic, actor_critic)


def load_policy_for(
    folder: Path,
    env: gym.Env | None,
    itr: int | str = "last",
    deterministic: bool = False,
    actor_critic: Callable | None = None,
) -> Callable:
    """A function that gives the agent's action as `env` takes it, whose spaces must be its own.

    env: None for an agent by itself, whose actions are then as its network's action space says
    """
    space = None
    if env is not None:
        space = env.action_space
        _check_spaces(folder, env)
    if is_tf_run(folder):
        get_action = load_tf_policy(folder, itr, deterministic)
    else:
        network = load_network(folder, itr, actor_critic)
        get_action = policy_of_network(network, deterministic)
        space = space or _action_space(network)

    def act(obs):
        return get_action(obs) if space is None else clip_to_space(space, get_action(obs)[None])[0]

    if env is not None and not _says_spaces(folder):
        _try_out(folder, env, act)
    return act


def _action_space(network) -> Any:
    """The action space that a saved network was built for."""
    from spinup.parts.pytorch.architecture import architecture_of, space_from_json

    return space_from_json(architecture_of(network)["action_space"])


def _says_spaces(folder) -> bool:
    """Whether config.json says what an agent has learned with; that of the original does not."""
    known = os.path.lexists(folder / "config.json") and read_config(folder).get("spaces")
    return isinstance(known, dict) and {"observation", "action"} <= known.keys()


def _try_out(folder, env, act):
    """Refuse an environment on whose observations the agent cannot act."""
    space = env.observation_space
    if space.shape is None:  # a space of several arrays, of an environment of the user's own
        return
    with contextlib.suppress(RuntimeError, ValueError, TypeError, LookupError):
        if env.action_space.contains(act(np.zeros(space.shape, space.dtype))):
            return
    raise UserError(
        f"The agent in {folder} cannot act on observations of {space} with actions of "
        f"{env.action_space}: it has learned with others, and config.json does not say which."
    )


def _check_spaces(folder, env):
    """Refuse an environment that sees or does other things than the agent has learned with."""
    config = read_config(folder) if os.path.lexists(folder / "config.json") else {}
    learned = config.get("spaces") or {}
    spaces = dict(observation=env.observation_space, action=env.action_space)
    for kind, space in spaces.items():
        if kind in learned and learned[kind] != str(space):
            raise UserError(
                f"The agent in {folder} has learned with {kind}s of {learned[kind]}, but this "
                f"environment has {space}."
            )


def make_run_env(
    folder: Path, env_fn: Callable | None = None, render_mode: str | None = None
) -> gym.Env:
    """Make a run's environment again from the id and arguments its config.json holds."""
    if env_fn is not None:
        return standardize(env_fn())
    config = read_config(folder) if os.path.lexists(Path(folder) / "config.json") else {}
    saved = config.get("environment") or {}
    if not saved.get("id"):
        raise UserError(
            f"{folder} does not say how its environment is made. Pass it: "
            "load_policy_and_env(..., env_fn=your_function), or --env ID."
        )
    trust_env(saved["id"], command=f"spinup watch {shlex.quote(str(folder))}")
    maker = config.get("env_fn")
    if maker is not None and not isinstance(maker, dict):  # a function of the user's own
        say(
            f"The environment of {folder} was made by {maker}; here it is made again from its id, "
            f"{saved['id']}. If that function changes it, pass it: "
            "load_policy_and_env(..., env_fn=your_function).",
            file=sys.stderr,
        )
    if render_mode is None:
        return standardize(env_from_description(saved))
    render_without_screen()
    try:
        return standardize(env_from_description(saved, render_mode))
    except UserError:
        raise
    except Exception as error:  # of the graphics library that MuJoCo was told to use
        raise cannot_render(saved["id"], error)


def run_policy(
    env: Any,
    get_action: Callable,
    max_ep_len: int | None = None,
    num_episodes: int = 100,
    render: bool = True,
    seed: int | None = None,
    video: Path | str | None = None,
) -> list[float]:
    """Let an agent play whole episodes; prints each return and their average, and gives them.

    render: show it on the screen, if there is one
    seed: where the first episode starts; none: somewhere new each time
    video: a file to record to; the environment must have the render mode 'rgb_array'
    """
    if env is None:
        raise UserError(
            "There is no environment to play in. Give the function that makes it: "
            "load_policy_and_env(..., env_fn=your_function)."
        )
    if video is not None and env.render_mode != "rgb_array":
        raise UserError("To record it: load_policy_and_env(..., render_mode='rgb_array').")
    if render and video is None:
        env = show_on_screen(env)
    returns, lengths = [], []
    with _shown(env, render, video) as show:
        for episode in range(num_episodes):
            first_seed = seed if episode == 0 else None
            ep_ret, ep_len = _play_episode(env, get_action, max_ep_len, first_seed, show)
            returns.append(ep_ret)
            lengths.append(ep_len)
            print(f"Episode {episode} \t EpRet {ep_ret:.3f} \t EpLen {ep_len}", flush=True)
    if video is not None:
        say(f"Recorded {video}")
    if returns:
        _print_summary(returns, lengths)
    return returns


@contextlib.contextmanager
def _shown(env, render, video):
    """Gives a function to call before each step: it records a frame, or updates the window."""
    if video is None:
        yield env.render if render and env.render_mode == "human" else lambda: None
        return
    frames = open_video(video, real_fps(env))
    try:
        yield lambda: frames.send(env.render())
    finally:
        frames.close()


def _play_episode(env, get_action, max_ep_len, seed, show) -> tuple[float, int]:
    """The return and the length of one episode."""
    obs, _ = env.reset(seed=seed)
    ep_ret, ep_len, over = 0.0, 0, False
    while not over:
        show()
        obs, reward, terminated, truncated, _ = env.step(get_action(obs))
        ep_ret, ep_len = ep_ret + reward_number(env, reward), ep_len + 1
        over = terminated or truncated or ep_len == max_ep_len
    show()  # what the last step led to
    return ep_ret, ep_len


def _print_summary(returns, lengths):
    print(f"{len(returns)} episodes: return {np.mean(returns):.3f} ± {np.std(returns):.3f}")
    numbers = dict(
        AverageEpRet=np.mean(returns),
        StdEpRet=np.std(returns),
        MaxEpRet=max(returns),
        MinEpRet=min(returns),
        EpLen=np.mean(lengths),
        StdEpLen=np.std(lengths),
        MaxEpLen=max(lengths),
        MinEpLen=min(lengths),
    )
    print(format_table(numbers.keys(), numbers.values()))
