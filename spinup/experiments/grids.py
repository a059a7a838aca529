"""Experiment grids: settings with several values, a run for every combination."""

import itertools
import math
import os
import re
import string
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from spinup import user_config
from spinup.experiments.checks import check_jobs
from spinup.experiments.job import Job
from spinup.experiments.jobs import run_jobs
from spinup.parts.errors import UserError, did_you_mean
from spinup.parts.jsonio import convert_json
from spinup.parts.mpi import num_procs
from spinup.parts.run_folder import setup_logger_kwargs
from spinup.parts.settings import check
from spinup.parts.terminal import colorize
from spinup.parts.trackers import require

DIV_LINE_WIDTH = 80
LINE = "=" * DIV_LINE_WIDTH
ALPHANUMERIC = frozenset(string.ascii_letters + string.digits)
VALID = ALPHANUMERIC | {"-", "_"}  # in the names of folders
LIBRARY_NAME = re.compile(r"(?:torch|nn|tf)(?:\.\w+)*\.(\w+)")  # such as torch.nn.Tanh


def call_experiment(
    exp_name: str,
    thunk: Callable,
    seed: int = 0,
    num_cpu: int | str = 1,
    data_dir: str | Path | None = None,
    datestamp: bool = False,
    **kwargs: Any,
) -> None:
    """Run `thunk(**kwargs)` in a process (or `num_cpu` processes) of its own, and wait for it.

    Called again, it leaves a finished run alone and resumes an unfinished one.

    thunk: a training function, or any function that takes `seed` and these keywords
    num_cpu: processes that train one policy together; 'auto' for one per core
    kwargs: settings; `env_name` (with `env_kwargs`) becomes `env_fn`
    """
    job = make_job(exp_name, thunk, kwargs | dict(seed=seed), num_cpu, data_dir, datestamp)
    check_jobs([job])
    print(_colored(f"Running {exp_name}", "cyan"))
    for key, value in job.kwargs.items():
        print(f"    {key}: {convert_json(value)}")
    sys.stdout.flush()
    run_jobs([job])


def make_job(
    exp_name: str,
    thunk: Callable,
    kwargs: dict,
    num_cpu: int | str = 1,
    data_dir: str | Path | None = None,
    datestamp: bool = False,
    overwrite: bool = False,
    now: time.struct_time | None = None,
) -> Job:
    """An experiment as a job to run; the default seed is 0, the default folder follows from it."""
    kwargs = dict(seed=0) | {key: _plain(value) for key, value in kwargs.items()}
    where = setup_logger_kwargs(exp_name, kwargs["seed"], data_dir, datestamp, now)
    kwargs["logger_kwargs"] = where | (kwargs.get("logger_kwargs") or {})
    return Job(exp_name, thunk, kwargs, processes(num_cpu), overwrite)


def _plain(value):
    """A NumPy number as a Python number: the values of a grid may come from an array."""
    return value.item() if isinstance(value, np.generic) else value


def processes(num_cpu: int | str) -> int:
    """How many processes `num_cpu` means; 'auto' is one per core."""
    if num_cpu == "auto":
        return os.cpu_count() or 1
    return num_cpu  # type: ignore[return-value]  # what is no integer is refused by check_jobs


def valid_str(v: object) -> str:
    """A value as a part of a folder's name: lower-case letters, digits, '-' and '_'."""
    if isinstance(name := getattr(v, "__name__", None), str):
        return valid_str(name)
    if isinstance(v, (list, tuple)):
        return "-".join(valid_str(x) for x in v)
    return "".join(c if c in VALID else "-" for c in str(v).lower())


def all_bools(vals: Iterable) -> bool:
    """Whether every value is True or False."""
    return all(isinstance(v, bool) for v in vals)


class ExperimentGrid:
    """Settings with several values each, and a run for every combination of them.

    keys, vals, shs, in_names: the arguments of `add`, one entry for each call
    """

    def __init__(self, name: str = ""):
        self.keys: list[str] = []
        self.vals: list[list] = []
        self.shs: list[str | None] = []
        self.in_names: list[bool] = []
        self.name(name)

    def name(self, _name: str) -> None:
        """Set what the names of all variants begin with."""
        if not isinstance(_name, str):
            raise UserError(f"The name of a grid must be a string, not {_name!r}.")
        self._name = _name

    def add(self, key: str, vals: Any, shorthand: str | None = None, in_name: bool = False) -> None:
        """Add a setting.

        key: its name; 'a:b' is the setting b inside the dict a
        vals: a list of values to try; anything else is one value
        shorthand: what stands for it in names; made of its first letters if not said
        in_name: put it into names even if it has one value
        """
        if not isinstance(key, str) or not all(key.split(":")):
            raise UserError(f"The name of a setting must be a string like 'gamma', not {key!r}.")
        if not (shorthand is None or isinstance(shorthand, str)):
            raise UserError(f"The shorthand of {key} must be a string, not {shorthand!r}.")
        if key in self.keys:
            raise UserError(f"{key} is in the grid already; give all its values in one list.")
        vals = list(vals) if isinstance(vals, list) else [vals]
        if not vals:
            raise UserError(f"{key} has no values, so there is nothing to run.")
        if shorthand is None and user_config.DEFAULT_SHORTHAND:
            shorthand = self._default_shorthand(key)
        self.keys.append(key)
        self.vals.append(vals)
        self.shs.append(shorthand)
        self.in_names.append(in_name)

    def variants(self) -> list[dict]:
        """The settings of every combination, 'a:b' keys made nested dicts."""
        return [nested(variant.items()) for variant in self._variants(self.keys, self.vals)]

    def _variants(self, keys: list[str], vals: list[list]) -> list[dict]:
        """Every combination of values, as a dict for each; the last key changes fastest."""
        return [dict(zip(keys, values)) for values in itertools.product(*vals)]

    def _default_shorthand(self, key: str) -> str:
        """The letters and digits among the first three characters of each part, joined by '-'."""
        parts = ("".join(c for c in part[:3] if c in ALPHANUMERIC) for part in key.split(":"))
        return "-".join(parts)

    def variant_name(self, variant: dict) -> str:
        """What a variant is called: the grid's name, then what sets it apart, the seed excepted."""
        name = self._name
        for key, vals, shorthand, in_name in zip(self.keys, self.vals, self.shs, self.in_names):
            if key == "seed" or not (len(vals) > 1 or in_name):
                continue
            value = _value_at(variant, key)
            shown = valid_str(key if shorthand is None else shorthand)
            if not all_bools(vals):
                name += f"_{shown}{valid_str(_last_part(value))}"
            elif value:
                name += f"_{shown}"
        return name.lstrip("_")

    def print(self) -> None:
        """Show each setting with its shorthand and values, and how many runs there are."""
        print(f"{LINE}\n{_colored(f'Grid {self._name!r} runs over:', 'green')}\n")
        for key, vals, shorthand in zip(self.keys, self.vals, self.shs):
            short = "" if shorthand is None else f"[{shorthand}]"
            print(f" {_colored(key.ljust(40), 'cyan')} {short}")
            for value in vals:
                print(f"     {convert_json(value)}")
        total = math.prod(len(vals) for vals in self.vals)
        seeds = len(self.vals[self.keys.index("seed")]) if "seed" in self.keys else 1
        print(f"\n {total} runs, {total // seeds} variants not counting seeds\n{LINE}", flush=True)

    def run(
        self,
        thunk: Callable | str,
        num_cpu: int | str = 1,
        data_dir: str | Path | None = None,
        datestamp: bool = False,
        *,
        jobs: int = 1,
        ray_address: str | None = None,
        overwrite: bool = False,
        **logging: Any,
    ) -> None:
        """Run every variant, each in a process of its own; called again, resume where it stopped.

        thunk: a function to call with a variant's settings, or the name of the setting of this
            grid whose values are the functions
        num_cpu: processes that train one policy together; 'auto' for one per core
        data_dir: where experiments are kept; default: user_config.DEFAULT_DATA_DIR
        datestamp: begin folders with the time of this call, so that it is a new grid every time
        jobs: how many runs train at the same time
        ray_address: HOST:PORT of a Ray cluster to run on, or 'local' for Ray on this machine
        overwrite: delete what the folders hold, and start over
        logging: further arguments of the loggers: tensorboard=True, wandb=True, keep_models=True
        """
        run_grid(
            self,
            thunk,
            num_cpu,
            data_dir,
            datestamp,
            jobs=jobs,
            ray_address=ray_address,
            overwrite=overwrite,
            **logging,
        )


def _last_part(value):
    """A value for a name: what a library calls torch.nn.Tanh is Tanh."""
    dotted = LIBRARY_NAME.fullmatch(value) if isinstance(value, str) else None
    return dotted[1] if dotted else value


def _value_at(variant, key):
    """The value of 'a:b:c' in nested dicts; a dict may also have such a key as it stands."""
    if not isinstance(variant, dict):
        raise UserError(f"The variant has no value for {key}.")
    if key in variant:
        return variant[key]
    first, colon, rest = key.partition(":")
    if not colon or first not in variant:
        raise UserError(f"The variant has no value for {key}.")
    return _value_at(variant[first], rest)


def nested(pairs: Iterable[tuple[str, Any]]) -> dict:
    """Settings by their names, those called 'a:b' put into a dict called a."""
    settings: dict = {}
    for key, value in pairs:
        *path, last = key.split(":")
        inner: dict | None = settings
        for part in path:
            inner = inner.setdefault(part, {}) if isinstance(inner, dict) else None
        if not isinstance(inner, dict) or last in inner:
            raise UserError(f"{key} contradicts another setting; give it once.")
        inner[last] = _own_dicts(value)  # later keys may add to them
    return settings


def _own_dicts(value):
    return {k: _own_dicts(v) for k, v in value.items()} if isinstance(value, dict) else value


def run_grid(
    grid: ExperimentGrid,
    thunk: Callable | str,
    num_cpu: int | str = 1,
    data_dir: str | Path | None = None,
    datestamp: bool = False,
    *,
    jobs: int = 1,
    ray_address: str | None = None,
    overwrite: bool = False,
    fit: Callable[[dict], dict] = dict,
    **logging: Any,
) -> None:
    """Show a grid, check all its variants, and run them; the arguments are those of its `run`.

    fit: makes the settings to call with from those of a variant
    """
    if num_procs() > 1:
        raise UserError("A grid starts processes of its own: use num_cpu instead of mpiexec.")
    check(dict(num_cpu=num_cpu, jobs=jobs))
    require(tensorboard=bool(logging.get("tensorboard")), wandb=bool(logging.get("wandb")))
    todo, now = [], time.localtime()
    for variant in grid.variants():
        name = grid.variant_name(variant)
        function = _pop_function(variant, thunk) if isinstance(thunk, str) else thunk
        kwargs = fit(variant)
        job = make_job(name, function, kwargs, num_cpu, data_dir, datestamp, overwrite, now)
        job.kwargs["logger_kwargs"] |= {key: True for key, on in logging.items() if on}
        todo.append(job)
    check_jobs(todo)
    grid.print()
    _announce(todo)
    run_jobs(todo, jobs, ray_address)


def _announce(todo):
    """Print what is to run; on a terminal, leave time to stop it."""
    names = "\n".join(sorted({job.exp_name for job in todo}))
    print(f"{_colored('These experiments are to run:', 'green')}\n\n{names}\n\n{LINE}", flush=True)
    if sys.stdout.isatty() and user_config.WAIT_BEFORE_LAUNCH > 0:
        print(f"They start in {user_config.WAIT_BEFORE_LAUNCH:g} s; Ctrl-C stops that.", flush=True)
        time.sleep(user_config.WAIT_BEFORE_LAUNCH)


def _pop_function(variant, name):
    """Remove the function to call from a variant, and return it."""
    if name not in variant:
        raise UserError(f"The grid has no setting {name!r} to call.{did_you_mean(name, variant)}")
    return variant.pop(name)


def _colored(text, color) -> str:
    return colorize(text, color, bold=True) if sys.stdout.isatty() else text


def test_eg() -> list[dict]:
    """The variants of a small grid, to look at."""
    grid = ExperimentGrid()
    grid.add("test:a", [1, 2, 3], "ta", True)
    grid.add("test:b", [1, 2, 3])
    grid.add("some", [4, 5])
    grid.add("why", [True, False])
    grid.add("huh", 5)
    grid.add("no", 6, in_name=True)
    return grid.variants()
