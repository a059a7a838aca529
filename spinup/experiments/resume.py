"""Resume a run from its folder alone, with the settings its config.json holds."""

import inspect
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

from spinup.experiments import flags
from spinup.experiments.algorithms import algorithm_of, backend_of, default_network, limits_of
from spinup.experiments.train import train
from spinup.parts.config_entries import keys_with
from spinup.parts.errors import UserError
from spinup.parts.latest import read_latest
from spinup.parts.make_env import trust_env
from spinup.parts.plain_text import say
from spinup.parts.run_folder import read_config, require_run
from spinup.parts.settings import check
from spinup.parts.trackers import is_offline


def resume(
    run_folder: str | Path,
    epochs: int | None = None,
    env_name: str | None = None,
    wandb: bool = False,
) -> None:
    """Resume the run in a folder, with the settings its config.json holds.

    epochs: train until this many are done, instead of the number it was started with
    env_name: the environment's id once more, to allow importing the package it names
    wandb: continue writing for Weights & Biases
    """
    folder = require_run(run_folder, "spinup resume")
    config = read_config(folder)
    algorithm = algorithm_of(config, folder)
    _refuse_networks_of_a_script(algorithm, config, folder)
    try:
        settings = saved_settings(algorithm, config, folder)
        env = saved_env(config["env_fn"])
    except UserError as error:
        raise UserError(f"{folder}/config.json cannot be resumed from: {error}")
    num_cpu = saved_num_procs(config, folder)
    trust_env(env["env_name"], env_name, f"spinup resume {shlex.quote(str(folder))}")
    settings |= {} if epochs is None else dict(epochs=epochs)
    logging = saved_logging(config.get("logger_kwargs"), wandb)
    name = config.get("exp_name")
    train(
        algorithm,
        settings,
        output_dir=folder,
        exp_name=name if isinstance(name, str) else None,
        num_cpu=num_cpu,
        retry=True,
        **env,
        **logging,
    )


def _refuse_networks_of_a_script(algorithm, config, folder):
    env, networks = config.get("env_fn"), config.get("actor_critic")
    if not isinstance(env, dict) or networks != default_network(algorithm):
        raise UserError(
            f"{folder} was started from a script, with an environment or networks of its own. "
            "Resume it there: call the same function with resume=True."
        )


_BESIDES = keys_with(added=True)  # what config.json holds besides the settings of an algorithm


def saved_settings(algorithm: Callable, config: dict, folder: Path) -> dict:
    """The settings in a config.json, checked as those of a command line are."""
    parameters = inspect.signature(algorithm).parameters
    settings = {k: v for k, v in config.items() if k in parameters and k not in _BESIDES}
    if unknown := sorted(config.keys() - settings.keys() - _BESIDES):
        say(
            f"{folder}/config.json also has {', '.join(unknown)}; {algorithm.__name__} has no such "
            "settings, and they are left out."
        )
    settings = flags.fit(algorithm, settings)
    check(settings, **limits_of(algorithm))
    backend_of(algorithm).check_ac_kwargs(
        parameters["actor_critic"].default, settings.get("ac_kwargs")
    )
    return settings


def saved_env(env: dict) -> dict:
    """The id and the arguments of the environment that a config.json names, and nothing else."""
    arguments = env.get("env_kwargs") or {}
    if unknown := sorted(env.keys() - {"env_name", "env_kwargs"}):
        raise UserError(f"env_fn holds {', '.join(unknown)}, which training does not write there.")
    if not isinstance(arguments, dict):
        raise UserError(f"env_kwargs is a dict of arguments, not {arguments!r}.")
    return dict(env_name=env.get("env_name"), env_kwargs=arguments)


def saved_num_procs(config: dict, folder: Path) -> int:
    """How many processes trained a run: each of them has left its part of the checkpoint."""
    number, latest = config.get("num_procs", 1), read_latest(folder)
    check(dict(num_cpu=number))
    parts = [] if latest is None else (folder / "checkpoint").glob(f"epoch{latest['epoch']}.rank*")
    if latest is not None and number != len(list(parts)):
        raise UserError(
            f"{folder}/config.json says that {number!r} process(es) trained the run, but its "
            "checkpoint was not written by so many."
        )
    return number


def saved_logging(logger_kwargs: Any, wandb: bool) -> dict:
    """The trackers of the run, as they were before.

    wandb: the user asks for Weights & Biases; a file alone never makes a run send anything
    """
    saved = logger_kwargs if isinstance(logger_kwargs, dict) else {}
    logging = {key: saved.get(key) is True for key in flags.LOGGING} | dict(wandb=wandb)
    if saved.get("wandb") is True and not wandb:
        logging["wandb"] = is_offline()
        if not logging["wandb"]:
            print("The run was sent to Weights & Biases, too; add --wandb to continue there.")
    return logging
