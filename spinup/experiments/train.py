"""Start a run in this process, or resume the one that its folder holds."""

import contextlib
import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from spinup.experiments.algorithms import default_exp_name, defaults_of, is_algorithm, limits_of
from spinup.experiments.checks import check_folder
from spinup.parts.divergence import explain_diverged, read_divergence
from spinup.parts.errors import START_OVER, Diverged, Finished, UserError
from spinup.parts.latest import read_latest
from spinup.parts.make_env import find_spec, with_env_fn
from spinup.parts.memory import explain_memory
from spinup.parts.mpi import FORKED, mpi_fork, mpiexec, num_procs, on_first_process, under_launcher
from spinup.parts.plain_text import say
from spinup.parts.provenance import algorithm_name, code_of
from spinup.parts.run_folder import JOB_FILE, how_to_resume, resume_command, setup_logger_kwargs
from spinup.parts.run_setup import refuse_other_settings
from spinup.parts.run_status import RunFiles
from spinup.parts.settings import check
from spinup.parts.trackers import require


def train(
    algorithm: Callable,
    settings: dict,
    env_name: str,
    env_kwargs: dict | None = None,
    num_cpu: int = 1,
    exp_name: str | None = None,
    data_dir: str | Path | None = None,
    datestamp: bool = False,
    overwrite: bool = False,
    output_dir: str | Path | None = None,
    retry: bool = False,
    **logging: Any,
) -> None:
    """Start a run in this process, or resume it if its folder holds the same run, unfinished.

    retry: resume it also if it has diverged
    logging: further arguments of the logger, such as tensorboard=True
    """
    check(settings | dict(num_cpu=num_cpu), **limits_of(algorithm))
    find_spec(env_name)
    require(tensorboard=bool(logging.get("tensorboard")), wandb=bool(logging.get("wandb")))
    kwargs = with_env_fn(settings | dict(env_name=env_name, env_kwargs=env_kwargs))
    if num_cpu > 1 and not under_launcher():
        mpiexec()  # says what to install, before anything is touched
    if os.environ.get(FORKED):
        decided = json.loads(os.environ[FORKED])
    else:
        name = exp_name or default_exp_name(algorithm)
        where = setup_logger_kwargs(name, settings.get("seed", 0), data_dir, datestamp)
        where |= {} if output_dir is None else dict(output_dir=str(output_dir))
        where |= {key: True for key, on in logging.items() if on}
        procs = num_procs() if under_launcher() else num_cpu
        decide = partial(_decide, algorithm, kwargs, where, procs, overwrite, retry)
        decided = on_first_process(decide)
    mpi_fork(num_cpu, handed_over=json.dumps(decided))  # from here on in every process
    folder = decided["logger_kwargs"]["output_dir"]
    with explain_memory(defaults_of(algorithm) | kwargs), _explain_broken_pipe(folder):
        algorithm(**kwargs | decided)


@contextlib.contextmanager
def _explain_broken_pipe(folder):
    """Say how to resume a run that nobody reads any more, as with `spinup … | head`."""
    try:
        yield
    except BrokenPipeError:
        told = "spinup: Nobody reads the output any more, so the run was stopped."
        with contextlib.suppress(OSError):
            say(f"{told} {how_to_resume(folder)}", file=sys.stderr)
        raise


def _decide(algorithm, kwargs, where, procs, overwrite, retry) -> dict:
    """How to call an algorithm so that it resumes what the folder of `where` holds."""
    folder = Path(where["output_dir"])
    todo = resume_action(algorithm, kwargs | dict(logger_kwargs=where), procs, overwrite)
    if todo == "diverged":
        if not retry:
            raise Diverged(explain_diverged(folder))
        todo = "start" if read_latest(folder) is None else "resume"
    if todo == "start":
        where = where | dict(overwrite=overwrite or RunFiles(folder, strict=True).ours)
        return dict(logger_kwargs=where, resume=False)
    latest, epochs = read_latest(folder), (defaults_of(algorithm) | kwargs)["epochs"]
    done = latest["epoch"] if latest else epochs  # a finished run may have lost its checkpoint
    if todo == "finished":
        raise Finished(
            f"{folder} is finished: {done} epochs are done. To train on, ask for more: "
            f"{resume_command(folder)} --epochs {2 * done}"
        )
    say(f"Resuming {folder} after {done} of {epochs} epochs")
    return dict(logger_kwargs=where, resume=True)


def resume_action(thunk: Callable, kwargs: dict, num_cpu: int = 1, overwrite: bool = False) -> str:
    """Whether to 'start' a run or to 'resume' it; or that it is 'finished', or has 'diverged'.

    The command line, `call_experiment` and grids all ask here. Nothing is changed. A UserError
    says what differs where the folder holds another run. A run that diverged would do so again,
    for equal settings give equal runs.

    thunk: what is to be called
    kwargs: its arguments: settings, env_name or env_fn, and logger_kwargs, which names the folder
    num_cpu: processes that train together
    overwrite: start over, whatever the folder holds
    """
    if overwrite:
        return "start"
    folder = Path(kwargs["logger_kwargs"]["output_dir"])
    check_folder(folder)
    found, diverged = RunFiles(folder, strict=True), read_divergence(folder) is not None
    if _is_empty(found, diverged):
        return "start"
    unfinished = found.latest is None and not found.noted_finished and not diverged
    if unfinished and (found.ours or not found.job):
        raise UserError(
            f"{folder} holds a run that cannot be resumed, for it has no checkpoint. "
            f"Choose another --exp_name. {START_OVER}"
        )
    asked = kwargs | dict(num_procs=num_cpu)
    wrote = found.ours and found.config["algorithm"] == algorithm_name(thunk)  # or a copy of it
    has_config = found.latest is not None or (diverged and found.ours)
    if (wrote or is_algorithm(thunk)) and has_config:
        return _action_by_config(found, diverged, thunk, asked)
    return _action_by_job(found, diverged, asked)


def _is_empty(found, diverged) -> bool:
    """Whether there is nothing, or only what a run leaves before its first checkpoint."""
    if found.latest is not None or found.noted_finished or diverged:
        return False
    return found.table.num_rows <= (found.ours or bool(found.job))


def _action_by_config(found, diverged, thunk, asked) -> str:
    """The action for an algorithm of ours, whose config.json and checkpoint tell all."""
    asked = defaults_of(thunk) | with_env_fn(asked) | dict(algorithm=algorithm_name(thunk))
    refuse_other_settings(found.folder, asked)
    if found.latest is not None and found.latest["epoch"] >= asked["epochs"]:
        return "finished"
    edited = found.config.get("code") != code_of(thunk.__module__)  # it may not diverge again
    return "diverged" if diverged and not edited else "resume" if found.latest else "start"


def _action_by_job(found, diverged, asked) -> str:
    """The action for any other function: job.json has its arguments, and whether it finished."""
    if found.job:
        refuse_other_settings(found.folder, asked, JOB_FILE)
    if found.noted_finished and (asked.get("epochs") or 0) <= (found.job.get("epochs") or 0):
        return "finished"
    return "diverged" if diverged else "start" if found.latest is None else "resume"
