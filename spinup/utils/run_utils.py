"""Starting runs: grids of them, where their folders are, what to do with one that exists."""

import contextlib
import errno
import inspect
import itertools
import json
import math
import os
import re
import shlex
import string
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np

from spinup import user_config
from spinup.parts.divergence import STOPS
from spinup.parts.plain_text import say
from spinup.parts.run_folder import (
    JOB_FILE,
    how_to_resume,
    read_config,
    read_job,
    require_run,
    resume_command,
)
from spinup.utils import flags
from spinup.utils.errors import START_OVER, Diverged, UserError, did_you_mean, shown
from spinup.utils.logx import cannot_write, colorize
from spinup.utils.ls import read_table
from spinup.utils.mpi_tools import (
    FORKED,
    mpi_fork,
    mpiexec,
    num_procs,
    on_first_process,
    under_launcher,
)
from spinup.utils.serialization_utils import convert_json, read_json

LINE = "=" * 80
VALID = frozenset(string.ascii_letters + string.digits + "-_")  # in the names of folders
LONGEST_NAME = 255  # bytes, of a folder, on every usual file system
LIBRARY_NAME = re.compile(r"(?:torch|nn|tf)(?:\.\w+)*\.(\w+)")  # such as torch.nn.Tanh


def setup_logger_kwargs(exp_name, seed=None, data_dir=None, datestamp=False, now=None) -> dict:
    """Where a run is kept: `data_dir/exp_name/exp_name_s<seed>`, with the date before if asked.

    now: the time for the date, as `time.localtime()` gives it
    """
    if ".." in Path(str(exp_name)).parts or Path(str(exp_name)).is_absolute():
        raise UserError(
            f"exp_name {shown(exp_name)} leads out of the folder of all runs. Say where to keep "
            "them with data_dir, and in exp_name only what they are called."
        )
    now = time.localtime() if now is None else now
    datestamp = datestamp or user_config.FORCE_DATESTAMP
    day = time.strftime("%Y-%m-%d_", now) if datestamp else ""
    folder = Path(data_dir or user_config.DEFAULT_DATA_DIR) / f"{day}{exp_name}"
    if seed is not None:
        moment = time.strftime("%Y-%m-%d_%H-%M-%S-", now) if datestamp else ""
        folder = folder / f"{moment}{exp_name}_s{seed}"
    return dict(output_dir=str(folder), exp_name=exp_name)


def call_experiment(
    exp_name, thunk, seed=0, num_cpu=1, data_dir=None, datestamp=False, **kwargs
):  # fmt: skip
    """Run `thunk(**kwargs)` in a process (or `num_cpu` processes) of its own, and wait for it.

    Called again, it leaves a finished run alone and resumes an unfinished one.

    thunk: a training function, or any function that takes `seed` and these keywords
    num_cpu: processes that train one policy together; 'auto' for one per core
    kwargs: settings; `env_name` (with `env_kwargs`) becomes `env_fn`
    """
    from spinup.utils.jobs import run_jobs

    job = make_job(exp_name, thunk, kwargs | dict(seed=seed), num_cpu, data_dir, datestamp)
    check_jobs([job])
    print(_painted(f"Running {exp_name}", "cyan"))
    for key, value in job.kwargs.items():
        print(f"    {key}: {convert_json(value)}")
    sys.stdout.flush()
    run_jobs([job])


def make_job(
    exp_name, thunk, kwargs, num_cpu=1, data_dir=None, datestamp=False, overwrite=False, now=None
):
    """An experiment as a job to run; it has seed 0 and a folder made of its name, if not said."""
    from spinup.utils.jobs import Job

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


def check_jobs(jobs):
    """Refuse, before anything runs, what a run would refuse as soon as it starts.

    Of a function that is no algorithm of ours, only the environment and the processes are known.
    """
    from spinup.parts.settings import check

    for job in jobs:
        check(dict(num_cpu=job.num_cpu))
        if not callable(job.thunk):
            raise UserError(f"{job.exp_name} is to call {job.thunk!r}, which is no function.")
        if is_algorithm(job.thunk):
            _check_settings(job.thunk, job.kwargs)
        _check_folder(Path(job.kwargs["logger_kwargs"]["output_dir"]))
        if "env_name" in job.kwargs:
            _check_env(job.kwargs["env_name"], job.kwargs.get("env_kwargs") or {})
    if any(job.num_cpu > 1 for job in jobs):
        mpiexec()  # says what to install


_made = set()  # the environments that were seen to be possible


def _check_env(name, arguments):
    """Make an environment, to see that it can be made; once, for many runs may have the same."""
    from spinup.parts.envs import EnvMaker

    if (key := f"{name} {convert_json(arguments)}") not in _made:
        EnvMaker(name, arguments)().close()
        _made.add(key)


def _check_folder(folder):
    """Refuse a folder that cannot be made, without making it."""
    there = next(path for path in (folder, *folder.parents) if os.path.exists(path))
    wrong = errno.ENOTDIR if not there.is_dir() else 0
    wrong = wrong or (0 if os.access(there, os.W_OK | os.X_OK) else errno.EACCES)
    if any(len(os.fsencode(part)) > LONGEST_NAME for part in folder.parts):
        wrong = errno.ENAMETOOLONG
    if wrong:
        raise cannot_write(folder, OSError(wrong, os.strerror(wrong)))


def _check_settings(algorithm, kwargs):
    from spinup.parts.pytorch.models import fitting
    from spinup.parts.settings import check

    defaults = inspect.signature(algorithm).parameters
    for key in kwargs:
        if key not in defaults and key not in flags.SEVERAL:
            raise flags.no_such_setting(algorithm.__name__, key, [*defaults, *flags.SEVERAL])
    if not {"env_name", "env_fn"} & set(kwargs):
        raise UserError(f"{algorithm.__name__} wants an environment: add env_name or env_fn.")
    check(kwargs)
    fitting(kwargs.get("actor_critic", defaults["actor_critic"].default), kwargs.get("ac_kwargs"))


def with_env_fn(kwargs: dict) -> dict:
    """Settings in which a maker of environments stands for `env_name` and `env_kwargs`."""
    from spinup.parts.envs import EnvMaker

    kwargs = dict(kwargs)
    if "env_name" in kwargs:
        kwargs["env_fn"] = EnvMaker(kwargs.pop("env_name"), kwargs.pop("env_kwargs", None) or {})
    return kwargs


# --- Grids ---


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
            raise UserError(f"The name of a grid is a text, not {_name!r}.")
        self._name = _name

    def add(self, key, vals, shorthand=None, in_name=False):
        """Add a setting.

        key: its name; 'a:b' is the setting b inside the dict a
        vals: a list of values to try; anything else is one value
        shorthand: what stands for it in names; made of its first letters if not said
        in_name: put it into names even if it has one value
        """
        if not isinstance(key, str) or not all(key.split(":")):
            raise UserError(f"The name of a setting is a text like 'gamma', not {key!r}.")
        if not (shorthand is None or isinstance(shorthand, str)):
            raise UserError(f"The shorthand of {key} is a text, not {shorthand!r}.")
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
        print(f"{LINE}\n{_painted(f'Grid {self._name!r} runs over:', 'green')}\n")
        for key, vals, shorthand in zip(self.keys, self.vals, self.shs):
            short = "" if shorthand is None else f"[{shorthand}]"
            print(f" {_painted(key.ljust(40), 'cyan')} {short}")
            for value in vals:
                print(f"     {convert_json(value)}")
        total = math.prod(len(vals) for vals in self.vals)
        seeds = len(self.vals[self.keys.index("seed")]) if "seed" in self.keys else 1
        print(f"\n {total} runs, {total // seeds} variants not counting seeds\n{LINE}", flush=True)

    def run(
        self, thunk, num_cpu=1, data_dir=None, datestamp=False, *, jobs=1, ray_address=None,
        overwrite=False, **logging,
    ):  # fmt: skip
        """Run every variant, each in a process of its own; called again, go on where it stopped.

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
    from spinup.parts.settings import check
    from spinup.utils.diaries import require
    from spinup.utils.jobs import run_jobs

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
    print(f"{_painted('These experiments are to run:', 'green')}\n\n{names}\n\n{LINE}", flush=True)
    if sys.stdout.isatty() and user_config.WAIT_BEFORE_LAUNCH > 0:
        print(f"They start in {user_config.WAIT_BEFORE_LAUNCH:g} s; Ctrl-C stops that.", flush=True)
        time.sleep(user_config.WAIT_BEFORE_LAUNCH)
    run_jobs(todo, jobs, ray_address)


def _taken(variant, name):
    """Take the function to call out of a variant."""
    if name not in variant:
        raise UserError(f"The grid has no setting {name!r} to call.{did_you_mean(name, variant)}")
    return variant.pop(name)


def _painted(text, color) -> str:
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


# --- The command line ---


def launch(algorithm, file, argv=None):
    """Run an algorithm's own file: its defaults, then config.json beside it, then the flags."""
    from spinup.run import guarded

    argv = sys.argv[1:] if argv is None else argv
    chosen = Path(file).with_name("config.json")
    guarded(lambda: train_from_flags(lambda: algorithm, argv, read_json(chosen)))


def train_from_flags(load, argv, chosen=None):
    """Train with settings from the command line, over those of a config.json.

    One combination of them is trained in this process, several are a grid.

    load: gives the training function, once the flags are known to be flags
    """
    if "--help" in argv or "-h" in argv or argv[:1] == ["help"]:
        print(flags.describe(load(), chosen))
        return
    from spinup.parts.envs import allow_env

    given = flags.parse(argv)
    algorithm = load()
    grid, once = grid_of_flags(algorithm, given, chosen or {})
    fit = partial(fit_variant, algorithm, chosen or {})
    variants = grid.variants()
    for variant in variants:
        allow_env(fit(variant)["env_name"])  # which was typed here, so it may come from here
    if len(variants) > 1 or once["ray_address"]:
        run_grid(grid, importable(algorithm), fit=fit, **once)
        return
    settings = fit(variants[0])
    env = {key: settings.pop(key, None) for key in flags.SEVERAL}
    once |= dict(exp_name=grid.variant_name(variants[0]), num_cpu=processes(once["num_cpu"]))
    for key in ("jobs", "ray_address"):
        once.pop(key)
    train(algorithm, settings, **env, **once)


def grid_of_flags(algorithm, given: dict, chosen: dict) -> tuple["ExperimentGrid", dict]:
    """The grid that flags describe, and what holds for all of its runs, as `run_grid` takes it.

    given: flags as `flags.parse` gives them
    chosen: what a config.json says where no flag does
    """
    from spinup.parts.settings import check

    once = {key: default for key, (default, _) in flags.LAUNCHER.items()} | chosen
    once |= {key: flag.values[0] for key, flag in given.items() if flags.has_one_value(key)}
    once = {key: value for key, value in once.items() if flags.has_one_value(key)}
    once = flags.fit(algorithm, once)
    check({key: once[key] for key in ("num_cpu", "jobs")})
    ray = once.pop("ray")
    once["ray_address"] = flags.address(once["ray_address"]) or ("local" if ray else None)
    grid = ExperimentGrid(once.pop("exp_name") or f"cmd_{algorithm.__name__}")
    for key, flag in given.items():
        if not flags.has_one_value(key):
            grid.add(key, flag.values, flag.shorthand)
    return grid, once


def fit_variant(algorithm, chosen: dict, variant: dict) -> dict:
    """The settings of a variant over those of a config.json, each of its kind; others raise."""
    settings = {key: value for key, value in chosen.items() if not flags.has_one_value(key)}
    for key, value in variant.items():
        both = isinstance(value, dict) and isinstance(settings.get(key), dict)
        settings[key] = {**settings[key], **value} if both else value
    settings = flags.fit(algorithm, settings)
    if not settings.get("env_name"):
        raise UserError("Say which environment to train on, for example --env CartPole-v1")
    return settings


def importable(algorithm):
    """A training function as another process can import it, where its file is run itself."""
    import spinup
    from spinup.parts.session import algorithm_name

    if algorithm.__module__ != "__main__":
        return algorithm
    name = algorithm_name(algorithm)
    if name not in spinup.__all__:
        raise UserError(
            "Several runs are started in processes of their own, which import the algorithm by "
            f"name. Train one at a time here, or write a script with an ExperimentGrid: {name}"
        )
    return getattr(spinup, name)


def train(
    algorithm, settings, env_name, env_kwargs=None, num_cpu=1, exp_name=None, data_dir=None,
    datestamp=False, overwrite=False, output_dir=None, retry=False, **logging,
):  # fmt: skip
    """Start a run in this process, or go on with it if its folder holds the same one unfinished.

    retry: go on with it also if it has diverged
    logging: what else the logger is to do, such as tensorboard=True
    """
    from spinup.parts.envs import find_spec
    from spinup.parts.memory import explain_memory
    from spinup.parts.settings import check
    from spinup.utils.diaries import require

    check(settings | dict(num_cpu=num_cpu))
    find_spec(env_name)
    require(**{key: logging.get(key) for key in ("tensorboard", "wandb")})
    kwargs = with_env_fn(settings | dict(env_name=env_name, env_kwargs=env_kwargs))
    if num_cpu > 1 and not under_launcher():
        mpiexec()  # says what to install, before anything is touched
    if os.environ.get(FORKED):
        decided = json.loads(os.environ[FORKED])
    else:
        name = exp_name or f"cmd_{algorithm.__name__}"
        where = setup_logger_kwargs(name, settings.get("seed", 0), data_dir, datestamp)
        where |= {} if output_dir is None else dict(output_dir=str(output_dir))
        procs = num_procs() if under_launcher() else num_cpu
        where |= {key: True for key, on in logging.items() if on}
        decided = on_first_process(
            lambda: _decide(algorithm, kwargs, where, procs, overwrite, retry)
        )
    mpi_fork(num_cpu, handed_over=json.dumps(decided))  # from here on in every process
    with explain_memory(_defaults(algorithm) | kwargs):
        try:
            algorithm(**kwargs | decided)
        except BrokenPipeError:  # as with `spinup … | head`
            told = "spinup: Nobody reads the output any more, so the run was stopped."
            with contextlib.suppress(OSError):
                folder = decided["logger_kwargs"]["output_dir"]
                say(f"{told} {how_to_resume(folder)}", file=sys.stderr)
            raise


def _decide(algorithm, kwargs, where, procs, overwrite, retry) -> dict:
    """How to call an algorithm so that it goes on with what the folder of `where` holds."""
    from spinup.parts.checkpoint import read_latest
    from spinup.parts.divergence import explain_diverged

    folder = Path(where["output_dir"])
    todo = what_to_do(algorithm, kwargs | dict(logger_kwargs=where), procs, overwrite)
    if todo == "diverged":
        if not retry:
            raise Diverged(explain_diverged(folder))
        todo = "start" if read_latest(folder) is None else "resume"
    if todo == "start":
        where = where | dict(overwrite=overwrite or "algorithm" in _read_config(folder))
        return dict(logger_kwargs=where, resume=False)
    latest, epochs = read_latest(folder), (_defaults(algorithm) | kwargs)["epochs"]
    done = latest["epoch"] if latest else epochs  # a finished run may have lost its checkpoint
    if todo == "finished":
        raise Finished(
            f"{folder} is finished: {done} epochs are done. To train on, ask for more: "
            f"{resume_command(folder)} --epochs {2 * done}"
        )
    say(f"Resuming {folder} after {done} of {epochs} epochs")
    return dict(logger_kwargs=where, resume=True)


def what_to_do(thunk, kwargs: dict, num_cpu: int = 1, overwrite: bool = False) -> str:
    """Whether to 'start' a run or to 'resume' it; or that it is 'finished', or has 'diverged'.

    One that has diverged would do so again, for equal settings give equal runs.

    Every door asks here: the command line, `call_experiment` and grids. It looks, and changes
    nothing; UserError tells what differs where the folder holds another run. Of a function that is
    no algorithm of ours, job.json in the folder tells what it was called with, and whether it is
    through: its settings, `num_procs`, and `job`, a dict with the `state` 'finished'.

    thunk: what is to be called
    kwargs: with what: settings, env_name or env_fn, and logger_kwargs, which names the folder
    num_cpu: processes that train together
    overwrite: start over, whatever the folder holds
    """
    from spinup.parts.checkpoint import read_latest
    from spinup.parts.divergence import read_divergence
    from spinup.parts.session import algorithm_name, code_of, refuse_other_settings

    if overwrite:
        return "start"
    folder = Path(kwargs["logger_kwargs"]["output_dir"])
    _check_folder(folder)
    latest, config, note = read_latest(folder), _read_config(folder), read_job(folder)
    ours, diverged = "algorithm" in config, read_divergence(folder) is not None
    through = (note.get("job") or {}).get("state") == "finished"
    if latest is None and not through and not diverged:
        # What a run leaves that was stopped before its first checkpoint is made again.
        if read_table(folder / "progress.txt").rows <= (ours or bool(note)):
            return "start"
        if ours or not note:
            raise UserError(
                f"{folder} holds a run that cannot be resumed, for it has no checkpoint. "
                f"Choose another --exp_name. {START_OVER}"
            )
    asked = kwargs | dict(num_procs=num_cpu)
    wrote = ours and config["algorithm"] == algorithm_name(thunk)  # also a copied algorithm
    if (wrote or is_algorithm(thunk)) and (latest is not None or (diverged and ours)):
        asked = _defaults(thunk) | with_env_fn(asked) | dict(algorithm=algorithm_name(thunk))
        refuse_other_settings(folder, asked)
        if latest is not None and latest["epoch"] >= asked["epochs"]:
            return "finished"
        mended = config.get("code") != code_of(thunk.__module__)
        return "diverged" if diverged and not mended else "resume" if latest else "start"
    if note:
        refuse_other_settings(folder, asked, JOB_FILE)
    if through and (kwargs.get("epochs") or 0) <= (note.get("epochs") or 0):
        return "finished"
    return "diverged" if diverged else "start" if latest is None else "resume"


def _read_config(folder) -> dict:
    return read_config(folder) if os.path.lexists(folder / "config.json") else {}


def is_algorithm(thunk) -> bool:
    """Whether a function is one of this library's training functions, whose settings we know."""
    try:
        file = Path(inspect.getfile(thunk)).resolve()
    except (TypeError, OSError):  # of what is no function, or was never in a file
        return False
    name = getattr(thunk, "__name__", None)
    return name == file.stem and file.is_relative_to(Path(__file__).resolve().parents[1] / "algos")


def _defaults(thunk) -> dict:
    parameters = inspect.signature(thunk).parameters
    return {key: p.default for key, p in parameters.items() if p.default is not p.empty}


class Finished(Exception):
    """There is nothing left to train, and that is no mistake."""


def resume(run_folder, epochs=None, env_name=None, wandb=False):
    """Go on with the run in a folder, with the settings its config.json holds.

    epochs: train until this many are done, instead of the number it was started with
    env_name: the environment's id once more, to allow importing the package it names
    wandb: go on writing for Weights & Biases
    """
    from spinup.parts.envs import trust_env

    folder = require_run(run_folder, "spinup resume")
    config = read_config(folder)
    algorithm = algorithm_of(config, folder)
    env = config.get("env_fn")
    if not isinstance(env, dict) or config.get("actor_critic") != _default_network(algorithm):
        raise UserError(
            f"{folder} was started from a script, with an environment or networks of its own. "
            "Resume it there: call the same function with resume=True."
        )
    try:
        settings = saved_settings(algorithm, config, folder)
        env = saved_env(env)
    except UserError as error:
        raise UserError(f"{folder}/config.json cannot be resumed from: {error}")
    num_cpu = saved_num_procs(config, folder)
    trust_env(env["env_name"], env_name, f"spinup resume {shlex.quote(str(folder))}")
    settings |= {} if epochs is None else dict(epochs=epochs)
    logging = saved_logging(config.get("logger_kwargs"), wandb)
    name = config.get("exp_name")
    train(
        algorithm, settings, output_dir=folder, exp_name=name if isinstance(name, str) else None,
        num_cpu=num_cpu, retry=True, **env, **logging,
    )  # fmt: skip


# What config.json holds besides the settings of an algorithm.
_BESIDES = {
    *("algorithm", "num_procs", "environment", "spaces", "versions", "exp_name"),
    *("planned_epochs", STOPS),
    *flags.ONLY_IN_SCRIPTS,
}


def saved_settings(algorithm, config: dict, folder) -> dict:
    """The settings in a config.json, checked as those of a command line are."""
    from spinup.parts.pytorch.models import fitting
    from spinup.parts.settings import check

    parameters = inspect.signature(algorithm).parameters
    settings = {k: v for k, v in config.items() if k in parameters and k not in _BESIDES}
    if unknown := sorted(config.keys() - settings.keys() - _BESIDES):
        say(f"{folder}/config.json also has {', '.join(unknown)}; {algorithm.__name__} has no such "
            "settings, and they are left out.")  # fmt: skip
    settings = flags.fit(algorithm, settings)
    check(settings)
    fitting(parameters["actor_critic"].default, settings.get("ac_kwargs"))
    return settings


def saved_env(env: dict) -> dict:
    """The id and the arguments of the environment that a config.json names, and nothing else."""
    arguments = env.get("env_kwargs") or {}
    if unknown := sorted(env.keys() - {"env_name", "env_kwargs"}):
        raise UserError(f"env_fn holds {', '.join(unknown)}, which training does not write there.")
    if not isinstance(arguments, dict):
        raise UserError(f"env_kwargs is a dict of arguments, not {arguments!r}.")
    return dict(env_name=env.get("env_name"), env_kwargs=arguments)


def saved_num_procs(config: dict, folder) -> int:
    """How many processes trained a run: each of them has left its part of the checkpoint."""
    from spinup.parts.checkpoint import read_latest
    from spinup.parts.settings import check

    number, latest = config.get("num_procs", 1), read_latest(folder)
    check(dict(num_cpu=number))
    parts = [] if latest is None else (folder / "checkpoint").glob(f"epoch{latest['epoch']}.rank*")
    if latest is not None and number != len(list(parts)):
        raise UserError(
            f"{folder}/config.json says that {number!r} process(es) trained the run, but its "
            "checkpoint was not written by so many."
        )
    return number


def saved_logging(logger_kwargs, wandb: bool) -> dict:
    """What the logger is to do besides its table, as it did before.

    wandb: the user asks for Weights & Biases; a file alone makes nothing be sent anywhere
    """
    saved = logger_kwargs if isinstance(logger_kwargs, dict) else {}
    logging = {key: saved.get(key) is True for key in flags.LOGGING} | dict(wandb=wandb)
    if saved.get("wandb") is True and not wandb:
        from spinup.utils.diaries import stays_here

        logging["wandb"] = stays_here()
        if not logging["wandb"]:
            print("The run was sent to Weights & Biases, too; add --wandb to go on with that.")
    return logging


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
