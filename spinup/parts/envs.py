"""Environments: n copies stepped together, each restarted the moment its episode ends."""

import inspect
import io
import json
import re
from contextlib import nullcontext, redirect_stderr, suppress
from dataclasses import dataclass, field
from importlib import import_module
from typing import NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.spaces import Box, Discrete

from spinup.utils.errors import UserError, did_you_mean

# Packages that register environments when asked: what their ids look like, and our extra for them.
REGISTERED_ON_DEMAND = (
    (r"ALE/|.*NoFrameskip-v", "ale_py", "atari"),
    (r"spinup/", "spinup.envs", None),
    (r"Fetch|Hand|Adroit|Franka|PointMaze|AntMaze", "gymnasium_robotics", "robotics"),
)
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


class Episode(NamedTuple):
    """What is left to tell of an episode that is over."""

    ret: float  # its rewards added up
    length: int
    success: float = np.nan  # whether the goal was reached, of environments that say so


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


def _made(env_name, make, kwargs) -> gym.Env:
    """What `make` gives for an id and arguments, or a sentence on which of them would do."""
    spec = find_spec(env_name)
    if _is_atari(spec):  # which takes tuples, but JSON knows only lists
        kwargs = {k: tuple(v) if isinstance(v, list) else v for k, v in kwargs.items()}
    try:
        return make(spec.id, disable_env_checker=True, **kwargs)
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
    except (
        TypeError,
        ValueError,
        AttributeError,
        LookupError,
        ArithmeticError,
        AssertionError,
    ) as error:
        if kwargs:
            raise UserError(f"{env_name} does not take these env_kwargs: {error}")
        raise


def find_spec(env_name: str):
    """The registered spec of an id; imports the package that registers it if need be."""
    if not isinstance(env_name, str):
        raise UserError(f"An environment's name is a text like CartPole-v1, not {env_name!r}.")
    for pattern, package, extra in REGISTERED_ON_DEMAND:
        if re.match(pattern, env_name) and env_name not in gym.registry:
            _register(package, extra, env_name)
    package, _, env_id = env_name.rpartition(":")
    if package:
        try:
            import_module(package)
        except (ImportError, TypeError, ValueError) as error:  # also of what is no package's name
            raise UserError(f"The environment {env_name} needs {package!r}: {error}.")
    with suppress(gym.error.Error):
        return gym.spec(env_id)
    with suppress(UserError):  # the old ids of Atari games, like Pong-v4, look like any other
        _register("ale_py", "atari", env_name)
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
        with silenced:
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
        with suppress(NotImplementedError, TypeError):
            env = gym.wrappers.FlattenObservation(env)
    if not isinstance(env.observation_space, Box):
        raise UserError(
            f"Observations of {env.observation_space} cannot be made one array; spaces made of "
            "Box, Discrete, MultiDiscrete, MultiBinary, Dict and Tuple can."
        )
    return env


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
    if isinstance(space, Box):
        actions = np.asarray(actions, space.dtype).reshape(-1, *space.shape)
        return np.minimum(np.maximum(actions, space.low), space.high)
    return np.asarray(actions).reshape(-1) + space.start


class VectorEnv:
    """`n` environments in lockstep. Act on `obs`; learn from what `step` returns.

    The present moment can be saved whatever simulator is inside: an episode is fixed by the seed
    it began with and by the actions since, so those are kept, and restoring plays them again.
    """

    def __init__(self, env_fn, n: int = 1, seed: int = 0, max_ep_len: int | None = None):
        self.envs = [adopt(env_fn()) for _ in range(n)]
        first = self.envs[0]
        self.observation_space, self.action_space = first.observation_space, first.action_space
        self.max_ep_len = np.inf if max_ep_len is None else max_ep_len
        image = self.observation_space.dtype == np.uint8  # kept as it is, a quarter of the size
        self.obs_dtype = np.dtype(np.uint8 if image else np.float32)
        self.seeds = [np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(n)]
        self.action_space.seed(seed)
        self.reset()

    def __len__(self):
        return len(self.envs)

    def reset(self):
        """Begin a new episode everywhere."""
        self.obs = np.empty((len(self), *self.observation_space.shape), self.obs_dtype)
        self.episode_seeds, self.actions = [0] * len(self), [[] for _ in self.envs]
        self.returns, self.lengths = np.zeros(len(self)), np.zeros(len(self), np.int64)
        for i in range(len(self)):
            self._begin_episode(i)

    def _begin_episode(self, i):
        # A seed for every episode, not one for all: then also a simulator that keeps its
        # randomness to itself begins an episode the same way twice.
        self.episode_seeds[i] = int(self.seeds[i].integers(2**31))
        self.obs[i] = self._reset(i)
        self.actions[i], self.returns[i], self.lengths[i] = [], 0, 0

    def _reset(self, i):
        """The first observation of the episode that this environment's seed stands for."""
        try:
            obs, _ = self.envs[i].reset(seed=self.episode_seeds[i])
        except TypeError as error:
            if "unexpected keyword argument 'seed'" not in str(error):
                raise
            raise UserError(
                f"{self.envs[i].unwrapped} does not take reset(seed=…, options=…). "
                "Bring it up to Gymnasium, or derive it from the old gym.Env."
            )
        return obs

    def sample_actions(self) -> np.ndarray:
        """A random action for each environment: a number counted from 0, or a flat vector."""
        samples = np.array([self.action_space.sample() for _ in self.envs])
        if isinstance(self.action_space, Box):
            return samples.reshape(len(self), -1)
        return samples - self.action_space.start

    def step(self, actions) -> Step:
        """Step every environment; a continuous action outside its bounds is moved to them."""
        n = len(self)
        actions = within_space(self.action_space, actions)
        obs2 = np.empty((n, *self.observation_space.shape), self.obs_dtype)
        rew, terminated = np.empty(n, np.float32), np.empty(n, bool)
        truncated, ended, episodes = np.empty(n, bool), [], []
        self.lengths += 1
        for i, env in enumerate(self.envs):
            self.actions[i].append(actions[i].copy())  # an environment may write into its own
            result = env.step(actions[i])
            if len(result) != 5:
                raise UserError(
                    f"{env.unwrapped} does not return (obs, reward, terminated, truncated, info) "
                    "from step. Bring it up to Gymnasium, or derive it from the old gym.Env."
                )
            obs2[i], reward, terminated[i], timeout, info = result
            rew[i], truncated[i] = reward, timeout or self.lengths[i] >= self.max_ep_len
            self.returns[i] += float(reward)
            if terminated[i] or truncated[i]:
                ended.append(i)
                episodes.append(
                    Episode(float(self.returns[i]), int(self.lengths[i]), _success(info))
                )
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
            returns=self.returns,
            lengths=self.lengths,
        )

    def load_state_dict(self, state):
        self.action_space.np_random.bit_generator.state = state["sampler"]
        self.obs = np.empty_like(self.obs)
        for i, env in enumerate(self.envs):
            self.seeds[i].bit_generator.state = state["seeds"][i]
            self.episode_seeds[i], self.actions[i] = state["episode_seeds"][i], []
            self.returns[i], self.lengths[i] = state["returns"][i], state["lengths"][i]
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
            self.obs[i], reward, terminated, truncated, _ = self.envs[i].step(action.copy())
            over, total = terminated or truncated, total + float(reward)
        return not over and total == ep_ret and self.obs[i].tobytes() == obs.tobytes()


def _success(info) -> float:
    """Whether an episode reached its goal; simulators have two names for it."""
    told = info.get("is_success", info.get("success"))
    return np.nan if told is None else float(told)


def play(env: VectorEnv, policy, episodes: int):
    """Yield `episodes` whole episodes (`Episode`) of `policy` from fresh starts."""
    if episodes:
        env.reset()
    while episodes > 0:
        for episode in env.step(policy(env.obs)).episodes[:episodes]:
            episodes -= 1
            yield episode


def require_actions(space, kinds: tuple, algorithm: str, instead: str):
    """Refuse an action space that `algorithm` has no policy for, and say what to use instead."""
    if not isinstance(space, kinds):
        names = " or ".join({Box: "continuous", Discrete: "discrete"}[kind] for kind in kinds)
        raise UserError(f"{algorithm} needs {names} actions, but these are {space}. {instead}")
