"""Keeps the current folder off the import path, except for modules that the user names.

A run folder that was downloaded may bring along a numpy.py; whoever stands in that folder must
not run it. This file is read before that folder is off the path, so at its top it imports only
what Python itself has loaded already.
"""

import os
import sys

STARTED_IN = "SPINUP_STARTED_IN"  # in the processes of a run: the folder its command was given in
SAFE_PATH, OURS = "PYTHONSAFEPATH", "spinup"  # any value means yes; this one, that we said so
# What `start_without_current_folder` has Python do: '' stands for the current folder, and spinup
# itself is taken from where it is now, not from wherever the path leads.
_START = (
    "import sys; sys.path[:] = filter(None, sys.path); import importlib, runpy; "
    "root, module = sys.argv[1:3]; del sys.argv[1:3]; "
    "sys.path.insert(0, root); import spinup; sys.path.remove(root); "
    "runpy.run_module(module, run_name='__main__', alter_sys=True)"
)


def is_started_as_module() -> bool:
    """Whether `python -m spinup.something` is just starting; Python looks for the module now."""
    if sys.argv[:1] != ["-m"]:
        return False
    name = sys.orig_argv[-len(sys.argv)]
    name = name.partition("m")[2] if name.startswith("-") else name  # python -mspinup.run
    return name.partition(".")[0] == "spinup"


def forget_current_folder() -> None:
    """Take the current folder off the path, unless PYTHONPATH names it in full.

    There it stands for `python -m` and `python -c`, and where PYTHONPATH has an empty entry.
    Modules of spinup are still found: they are looked for where the package is. Libraries that
    start a Python of their own, as glfw does, are told the same; Python 3.11 and later obey.
    """
    said = filter(os.path.isabs, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    try:
        here = os.path.realpath(os.getcwd())
    except OSError:  # it has been deleted
        here = ""
    if here in map(os.path.realpath, said):
        here = ""
    library = os.path.dirname(os.__file__)  # from here on the path is Python's own
    end = sys.path.index(library) if library in sys.path else len(sys.path)
    sys.path[:end] = [p for p in sys.path[:end] if p and os.path.realpath(p) != here]
    os.environ.setdefault(SAFE_PATH, OURS)


class _NamedModules:
    """Finds the modules that a user has named, each in its folder; asked after all others."""

    def __init__(self):
        self.folders = {}

    def find_spec(self, name, path=None, target=None):
        from importlib.machinery import PathFinder

        folder = self.folders.get(name) if path is None else None
        return None if folder is None else PathFinder.find_spec(name, [folder], target)


_named = _NamedModules()


def allow_import(module: str, folder: str | None = None) -> None:
    """Let a module, typed by the user, be imported from the current folder; and nothing else there.

    An installed one of the same name comes first.

    folder: where it is, instead of the current folder
    """
    if _named not in sys.meta_path:
        sys.meta_path.append(_named)
    _named.folders[module.partition(".")[0]] = os.path.abspath(folder or os.curdir)


def left_out(error: ImportError) -> str:
    """What to say of a module that was not found because it lies in the current folder."""
    name = (error.name or "").partition(".")[0]
    if not name or not any(map(os.path.exists, (f"{name}.py", os.path.join(name, "__init__.py")))):
        return ""
    return (
        f" {name} lies in the current folder, from where only what you name is imported. Put it "
        "into the same package, or allow all of the folder: PYTHONPATH=$PWD spinup …"
    )


def start_without_current_folder(module: str) -> list[str]:
    """The command that starts a module of ours as `python -m` does, without the current folder."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return [sys.executable, "-c", _START, root, module]


class OutsideCurrentFolder:
    """Within this, the current folder is another: code that reads files there finds none."""

    def __enter__(self):
        self.before = os.getcwd()
        os.chdir(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

    def __exit__(self, *_):
        os.chdir(self.before)
