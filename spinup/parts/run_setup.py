"""How a training function begins: values checked, seeds set, the run folder opened."""

import random
from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np

from spinup.parts.backend import Backend
from spinup.parts.config_entries import STOPS
from spinup.parts.earlier_configs import in_todays_units
from spinup.parts.envs import VectorEnv
from spinup.parts.errors import START_OVER, UserError
from spinup.parts.hidden_state import explain, find_hidden_state
from spinup.parts.jsonio import read_json
from spinup.parts.latest import read_latest
from spinup.parts.logger import EpochLogger
from spinup.parts.make_env import EnvMaker, describe_env
from spinup.parts.mpi import num_procs, on_first_process, proc_id
from spinup.parts.plain_text import printable
from spinup.parts.provenance import (
    code_of,
    explain_changed_code,
    explain_foreign_core,
    name_of_module,
    versions,
)
from spinup.parts.run_folder import auto_resumes
from spinup.parts.run_lock import RunLock
from spinup.parts.schedule import Schedule, make_schedule
from spinup.parts.seeds import Seeds, framework_seed, run_seeds
from spinup.parts.settings import as_python, check, differences
from spinup.parts.spaces import space_dims as space_dims  # for training functions


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
    words = seeds.global_rng.generate_state(8)
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
    """Lock and open the run folder, write config.json, and see to it that `network` is saved.

    The lock is the logger's: closing the logger frees it, and so does the end of a training
    function that raises before its loop.

    With `resume` and a checkpoint to resume from, what the folder holds is kept.

    module: that of the training function, its `__name__`; the run is called after it
    rows: how many rows a gradient step has, where no setting says so
    """
    run_lock = RunLock()
    try:
        logger = _open_locked(run_lock, module, settings, env, network, backend, rows)
    except BaseException:
        run_lock.release()  # here, for an error keeps alive what its traceback refers to
        raise
    return logger


def _open_locked(run_lock, module, settings, env, network, backend, rows) -> EpochLogger:
    """Open the run folder as `open_logger` does, with this lock."""
    logger_kwargs = dict(settings["logger_kwargs"] or {})
    folder = logger_kwargs.get("output_dir")
    config = _config_of(module, settings)
    resume = folder is not None and on_first_process(
        lambda: _lock(run_lock, folder, config, settings["resume"] or auto_resumes(folder))
    )
    config_before = read_json(f"{folder}/config.json") if resume else config
    backend.use_threads(network, rows or _batch_size(settings))
    logger = EpochLogger(**logger_kwargs, resume=resume, backend=backend)
    logger.run_lock = run_lock
    config |= _describe(env, settings["env_fn"], backend)
    logger.save_config(config)
    logger.setup_pytorch_saver(network)
    name = config["environment"]["id"] or config["environment"]["made_by"]
    about = f"{config['algorithm']} on {name}, seed {settings['seed']}: {logger.output_dir}"
    logger.log(printable(about))
    told = [explain_changed_code(module, config_before, config), explain_foreign_core(module)]
    hidden = on_first_process(lambda: find_hidden_state(settings["env_fn"], env, backend))
    told.append(explain(hidden, resume) if hidden else None)
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


def _batch_size(settings) -> int:
    """Rows of one gradient step in this process."""
    asked = (settings.get(name) for name in ("minibatch_size", "batch_size", "steps_per_epoch"))
    return next(Schedule.per_process(count) for count in asked if count)


def _lock(run_lock, folder, config, resume) -> bool:
    """Lock the folder for this run; tells whether there is something to resume."""
    run_lock.take(folder)
    if not resume or read_latest(folder) is None:
        return False
    refuse_other_settings(folder, config)
    return True


def refuse_other_settings(folder: Path | str, config: dict, file: str = "config.json") -> None:
    """Say what differs, if the run in `folder` was started with other settings.

    file: which of its files holds them
    """
    if found := differences(in_todays_units(read_json(f"{folder}/{file}")), config):
        raise UserError(
            f"{folder} holds a run with other settings: {'; '.join(found)}. "
            f"Choose another --exp_name for these. {START_OVER}"
        )


def settings_for(settings: dict, *functions: Callable) -> dict:
    """The settings that these functions take as keyword arguments of the same names."""
    names = {name for function in functions for name in signature(function).parameters}
    return {name: value for name, value in settings.items() if name in names}
