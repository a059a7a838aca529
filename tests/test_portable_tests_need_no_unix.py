"""The tests in portable.txt run on macOS and Windows too: no MPI, no Ray, no signals, no fork.

The test reads imports and names with `ast`, also those of the helpers that a test imports. And
spinup itself trains on a system that lacks what Windows lacks.
"""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PORTABLE = [Path(line).name for line in (TESTS / "portable.txt").read_text().split()]
MODULES = {"signal", "resource", "fcntl", "pty", "termios", "ray", "mpi4py", "playwright"}
NAMES = {"fork", "kill", "mkfifo", "symlink", "symlink_to", "geteuid", "mpiexec", "mpi_fork"}


def unix_only(source, seen=frozenset()):
    """What a test, or a helper of its, uses that other systems lack."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        imported = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        imported += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        for name in imported:
            top = name.split(".")[0]
            helper = TESTS / "helpers" / f"{top}.py"
            found |= {top} & MODULES
            if helper.exists() and top not in seen:
                found |= unix_only(helper.read_text(encoding="utf-8"), seen | {top})
        found |= {getattr(node, "attr", None), getattr(node, "id", None)} & NAMES
    return found


@pytest.mark.parametrize("name", PORTABLE)
def test_a_portable_test_uses_nothing_of_unix(name):
    assert unix_only((TESTS / name).read_text(encoding="utf-8")) == set()


def test_uses_of_unix_are_found():
    assert unix_only("import os\nimport killed_runs\nos.fork()") >= {"fork", "signal"}
    assert unix_only("def late():\n    from spinup.parts.mpi import mpi_fork, x\n    mpi_fork(2)")


def test_training_needs_no_module_of_unix(tmp_path):
    program = """
import os, signal, sys
for name in ("fcntl", "resource", "pty", "termios", "grp", "pwd", "mpi4py"):
    sys.modules[name] = None  # importing it raises ImportError
for name in ("SIGUSR1", "SIGUSR2", "SIGKILL", "SIGHUP"):
    delattr(signal, name)
for name in ("fork", "geteuid", "getuid", "sched_getaffinity", "O_NOFOLLOW", "O_NONBLOCK"):
    delattr(os, name)
from spinup.run import main
main("ppo --env CartPole-v1 --epochs 2 --steps_per_epoch 200 --exp_name x".split())
main(["ls", "data"])
main("resume data/x/x_s0 --epochs 3".split())
"""
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert len((tmp_path / "data/x/x_s0/progress.txt").read_text().splitlines()) == 4
