"""`spinup ALGO …`: train one run, or a grid where flags have several values."""

import sys
from functools import partial
from pathlib import Path

from spinup.experiments import flags
from spinup.experiments.algorithms import default_exp_name, importable
from spinup.experiments.grids import ExperimentGrid, processes, run_grid
from spinup.experiments.train import train
from spinup.parts.errors import UserError
from spinup.parts.jsonio import read_json
from spinup.parts.make_env import allow_env
from spinup.parts.provenance import algorithm_name
from spinup.parts.settings import check


def launch(algorithm, file, argv=None):
    """Run an algorithm's own file: its defaults, then config.json beside it, then the flags.

    The experiment is called `ppo` if `ppo/ppo.py` is run, `mysac.sac` if `mysac/sac.py` is.
    """
    from spinup.parts.report_errors import report_errors

    argv = sys.argv[1:] if argv is None else argv
    path = Path(file).resolve()
    name = path.stem if path.stem == path.parent.name else algorithm_name(algorithm)

    def start():
        config = dict(exp_name=name) | read_json(path.with_name("config.json"))
        train_from_flags(lambda: algorithm, argv, config)

    report_errors(start)


def train_from_flags(load, argv, config=None):
    """Train with settings from the command line, over those of a config.json.

    One combination of them is trained in this process, several are a grid.

    load: gives the training function, once the flags are known to be flags
    """
    if "--help" in argv or "-h" in argv or argv[:1] == ["help"]:
        print(flags.describe(load(), config))
        return
    given = flags.parse(argv)
    algorithm = load()
    grid, run_options = grid_of_flags(algorithm, given, config or {})
    fit = partial(fit_variant, algorithm, config or {})
    variants = grid.variants()
    for variant in variants:
        allow_env(fit(variant)["env_name"])  # which was typed here, so it may come from here
    if len(variants) > 1 or run_options["ray_address"]:
        run_grid(grid, importable(algorithm), fit=fit, **run_options)
        return
    settings = fit(variants[0])
    env = {key: settings.pop(key, None) for key in flags.SEVERAL}
    run_options |= dict(
        exp_name=grid.variant_name(variants[0]), num_cpu=processes(run_options["num_cpu"])
    )
    for key in ("jobs", "ray_address"):
        run_options.pop(key)
    train(algorithm, settings, **env, **run_options)


def grid_of_flags(algorithm, given: dict, config: dict) -> tuple["ExperimentGrid", dict]:
    """The grid that flags describe, and what holds for all of its runs, as `run_grid` takes it.

    given: flags as `flags.parse` gives them
    config: what a config.json says where no flag does
    """
    run_options = {key: default for key, (default, _) in flags.LAUNCHER.items()} | config
    run_options |= {key: flag.values[0] for key, flag in given.items() if key in flags.RUN_KEYS}
    run_options = {key: value for key, value in run_options.items() if key in flags.RUN_KEYS}
    run_options = flags.fit(algorithm, run_options)
    check({key: run_options[key] for key in ("num_cpu", "jobs")})
    ray = run_options.pop("ray")
    run_options["ray_address"] = flags.address(run_options["ray_address"]) or (
        "local" if ray else None
    )
    grid = ExperimentGrid(run_options.pop("exp_name") or default_exp_name(algorithm))
    for key, flag in given.items():
        if key not in flags.RUN_KEYS:
            grid.add(key, flag.values, flag.shorthand)
    return grid, run_options


def fit_variant(algorithm, config: dict, variant: dict) -> dict:
    """The settings of a variant over those of a config.json, each of its kind; others raise."""
    settings = {key: value for key, value in config.items() if key not in flags.RUN_KEYS}
    for key, value in variant.items():
        both = isinstance(value, dict) and isinstance(settings.get(key), dict)
        settings[key] = {**settings[key], **value} if both else value
    settings = flags.fit(algorithm, settings)
    if not settings.get("env_name"):
        raise UserError("Say which environment to train on, for example --env CartPole-v1")
    return settings
