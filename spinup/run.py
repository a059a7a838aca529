"""The command line: `spinup CMD …`, or `python -m spinup.run CMD …`."""

import sys
from importlib import import_module

import spinup
from spinup.parts.errors import UserError, did_you_mean, shown
from spinup.parts.imports import forget_current_folder
from spinup.parts.report_errors import report_errors

HELP = """spinup: deep reinforcement learning to learn from

  spinup ALGO --env ID …       train; every setting is a flag
  spinup ALGO --help           its settings, with defaults and meanings
  spinup ALGO --seed 0 1 2 …   a grid: several values behind flags make a run of each combination
  spinup resume RUN            continue a run that was stopped; --epochs N extends it
  spinup watch RUN             see a trained agent play; --video FILE.mp4 records it
  spinup ls FOLDER             the runs in a folder: how far each is, and how well it does
  spinup plot RUN…             draw learning curves
  spinup compare FOLDER…       a table of results, with how sure one can be of them
  spinup report FOLDER         one page of curves, results, settings and videos
  spinup export RUN            the trained policy as an ONNX file
  spinup help                  this text

Algorithms: {algorithms}
(each also as ALGO_pytorch{tf1})

Begin with:  spinup ppo --env CartPole-v1 --epochs 10
A run is kept in data/NAME/NAME_s<SEED>; the same command again resumes or leaves it alone.
Of a grid, --jobs N trains N runs at once; --ray and --ray-address HOST:PORT train with Ray."""


def algorithm_names() -> dict[str, str]:
    """What may be typed for each training function, and its name at the top of the package."""
    from spinup.user_config import DEFAULT_BACKEND

    names = {}
    for backend, algorithms in spinup.ALGORITHMS.items():
        for algorithm in algorithms:
            names[f"{algorithm}_{backend}"] = f"{algorithm}_{backend}"
            if DEFAULT_BACKEND.get(algorithm, "pytorch") == backend:
                names[algorithm] = f"{algorithm}_{backend}"
    return names


def show_help(argv):
    algorithms = list(dict.fromkeys(a for names in spinup.ALGORITHMS.values() for a in names))
    tf1 = ", some as ALGO_tf1" if spinup.ALGORITHMS["tf1"] else ""
    print(HELP.format(algorithms=", ".join(algorithms), tf1=tf1))


def command(name):
    """The command whose code is `spinup.cli.NAME`, imported only when it is asked for."""
    return lambda argv: import_module(f"spinup.cli.{name}").main(argv)


def version(argv):
    print(spinup.__version__)


COMMANDS = dict(help=show_help, version=version)
COMMANDS |= {name: command(name) for name in ("resume", "watch", "ls", "plot", "compare")}
COMMANDS |= {name: command(name) for name in ("report", "export", "test_policy")}
COMMANDS |= {"--help": show_help, "-h": show_help, "--version": version}
# Words that are no command, and what to say to those who type them.
TO_TRAIN = "To train, name an algorithm: spinup ppo --env CartPole-v1."
TO_WATCH = "To see a trained agent play: spinup watch RUN."
INSTEAD = dict.fromkeys(("train", "run", "learn", "fit", "start", "new"), TO_TRAIN)
INSTEAD |= dict.fromkeys(
    ("test", "eval", "evaluate", "play", "enjoy", "render", "record", "video", "demo"), TO_WATCH
)
INSTEAD |= dict.fromkeys(
    ("list", "show", "status", "info", "runs", "ps", "dir"),
    "To see the runs in a folder: spinup ls.",
)
INSTEAD |= dict.fromkeys(
    ("continue", "restart", "extend"), "To continue a run that was stopped: spinup resume RUN."
)
INSTEAD |= dict.fromkeys(("draw", "curves", "graph"), "To draw learning curves: spinup plot RUN.")
INSTEAD |= dict.fromkeys(("onnx", "save"), "To write a policy as an ONNX file: spinup export RUN.")


def dispatch(argv):
    if not argv:
        show_help(argv)
        return
    command, *rest = argv
    algorithms = algorithm_names()
    if command in COMMANDS:
        COMMANDS[command](rest)
    elif command in algorithms:
        from spinup.cli.train import train_from_flags

        train_from_flags(lambda: getattr(spinup, algorithms[command]), rest)
    else:
        instead = INSTEAD.get(command.lower(), "")
        words = [word for word in COMMANDS if not word.startswith("-")]
        near = f" {instead}" if instead else did_you_mean(command.lower(), [*algorithms, *words])
        raise UserError(f"spinup has no command {shown(command)}.{near} See: spinup help")


def main(argv=None):
    if argv is None:  # not called by a program of the user's own, whose path is its own business
        forget_current_folder()
    report_errors(lambda: dispatch(sys.argv[1:] if argv is None else argv))


if __name__ == "__main__":
    main()
