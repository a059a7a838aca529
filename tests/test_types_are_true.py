"""Annotations are there and true: users' own type checkers read them, because of py.typed.

`make types` and this test run mypy with the settings of pyproject.toml.
"""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("parts", "experiments", "results")
FAST = ROOT / "spinup" / "parts" / "pytorch" / "fast"  # private, and traced rather than typed
SOURCES = [
    path
    for room in ROOMS
    for path in sorted((ROOT / "spinup" / room).rglob("*.py"))
    if FAST not in path.parents
]


def is_public(node) -> bool:
    return not node.name.startswith("_") or node.name == "__init__"


def public_functions(tree):
    """The functions and methods of a module that its users may call."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and is_public(node):
            yield from public_functions(node)
        elif isinstance(node, ast.FunctionDef) and is_public(node):
            yield node


def unannotated(function) -> list[str]:
    """The parameters of a function that say no type, and `return` if it says none of its result."""
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    named += [a for a in (arguments.vararg, arguments.kwarg) if a]
    missing = [a.arg for a in named if a.annotation is None and a.arg not in ("self", "cls")]
    returns = function.returns is None and function.name != "__init__"
    return missing + ["return"] * returns


@pytest.mark.parametrize("path", SOURCES, ids=[str(p.relative_to(ROOT)) for p in SOURCES])
def test_public_functions_say_what_they_take_and_give(path):
    found = {
        f"line {function.lineno}, {function.name}": missing
        for function in public_functions(ast.parse(path.read_text()))
        if (missing := unannotated(function))
    }
    assert found == {}


def test_a_function_without_types_would_be_found():
    source = (
        "class A:\n"
        "    def __init__(self, a): ...\n"
        "    def b(self, *c, d=1): ...\n"
        "    def _e(self, f): ...\n"
        "def g(h: int) -> int: ...\n"
    )
    found = {f.name: unannotated(f) for f in public_functions(ast.parse(source))}
    assert found == {"__init__": ["a"], "b": ["d", "c", "return"], "g": []}


def test_mypy_finds_nothing_untrue():
    run = subprocess.run(
        [sys.executable, "-m", "mypy"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
