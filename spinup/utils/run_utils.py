"""Starting runs: where their folders are, what to do with one that exists, and processes."""

import inspect
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from spinup import user_config
from spinup.utils import flags
from spinup.utils.errors import UserError
from spinup.utils.logx import cannot_write, colorize
from spinup.utils.mpi_tools import (
    FORKED,
    mpi_fork,
    mpiexec,
    num_procs,
    on_first_process,
    under_launcher,
)
from spinup.utils.serialization_utils import convert_json, read_json, write_json

DONE = "done.json"  # what a function that writes no checkpoint was called with, once it is through


def setup_logger_kwargs(exp_name, seed=None, data_dir=None, datestamp=False) -> dict:
    """Where a run is kept: `data_dir/exp_name/exp_name_s<seed>`, with the date before if asked."""
    datestamp = datestamp or user_config.FORCE_DATESTAMP
    day = time.strftime("%Y-%m-%d_") if datestamp else ""
    folder = Path(data_dir or user_config.DEFAULT_DATA_DIR) / f"{day}{exp_name}"
    if seed is not None:
        moment = time.strftime("%Y-%m-%d_%H-%M-%S-") if datestamp else ""
        folder = folder / f"{moment}{exp_name}_s{seed}"
    return dict(output_dir=str(folder), exp_name=exp_name)


def call_experiment(
    exp_name, thunk, seed=0, num_cpu=1, data_dir=None, datestamp=False, **kwargs
):  # fmt: skip
    """Run `thunk(**kwargs)` in a process (or `num_cpu` processes) of its own, and wait for it.

    thunk: a training function, or any function that takes `seed` and these keywords
    num_cpu: processes that train one policy together; 'auto' for one per core
    kwargs: settings; `env_name` (with `env_kwargs`) becomes `env_fn`
    """
    import cloudpickle

    num_cpu = (os.cpu_count() or 1) if num_cpu == "auto" else num_cpu
    kwargs["seed"] = seed
    if "logger_kwargs" not in kwargs:
        kwargs["logger_kwargs"] = setup_logger_kwargs(exp_name, seed, data_dir, datestamp)
    print(colorize(f"Running {exp_name}", "cyan", bold=True) if sys.stdout.isatty() else exp_name)
    for key, value in kwargs.items():
        print(f"    {key}: {convert_json(value)}")
    sys.stdout.flush()
    with tempfile.TemporaryDirectory(prefix="spinup-") as folder:
        job = Path(folder) / "job"  # what we ourselves hand over, readable by this user alone
        job.write_bytes(cloudpickle.dumps((thunk, kwargs, num_cpu)))
        command = [sys.executable, "-m", "spinup.utils.run_entrypoint", str(job)]
        code = _wait(subprocess.Popen(command))
    if code == 130:
        raise KeyboardInterrupt
    if code != 0:
        where = (kwargs["logger_kwargs"] or {}).get("output_dir")
        raise UserError(f"{exp_name} failed; its own words are above. Its folder: {where}")


def _wait(process) -> int:
    """Wait for a process that hears Ctrl-C itself and will save before it ends."""
    if threading.current_thread() is not threading.main_thread():
        return process.wait()
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return process.wait()
    finally:
        signal.signal(signal.SIGINT, previous)


def with_env_fn(kwargs: dict) -> dict:
    """Settings in which a maker of environments stands for `env_name` and `env_kwargs`."""
    from spinup.parts.envs import EnvMaker

    kwargs = dict(kwargs)
    if "env_name" in kwargs:
        kwargs["env_fn"] = EnvMaker(kwargs.pop("env_name"), kwargs.pop("env_kwargs", None) or {})
    return kwargs


def launch(algorithm, file, argv=None):
    """Run an algorithm's own file: its defaults, then config.json beside it, then the flags."""
    from spinup.run import guarded

    argv = sys.argv[1:] if argv is None else argv
    chosen = Path(file).with_name("config.json")
    guarded(lambda: train_from_flags(lambda: algorithm, argv, read_json(chosen)))


def train_from_flags(load, argv, chosen=None):
    """Train with settings from the command line, over those of a config.json.

    load: gives the training function, once the flags are known to be flags
    """
    if "--help" in argv or "-h" in argv:
        print(flags.describe(load()))
        return
    given = flags.single_values(flags.parse(argv))
    chosen = dict(chosen or {})
    for key in flags.DICTS:
        if key in given and isinstance(given[key], dict):
            given[key] = {**(chosen.get(key) or {}), **given[key]}
    algorithm = load()
    settings = flags.fit(algorithm, chosen | given)
    launcher = {key: settings.pop(key, flags.LAUNCHER[key][0]) for key in flags.LAUNCHER}
    if not launcher["env_name"]:
        raise UserError("Say which environment to train on, for example --env CartPole-v1")
    train(algorithm, settings, **launcher)


def train(
    algorithm, settings, env_name, env_kwargs=None, num_cpu=1, exp_name=None, data_dir=None,
    datestamp=False, overwrite=False, output_dir=None,
):  # fmt: skip
    """Start a run in this process, or go on with it if its folder holds the same one unfinished."""
    from spinup.parts.checkpoint import read_latest
    from spinup.parts.envs import find_spec
    from spinup.parts.settings import check

    check(settings | dict(num_cpu=num_cpu))
    find_spec(env_name)
    kwargs = with_env_fn(settings | dict(env_name=env_name, env_kwargs=env_kwargs))
    if num_cpu > 1 and not under_launcher():
        mpiexec()  # says what to install, before anything is touched
    if os.environ.get(FORKED):
        decided = json.loads(os.environ[FORKED])
    else:
        name = exp_name or f"cmd_{algorithm.__name__}"
        procs = num_procs() if under_launcher() else num_cpu

        def decide():
            where = setup_logger_kwargs(name, settings.get("seed", 0), data_dir, datestamp)
            where |= {} if output_dir is None else dict(output_dir=str(output_dir))
            what = what_to_do(algorithm, kwargs | dict(logger_kwargs=where), procs, overwrite)
            if what["resume"]:
                folder, epochs = where["output_dir"], (_defaults(algorithm) | settings)["epochs"]
                done = read_latest(folder)["epoch"]
                print(f"Resuming {folder} after {done} of {epochs} epochs", flush=True)
            return what

        decided = on_first_process(decide)
    mpi_fork(num_cpu, handed_over=json.dumps(decided))  # from here on in every process
    algorithm(**kwargs | decided)


def what_to_do(thunk, kwargs: dict, num_cpu: int = 1, overwrite: bool = False) -> dict:
    """What to call `thunk` with besides `kwargs`, so that it goes on with what its folder holds.

    Every door asks here: the command line, `call_experiment` and grids. It looks, and changes
    nothing. Call `thunk(**kwargs | what_to_do(thunk, kwargs, …))`; where that gives `resume=True`
    the run goes on, else it starts anew. It raises Finished where nothing is left to do, and
    UserError, with the differences, where the folder holds another run. After a thunk that has
    returned, `mark_done(kwargs)` lets this know it also of functions that write no checkpoint.

    kwargs: the settings, with env_name or env_fn, and with logger_kwargs, which names the folder
    num_cpu: processes that train together
    overwrite: start anew, and delete what the folder holds
    """
    from spinup.parts.checkpoint import read_latest
    from spinup.parts.session import algorithm_name, refuse_other_settings

    where, ours = dict(kwargs["logger_kwargs"] or {}), is_algorithm(thunk)
    anew = dict(logger_kwargs=where) | (dict(resume=False) if ours else {})
    if not where.get("output_dir"):
        return anew  # a folder for temporary files, which is always new
    folder = Path(where["output_dir"])
    if overwrite:
        return anew | dict(logger_kwargs=where | dict(overwrite=True))
    full = _defaults(thunk) | with_env_fn(kwargs)
    try:
        latest = read_latest(folder)
    except OSError as error:  # a name that is too long, or a folder closed to us
        raise cannot_write(folder, error)
    if latest is None and (folder / DONE).exists() and not ours:
        refuse_other_settings(folder, full, DONE)
        raise Finished(f"{folder} is finished.")
    if latest is None:
        began = _stopped_before_its_first_checkpoint(folder)
        if ours and not began and _rows(folder) > 0:
            raise UserError(
                f"{folder} holds a run that cannot be resumed, for it has no checkpoint. "
                "Choose another --exp_name, or start anew with --overwrite."
            )
        return anew | dict(logger_kwargs=where | (dict(overwrite=True) if began else {}))
    algorithm = dict(algorithm=algorithm_name(thunk)) if ours else {}
    refuse_other_settings(folder, full | algorithm | dict(num_procs=num_cpu))
    epochs = full.get("epochs", read_json(folder / "config.json").get("epochs"))
    if latest["epoch"] >= epochs:
        raise Finished(
            f"{folder} is finished: {latest['epoch']} epochs are done. To train on, ask for more: "
            f"spinup resume {shlex.quote(str(folder))} --epochs {2 * latest['epoch']}"
        )
    return anew | (dict(resume=True) if _takes(thunk, "resume") else {})


def mark_done(kwargs: dict):
    """Note that the run of these settings is through, if it has a folder but no checkpoint."""
    from spinup.parts.checkpoint import read_latest

    folder = (kwargs["logger_kwargs"] or {}).get("output_dir")
    if folder and Path(folder).is_dir() and read_latest(folder) is None:
        write_json(Path(folder) / DONE, with_env_fn(kwargs))


def is_algorithm(thunk) -> bool:
    """Whether a function is one of this library's training functions, whose settings we know."""
    try:
        file = Path(inspect.getfile(thunk)).resolve()
    except (TypeError, OSError):  # of what is no function, or was never in a file
        return False
    name = getattr(thunk, "__name__", None)
    return name == file.stem and file.is_relative_to(Path(__file__).parents[1] / "algos")


def _parameters(thunk) -> dict:
    try:
        return dict(inspect.signature(thunk).parameters)
    except (TypeError, ValueError):  # of some built-in functions
        return {}


def _defaults(thunk) -> dict:
    return {k: p.default for k, p in _parameters(thunk).items() if p.default is not p.empty}


def _takes(thunk, name) -> bool:
    parameters = _parameters(thunk)
    return name in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def _rows(folder) -> int:
    table = folder / "progress.txt"
    return table.read_text(errors="replace").count("\n") - 1 if table.is_file() else 0


def _stopped_before_its_first_checkpoint(folder) -> bool:
    """Whether a run of ours left this; its one row at most is made again."""
    config = folder / "config.json"
    return config.exists() and "algorithm" in read_json(config) and _rows(folder) <= 1


class Finished(Exception):
    """There is nothing left to train, and that is no mistake."""


def resume(run_folder, epochs=None, env_name=None):
    """Go on with the run in a folder, with the settings its config.json holds.

    epochs: train until this many are done, instead of the number it was started with
    env_name: the environment's id once more, to allow importing the package it names
    """
    folder = Path(run_folder)
    if not folder.is_dir():
        raise UserError(f"There is no folder {folder}. spinup resume wants the folder of a run.")
    config = read_json(folder / "config.json")
    algorithm = algorithm_of(config, folder)
    env = config.get("env_fn")
    if not isinstance(env, dict) or config.get("actor_critic") != _default_network(algorithm):
        raise UserError(
            f"{folder} was started from a script, with an environment or networks of its own. "
            "Resume it there: call the same function with resume=True."
        )
    trusted_env_name(env.get("env_name"), env_name)
    parameters = inspect.signature(algorithm).parameters
    settings = {k: config[k] for k in parameters if k in config and k not in flags.ONLY_IN_SCRIPTS}
    settings = flags.fit(algorithm, settings | ({} if epochs is None else dict(epochs=epochs)))
    train(
        algorithm, settings, output_dir=folder, exp_name=config.get("exp_name"),
        num_cpu=config.get("num_procs", 1), **env,
    )  # fmt: skip


def algorithm_of(config: dict, folder):
    """The training function that a config.json names; only one of our own is ever imported."""
    import spinup

    name = config.get("algorithm")
    backend = str(name).rpartition("_")[2]
    if str(name).rpartition("_")[0] not in spinup.ALGORITHMS.get(backend, ()):
        raise UserError(
            f"{folder}/config.json names no algorithm of spinup, so it cannot be resumed."
        )
    return getattr(spinup, name)


def trusted_env_name(saved, confirmed):
    """Refuse to import a package only because a file names it."""
    if isinstance(saved, str) and ":" in saved and saved != confirmed:
        package = saved.partition(":")[0]
        if package not in sys.modules:
            raise UserError(
                f"The environment {saved} is made by the package {package!r}, which runs when it "
                f"is imported. If you trust it, say so: --env {saved}"
            )
    return saved


def _default_network(algorithm):
    return inspect.signature(algorithm).parameters["actor_critic"].default.__name__
