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
    "choose_backend",
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


def choose_backend(cmd: str, args: list[str]) -> tuple[str, list[str]]:
    """The algorithm that `--backend tf1` among the flags means, and the flags without it."""
    found = [i for i, word in enumerate(args) if word.partition("=")[0] == "--backend"]
    if not found:
        return cmd, args
    i = found[0]
    _, equals, value = args[i].partition("=")
    end = i + 1 if equals else i + 2
    values = [value] if equals else args[i + 1 : end]
    more = [word for word in args[end : end + 1] if not word.startswith("--")]
    if len(found) > 1 or more or values not in ([name] for name in spinup.ALGORITHMS):
        both = " or ".join(spinup.ALGORITHMS)
        raise UserError(f"--backend takes one value, {both}; give --seed 0 1 to get a grid.")
    algorithm = cmd
    for name in spinup.ALGORITHMS:
        algorithm = algorithm.removesuffix(f"_{name}")
    if algorithm != cmd and cmd != f"{algorithm}_{values[0]}":
        raise UserError(f"{cmd} is not an algorithm of {values[0]}: leave one of the two away.")
    if algorithm in BASE_ALGO_NAMES and algorithm not in spinup.ALGORITHMS[values[0]]:
        there = ", ".join(spinup.ALGORITHMS[values[0]])
        raise UserError(f"{algorithm} has no version for {values[0]}; these have: {there}.")
    return f"{algorithm}_{values[0]}", args[:i] + args[end:]


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
    cmd, args = choose_backend(cmd, args)
    names = algorithm_names()
    if cmd not in names:
        near = did_you_mean(cmd, names)
        raise UserError(f"spinup has no algorithm {shown(cmd)}.{near} See: spinup help")
    train_from_flags(lambda: getattr(spinup, names[cmd]), args)
