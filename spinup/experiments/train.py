"""Start a run in this process, or resume the one that its folder holds."""

import contextlib
import json
import os
import sys
from pathlib import Path

from spinup.experiments.algorithms import _defaults, is_algorithm, limits_of
from spinup.experiments.checks import _check_folder
from spinup.parts.divergence import explain_diverged, read_divergence
from spinup.parts.errors import START_OVER, Diverged, Finished, UserError
from spinup.parts.make_env import find_spec, with_env_fn
from spinup.parts.memory import explain_memory
from spinup.parts.mpi import FORKED, mpi_fork, mpiexec, num_procs, on_first_process, under_launcher
from spinup.parts.plain_text import say
from spinup.parts.progress import read_table
from spinup.parts.run_folder import (
    JOB_FILE,
    how_to_resume,
    read_config,
    read_job,
    read_latest,
    resume_command,
    setup_logger_kwargs,
)
from spinup.parts.run_setup import algorithm_name, code_of, refuse_other_settings
from spinup.parts.settings import check
from spinup.parts.trackers import require


def train(
    algorithm, settings, env_name, env_kwargs=None, num_cpu=1, exp_name=None, data_dir=None,
    datestamp=False, overwrite=False, output_dir=None, retry=False, **logging,
):  # fmt: skip
    """Start a run in this process, or resume it if its folder holds the same one unfinished.

    retry: resume it also if it has diverged
    logging: what else the logger is to do, such as tensorboard=True
    """
    check(settings | dict(num_cpu=num_cpu), **limits_of(algorithm))
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
    """How to call an algorithm so that it resumes what the folder of `where` holds."""
    folder = Path(where["output_dir"])
    todo = resume_action(algorithm, kwargs | dict(logger_kwargs=where), procs, overwrite)
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


def resume_action(thunk, kwargs: dict, num_cpu: int = 1, overwrite: bool = False) -> str:
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
