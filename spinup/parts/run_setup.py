"""How a training function begins: values checked, seeds set, the run folder opened."""

import platform
import random
import sys
import zlib
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.spaces import Discrete

import spinup
from spinup.parts.backend import Backend
from spinup.parts.divergence import STOPS
from spinup.parts.earlier_configs import in_todays_units
from spinup.parts.env_memory import explain, find_memory
from spinup.parts.envs import VectorEnv
from spinup.parts.errors import START_OVER, UserError
from spinup.parts.jsonio import read_json
from spinup.parts.logger import EpochLogger
from spinup.parts.make_env import EnvMaker, describe_env
from spinup.parts.mpi import num_procs, on_first_process, proc_id
from spinup.parts.plain_text import printable
from spinup.parts.run_folder import auto_resumes, read_latest
from spinup.parts.run_lock import lock, unlock
from spinup.parts.schedule import Schedule, make_schedule
from spinup.parts.seeds import Seeds, framework_seed, run_seeds
from spinup.parts.settings import as_python, check, differences


def setup(settings: dict, backend: Backend, **limits: tuple) -> tuple[Seeds, Schedule]:
    """Check the settings, divide the cores, seed the global generators.

    Gives the seeds of everything else in this process, and the schedule of the run.

    settings: those of the training function; NumPy's numbers in them become Python's
    limits: the LIMITS of the algorithm, see `settings.check`
    """
    check(settings, **limits)
    settings |= as_python(settings)
    schedule = make_schedule(settings["steps_per_epoch"], settings["num_envs"], settings["epochs"])
    seeds = run_seeds(settings["seed"], proc_id())
    words = seeds.common.generate_state(8)
    np.random.seed(words[:4])  # for environments that use Python's or NumPy's global stream
    random.seed(words[4:].tobytes())
    backend.use_threads()
    backend.seed(framework_seed(settings["seed"], proc_id()))
    return seeds, schedule


def make_envs(
    env_fn: Callable, num_envs: int, seeds: Seeds, max_ep_len: int | None
) -> tuple[VectorEnv, VectorEnv]:
    """The environments to train in, and one to evaluate in, which share nothing."""
    env = VectorEnv(env_fn, num_envs, seeds.env, max_ep_len)
    return env, VectorEnv(env_fn, 1, seeds.test_env, max_ep_len, apart_from=env)


def planned_epochs(settings: dict) -> int:
    """How many epochs a run was first started with, also where it is resumed with more.

    What is to change over the length of a run changes by this number: else it would jump back
    when the run is extended.
    """
    folder = (settings["logger_kwargs"] or {}).get("output_dir")

    def first_plan():
        if folder is None or not (settings["resume"] or auto_resumes(folder)):
            return settings["epochs"]
        if read_latest(folder) is None:
            return settings["epochs"]
        config = read_json(f"{folder}/config.json")
        # The version before kept only the number of epochs it was last started with.
        planned = config.get("planned_epochs", config.get("epochs"))
        return planned if type(planned) is int and planned > 0 else settings["epochs"]

    return on_first_process(first_plan)


def open_logger(
    module: str,
    settings: dict,
    env: VectorEnv,
    network: Any,
    backend: Backend,
    rows: int | None = None,
) -> EpochLogger:
    """Open the run folder, write config.json, and see to it that `network` is saved.

    With `resume` and a checkpoint to resume from, what the folder holds is kept.

    module: that of the training function, its `__name__`; the run is called after it
    rows: how many rows a gradient step has, where no setting says so
    """
    logger_kwargs = dict(settings["logger_kwargs"] or {})
    folder = logger_kwargs.get("output_dir")
    config = _config_of(module, settings)
    resume = folder is not None and on_first_process(
        lambda: _lock(folder, config, settings["resume"] or auto_resumes(folder))
    )
    config_before = read_json(f"{folder}/config.json") if resume else config
    backend.use_threads(network, rows or _batch_size(settings))
    logger = EpochLogger(**logger_kwargs, resume=resume, backend=backend)
    config |= _describe(env, settings["env_fn"], backend)
    logger.save_config(config)
    backend.setup_saver(logger, network)
    name = config["environment"]["id"] or config["environment"]["made_by"]
    about = f"{config['algorithm']} on {name}, seed {settings['seed']}: {logger.output_dir}"
    logger.log(printable(about))
    told = [_code_changed(module, config_before, config), _core_elsewhere(module)]
    memory = on_first_process(lambda: find_memory(settings["env_fn"], env, backend))
    told.append(explain(memory, resume) if memory else None)
    for sentence in filter(None, told):
        logger.log(printable(sentence), color="yellow")
    return logger


def _config_of(module, settings) -> dict:
    """What config.json says of a run before its environment is known."""
    config = {key: value for key, value in settings.items() if key != "resume"}
    config["algorithm"] = name_of_module(module)
    config["num_procs"], config["planned_epochs"] = num_procs(), planned_epochs(settings)
    code = code_of(module)
    return config if code is None else config | dict(code=code)


def _describe(env, maker, backend) -> dict:
    """What config.json says of the environment and of the versions of packages."""
    environment = describe_env(env.envs[0])
    if isinstance(maker, EnvMaker):
        environment["id"] = maker.env_name  # as it was typed, with the package before it
    spaces = dict(observation=str(env.observation_space), action=str(env.action_space))
    found = dict(environment=environment, spaces=spaces, versions=versions(backend.PACKAGE))
    return found | {STOPS: True}


def _code_changed(module, before, now) -> str | None:
    """What to say if a copied algorithm was edited since the run began."""
    if before.get("code") in (None, now.get("code")):
        return None
    return f"{module} has changed since this run began; it continues with the new code."


def _batch_size(settings) -> int:
    """Rows of one gradient step in this process."""
    asked = (settings.get(name) for name in ("minibatch_size", "batch_size", "steps_per_epoch"))
    return next(Schedule.per_process(count) for count in asked if count)


def _lock(folder, config, resume) -> bool:
    """Lock the folder for this run; tells whether there is something to resume."""
    lock(folder)
    try:
        if not resume or read_latest(folder) is None:
            return False
        refuse_other_settings(folder, config)
    except UserError:
        unlock(folder)
        raise
    return True


def algorithm_name(algorithm: Callable) -> str:
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
    if core is None or file is None or used is None:
        return None
    if not (own := Path(file).with_name("core.py")).is_file():
        return None
    if own.resolve() == Path(used).resolve():
        return None
    return (
        f"{file} uses the networks of {core.__name__}, not {own}. To use its own, change the line "
        "that imports core."
    )


def refuse_other_settings(folder: Path | str, config: dict, file: str = "config.json") -> None:
    """Say what differs, if the run in `folder` was started with other settings.

    file: which of its files holds them
    """
    if found := differences(in_todays_units(read_json(f"{folder}/{file}")), config):
        raise UserError(
            f"{folder} holds a run with other settings: {'; '.join(found)}. "
            f"Choose another --exp_name for these. {START_OVER}"
        )


def versions(framework: str) -> dict:
    """What this run was made with."""
    packages = (framework, "gymnasium", "numpy", "mujoco", "ale-py", "gymnasium-robotics", "mpi4py")
    found = dict(spinup=spinup.__version__, python=platform.python_version())
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def space_dims(env: VectorEnv) -> dict:
    """How a buffer must be made for the observations and actions of `env`."""
    discrete = isinstance(env.action_space, Discrete)
    return dict(
        obs_dim=env.observation_space.shape,
        act_dim=None if discrete else int(np.prod(env.action_space.shape)),
        obs_dtype=env.obs_dtype,
        act_dtype=np.int64 if discrete else np.float32,
    )


def settings_for(settings: dict, *functions: Callable) -> dict:
    """The settings that these functions take as keyword arguments of the same names."""
    names = {name for function in functions for name in signature(function).parameters}
    return {name: value for name, value in settings.items() if name in names}
