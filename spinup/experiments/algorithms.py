"""The training functions of this library: which they are, and what their defaults are."""

import inspect
from collections.abc import Callable
from pathlib import Path

from spinup.parts.backend import Backend, backend_named
from spinup.parts.errors import UserError, shown
from spinup.parts.jsonio import read_json
from spinup.parts.provenance import algorithm_name


def importable(algorithm: Callable) -> Callable:
    """A training function as another process can import it, where its file is run itself."""
    import spinup

    if algorithm.__module__ != "__main__":
        return algorithm
    name = algorithm_name(algorithm)
    if name not in spinup.__all__:
        raise UserError(
            "Several runs are started in processes of their own, which import the algorithm by "
            f"name. Train one at a time here, or write a script with an ExperimentGrid: {name}"
        )
    return getattr(spinup, name)


def is_algorithm(thunk: Callable) -> bool:
    """Whether a function is one of this library's training functions, whose settings we know."""
    try:
        file = Path(inspect.getfile(thunk)).resolve()
    except (TypeError, OSError):  # of what is no function, or was never in a file
        return False
    name = getattr(thunk, "__name__", None)
    return name == file.stem and file.is_relative_to(Path(__file__).resolve().parents[1] / "algos")


def backend_of(algorithm: Callable) -> Backend:
    """The backend of one of our algorithms, which `ppo_pytorch` names at its end."""
    return backend_named(algorithm_name(algorithm).rpartition("_")[2])


def limits_of(algorithm: Callable) -> dict[str, tuple]:
    """The limits of the settings that only this algorithm has: LIMITS in its file."""
    return getattr(inspect.getmodule(algorithm), "LIMITS", {})


def default_exp_name(algorithm: Callable) -> str:
    """What an experiment of the command line is called, if not said: `cmd_ppo_pytorch` of PPO."""
    named = algorithm_name(algorithm) if is_algorithm(algorithm) else algorithm.__name__
    return f"cmd_{named}"


def example_env(algorithm: Callable) -> str:
    """An environment that an algorithm can train on: the one in the config.json beside its file."""
    config = Path(inspect.getfile(algorithm)).with_name("config.json")
    return read_json(config).get("env_name", "CartPole-v1") if config.exists() else "CartPole-v1"


def defaults_of(thunk: Callable) -> dict:
    """The arguments of a function that have a default, with these."""
    parameters = inspect.signature(thunk).parameters
    return {key: p.default for key, p in parameters.items() if p.default is not p.empty}


def algorithm_of(config: dict, folder: Path) -> Callable:
    """The training function that a config.json names; only one of our own is ever imported."""
    import spinup

    name = str(config.get("algorithm"))
    algorithm, _, backend = name.rpartition("_")
    if algorithm not in spinup.ALGORITHMS.get(backend, ()):
        raise UserError(
            f"{folder} was trained by {shown(config.get('algorithm'))}, which is no algorithm of "
            "spinup. Resume it where it was started: by the same command, or in a script with "
            "resume=True."
        )
    return getattr(spinup, name)


def default_network(algorithm: Callable) -> str:
    """The name of the networks that an algorithm makes when none are given."""
    return inspect.signature(algorithm).parameters["actor_critic"].default.__name__
