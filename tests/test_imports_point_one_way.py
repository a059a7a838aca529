"""Imports between the rooms of the package point one way; see CONTRIBUTING.md for the drawing.

The test reads import statements with `ast`, those inside functions too. The only import that may
point the other way stands in the `if __name__ == "__main__":` block of a file that can be run.
"""

import ast
from pathlib import Path

import pytest

import spinup

PACKAGE = Path(spinup.__file__).parent

LEAVES = {"version", "user_config", "__init__"}  # which every room may import

# What each room may import of the package; a room may always import itself. "." is spinup/*.py.
MAY_IMPORT = {
    "parts": LEAVES,
    "parts.pytorch": {"parts"} | LEAVES,
    "parts.tf1": {"parts"} | LEAVES,
    "algos.pytorch": {"parts.pytorch", "parts"},
    "algos.tf1": {"parts.tf1", "parts"},
    "algos": set(),  # the table of algorithms
    "envs": {"parts"},
    "experiments": {"parts"} | LEAVES,
    "results": {"parts", "parts.pytorch"} | LEAVES,
    "cli": {"experiments", "results", "parts"} | LEAVES,
    "run": {"cli", "parts"} | LEAVES,
    "utils": {"run", "cli", "experiments", "results", "parts", "parts.pytorch", "parts.tf1"}
    | LEAVES,
    "__init__": {"parts", "algos", "version"},
    "user_config": {"algos"},
    "version": set(),
    "examples": {"utils", "__init__"},  # as a user's own scripts do
}
FRAMEWORKS = {
    "torch": {"parts.pytorch", "algos.pytorch", "examples", "utils"},
    "tensorflow": {"parts.tf1", "algos.tf1", "examples", "utils"},
}


def room_of(module: str) -> str:
    """The room of a dotted name below `spinup`, such as `parts.pytorch` of parts.pytorch.fast."""
    names = module.split(".")
    two = ".".join(names[:2])
    return two if two in MAY_IMPORT else names[0]


def is_main_block(node) -> bool:
    return isinstance(node, ast.If) and "__name__" in ast.dump(node.test)


def imports_of(tree, package: str):
    """Every dotted name imported, with its line; `from a import b` gives both a and a.b."""
    for node in ast.iter_child_nodes(tree):
        if is_main_block(node):
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1]
            stem = ".".join(
                [*(base if node.level else []), *([node.module] if node.module else [])]
            )
            yield from ((f"{stem}.{alias.name}", node.lineno) for alias in node.names)
        else:
            yield from imports_of(node, package)


MODULES = [
    (".".join(path.relative_to(PACKAGE).with_suffix("").parts), path)
    for path in sorted(PACKAGE.rglob("*.py"))
]


def room_of_file(module: str) -> str:
    return room_of(module.removesuffix(".__init__") or "__init__")


@pytest.mark.parametrize(("module", "path"), MODULES, ids=[name for name, _ in MODULES])
def test_a_module_imports_only_what_its_room_may(module, path):
    room = room_of_file(module)
    assert room in MAY_IMPORT, f"{path} is in no room"
    package = ".".join(["spinup", *module.split(".")[:-1]])
    for name, line in imports_of(ast.parse(path.read_text()), package):
        top, _, rest = name.partition(".")
        if top == "spinup" and rest:
            other = room_of(rest) if room_of(rest) in MAY_IMPORT else "__init__"
            allowed = {room, *MAY_IMPORT[room]}
            assert other in allowed, f"{path}:{line} imports {name}: {room} may not import {other}"
        if top in FRAMEWORKS:
            assert room in FRAMEWORKS[top], f"{path}:{line}: {room} may not import {top}"


def test_nobody_of_ours_imports_the_faces_of_the_original():
    """The test above forbids it; this one sees that it reads imports at all."""
    source = "def late():\n    from spinup.utils import logx\nfrom ..utils.plot import main\n"
    names = [name for name, _ in imports_of(ast.parse(source), "spinup.parts")]
    assert names == ["spinup.utils.logx", "spinup.utils.plot.main"]
    assert all(room_of(name.removeprefix("spinup.")) == "utils" for name in names)
    rooms = [room for room, others in MAY_IMPORT.items() if "utils" in others]
    assert rooms == ["examples"]
