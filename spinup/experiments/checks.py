"""What is checked of all runs of an experiment before the first one starts."""

import errno
import inspect
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from spinup.experiments import flags
from spinup.experiments.algorithms import backend_of, is_algorithm, limits_of
from spinup.parts.errors import UserError
from spinup.parts.jsonio import convert_json
from spinup.parts.make_env import EnvMaker
from spinup.parts.mpi import mpiexec
from spinup.parts.run_folder import cannot_write
from spinup.parts.settings import check

LONGEST_NAME = 255  # bytes, of a folder, on every usual file system


def check_jobs(jobs: Iterable[Any]) -> None:
    """Refuse, before anything runs, what a run would refuse as soon as it starts.

    Only the environment and the processes are known of a function that is no algorithm of ours.

    jobs: one `Job` for each run
    """
    for job in jobs:
        check(dict(num_cpu=job.num_cpu))
        if not callable(job.thunk):
            raise UserError(f"{job.exp_name} is to call {job.thunk!r}, which is no function.")
        if is_algorithm(job.thunk):
            _check_settings(job.thunk, job.kwargs)
        check_folder(Path(job.kwargs["logger_kwargs"]["output_dir"]))
        if "env_name" in job.kwargs:
            _check_env(job.kwargs["env_name"], job.kwargs.get("env_kwargs") or {})
    if any(job.num_cpu > 1 for job in jobs):
        mpiexec()  # says what to install


_made: set[str] = set()  # the environments that were seen to be possible


def _check_env(name, arguments):
    """Make an environment, to see that it can be made; once, for many runs may have the same."""
    if (key := f"{name} {convert_json(arguments)}") not in _made:
        EnvMaker(name, arguments)().close()
        _made.add(key)


def check_folder(folder: Path) -> None:
    """Refuse a folder that cannot be made, without making it."""
    there = next(path for path in (folder, *folder.parents) if os.path.exists(path))
    wrong = errno.ENOTDIR if not there.is_dir() else 0
    wrong = wrong or (0 if os.access(there, os.W_OK | os.X_OK) else errno.EACCES)
    if any(len(os.fsencode(part)) > LONGEST_NAME for part in folder.parts):
        wrong = errno.ENAMETOOLONG
    if wrong:
        raise cannot_write(folder, OSError(wrong, os.strerror(wrong)))


def _check_settings(algorithm, kwargs):
    defaults = inspect.signature(algorithm).parameters
    for key in kwargs:
        if key not in defaults and key not in flags.SEVERAL:
            raise flags.no_such_setting(algorithm.__name__, key, [*defaults, *flags.SEVERAL])
    if not {"env_name", "env_fn"} & set(kwargs):
        raise UserError(f"{algorithm.__name__} needs an environment: add env_name or env_fn.")
    check(kwargs, **limits_of(algorithm))
    backend_of(algorithm).check_ac_kwargs(
        kwargs.get("actor_critic", defaults["actor_critic"].default), kwargs.get("ac_kwargs")
    )
