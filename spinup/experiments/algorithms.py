"""Which functions are algorithms of this library, and what their defaults are."""

import inspect
from pathlib import Path

from spinup.parts.backend import Backend, backend_named
from spinup.parts.errors import UserError, shown
from spinup.parts.run_setup import algorithm_name


def importable(algorithm):
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


def is_algorithm(thunk) -> bool:
    """Whether a function is one of this library's training functions, whose settings we know."""
    try:
        file = Path(inspect.getfile(thunk)).resolve()
    except (TypeError, OSError):  # of what is no function, or was never in a file
        return False
    name = getattr(thunk, "__name__", None)
    return name == file.stem and file.is_relative_to(Path(__file__).resolve().parents[1] / "algos")


def backend_of(algorithm) -> Backend:
    """The backend of one of our algorithms, which `ppo_pytorch` names at its end."""
    return backend_named(algorithm_name(algorithm).rpartition("_")[2])


def limits_of(algorithm) -> dict[str, tuple]:
    """The limits of the settings that only this algorithm has: LIMITS in its file."""
    return getattr(inspect.getmodule(algorithm), "LIMITS", {})


def _defaults(thunk) -> dict:
    parameters = inspect.signature(thunk).parameters
    return {key: p.default for key, p in parameters.items() if p.default is not p.empty}


def algorithm_of(config: dict, folder):
    """The training function that a config.json names; only one of our own is ever imported."""
    import spinup

    name = config.get("algorithm")
    backend = str(name).rpartition("_")[2]
    if str(name).rpartition("_")[0] not in spinup.ALGORITHMS.get(backend, ()):
        raise UserError(
            f"{folder} was trained by {shown(name)}, which is no algorithm of spinup. Resume it "
            "where it was started: by the same command, or in a script with resume=True."
        )
    return getattr(spinup, name)


def _default_network(algorithm):
    return inspect.signature(algorithm).parameters["actor_critic"].default.__name__
