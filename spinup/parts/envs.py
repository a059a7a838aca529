"""Environments: n copies stepped together, each restarted the moment its episode ends."""

import copy
import inspect
import io
import json
import math
import random
import re
import shlex
import sys
from contextlib import nullcontext, redirect_stderr, suppress
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import entry_points
from typing import NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete

from spinup.parts.divergence import Watch, all_finite, first_not_finite, kind_of
from spinup.parts.imports import Elsewhere, allow_import, left_out
from spinup.parts.seeds import SeedSequence, derive, generator_state
from spinup.utils.errors import UserError, did_you_mean

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
    ("mujoco", "mujoco"), ("box2d", "box2d"), ("robotics", "robotics"), ("ale_py", "atari")
)  # fmt: skip


# Gymnasium's wrappers that may be put around an environment because a file says so: those without
# a memory of earlier episodes, and that touch nothing outside.
REBUILT_WRAPPERS = {
    "AtariPreprocessing", "ClipAction", "ClipReward", "DelayObservation", "DtypeObservation",
    "FilterObservation", "FlattenObservation", "FrameStackObservation", "GrayscaleObservation",
    "MaxAndSkipObservation", "RescaleAction", "RescaleObservation", "ReshapeObservation",
    "ResizeObservation", "StickyAction", "TimeAwareObservation", "TimeLimit",
}  # fmt: skip

MEND_INTERFACE = "Bring it up to Gymnasium, or derive it from the old gym.Env."
LARGEST = float(np.finfo(np.float32).max)  # of the numbers that are kept


MAX_NUMBERED = 100_000  # combinations of actions that still make sense as one discrete action


class Episode(NamedTuple):
    """What is left to tell of an episode that is over."""

    ret: float  # its rewards added up
    length: int
    success: float | None = None  # whether the goal was reached, of environments that say so


class Step(NamedTuple):
    """One joint step of all environments; every array has one row per environment."""

    obs2: np.ndarray  # the true successor, also where an episode ended
    rew: np.ndarray
    terminated: np.ndarray  # the task is over: nothing follows, its value is zero
    truncated: np.ndarray  # only the clock ran out: the task went on, its value counts
    ended: list[int]  # the environments whose episode ended here, for either reason
    episodes: list[Episode]  # those episodes


@dataclass(frozen=True)
class EnvMaker:
    """Makes an environment from its id, `CartPole-v1` or `package:Id`, and its arguments."""

    env_name: str
    env_kwargs: dict = field(default_factory=dict)

    def __call__(self, **more) -> gym.Env:
        return make_env(self.env_name, **self.env_kwargs, **more)


def make_env(env_name: str, **kwargs) -> gym.Env:
    """Make a registered environment, Atari games with the usual preprocessing."""
    return _made(env_name, _make_atari if _is_atari(find_spec(env_name)) else gym.make, kwargs)


def _is_atari(spec) -> bool:
    return str(spec.entry_point).startswith("ale_py")


def _make_atari(env_id, preprocess=True, clip_reward=False, stack_size=4, **kwargs) -> gym.Env:
    """An Atari game as an agent usually sees it: the last 4 pictures, 84 x 84 and grey.

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
    TypeError, ValueError, AttributeError, LookupError, ArithmeticError, AssertionError, OSError,
)  # fmt: skip


def _made(env_name, make, kwargs) -> gym.Env:
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


_tried = set()  # ids and arguments of environments in which a step was taken


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


def allow_env(env_name, folder=None):
    """Let the package of an environment that the user has typed come from the current folder.

    folder: where it is, instead of the current folder
    """
    if env_name is not None and (package := split_env_name(env_name)[0]):
        allow_import(package, folder)


def trust_env(saved, typed: str | None = None, command: str = "…"):
    """Refuse to make an environment that only a file names, if other code than known would run.

    saved: its name, in the file
    typed: the name that the user has given, which is to be the same
    command: to which the user could add the name
    """
    package, _ = split_env_name(saved)
    if typed is not None and saved != typed:
        raise UserError(
            f"The run was trained on {saved}, and goes on with that. Leave --env {typed} away, or "
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


def find_spec(env_name: str):
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
        with silenced, Elsewhere():  # glfw, of MuJoCo, starts a Python that imports from there
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


def adopt(env) -> gym.Env:
    """Any environment as the algorithms expect it.

    An old Gym one goes through Farama's shimmy; observations that are not arrays (a number out
    of n, a dict, a tuple) are flattened to one, a number out of n to its unit vector.
    """
    if not isinstance(env, gym.Env):
        env = _from_old_gym(env)
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


def simulator(env: gym.Env):
    """The innermost environment, below all wrappers and below the bridge to the old Gym."""
    inner = getattr(env.unwrapped, "gym_env", env.unwrapped)
    return getattr(inner, "unwrapped", inner)


def refuse_shared(envs: list[gym.Env], others: list[gym.Env] = ()):
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


def _from_old_gym(env):
    if not (callable(getattr(env, "step", None)) and callable(getattr(env, "reset", None))):
        raise UserError(f"env_fn should make an environment, but made a {type(env).__name__}.")
    try:
        import gym  # noqa: F401  (shimmy needs it to know old spaces)
        from shimmy import GymV21CompatibilityV0, GymV26CompatibilityV0
    except ImportError:
        raise UserError(
            f"{type(env).__name__} is an environment of the old Gym, not of Gymnasium. "
            "It works through a bridge: pip install shimmy gym"
        )
    inner = getattr(env, "unwrapped", env)
    if "seed" in inspect.signature(inner.reset).parameters:  # Gym 0.26, which is like Gymnasium
        return GymV26CompatibilityV0(env=env)
    if not hasattr(inner, "seed"):
        inner.seed = lambda seed=None: [seed]  # one that has no randomness of its own
    return GymV21CompatibilityV0(env=env)


def describe_env(env) -> dict:
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


def env_from_description(saved: dict, render_mode=None) -> gym.Env:
    """Make an environment again from what `describe_env` kept of it.

    Only registered environments and Gymnasium's own wrappers are made: what a file says may name
    no other code.
    """
    kwargs = {**(saved.get("kwargs") or {}), "render_mode": render_mode}
    limit = saved.get("max_episode_steps")
    kwargs |= {} if limit is None else dict(max_episode_steps=limit)
    env = _made(saved["id"], gym.make, kwargs)  # bare: what was around it is in the list
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


def within_space(space, actions) -> np.ndarray:
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


class VectorEnv:
    """`n` environments in lockstep. Act on `obs`; learn from what `step` returns.

    The present moment can be saved whatever simulator is inside: an episode is fixed by the seed
    it began with and by the actions since, so those are kept, and restoring plays them again.
    """

    def __init__(
        self, env_fn, n: int = 1, seed: int | SeedSequence = 0, max_ep_len: int | None = None,
        apart_from: "VectorEnv | None" = None,
    ):  # fmt: skip
        """Make `n` environments and begin an episode in each.

        apart_from: environments that are in use; `env_fn` must not give one of them again
        """
        self.envs = [adopt(env_fn()) for _ in range(n)]
        refuse_shared(self.envs, apart_from.envs if apart_from else ())
        first = self.envs[0]
        self.observation_space = first.observation_space
        self.action_space = copy.deepcopy(first.action_space)  # its random stream is ours alone
        self.max_ep_len = np.inf if max_ep_len is None else max_ep_len
        self.of_bytes = self.observation_space.dtype == np.uint8  # kept so, a quarter of the size
        self.obs_dtype = np.dtype(np.uint8 if self.of_bytes else np.float32)
        self.obs_shape = self.observation_space.shape
        self.seeds = [np.random.default_rng(derive(seed, 0, i)) for i in range(n)]
        self.action_space.np_random.bit_generator.state = generator_state(derive(seed, 1))
        self.watch = Watch()  # a checkpoint replaces it by that of the whole run
        self.reset()

    def __len__(self):
        return len(self.envs)

    def reset(self):
        """Begin a new episode everywhere."""
        self.obs = np.empty((len(self), *self.observation_space.shape), self.obs_dtype)
        self.episode_seeds, self.actions = [0] * len(self), [[] for _ in self.envs]
        self.returns, self.lengths = [0.0] * len(self), [0] * len(self)
        for i in range(len(self)):
            self._begin_episode(i)

    def _begin_episode(self, i):
        # A seed for every episode, not one for all: then also a simulator that keeps its
        # randomness to itself begins an episode the same way twice.
        self.episode_seeds[i] = int(self.seeds[i].integers(2**31))
        self.obs[i] = self._reset(i)
        self.actions[i], self.returns[i], self.lengths[i] = [], 0.0, 0
        if not all_finite(self.obs[i]):
            kind = kind_of(self.obs[i])
            self.watch.environment(f"the first observation of environment {i} is {kind}", self)

    def _reset(self, i):
        """The first observation of the episode that this environment's seed stands for."""
        try:
            found = self.envs[i].reset(seed=self.episode_seeds[i])
        except TypeError as error:
            if "unexpected keyword argument 'seed'" not in str(error):
                raise
            raise UserError(
                f"{self.envs[i].unwrapped} does not take reset(seed=…, options=…). {MEND_INTERFACE}"
            )
        if not (isinstance(found, tuple) and len(found) == 2):
            raise UserError(
                f"{self.envs[i].unwrapped} does not return (obs, info) from reset. {MEND_INTERFACE}"
            )
        return self._observation(found[0])

    def _observation(self, obs):
        """An observation in the shape of its space; NumPy would spread too few numbers silently."""
        obs = np.asarray(obs)
        if self.of_bytes and obs.dtype != np.uint8:
            self._require_bytes(obs)
        if obs.shape == self.obs_shape:
            return obs
        if obs.size != np.prod(self.obs_shape):
            raise UserError(
                f"{self.envs[0].unwrapped} gave an observation of shape {obs.shape}, but its "
                f"observation_space says {self.obs_shape}. Make them agree."
            )
        return obs.reshape(self.obs_shape)

    def _require_bytes(self, obs):
        """Refuse numbers that a byte cannot hold: NaN, fractions, or anything outside 0 to 255."""
        with np.errstate(invalid="ignore"):
            lost = obs != obs.astype(np.uint8)
        if lost.any():
            raise UserError(
                f"{self.envs[0].unwrapped} gave an observation with {obs[lost][0]} in it, but its "
                "observation_space is of uint8, integers from 0 to 255. Make them agree."
            )

    def sample_actions(self) -> np.ndarray:
        """A random action for each environment: a number counted from 0, or a flat vector."""
        samples = np.array([self.action_space.sample() for _ in self.envs])
        if isinstance(self.action_space, Box):
            return samples.reshape(len(self), -1)
        return samples - self.action_space.start

    def step(self, actions) -> Step:
        """Step every environment; a continuous action outside its bounds is moved to them."""
        n, actions = len(self), np.asarray(actions)
        if not all_finite(actions):
            i = first_not_finite(actions.reshape(n, -1))
            kind = kind_of(actions.reshape(n, -1)[i])
            self.watch.action(f"the action for environment {i} is {kind}", self)
        actions = within_space(self.action_space, actions)
        obs2 = np.empty((n, *self.obs_shape), self.obs_dtype)
        rew, terminated = np.empty(n, np.float32), np.empty(n, bool)
        truncated, ended, episodes = np.empty(n, bool), [], []
        kept = actions.copy()  # for an environment may write into its own
        for i, env in enumerate(self.envs):
            self.lengths[i] += 1
            self.actions[i].append(kept[i])
            result = env.step(actions[i])
            if len(result) != 5:
                raise UserError(
                    f"{env.unwrapped} does not return (obs, reward, terminated, truncated, info) "
                    f"from step. {MEND_INTERFACE}"
                )
            obs, reward, over, timeout, info = result
            obs2[i], reward = self._observation(obs), reward_number(env, reward)
            if not -LARGEST <= reward <= LARGEST:  # NaN is neither
                kind = "NaN" if reward != reward else "infinite"
                self.watch.environment(f"the reward of environment {i} is {kind}", self)
            rew[i], terminated[i] = reward, over
            truncated[i] = timeout or self.lengths[i] >= self.max_ep_len
            self.returns[i] += reward
            if terminated[i] or truncated[i]:
                ended.append(i)
                episodes.append(Episode(self.returns[i], self.lengths[i], _success(info)))
        if not all_finite(obs2):
            i = first_not_finite(obs2)
            told = f"the observation of environment {i} is {kind_of(obs2[i])}"
            self.watch.environment(told, self)
        self.obs = obs2
        if ended:
            self.obs = obs2.copy()
            for i in ended:
                self._begin_episode(i)
        return Step(obs2, rew, terminated, truncated, ended, episodes)

    def close(self):
        for env in self.envs:
            env.close()

    def state_dict(self):
        return dict(
            seeds=[rng.bit_generator.state for rng in self.seeds],
            sampler=self.action_space.np_random.bit_generator.state,
            episode_seeds=list(self.episode_seeds),
            actions=[np.array(actions) for actions in self.actions],
            obs=self.obs,
            returns=np.array(self.returns),
            lengths=np.array(self.lengths),
        )

    def load_state_dict(self, state):
        self.action_space.np_random.bit_generator.state = state["sampler"]
        self.obs = np.empty_like(self.obs)
        for i, env in enumerate(self.envs):
            self.seeds[i].bit_generator.state = state["seeds"][i]
            self.episode_seeds[i], self.actions[i] = state["episode_seeds"][i], []
            self.returns[i] = float(state["returns"][i])
            self.lengths[i] = int(state["lengths"][i])
            if not self._replay(i, state["actions"][i], state["obs"][i], state["returns"][i]):
                print(
                    f"Environment {i} did not come back to where it was when its actions were "
                    "played again, for it has randomness or memory of its own. It begins a new "
                    "episode; from here on the run differs from one never stopped."
                )
                self._begin_episode(i)

    def _replay(self, i, actions, obs, ep_ret) -> bool:
        """Play an episode again up to where it was; tells whether that led to the same place."""
        self.obs[i], over, total = self._reset(i), False, 0.0
        for action in actions:
            if over:
                return False
            self.actions[i].append(action)
            found, reward, terminated, truncated, _ = self.envs[i].step(action.copy())
            self.obs[i] = self._observation(found)
            total += reward_number(self.envs[i], reward)
            over = terminated or truncated
        return not over and total == ep_ret and self.obs[i].tobytes() == obs.tobytes()


def reward_number(env, reward) -> float:
    """A reward as a number; an array of a single one is taken, too."""
    if isinstance(reward, float):
        return float(reward)
    found = np.asarray(reward)
    if found.size != 1 or found.dtype.kind not in "biuf":
        raise UserError(f"{env.unwrapped} gave the reward {reward!r}, but it must be one number.")
    return float(found.item())


def _success(info) -> float | None:
    """Whether an episode reached its goal; simulators have two names for it."""
    told = info.get("is_success", info.get("success"))
    return None if told is None else float(told)


def play(env: VectorEnv, policy, episodes: int):
    """Yield `episodes` whole episodes (`Episode`) of `policy` from fresh starts."""
    if episodes:
        env.reset()
    while episodes > 0:
        for episode in env.step(policy(env.obs)).episodes[:episodes]:
            episodes -= 1
            yield episode


def require_actions(space, kinds: tuple, algorithm: str, instead: str):
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


def refuse_images(space, is_image, algorithm: str):
    """Refuse images where the networks of `algorithm` have no encoder for them.

    is_image: the backend's own test of whether an encoder of its takes such observations
    """
    colors = space.dtype == np.uint8 and len(space.shape) == 3  # also those too small to encode
    if colors or is_image(space):
        raise UserError(
            f"{algorithm} has no encoder for images, but observations are images of shape "
            f"{space.shape}. Use ppo or dqn, pass an actor_critic of your own that takes images, "
            "or wrap the environment in gymnasium.wrappers.FlattenObservation to do without."
        )
