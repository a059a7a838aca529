"""How a training function begins: values checked, seeds set, the run folder opened."""

import platform
import random
import sys
import zlib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Discrete

import spinup
from spinup.parts.checkpoint import claim, is_restartable, read_latest, release
from spinup.parts.divergence import STOPS
from spinup.parts.env_memory import explain, find_memory
from spinup.parts.envs import EnvMaker, VectorEnv, describe_env
from spinup.parts.plain_text import printable
from spinup.parts.seeds import Seeds, framework_seed, run_seeds
from spinup.parts.settings import check, differences
from spinup.utils.errors import START_OVER, UserError
from spinup.utils.logx import EpochLogger
from spinup.utils.mpi_tools import num_procs, on_first_process, proc_id
from spinup.utils.serialization_utils import read_json


def prepare(settings: dict, **limits) -> Seeds:
    """Check the settings, share out the cores, seed the global streams; gives all other seeds.

    limits: least and greatest value of a setting whose name means something else elsewhere
    """
    check(settings, **limits)
    pace(settings["steps_per_epoch"], settings["num_envs"], settings["epochs"])  # or says why not
    seeds = run_seeds(settings["seed"], proc_id())
    words = seeds.common.generate_state(8)
    np.random.seed(words[:4])  # for environments that use Python's or NumPy's global stream
    random.seed(words[4:].tobytes())
    if "torch" in sys.modules:  # the backend of the algorithm that calls this
        from spinup.utils.mpi_pytorch import setup_pytorch_for_mpi

        setup_pytorch_for_mpi()
        sys.modules["torch"].manual_seed(framework_seed(settings["seed"], proc_id()))
        if fast := sys.modules.get("spinup.parts.pytorch.fast"):
            fast.reset()
    return seeds


def make_envs(env_fn, num_envs: int, seeds: Seeds, max_ep_len) -> tuple[VectorEnv, VectorEnv]:
    """The environments to train in, and one to evaluate in, which share nothing."""
    env = VectorEnv(env_fn, num_envs, seeds.env, max_ep_len)
    return env, VectorEnv(env_fn, 1, seeds.test_env, max_ep_len, apart_from=env)


class Pace(NamedTuple):
    """How a run goes through its steps: all environments of all processes together, in epochs."""

    turns: int  # how often the environments step together in an epoch
    stride: int  # how many environments those are
    epochs: int

    def steps(self, epoch: int) -> range:
        """The number of steps done before each turn of an epoch."""
        length = self.turns * self.stride
        return range(epoch * length, (epoch + 1) * length, self.stride)

    def total(self) -> int:
        return self.epochs * self.turns * self.stride

    def updates_due(self, t: int, update_after: int, update_every: int) -> range:
        """The numbers of the gradient steps owed after the turn that began at step `t`.

        They come in blocks of `update_every`; on the whole, one for each environment step, whose
        number they bear. So what is done every so many updates never starts counting anew.
        """
        now = t + self.stride
        due = range(t // update_every * update_every, now // update_every * update_every)
        return due if now > update_after else range(0)


def pace(steps_per_epoch: int, num_envs: int, epochs: int) -> Pace:
    """Share the steps of an epoch out to the environments."""
    stride = num_envs * num_procs()
    if steps_per_epoch < stride:
        raise UserError(
            f"steps_per_epoch is {steps_per_epoch}, but one step of every environment is already "
            f"{stride}. Make it at least that, or use fewer environments."
        )
    return Pace(steps_per_epoch // stride, stride, epochs)


def planned_epochs(settings: dict) -> int:
    """How many epochs a run was first started with, also where it is resumed with more.

    What is to change over the length of a run changes by this number: else it would jump back
    when the run is extended.
    """
    folder = (settings["logger_kwargs"] or {}).get("output_dir")

    def first_plan():
        if folder is None or not (settings["resume"] or is_restartable(folder)):
            return settings["epochs"]
        if read_latest(folder) is None:
            return settings["epochs"]
        config = read_json(f"{folder}/config.json")
        # The version before kept only the number of epochs it was last started with.
        planned = config.get("planned_epochs", config.get("epochs"))
        return planned if type(planned) is int and planned > 0 else settings["epochs"]

    return on_first_process(first_plan)


def open_logger(
    module: str, settings: dict, env: VectorEnv, network, rows: int | None = None
) -> EpochLogger:
    """Open the run folder, write config.json, and see to it that `network` is saved.

    With `resume` and a checkpoint to resume from, what the folder holds is kept.

    module: that of the training function, its `__name__`; the run is called after it
    rows: how many rows a gradient step has, where no setting says so
    """
    logger_kwargs = dict(settings["logger_kwargs"] or {})
    folder, maker = logger_kwargs.get("output_dir"), settings["env_fn"]
    algorithm = name_of_module(module)
    config = {key: value for key, value in settings.items() if key != "resume"}
    config |= dict(
        algorithm=algorithm, num_procs=num_procs(), planned_epochs=planned_epochs(settings)
    )
    if (code := code_of(module)) is not None:
        config["code"] = code
    resume = folder is not None and on_first_process(
        lambda: _claim(folder, config, settings["resume"] or is_restartable(folder))
    )
    code_before = read_json(f"{folder}/config.json").get("code") if resume else None
    _share_cores(settings, network, rows)
    logger = EpochLogger(**logger_kwargs, resume=resume)
    environment = describe_env(env.envs[0])
    if isinstance(maker, EnvMaker):
        environment["id"] = maker.env_name  # as it was typed, with the package before it
    spaces = dict(observation=str(env.observation_space), action=str(env.action_space))
    config |= dict(environment=environment, spaces=spaces, versions=versions()) | {STOPS: True}
    logger.save_config(config)
    logger.setup_pytorch_saver(network)
    name = environment["id"] or environment["made_by"]
    about = f"{algorithm} on {name}, seed {settings['seed']}: {logger.output_dir}"
    logger.log(printable(about))
    if resume and code_before not in (None, code):
        logger.log(f"{module} has changed since this run began; it continues with the new code.",
                   color="yellow")  # fmt: skip
    if other := _core_elsewhere(module):
        logger.log(printable(other), color="yellow")
    if memory := on_first_process(lambda: find_memory(maker, env)):
        logger.log(printable(explain(memory, resume)), color="yellow")
    return logger


def _share_cores(settings, network, rows):
    """Use as many threads as pay off for the products of one gradient step."""
    if "torch" not in sys.modules:
        return
    from spinup.utils.mpi_pytorch import setup_pytorch_for_mpi

    asked = (settings.get(name) for name in ("minibatch_size", "batch_size", "steps_per_epoch"))
    rows = rows or next(share(count) for count in asked if count)
    weights = [p.numel() * (100 if p.ndim == 4 else 1) for p in network.parameters()]  # 4: images
    setup_pytorch_for_mpi(rows * max(weights, default=0))


def _claim(folder, config, resume) -> bool:
    """Claim the folder for this run; tells whether there is something to resume."""
    claim(folder)
    try:
        if not resume or read_latest(folder) is None:
            return False
        refuse_other_settings(folder, config)
    except UserError:
        release(folder)
        raise
    return True


def algorithm_name(algorithm) -> str:
    """What a training function is called in config.json."""
    return name_of_module(algorithm.__module__)


def name_of_module(module: str) -> str:
    """`ppo_pytorch` for an algorithm of spinup; a user's copy has the name of its own file.

    That way nothing takes the runs of a copy for those of the original.
    """
    file = getattr(sys.modules.get(module), "__file__", None)  # also where it is run itself
    if file is None:  # a name, as scripts give it; or typed
        return module
    file = Path(file).resolve()
    ours = Path(spinup.__file__).resolve().parent / "algos"
    if ours in file.parents[2:3] and file.stem == file.parent.name:
        return f"{file.stem}_{file.parents[1].name}"
    return f"{file.parent.name}.{file.stem}"


def code_of(module: str) -> str | None:
    """A checksum of the files of a user's copy of an algorithm; None for one of spinup's own."""
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None or name_of_module(module) in spinup.__all__:
        return None
    files = [Path(file), Path(file).with_name("core.py")]
    return f"{zlib.crc32(b''.join(f.read_bytes() for f in files if f.is_file())):08x}"


def _core_elsewhere(module: str) -> str | None:
    """What to say if a copied algorithm imports the networks of the original, not its own."""
    code = sys.modules.get(module)
    core, file = getattr(code, "core", None), getattr(code, "__file__", None)
    used = getattr(core, "__file__", None)
    if file is None or used is None or not (own := Path(file).with_name("core.py")).is_file():
        return None
    if own.resolve() == Path(used).resolve():
        return None
    return (
        f"{file} uses the networks of {core.__name__}, not {own}. To use its own, change the line "
        "that imports core."
    )


def refuse_other_settings(folder, config: dict, file: str = "config.json"):
    """Say what differs, if the run in `folder` was started with other settings.

    file: which of its files holds them
    """
    if found := differences(read_json(f"{folder}/{file}"), config):
        raise UserError(
            f"{folder} holds a run with other settings: {'; '.join(found)}. "
            f"Choose another --exp_name for these. {START_OVER}"
        )


def versions() -> dict:
    """What this run was made with."""
    packages = ("torch", "gymnasium", "numpy", "mujoco", "ale-py", "gymnasium-robotics", "mpi4py")
    found = dict(spinup=spinup.__version__, python=platform.python_version())
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def share(count: int) -> int:
    """What this process does of `count` things that all processes do together."""
    return -(-count // num_procs())


def space_dims(env: VectorEnv) -> dict:
    """How a buffer must be made for the observations and actions of `env`."""
    discrete = isinstance(env.action_space, Discrete)
    return dict(
        obs_dim=env.observation_space.shape,
        act_dim=None if discrete else int(np.prod(env.action_space.shape)),
        obs_dtype=env.obs_dtype,
        act_dtype=np.int64 if discrete else np.float32,
    )
