"""The command line: `spinup CMD …`, or `python -m spinup.run CMD …`."""

import argparse
import sys
from importlib import import_module

import spinup
from spinup.parts.imports import forget_current_folder
from spinup.parts.plain_text import say
from spinup.utils.errors import Diverged, UserError, did_you_mean, os_sentence, shown

HELP = """spinup: deep reinforcement learning to learn from

  spinup ALGO --env ID …       train; every setting is a flag
  spinup ALGO --help           its settings, with defaults and meanings
  spinup ALGO --seed 0 1 2 …   a grid: several values behind flags make a run of each combination
  spinup resume RUN            go on with a run that was stopped; --epochs N extends it
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


def resume(argv):
    parser = argparse.ArgumentParser("spinup resume", description="Go on with a stopped run.")
    parser.add_argument("run", help="the run's folder")
    parser.add_argument("--epochs", type=int, help="train until this many epochs are done")
    parser.add_argument("--env", help="the run's package:Id once more, to allow that package")
    parser.add_argument("--wandb", action="store_true", help="send it to Weights & Biases again")
    args = parser.parse_args(argv)
    from spinup.utils import run_utils

    run_utils.resume(args.run, args.epochs, args.env, args.wandb)


def watch(argv):
    from spinup.utils import test_policy

    test_policy.main(argv, "spinup watch", episodes=5)


def tool(name):
    """The command whose code is `spinup.utils.NAME`, imported only when it is asked for."""
    return lambda argv: import_module(f"spinup.utils.{name}").main(argv)


def version(argv):
    print(spinup.__version__)


COMMANDS = {
    "help": show_help, "resume": resume, "watch": watch, "version": version,
}  # fmt: skip
COMMANDS |= {
    name: tool(name) for name in ("test_policy", "ls", "plot", "compare", "report", "export")
}
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
        from spinup.utils.run_utils import train_from_flags

        train_from_flags(lambda: getattr(spinup, algorithms[command]), rest)
    else:
        instead = INSTEAD.get(command.lower(), "")
        words = [word for word in COMMANDS if not word.startswith("-")]
        near = f" {instead}" if instead else did_you_mean(command.lower(), [*algorithms, *words])
        raise UserError(f"spinup has no command {shown(command)}.{near} See: spinup help")


def guarded(work):
    """Do `work`; a mistake the user can mend is told in a sentence, with exit code 2.

    A run that diverged is told in a sentence, too, with exit code 1.
    """
    from spinup.parts.memory import explain_memory
    from spinup.utils.jobs import JobsFailed
    from spinup.utils.mpi_tools import abort, listen_for_interrupts, num_procs

    listen_for_interrupts()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # what this terminal cannot show is shown as its code
            stream.reconfigure(errors="backslashreplace")
    try:
        with explain_memory({}):
            _news(work)
        _show_output()
    except UserError as error:
        abort(2, f"spinup: {error}")
    except Diverged as error:
        abort(1, f"spinup: {error}", agreed=True)  # one process alone would have ended all
    except JobsFailed as failed:
        abort(1, f"\n{failed}")
    except KeyboardInterrupt as stopped:
        abort(130, str(stopped) or "Stopped.", getattr(stopped, "agreed", False))
    except BrokenPipeError:  # the reader of our output has gone, as with `spinup … | head -1`
        abort(1)
    except OSError as error:
        abort(2, f"spinup: {os_sentence(error)}")
    except SystemExit as ended:
        if ended.code and num_procs() > 1:
            abort(ended.code if isinstance(ended.code, int) else 1)
        _show_output()
        raise


def _news(work):
    from spinup.utils.mpi_tools import proc_id
    from spinup.utils.run_utils import Finished

    try:
        work()
    except Finished as news:
        if proc_id() == 0:
            say(news)


def _show_output():
    """Write out what was printed, now rather than when Python ends; what fails ends us."""
    from spinup.utils.mpi_tools import abort, flush_output

    error = flush_output()
    if isinstance(error, BrokenPipeError):
        abort(1)
    elif error is not None:
        abort(2, f"spinup: The output cannot be written ({error.strerror}).")


def main(argv=None):
    if argv is None:  # not called by a program of the user's own, whose path is its own business
        forget_current_folder()
    guarded(lambda: dispatch(sys.argv[1:] if argv is None else argv))


if __name__ == "__main__":
    main()
