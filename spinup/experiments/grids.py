"""Experiment grids: settings with several values, a run for every combination."""

import itertools
import math
import os
import re
import string
import sys
import time

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

LINE = "=" * 80
VALID = frozenset(string.ascii_letters + string.digits + "-_")  # in the names of folders
LIBRARY_NAME = re.compile(r"(?:torch|nn|tf)(?:\.\w+)*\.(\w+)")  # such as torch.nn.Tanh


def call_experiment(
    exp_name, thunk, seed=0, num_cpu=1, data_dir=None, datestamp=False, **kwargs
):  # fmt: skip
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
    exp_name, thunk, kwargs, num_cpu=1, data_dir=None, datestamp=False, overwrite=False, now=None
):
    """An experiment as a job to run; it has seed 0 and a folder made of its name, if not said."""
    kwargs = dict(seed=0) | {key: _plain(value) for key, value in kwargs.items()}
    where = setup_logger_kwargs(exp_name, kwargs["seed"], data_dir, datestamp, now)
    kwargs["logger_kwargs"] = where | (kwargs.get("logger_kwargs") or {})
    return Job(exp_name, thunk, kwargs, processes(num_cpu), overwrite)


def _plain(value):
    """A number of NumPy's as one of Python's: what a script tries may come from an array."""
    return value.item() if isinstance(value, np.generic) else value


def processes(num_cpu) -> int:
    """How many processes `num_cpu` means; 'auto' is one per core."""
    return (os.cpu_count() or 1) if num_cpu == "auto" else num_cpu


def valid_str(v) -> str:
    """A value as a part of a folder's name: lower-case letters, digits, '-' and '_'."""
    if isinstance(name := getattr(v, "__name__", None), str):
        return valid_str(name)
    if isinstance(v, (list, tuple)):
        return "-".join(valid_str(x) for x in v)
    return "".join(c if c in VALID else "-" for c in str(v).lower())


def all_bools(vals) -> bool:
    """Whether every value is True or False."""
    return all(isinstance(v, bool) for v in vals)


class ExperimentGrid:
    """Settings with several values each, and a run for every combination of them.

    keys, vals, shs, in_names: what `add` was told, one entry for each call
    """

    def __init__(self, name=""):
        self.keys, self.vals, self.shs, self.in_names = [], [], [], []
        self.name(name)

    def name(self, _name):
        """Say what the names of all variants begin with."""
        if not isinstance(_name, str):
            raise UserError(f"The name of a grid must be a string, not {_name!r}.")
        self._name = _name

    def add(self, key, vals, shorthand=None, in_name=False):
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
            shorthand = _default_shorthand(key)
        self.keys.append(key)
        self.vals.append(vals)
        self.shs.append(shorthand)
        self.in_names.append(in_name)

    def variants(self) -> list[dict]:
        """The settings of every combination, 'a:b' keys made nested dicts."""
        combinations = itertools.product(*self.vals)
        return [nested(zip(self.keys, values)) for values in combinations]

    def variant_name(self, variant) -> str:
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

    def print(self):
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
        self, thunk, num_cpu=1, data_dir=None, datestamp=False, *, jobs=1, ray_address=None,
        overwrite=False, **logging,
    ):  # fmt: skip
        """Run every variant, each in a process of its own; called again, resume where it stopped.

        thunk: what to call with a variant's settings: a function, or the name of the setting
            of this grid whose values are the functions
        num_cpu: processes that train one policy together; 'auto' for one per core
        data_dir: where experiments are kept; user_config.DEFAULT_DATA_DIR if not said
        datestamp: begin folders with the time of this call, so that it is a new grid every time
        jobs: how many runs go side by side
        ray_address: HOST:PORT of a Ray cluster to run on, or 'local' for Ray on this machine
        overwrite: delete what the folders hold, and start over
        logging: what else the loggers are to do: tensorboard=True, wandb=True, keep_models=True
        """
        run_grid(
            self, thunk, num_cpu, data_dir, datestamp, jobs=jobs, ray_address=ray_address,
            overwrite=overwrite, **logging,
        )  # fmt: skip


def _default_shorthand(key) -> str:
    """What of the first three characters of each part are letters or digits."""
    alphanumeric = VALID - {"-", "_"}
    return "-".join("".join(c for c in part[:3] if c in alphanumeric) for part in key.split(":"))


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


def nested(pairs) -> dict:
    """Settings by their names, those called 'a:b' put into a dict called a."""
    settings = {}
    for key, value in pairs:
        *path, last = key.split(":")
        inner = settings
        for part in path:
            inner = inner.setdefault(part, {}) if isinstance(inner, dict) else None
        if not isinstance(inner, dict) or last in inner:
            raise UserError(f"{key} contradicts another setting; say it once.")
        inner[last] = _own_dicts(value)  # later keys may add to them
    return settings


def _own_dicts(value):
    return {k: _own_dicts(v) for k, v in value.items()} if isinstance(value, dict) else value


def run_grid(
    grid, thunk, num_cpu=1, data_dir=None, datestamp=False, *, jobs=1, ray_address=None,
    overwrite=False, fit=dict, **logging,
):  # fmt: skip
    """Show a grid, check all its variants, and run them; the arguments are those of its `run`.

    fit: makes the settings to call with from those of a variant
    """
    if num_procs() > 1:
        raise UserError("A grid starts processes of its own: leave mpiexec away, and say num_cpu.")
    check(dict(num_cpu=num_cpu, jobs=jobs))
    require(**{key: logging.get(key) for key in ("tensorboard", "wandb")})
    todo, now = [], time.localtime()
    for variant in grid.variants():
        name, function = grid.variant_name(variant), thunk
        if isinstance(thunk, str):
            function = _taken(variant, thunk)
        kwargs = fit(variant)
        job = make_job(name, function, kwargs, num_cpu, data_dir, datestamp, overwrite, now)
        job.kwargs["logger_kwargs"] |= {key: True for key, on in logging.items() if on}
        todo.append(job)
    check_jobs(todo)
    grid.print()
    names = "\n".join(sorted({job.exp_name for job in todo}))
    print(f"{_colored('These experiments are to run:', 'green')}\n\n{names}\n\n{LINE}", flush=True)
    if sys.stdout.isatty() and user_config.WAIT_BEFORE_LAUNCH > 0:
        print(f"They start in {user_config.WAIT_BEFORE_LAUNCH:g} s; Ctrl-C stops that.", flush=True)
        time.sleep(user_config.WAIT_BEFORE_LAUNCH)
    run_jobs(todo, jobs, ray_address)


def _taken(variant, name):
    """Take the function to call out of a variant."""
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
