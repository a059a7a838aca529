"""Watching a trained agent: load it from its run folder, let it play, record it."""

import contextlib
import os
import re
import shlex
import sys
from pathlib import Path

import numpy as np

from spinup.parts.backend import backend_named
from spinup.parts.errors import UserError
from spinup.parts.imports import allow_import, left_out
from spinup.parts.make_env import env_from_description, trust_env
from spinup.parts.plain_text import say
from spinup.parts.run_folder import read_config, require_run
from spinup.parts.standardize import clip_to_space, reward_number, standardize
from spinup.parts.terminal import format_table
from spinup.results.video import _on_screen, _writer, cannot_render, real_fps, render_without_screen

LIMITS = dict(episodes=(1, 10**6), len=(0, 10**9), seed=(0, 2**63 - 1))


def load_policy_and_env(
    fpath, itr="last", deterministic=False, actor_critic=None, env_fn=None, render_mode=None,
    trust_graph=False,
):  # fmt: skip
    """The environment of a run, and a function that gives the agent's action for an observation.

    fpath: the run folder
    itr: which saved model; 'last', or the number of one that was kept
    deterministic: the greedy action of the agent, instead of a sampled one
    actor_critic: the class of the networks, where it is one of your own
    env_fn: makes the environment, where it was one of your own
    render_mode: how the environment shows itself, 'human' or 'rgb_array'
    trust_graph: run the graph of a TensorFlow agent, as `load_tf_policy` says
    """
    folder = require_run(fpath, "To load a policy one")
    env = make_run_env(folder, env_fn, render_mode)
    _check_spaces(folder, env)
    if any(name.startswith("tf1_save") for name in os.listdir(folder)):
        get_action = load_tf_policy(folder, itr, deterministic, trust_graph)
    else:
        get_action = load_pytorch_policy(folder, itr, deterministic, actor_critic)

    def act(obs):
        return clip_to_space(env.action_space, get_action(obs)[None])[0]

    if not _says_spaces(folder):
        _try_out(folder, env, act)
    return env, act


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


def make_run_env(folder, env_fn=None, render_mode=None):
    """Make a run's environment again from the id and arguments its config.json holds."""
    if env_fn is not None:
        return standardize(env_fn())
    saved = read_config(folder).get("environment") or {}
    if not saved.get("id"):
        raise UserError(
            f"{folder} does not say how its environment is made. Pass it: "
            "load_policy_and_env(..., env_fn=your_function), or --env ID."
        )
    trust_env(saved["id"], command=f"spinup watch {shlex.quote(str(folder))}")
    maker = read_config(folder).get("env_fn")
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


def load_pytorch_policy(fpath, itr="last", deterministic=False, actor_critic=None):
    """A function that gives the action of a saved PyTorch agent."""
    act = backend_named("pytorch").policy_of(load_network(fpath, itr, actor_critic), deterministic)
    return lambda obs: act(np.asarray(obs)[None])[0]


def load_network(fpath, itr="last", actor_critic=None):
    """The network of a saved PyTorch agent."""
    load_model = backend_named("pytorch").load_model
    return load_model(_model_file(Path(fpath) / "pyt_save", itr), actor_critic)


def load_tf_policy(fpath, itr="last", deterministic=False, trust_graph=False):
    """A function that gives the action of a saved TensorFlow agent.

    trust_graph: say that you know where it comes from, for a graph is a program: among its
        operations may be some that read and write files
    """
    if not trust_graph:
        raise UserError(
            f"The agent in {fpath} is a TensorFlow graph, which is a program and may write files "
            "when it runs. If you trust it: spinup watch … --trust_graph (in a program: "
            "trust_graph=True)."
        )
    folders = [path for path in Path(fpath).glob("tf1_save*") if path.is_dir()]
    folder = _numbered(folders, Path(fpath) / "tf1_save", itr)
    act = backend_named("tf1").policy_of(folder, deterministic)
    return lambda obs: act(np.asarray(obs)[None])[0]


def _model_file(folder, itr) -> Path:
    names = os.listdir(folder) if os.path.isdir(folder) else []
    found = [folder / name for name in names if re.fullmatch(r"model\d*\.pt", name)]
    return _numbered(found, folder / "model.pt", itr)


def _numbered(found, last, itr) -> Path:
    """The saved model of number `itr`; for 'last', the unnumbered one, else the highest number."""
    numbers = {
        int(n[0]): path for path in found if (n := re.findall(r"(\d+)(?:\.pt)?$", path.name))
    }
    if itr in ("last", "", None, -1):
        chosen = last if os.path.lexists(last) else numbers.get(max(numbers, default=None))
    else:
        chosen = numbers.get(int(itr)) if str(itr).isdigit() else None
    if not numbers and not os.path.lexists(last):
        raise UserError(f"There is no saved model in {last.parent}. Name the folder of a run.")
    if chosen is None:
        kept = ", ".join(map(str, sorted(numbers))) or "none; --keep_models in training keeps them"
        raise UserError(f"There is no saved model {itr!r} in {last.parent}; numbered ones: {kept}.")
    return chosen


def run_policy(
    env, get_action, max_ep_len=None, num_episodes=100, render=True, seed=None, video=None
):
    """Let an agent play whole episodes; prints each return and their average, and gives them.

    render: show it on the screen, if there is one
    seed: where the first episode starts; none: somewhere new each time
    video: a file to record to; the environment must have the render mode 'rgb_array'
    """
    if env is None:
        raise UserError("There is no environment to play in; see load_policy_and_env(env_fn=…).")
    if video is not None and env.render_mode != "rgb_array":
        raise UserError("To record it: load_policy_and_env(..., render_mode='rgb_array').")
    if render and video is None:
        env = _on_screen(env)
    frames = None if video is None else _writer(video, real_fps(env))
    show = frames.send if video is not None else lambda image: None
    shown = video is not None or (render and env.render_mode == "human")
    returns, lengths = [], []
    try:
        for episode in range(num_episodes):
            obs, _ = env.reset(seed=seed if episode == 0 else None)
            ep_ret, ep_len, over = 0.0, 0, False
            while not over:
                if shown:
                    show(env.render())
                obs, reward, terminated, truncated, _ = env.step(get_action(obs))
                ep_ret, ep_len = ep_ret + reward_number(env, reward), ep_len + 1
                over = terminated or truncated or ep_len == max_ep_len
            if shown:
                show(env.render())  # what the last step led to
            returns.append(ep_ret)
            lengths.append(ep_len)
            print(f"Episode {episode} \t EpRet {ep_ret:.3f} \t EpLen {ep_len}", flush=True)
    finally:
        if frames is not None:
            frames.close()
    if frames is not None:
        say(f"Recorded {video}")
    if returns:
        print(f"{len(returns)} episodes: return {np.mean(returns):.3f} ± {np.std(returns):.3f}")
        numbers = {
            **dict(AverageEpRet=np.mean(returns), StdEpRet=np.std(returns)),
            **dict(MaxEpRet=max(returns), MinEpRet=min(returns), EpLen=np.mean(lengths)),
            **dict(StdEpLen=np.std(lengths), MaxEpLen=max(lengths), MinEpLen=min(lengths)),
        }
        print(format_table(numbers.keys(), numbers.values()))
    return returns


def named_class(name):
    """The class that the user names on purpose, as `module:Class`."""
    if name is None:
        return None
    from importlib import import_module

    module, _, attribute = name.partition(":")
    allow_import(module)
    try:
        return getattr(import_module(module), attribute)
    except Exception as error:  # also of the module itself, which runs when it is imported
        hint = left_out(error) if isinstance(error, ImportError) else ""
        raise UserError(f"--actor_critic {name}: {error}. Write it as module:Class.{hint}")
