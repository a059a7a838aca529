"""Random command lines and randomly damaged run folders: no traceback, no hang, nothing lost.

This is the short part of benchmarks/fuzz.py, and what shows that the fuzzer sees what it looks for.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FUZZ = str(ROOT / "benchmarks" / "fuzz.py")
PLANTED = """
import sys, time
sys.path.insert(0, {benchmarks!r})
import fuzz
fuzz.warm()
from spinup.cli import compare, ls
def broken(argv):
    raise ZeroDivisionError
def endless(argv):
    time.sleep(600)
def silent(argv):
    sys.exit(2)
def odd(argv):
    sys.exit(7)
ls.main = {kind}
fuzz.HANG = 5.0
fuzz.make_case = lambda seed, name, base: fuzz.Case(name, [["ls"], ["version"]])
print("\\n" + " ".join(one["wrong"].replace(" ", "_") for one in fuzz.fuzz(["a", "b"], 0, 1)))
"""


def python(*words, **options):
    environment = os.environ | dict(PYTHONPATH=str(ROOT))
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, env=environment, **options
    )


def test_no_case_is_a_finding():
    ended = python(FUZZ, "--seed", "11", "--command-lines", "200", "--folders", "25")
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        ("broken", "traceback"),
        ("endless", "hang"),
        ("odd", "exit_code_7"),
        ("silent", "exit_code_2_without_a_sentence"),
    ],
)
def test_the_fuzzer_sees_what_is_planted(kind, found):
    program = PLANTED.format(benchmarks=str(ROOT / "benchmarks"), kind=kind)
    ended = python("-c", program)
    assert ended.stdout.splitlines()[-1].split() == [found, found], ended.stdout + ended.stderr


def test_a_forked_process_ends_as_a_real_one(tmp_path):
    """The same command lines through the fuzzer's short cut and as processes of their own."""
    program = (
        f"import sys; sys.path.insert(0, {str(ROOT / 'benchmarks')!r}); import json, random;"
        "from fuzzing.command_lines import command_line;"
        "print(json.dumps([command_line(random.Random(i)) for i in range(60)]))"
    )
    lines = json.loads(python("-c", program).stdout.splitlines()[-1])
    lines = [line for line in lines if line and line[0] not in ("report", "plot")]
    for words in lines[:4]:
        ended = python("-m", "spinup.run", *words, "--no-such-flag", cwd=tmp_path)
        assert ended.returncode == 2, (words, ended)
        assert "Traceback" not in ended.stderr + ended.stdout
