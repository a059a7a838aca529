"""The names of algorithms on the command line, and the original's names for what trains them."""

import spinup
from spinup import user_config
from spinup.cli.train import train_from_flags
from spinup.experiments.flags import RUN_KEYS, SUBSTITUTIONS
from spinup.parts.errors import UserError, did_you_mean, shown

__all__ = [
    "BASE_ALGO_NAMES",
    "MPI_COMPATIBLE_ALGOS",
    "RUN_KEYS",
    "SUBSTITUTIONS",
    "add_with_backends",
    "algorithm_names",
    "friendly_err",
    "parse_and_execute_grid_search",
]

# All of them follow from the table of algorithms; every algorithm can train under MPI.
BASE_ALGO_NAMES = list(dict.fromkeys(name for row in spinup.ALGORITHMS.values() for name in row))
MPI_COMPATIBLE_ALGOS = list(BASE_ALGO_NAMES)


def algorithm_names() -> dict[str, str]:
    """What may be typed for each training function, and its name at the top of the package."""
    names = {}
    for backend, algorithms in spinup.ALGORITHMS.items():
        for algorithm in algorithms:
            names[f"{algorithm}_{backend}"] = f"{algorithm}_{backend}"
            if user_config.DEFAULT_BACKEND.get(algorithm, "pytorch") == backend:
                names[algorithm] = f"{algorithm}_{backend}"
    return names


def add_with_backends(algo_list: list[str]) -> list[str]:
    """The names of algorithms, and behind them each name with each backend at its end."""
    return algo_list + [f"{algo}_{backend}" for algo in algo_list for backend in ("tf1", "pytorch")]


def friendly_err(err_msg: str) -> str:
    """An error message with an empty line before and after it, so that it is easy to see."""
    return f"\n\n{err_msg.strip()}\n\n"


def parse_and_execute_grid_search(cmd: str, args: list[str]) -> None:
    """Train with flags, as the command line does: one run, or a grid where flags have many values.

    cmd: the algorithm, such as ppo or ppo_pytorch
    args: the flags and their values, such as ["--env", "CartPole-v1", "--seed", "0", "10"]
    """
    names = algorithm_names()
    if cmd not in names:
        near = did_you_mean(cmd, names)
        raise UserError(f"spinup has no algorithm {shown(cmd)}.{near} See: spinup help")
    train_from_flags(lambda: getattr(spinup, names[cmd]), args)
