"""Watching a trained agent: load it from its run folder, let it play, record it."""

import argparse
import contextlib
import inspect
import os
import re
import shlex
import shutil
import subprocess
import sys
from ctypes.util import find_library
from pathlib import Path

import numpy as np

from spinup.parts.imports import allow_import, left_out
from spinup.parts.plain_text import say
from spinup.parts.run_folder import read_config, require_run
from spinup.utils.errors import UserError, shown
from spinup.utils.logx import format_table

ATARI_FPS = 60
LIMITS = dict(episodes=(1, 10**6), len=(0, 10**9), seed=(0, 2**63 - 1))
VIDEOS = (".mp4", ".mkv", ".mov", ".webm", ".gif")


def load_policy_and_env(
    fpath, itr="last", deterministic=False, actor_critic=None, env_fn=None, render_mode=None,
    trust_graph=False,
):  # fmt: skip
    """The environment of a run, and a function that gives the agent's action for an observation.

    fpath: the run folder
    itr: which saved model; 'last', or the number of one that was kept
    deterministic: the action the agent deems best, instead of one drawn at random
    actor_critic: the class of the networks, where it is one of your own
    env_fn: makes the environment, where it was one of your own
    render_mode: how the environment shows itself, 'human' or 'rgb_array'
    trust_graph: run the graph of a TensorFlow agent, as `load_tf_policy` says
    """
    from spinup.parts.envs import within_space

    folder = require_run(fpath, "To load a policy one")
    env = make_run_env(folder, env_fn, render_mode)
    _check_spaces(folder, env)
    if any(name.startswith("tf1_save") for name in os.listdir(folder)):
        get_action = load_tf_policy(folder, itr, deterministic, trust_graph)
    else:
        get_action = load_pytorch_policy(folder, itr, deterministic, actor_critic)

    def act(obs):
        return within_space(env.action_space, get_action(obs)[None])[0]

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
    from spinup.parts.envs import adopt, env_from_description, trust_env

    if env_fn is not None:
        return adopt(env_fn())
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
            f"The environment of {folder} was made by {maker}; here it is made anew from its id, "
            f"{saved['id']}. If that function changes it, pass it: "
            "load_policy_and_env(..., env_fn=your_function).",
            file=sys.stderr,
        )
    if render_mode is None:
        return adopt(env_from_description(saved))
    draw_without_screen()
    try:
        return adopt(env_from_description(saved, render_mode))
    except UserError:
        raise
    except Exception as error:  # of the graphics library that MuJoCo was told to use
        raise cannot_draw(saved["id"], error)


def load_pytorch_policy(fpath, itr="last", deterministic=False, actor_critic=None):
    """A function that gives the action of a saved PyTorch agent."""
    act = network_action(load_network(fpath, itr, actor_critic), deterministic)
    return lambda obs: act(np.asarray(obs)[None])[0]


def load_network(fpath, itr="last", actor_critic=None):
    """The network of a saved PyTorch agent."""
    from spinup.parts.pytorch.models import load_model

    return load_model(_model_file(Path(fpath) / "pyt_save", itr), actor_critic)


def network_action(network, deterministic=False):
    """A function that gives a network's action for each of a batch of observations."""
    import torch

    from spinup.parts.pytorch.tensors import to_tensor

    chooses = "deterministic" in inspect.signature(network.act).parameters
    if deterministic and not chooses:
        raise UserError(f"{type(network).__name__}.act has no 'deterministic'; watch without it.")
    options = dict(deterministic=deterministic) if chooses else {}

    @torch.no_grad()
    def act(obs):
        return np.asarray(network.act(to_tensor(obs).float(), **options))

    return act


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
    try:
        import tensorflow as tf
    except ImportError:
        raise UserError("This agent was made with TensorFlow: pip install 'spinup[tf]'")
    from spinup.utils.logx import restore_tf_graph

    folders = [path for path in Path(fpath).glob("tf1_save*") if path.is_dir()]
    folder = _numbered(folders, Path(fpath) / "tf1_save", itr)
    session = tf.compat.v1.Session(graph=tf.Graph())
    with session.graph.as_default():
        model = restore_tf_graph(session, folder)
    action = model["mu"] if deterministic and "mu" in model else model["pi"]
    return lambda obs: session.run(action, feed_dict={model["x"]: np.asarray(obs)[None]})[0]


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
    from spinup.parts.envs import reward_number

    if env is None:
        raise UserError("There is no environment to play in; see load_policy_and_env(env_fn=…).")
    if video is not None and env.render_mode != "rgb_array":
        raise UserError("To record it: load_policy_and_env(..., render_mode='rgb_array').")
    if render and video is None:
        env = _on_screen(env)
    frames = None if video is None else _writer(video, real_fps(env))
    show = frames.send if video is not None else lambda picture: None
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


def has_screen() -> bool:
    shows = ("DISPLAY", "WAYLAND_DISPLAY")
    return sys.platform in ("darwin", "win32") or any(os.environ.get(name) for name in shows)


def draw_without_screen():
    """Where there is no screen, tell pygame and MuJoCo, which hear it when first imported."""
    if has_screen():
        return
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    for library, name in dict(EGL="egl", OSMesa="osmesa").items():
        if find_library(library):  # if there is none, MuJoCo should still be importable
            os.environ.setdefault("MUJOCO_GL", name)


def _on_screen(env):
    """The environment in a window, made anew for that if need be."""
    import gymnasium as gym

    if env.render_mode is not None:
        return env
    if not has_screen() or env.spec is None:
        print("There is no screen to show this on; record it with --video FILE.mp4")
        return env
    try:
        return gym.make(env.spec, render_mode="human")
    except Exception as error:  # a wrapper that cannot be made again, a window that cannot open
        say(f"This environment cannot be shown in a window ({error}).")
        return env


def real_fps(env) -> float:
    """How many steps an environment takes in a second of its own time."""
    from gymnasium.wrappers import AtariPreprocessing, MaxAndSkipObservation

    skipped, inner = 1, env
    while inner is not env.unwrapped:
        if isinstance(inner, AtariPreprocessing):
            skipped *= inner.frame_skip
        elif isinstance(inner, MaxAndSkipObservation):
            skipped *= inner._skip
        inner = inner.env
    if hasattr(inner, "ale"):  # its render_fps does not know how many frames are skipped
        skip = inner._frameskip  # from one number to before another, at random, where it is two
        return ATARI_FPS / skipped / (skip if isinstance(skip, int) else np.mean(range(*skip)))
    dt = getattr(inner, "dt", None)
    return (env.metadata.get("render_fps") or (1 / dt if dt else 30)) / skipped


def _writer(path, fps):
    """Takes frames and writes them to a video file; `close` finishes it.

    The file gets its name when it is whole: an older one stays until then.
    """
    path = Path(path)
    if not os.path.isdir(path.parent):
        raise UserError(f"There is no folder {path.parent} to record to.")
    if path.is_symlink():
        raise UserError(f"{path} is a symbolic link, and would lead elsewhere. Choose another.")
    if os.path.isdir(path):
        raise UserError(f"Cannot record to {path}, which is a folder.")
    new = path.with_name(f"{path.stem}.new{path.suffix}")
    try:
        open(new, "wb").close()
    except OSError as error:
        raise UserError(f"Cannot record to {path} ({error.strerror}).")
    frames = _frames(new, path, fps)
    next(frames)
    return frames


def _frames(new, path, fps):
    import imageio_ffmpeg

    codec = {".gif": "gif", ".webm": "libvpx-vp9"}.get(path.suffix, "libx264")
    out, count = None, 0
    try:
        while True:
            frame = yield
            if out is None:
                height, width = (n - n % 2 for n in frame.shape[:2])  # the encoder wants even sizes
                out = imageio_ffmpeg.write_frames(
                    str(new), (width, height), fps=fps, codec=codec, macro_block_size=2, quality=7,
                    pix_fmt_out="rgb8" if codec == "gif" else "yuv420p", ffmpeg_log_level="fatal",
                )  # fmt: skip
                out.send(None)
            out.send(np.ascontiguousarray(frame[:height, :width]))
            count += 1
    except GeneratorExit:
        _finish_video(out, new, path, count)
    except OSError:  # of the encoder, which has ended
        raise _no_video(path)
    finally:
        with contextlib.suppress(OSError):
            new.unlink()


def _finish_video(out, new, path, count):
    """Let the encoder end, and give the file its name if it holds all frames."""
    import imageio_ffmpeg

    if out is None:
        return
    try:
        out.close()
        whole = imageio_ffmpeg.count_frames_and_secs(str(new))[0] >= count
    except (OSError, RuntimeError, subprocess.SubprocessError):  # it cannot be read
        whole = False
    if not whole:  # the encoder does not say why
        raise _no_video(path)
    os.replace(new, path)


def _no_video(path) -> UserError:
    full = shutil.disk_usage(path.parent).free < 2**16
    why = "No space left on device" if full else "the encoder could not write all of it"
    return UserError(f"The video {path} could not be recorded ({why}). Nothing else has changed.")


def check_rendering(env):
    """Render one frame, or say what this machine lacks for it."""
    env.reset(seed=0)
    try:
        picture = env.render()
    except Exception as error:  # each simulator fails in its own way without its libraries
        raise cannot_draw(env.spec.id if env.spec else "This environment", error)
    if picture is None:
        raise cannot_draw(env.spec.id if env.spec else "This environment", "it gave no picture")


def cannot_draw(name, error) -> UserError:
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return UserError(
        f"{name} cannot be drawn here ({reason}). For MuJoCo without a screen, on Debian or "
        "Ubuntu: apt-get install libegl1 libopengl0 (or libosmesa6, and set MUJOCO_GL=osmesa)."
    )


def main(argv=None, name="spinup test_policy", episodes=100):
    """The commands `spinup watch` and `spinup test_policy`."""
    parser = argparse.ArgumentParser(name, description="See a trained agent play.")
    parser.add_argument("fpath", help="the run's folder")
    parser.add_argument(
        "--len",
        "-l",
        type=int,
        default=0,
        help="steps per episode at most; 0: as many as the environment allows",
    )
    parser.add_argument("--episodes", "-n", type=int, default=episodes)
    parser.add_argument("--norender", "-nr", action="store_true", help="only print the returns")
    parser.add_argument("--itr", "-i", type=int, default=-1, help="number of a saved model")
    parser.add_argument("--deterministic", "-d", action="store_true", help="play the best action")
    parser.add_argument("--video", metavar="FILE.mp4", help="record to a file")
    parser.add_argument("--seed", type=int, help="where the first episode starts")
    parser.add_argument("--env", help="play in this environment, instead of the run's own")
    parser.add_argument("--actor_critic", metavar="MODULE:CLASS", help="networks of your own")
    parser.add_argument("--trust_graph", action="store_true", help="run a TensorFlow graph")
    args = parser.parse_args(argv)
    for flag, (least, most) in LIMITS.items():
        value = getattr(args, flag)
        if value is not None and not least <= value <= most:
            raise UserError(
                f"--{flag} wants a whole number from {least} to {most}, not {shown(value)}."
            )
    if args.video and Path(args.video).suffix not in VIDEOS:
        raise UserError(f"--video wants a file that ends in {', '.join(VIDEOS)}, not {args.video}.")
    mode = "rgb_array" if args.video else "human" if has_screen() and not args.norender else None
    if mode is not None:
        draw_without_screen()
    from spinup.parts.envs import EnvMaker, allow_env

    allow_env(args.env)
    env, get_action = load_policy_and_env(
        args.fpath,
        args.itr if args.itr >= 0 else "last",
        args.deterministic,
        actor_critic=named_class(args.actor_critic),
        env_fn=EnvMaker(args.env, dict(render_mode=mode)) if args.env else None,
        render_mode=mode,
        trust_graph=args.trust_graph,
    )
    if args.video:
        check_rendering(env)
    render = not args.norender
    run_policy(env, get_action, args.len or None, args.episodes, render, args.seed, args.video)
    env.close()


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


if __name__ == "__main__":
    from spinup.run import guarded

    guarded(main)
