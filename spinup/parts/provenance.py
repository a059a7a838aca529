"""Where the code of a run comes from: its module, a copy's checksum, versions of packages."""

import platform
import sys
import zlib
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import spinup


def algorithm_name(algorithm: Callable) -> str:
    """What a training function is called in config.json."""
    return name_of_module(algorithm.__module__)


def name_of_module(module: str) -> str:
    """`ppo_pytorch` for an algorithm of spinup; a user's copy has the name of its own file.

    That way nothing takes the runs of a copy for those of the original.
    """
    file = getattr(sys.modules.get(module), "__file__", None)  # also where it is run itself
    if file is None:  # a name, as scripts give it; or typed
        return module
    file = Path(file).resolve()
    ours = Path(spinup.__file__).resolve().parent / "algos"
    if ours in file.parents[2:3] and file.stem == file.parent.name:
        return f"{file.stem}_{file.parents[1].name}"
    return f"{file.parent.name}.{file.stem}"


def code_of(module: str) -> str | None:
    """A checksum of the files of a user's copy of an algorithm; None for one of spinup's own."""
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None or name_of_module(module) in spinup.__all__:
        return None
    files = [Path(file), Path(file).with_name("core.py")]
    return f"{zlib.crc32(b''.join(f.read_bytes() for f in files if f.is_file())):08x}"


def explain_foreign_core(module: str) -> str | None:
    """What to say if a copied algorithm imports the networks of the original, not its own."""
    code = sys.modules.get(module)
    core, file = getattr(code, "core", None), getattr(code, "__file__", None)
    used = getattr(core, "__file__", None)
    if core is None or file is None or used is None:
        return None
    if not (own := Path(file).with_name("core.py")).is_file():
        return None
    if own.resolve() == Path(used).resolve():
        return None
    return (
        f"{file} uses the networks of {core.__name__}, not {own}. To use its own, change the line "
        "that imports core."
    )


def explain_changed_code(module: str, before: dict, now: dict) -> str | None:
    """What to say if a copied algorithm was edited since the run began."""
    if before.get("code") in (None, now.get("code")):
        return None
    return f"{module} has changed since this run began; it continues with the new code."


def versions(framework: str) -> dict:
    """What this run was made with."""
    packages = (framework, "gymnasium", "numpy", "mujoco", "ale-py", "gymnasium-robotics", "mpi4py")
    found = dict(spinup=spinup.__version__, python=platform.python_version())
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
