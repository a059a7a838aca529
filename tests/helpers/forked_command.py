"""The command line in a forked process: a real one, without the seconds that imports take."""

import os
import resource
import sys
import traceback
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

# What commands import when they need it: once here, instead of in every forked process.
for _module in (
    "torch",
    "pandas",
    "scipy.stats",
    "matplotlib.figure",
    "pygame",
    "imageio_ffmpeg",
    "gymnasium.envs.classic_control",
    "gymnasium.wrappers",
    "cloudpickle",
    "spinup.algos.pytorch.ppo.ppo",
    "spinup.algos.pytorch.dqn.dqn",
    "spinup.algos.pytorch.sac.sac",
    "spinup.results.playback",
    "spinup.experiments.jobs",
    "spinup.results.report",
):
    import_module(_module)


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


def spinup(*words, cwd, largest_file=None, stdout=None) -> Ended:
    """Run `spinup WORDS` in a forked process.

    cwd: the folder it runs in; data/ in it is where runs are kept
    largest_file: bytes that it may write to a file; beyond, writing fails as on a full disk
    stdout: a file descriptor for what it prints, instead of collecting that
    """
    out, err = Path(cwd) / "stdout.txt", Path(cwd) / "stderr.txt"
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        code = 70
        try:
            code = _run(words, cwd, largest_file, stdout, out, err)
        except BaseException:
            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    texts = [path.read_text(errors="replace") if path.exists() else "" for path in (out, err)]
    for path in (out, err):
        path.unlink(missing_ok=True)
    return Ended(os.waitstatus_to_exitcode(status), *texts)


def _run(words, cwd, largest_file, stdout, out, err) -> int:
    from spinup import user_config
    from spinup.run import main

    os.chdir(cwd)
    user_config.DEFAULT_DATA_DIR = str(Path(cwd) / "data")
    os.dup2(os.open(out, os.O_WRONLY | os.O_CREAT) if stdout is None else stdout, 1)
    os.dup2(os.open(err, os.O_WRONLY | os.O_CREAT), 2)
    sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)
    if largest_file is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))
    code = 0
    try:
        main([str(word) for word in words])
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    sys.stdout.flush()  # as Python does when it ends; what fails here would be a complaint there
    sys.stderr.flush()
    return code
