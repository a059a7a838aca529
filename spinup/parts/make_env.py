"""Making environments: from an id, from a description in config.json, from packages."""

import inspect
import io
import json
import random
import re
import shlex
import sys
from contextlib import nullcontext, redirect_stderr, suppress
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec

from spinup.parts.errors import UserError, did_you_mean
from spinup.parts.imports import OutsideCurrentFolder, allow_import, left_out

# Packages that register environments when asked: what their ids look like, and our extra for them.
REGISTERED_ON_DEMAND = (
    (r"ALE/|.*NoFrameskip-v", "ale_py", "atari"),
    (r"spinup/", "spinup.envs", None),
    (r"Fetch|Hand|Adroit|Franka|PointMaze|AntMaze", "gymnasium_robotics", "robotics"),
)
# Whose environments may be made because a file names them: none of them makes what its arguments
# name, as those of the bridges to the old Gym do.
KNOWN_PACKAGES = ("gymnasium", "ale_py", "gymnasium_robotics", "spinup.envs")
BRIDGES = ("gym", "shimmy")
# What is missing when one of Gymnasium's own environments cannot be made.
EXTRA_OF_ENTRY_POINT = (
    ("mujoco", "mujoco"),
    ("box2d", "box2d"),
    ("robotics", "robotics"),
    ("ale_py", "atari"),
)
# Gymnasium's wrappers that may be put around an environment because a file says so: those without
# state carried between episodes, and that touch nothing outside.
REBUILT_WRAPPERS = {
    "AtariPreprocessing", "ClipAction", "ClipReward", "DelayObservation", "DtypeObservation",
    "FilterObservation", "FlattenObservation", "FrameStackObservation", "GrayscaleObservation",
    "MaxAndSkipObservation", "RescaleAction", "RescaleObservation", "ReshapeObservation",
    "ResizeObservation", "StickyAction", "TimeAwareObservation", "TimeLimit",
}  # fmt: skip


@dataclass(frozen=True)
class EnvMaker:
    """Makes an environment from its id, `CartPole-v1` or `package:Id`, and its arguments."""

    env_name: str
    env_kwargs: dict = field(default_factory=dict)

    def __call__(self, **more) -> gym.Env:
        return make_env(self.env_name, **self.env_kwargs, **more)


def make_env(env_name: str, **kwargs: Any) -> gym.Env:
    """Make a registered environment, Atari games with the usual preprocessing."""
    return _make_or_explain(
        env_name, _make_atari if _is_atari(find_spec(env_name)) else gym.make, kwargs
    )


def _is_atari(spec) -> bool:
    return str(spec.entry_point).startswith("ale_py")


def _make_atari(env_id, preprocess=True, clip_reward=False, stack_size=4, **kwargs) -> gym.Env:
    """An Atari game as an agent usually sees it: the last 4 images, 84 x 84 and grey.

    Every action is held for 4 frames, and an episode begins with up to 30 frames of doing nothing.

    preprocess: False for the game as the simulator gives it; so does an obs_type
    clip_reward: rewards within -1 and 1 instead of the game's score
    kwargs: those of Gymnasium's AtariPreprocessing or of the simulator
    """
    if not preprocess or kwargs.keys() & {"obs_type", "sound_obs"}:
        env = gym.make(env_id, **kwargs)
    else:
        known = inspect.signature(gym.wrappers.AtariPreprocessing).parameters
        wanted = {key: kwargs.pop(key) for key in list(kwargs) if key in known}
        wanted.setdefault("frame_skip", kwargs.pop("frameskip", 4))
        if kwargs.get("continuous"):
            wanted["noop_max"] = 0  # doing nothing is an action's number there
        env = gym.make(env_id, frameskip=1, **kwargs)  # the wrapper skips, and pools two frames
        env = gym.wrappers.AtariPreprocessing(env, **wanted)
        env = gym.wrappers.FrameStackObservation(env, stack_size)
    return gym.wrappers.ClipReward(env, -1, 1) if clip_reward else env


OF_THE_REGISTRY = ("render_mode", "max_episode_steps")  # arguments that are not the environment's
# What an environment may raise when it is given arguments that it does not know.
BAD_ARGUMENTS = (
    TypeError,
    ValueError,
    AttributeError,
    LookupError,
    ArithmeticError,
    AssertionError,
    OSError,
)


def _make_or_explain(env_name, make, kwargs) -> gym.Env:
    """What `make` gives for an id and arguments, or a sentence on which of them would do."""
    spec = find_spec(env_name)
    if _is_atari(spec):  # which takes tuples, but JSON knows only lists
        kwargs = {k: tuple(v) if isinstance(v, list) else v for k, v in kwargs.items()}
    mode = kwargs.get("render_mode")
    try:
        if not isinstance(mode, str | None):
            raise UserError(
                f"{env_name}: render_mode must be a string such as 'rgb_array', not {mode!r}."
            )
        env = make(spec.id, disable_env_checker=True, **kwargs)
        modes = env.metadata.get("render_modes") or [mode]
        if mode is not None and mode.removesuffix("_list") not in (*modes, "human"):
            known = ", ".join(modes)
            raise UserError(f"{env_name}: render_mode must be one of {known}, not {mode!r}.")
        arguments = {k: v for k, v in kwargs.items() if k not in OF_THE_REGISTRY}
        if arguments:
            _try_out(env_name, make, spec, arguments)
        return env
    except (gym.error.DependencyNotInstalled, ImportError) as error:
        entry_point = str(spec.entry_point)
        extras = [extra for part, extra in EXTRA_OF_ENTRY_POINT if part in entry_point]
        newer = _other_versions(spec.id)
        if "mujoco_py" in str(error) or "v2 and v3" in str(error):  # retired with mujoco-py
            raise UserError(f"{env_name} is retired; {newer[0]} has taken its place.")
        how = f"pip install 'spinup[{extras[0]}]'" if extras else f"Gymnasium says: {error}"
        raise UserError(f"{env_name} needs a package that is not installed. {how}")
    except gym.error.Error as error:
        raise UserError(f"{env_name} cannot be made: {error}")
    except BAD_ARGUMENTS as error:
        if isinstance(error, UserError) or not kwargs.keys() - {"render_mode"}:
            raise
        what = str(error) or type(error).__name__
        raise UserError(f"{env_name} does not take these env_kwargs: {what}")


def _try_out(env_name, make, spec, kwargs):
    """Take a step in an environment of its own: some arguments fail only there."""
    if (key := f"{env_name} {kwargs}") in _tried:
        return
    streams = random.getstate(), np.random.get_state()  # an environment may use these
    try:
        env = make(spec.id, disable_env_checker=True, **kwargs)
        env.action_space.seed(0)
        env.reset(seed=0)
        env.step(env.action_space.sample())
        env.close()
    finally:
        random.setstate(streams[0])
        np.random.set_state(streams[1])
    _tried.add(key)


_tried: set[str] = set()  # ids and arguments of environments in which a step was taken


def split_env_name(env_name: str) -> tuple[str | None, str]:
    """The package that registers an environment, if its name says so, and the environment's id."""
    if not isinstance(env_name, str):
        raise UserError(f"An environment's name is a string like CartPole-v1, not {env_name!r}.")
    package, colon, env_id = env_name.partition(":")
    if not colon:
        return None, env_name
    if ":" in env_id or not env_id or not all(word.isidentifier() for word in package.split(".")):
        raise UserError(
            f"{env_name!r} is no environment's name: it is an id such as CartPole-v1, or the "
            "package that registers it, a colon and the id."
        )
    return package, env_id


def allow_env(env_name: str | None, folder: str | None = None) -> None:
    """Let the package of an environment that the user has typed come from the current folder.

    folder: where it is, instead of the current folder
    """
    if env_name is not None and (package := split_env_name(env_name)[0]):
        allow_import(package, folder)


def trust_env(saved: str, typed: str | None = None, command: str = "…") -> None:
    """Refuse to make an environment that only a file names, if other code than known would run.

    saved: its name, in the file
    typed: the name that the user has given, which is to be the same
    command: to which the user could add the name
    """
    package, _ = split_env_name(saved)
    if typed is not None and saved != typed:
        raise UserError(
            f"The run was trained on {saved}, and continues with it. Leave --env {typed} out, or "
            f"type: {command} --env {shlex.quote(saved)}"
        )
    if saved == typed:
        allow_env(typed)
        return
    if package is None or package in KNOWN_PACKAGES or package in sys.modules:
        package = _package_of(find_spec(saved).entry_point)
        if _is_trusted(package):
            return
    raise UserError(
        f"The environment {saved} is made by the package {package!r}, whose code runs when it is "
        f"imported, and only a file names it. If you trust it, name it yourself: {command} --env "
        f"{shlex.quote(saved)} (in a program: import {package} first)."
    )


def _package_of(maker) -> str:
    """Where what makes an environment is from; it is a class, a function or the name of one."""
    module = maker.partition(":")[0] if isinstance(maker, str) else maker.__module__
    return module.partition(".")[0]


def _is_trusted(package: str) -> bool:
    """Whether a package is one of those we know, or was imported by the user's own program."""
    if package in [known.partition(".")[0] for known in KNOWN_PACKAGES]:
        return True
    # Plugins are imported by Gymnasium, without anybody having asked for them.
    plugins = [plugin.module.partition(".")[0] for plugin in entry_points(group="gymnasium.envs")]
    return package in sys.modules and package not in (*plugins, *BRIDGES)


def find_spec(env_name: str) -> EnvSpec:
    """The registered spec of an id; imports the package that registers it if need be."""
    package, env_id = split_env_name(env_name)
    for pattern, registers, extra in REGISTERED_ON_DEMAND:
        if re.match(pattern, env_id) and env_id not in gym.registry:
            _register(registers, extra, env_id)
    if package:
        try:
            import_module(package)
        except (ImportError, TypeError, ValueError) as error:
            hint = left_out(error) if isinstance(error, ImportError) else ""
            raise UserError(f"The environment {env_name} needs {package!r}: {error}.{hint}")
    with suppress(gym.error.Error):
        return gym.spec(env_id)
    with suppress(UserError):  # the old ids of Atari games, like Pong-v4, look like any other
        _register("ale_py", "atari", env_id)
    try:
        return gym.spec(env_id)
    except gym.error.Error:
        elsewhere = [known for known in gym.registry if known.endswith(f"/{env_id}")]
        near = (elsewhere + _other_versions(env_id))[:2]
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        hint = hint or did_you_mean(env_id, gym.registry, 3)
        raise UserError(f"There is no environment called {env_id!r}.{hint}")


def _register(package, extra, env_name):
    """Let a package register its environments, without its notices about others than this one."""
    silenced = redirect_stderr(io.StringIO()) if "Adroit" not in env_name else nullcontext()
    try:
        # glfw, of MuJoCo, starts a Python that imports from the current folder.
        with silenced, OutsideCurrentFolder():
            module = import_module(package)
    except ImportError:
        raise UserError(
            f"{env_name} needs a package that is not installed: pip install 'spinup[{extra}]'"
        )
    if package == "ale_py":
        module.ALEInterface.setLoggerMode(module.LoggerMode.Error)  # no banner at every start
    gym.register_envs(module)


def _other_versions(env_name):
    """Registered ids of the same name, the newest first."""
    base = re.sub(r"-v\d+$", "", env_name).lower()
    known = [i for i in gym.registry if re.sub(r"-v\d+$", "", i).lower() == base]
    return sorted((i for i in known if i != env_name), key=_version, reverse=True)


def _version(env_id):
    return int((re.search(r"-v(\d+)$", env_id) or [0, 0])[1])


def describe_env(env: gym.Env) -> dict:
    """What config.json keeps of an environment: enough to make it again from its id."""
    spec = env.spec
    if not isinstance(spec, EnvSpec):  # made by a function, or by the old Gym
        return dict(id=None, made_by=str(env.unwrapped))
    wrappers = [
        dict(name=w.entry_point, kwargs=_for_json(w.kwargs)) for w in spec.additional_wrappers
    ]
    return dict(
        id=spec.id,
        kwargs=dict(spec.kwargs),
        wrappers=wrappers,
        max_episode_steps=spec.max_episode_steps,
        entry_point=spec.entry_point,
        reward_threshold=spec.reward_threshold,
        nondeterministic=spec.nondeterministic,
    )


def _for_json(kwargs):
    """Arguments in which an array can be told from a list; None where JSON cannot hold them."""
    is_array = {key: isinstance(value, np.ndarray) for key, value in (kwargs or {}).items()}
    marked = {
        key: dict(array=value.tolist(), dtype=value.dtype.name) if is_array[key] else value
        for key, value in (kwargs or {}).items()
    }
    try:
        json.dumps(marked)
    except (TypeError, ValueError):
        return None
    return None if kwargs is None else marked


def env_from_description(saved: dict, render_mode: str | None = None) -> gym.Env:
    """Make an environment again from what `describe_env` kept of it.

    Only registered environments and Gymnasium's own wrappers are made: what a file says may name
    no other code.
    """
    kwargs = {**(saved.get("kwargs") or {}), "render_mode": render_mode}
    limit = saved.get("max_episode_steps")
    kwargs |= {} if limit is None else dict(max_episode_steps=limit)
    env = _make_or_explain(saved["id"], gym.make, kwargs)  # bare: what was around it is in the list
    for wrapper in saved.get("wrappers") or []:
        name = str(wrapper.get("name")).rpartition(":")[2]
        if name not in REBUILT_WRAPPERS or wrapper.get("kwargs") is None:
            raise UserError(
                f"The run's environment was wrapped in {wrapper.get('name')}, which is not made "
                "again from a file. Make it yourself: load_policy_and_env(..., env_fn=…)."
            )
        arguments = {
            key: np.array(value["array"], value["dtype"])
            if isinstance(value, dict) and value.keys() == {"array", "dtype"}
            else (tuple(value) if isinstance(value, list) else value)  # JSON has no tuples
            for key, value in wrapper["kwargs"].items()
        }
        try:
            env = getattr(gym.wrappers, name)(env, **arguments)
        except Exception as error:  # whatever wrong arguments lead to
            raise UserError(f"The wrapper {name} in config.json cannot be made again ({error}).")
    return env


def with_env_fn(kwargs: dict) -> dict:
    """Settings in which a maker of environments stands for `env_name` and `env_kwargs`."""
    kwargs = dict(kwargs)
    if "env_name" in kwargs:
        kwargs["env_fn"] = EnvMaker(kwargs.pop("env_name"), kwargs.pop("env_kwargs", None) or {})
    return kwargs
