"""The command line: `spinup CMD …`, or `python -m spinup.run CMD …`."""

import sys
from importlib import import_module

from spinup.parts.errors import UserError, did_you_mean, shown
from spinup.parts.imports import forget_current_folder
from spinup.parts.report_errors import report_errors

# Each command, and the module of spinup.cli that is imported when it is asked for.
WORDS = ("help", "version", "resume", "watch", "ls", "plot", "compare", "report", "export")
COMMANDS = {word: word for word in (*WORDS, "test_policy")}
COMMANDS |= {"--help": "help", "-h": "help", "--version": "version"}


def __getattr__(name: str):
    """Names of the original, such as SUBSTITUTIONS; what they need is not imported before."""
    if not name.startswith("__"):  # Python itself asks for `__path__`, too early for any import
        from spinup.cli import names

        if name in names.__all__:
            return getattr(names, name)
    raise AttributeError(f"spinup.run has no attribute {name!r}")


def dispatch(argv):
    command, *rest = argv or ["help"]
    if command in COMMANDS:
        import_module(f"spinup.cli.{COMMANDS[command]}").main(rest)
        return
    from spinup.cli.help import INSTEAD
    from spinup.cli.names import algorithm_names, parse_and_execute_grid_search

    if command in algorithm_names():
        parse_and_execute_grid_search(command, rest)
        return
    words = [*algorithm_names(), *(word for word in COMMANDS if not word.startswith("-"))]
    near = INSTEAD.get(command.lower(), "")
    near = f" {near}" if near else did_you_mean(command.lower(), words)
    raise UserError(f"spinup has no command {shown(command)}.{near} See: spinup help")


def main(argv=None):
    if argv is None:  # not called by a program of the user's own, whose path is its own business
        forget_current_folder()
    report_errors(lambda: dispatch(sys.argv[1:] if argv is None else argv))


if __name__ == "__main__":
    main()
