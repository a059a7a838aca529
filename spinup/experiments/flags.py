"""Command-line flags as settings: literals only, nothing is ever evaluated."""

import ast
import inspect
import math
import re
import shlex
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from spinup.experiments.algorithms import example_env, limits_of
from spinup.parts.errors import UserError, did_you_mean, shown
from spinup.parts.settings import INTEGERS

# Short flags, and the settings that they stand for.
SUBSTITUTIONS = {
    "env": "env_name",
    "hid": "ac_kwargs:hidden_sizes",
    "act": "ac_kwargs:activation",
    "cpu": "num_cpu",
    "dt": "datestamp",
    "ray-address": "ray_address",
}
# What the launcher takes besides the algorithm's own settings: the default, and the meaning.
LAUNCHER = {
    "env_name": (
        None,
        "the environment's id: CartPole-v1, or package:Id, with a package of this folder too",
    ),
    "env_kwargs": (None, "arguments for making it; --env_kwargs:name value sets one"),
    "num_cpu": (1, "processes that train one policy together, under MPI; auto: one per core"),
    "exp_name": (
        None,
        "the experiment's name, and its folder's; default: cmd_ALGO_BACKEND, or the name of a file "
        "that is run itself",
    ),
    "data_dir": (None, "where experiments are kept; default: the folder data"),
    "datestamp": (False, "begin the folder's name with date and time"),
    "overwrite": (False, "delete what the run's folder holds, and start over"),
    "tensorboard": (False, "write the table for TensorBoard too, beside progress.txt"),
    "wandb": (False, "write it for Weights & Biases too, offline where there is no account"),
    "keep_models": (False, "keep every saved model, under its epoch's number, for watch --itr"),
    "jobs": (1, "how many runs of a grid train at the same time on this machine"),
    "ray": (False, "run the grid with Ray, on this machine"),
    "ray_address": (None, "HOST:PORT of a Ray cluster to run the grid on"),
}
LOGGING = ("tensorboard", "wandb", "keep_models")  # the launcher's flags for the logger
SEVERAL = ("env_name", "env_kwargs")  # of the launcher's; its others take one value each
# Flags that say something of all runs together, and so take one value each.
RUN_KEYS = [key for key in LAUNCHER if key not in SEVERAL]
ONLY_IN_SCRIPTS = ("env_fn", "actor_critic", "logger_kwargs", "resume")
# Never read as numbers, or as None.
STRINGS = ("env_name", "exp_name", "data_dir", "ray_address")
DICTS = ("ac_kwargs", "env_kwargs")
GRID_HELP = """\
A grid: several values behind a flag, of any number of flags, make a run of each combination.
  spinup {name} --env ID '--hid[h]' '[32]' '[64,64]' --gamma 0.9 0.99 --seed 0 10 20 --exp_name try
trains 12 runs, kept in data/try_gam0-9_h32/try_gam0-9_h32_s0 and so on; [h] is what hid is called
there. The same command again resumes what is unfinished; --jobs 2 trains two at once.
Put brackets in quotes: some shells give them a meaning of their own.
"""


class Flag(NamedTuple):
    """The values of a flag, and its shorthand in the names of a grid's variants."""

    values: list[Any]
    shorthand: str | None


def parse(argv: Sequence[str]) -> dict[str, Flag]:
    """Flags and the values behind each, `--gamma 0.9` or `--gamma=0.9`; one without value is True.

    A shorthand in brackets (`--hid[h] …`) is for the names of a grid's variants. They are named by
    the flags in the order given, but as ever: first those without a shorthand, last env, hid, act.
    """
    found: list[tuple[str, list[str]]] = []
    words: list[str] = []
    for word in argv:
        if word.startswith("--"):
            flag, equals, value = word.partition("=")
            words = [value] if equals else []
            found.append((flag, words))
        elif not found:
            raise UserError(f"{shown(word)} belongs to no flag. Settings look like --epochs 10.")
        else:
            words.append(word)
    flags, places = {}, {}
    for word, words in found:
        name, shorthand = _split(word)
        key = SUBSTITUTIONS.get(name, name)
        if key in flags:
            raise UserError(f"--{key} is there twice; give it once.")
        shorts = list(SUBSTITUTIONS)
        places[key] = 2 + shorts.index(name) if name in shorts else int(shorthand is not None)
        flags[key] = Flag(_values(key, words), shorthand)
    return {key: flags[key] for key in sorted(flags, key=places.__getitem__)}


def _split(word) -> tuple[str, str | None]:
    """A flag's name, and the shorthand in brackets behind it."""
    name, bracket, rest = word[2:].partition("[")
    if not all(name.split(":")):
        raise UserError(f"{shown(word)} is no flag: a flag has a name, such as --epochs 10.")
    if bracket and not re.fullmatch(r"[\w-]*\]", rest):
        raise UserError(
            f"{shown(word)} is no flag: a shorthand is given like this: '--{name}[ab]' …"
        )
    first, *inside = name.split(":")
    if inside and first not in DICTS:
        raise UserError(f"--{name}: only {' and '.join(DICTS)} have settings inside them.")
    return name, rest[:-1] if bracket else None


def _values(key, words) -> list:
    if key in STRINGS and not all(words or [""]):
        raise UserError(f"--{key} needs a value: {LAUNCHER[key][1]}.")
    if key in RUN_KEYS and len(words) > 1:
        raise UserError(f"--{key} has {len(words)} values, but takes one.")
    return [word if key in STRINGS else literal(word) for word in words or ["True"]]


def literal(text: str) -> Any:
    """The number, list, truth value … that a string spells, or the string itself.

    dict(a=1) is a literal here as well, for command lines that were written so.
    """
    if text.lower() in ("true", "false", "none"):
        text = text.capitalize()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what Python thinks of the text as a program
            node = ast.parse(text.strip(), mode="eval").body
            return _read(node) if isinstance(node, ast.Call) else ast.literal_eval(node)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text


def _read(node):
    if isinstance(node, ast.Attribute):
        return ast.unparse(node)  # torch.nn.ELU: a name, to be looked up where it is used
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
        return ast.literal_eval(node)
    named = {word.arg: word.value for word in node.keywords}
    if node.func.id != "dict" or node.args or None in named:
        raise ValueError("a call of something else than dict(name=value)")
    return {name: _read(value) for name, value in named.items()}


def address(text: str | None) -> str | None:
    """HOST:PORT, if it is that."""
    if text is not None and not re.fullmatch(r"[\w.:\[\]-]+:\d{1,5}", text):
        raise UserError(f"--ray-address must be HOST:PORT, such as 192.168.0.1:6379, not {text!r}.")
    return text


def fit(algorithm: Callable, settings: dict) -> dict:
    """Settings that `algorithm` has, each of the kind its default is of; unknown ones raise."""
    parameters = inspect.signature(algorithm).parameters
    known = [name for name in parameters if name not in ONLY_IN_SCRIPTS]
    name = algorithm.__name__
    fitted = {}
    for key, value in settings.items():
        if key in ONLY_IN_SCRIPTS:
            raise UserError(f"{key} is set in a script, not on the command line.")
        if key in LAUNCHER:
            fitted[key] = of_kind(key, value, LAUNCHER[key][0], INTEGERS.get(key, ())[2:])
        elif key in known:
            limits = limits_of(algorithm).get(key, ())
            if isinstance(next(iter(limits), None), str) and not isinstance(value, str):
                value = str(value).lower()  # a choice may be called none; others are refused later
            fitted[key] = of_kind(key, value, parameters[key].default, limits[2:])
        else:
            raise no_such_setting(name, key, [*known, *LAUNCHER, *SUBSTITUTIONS])
    return fitted


def no_such_setting(algorithm: str, key: str, known: Iterable[str]) -> UserError:
    """What to say of a setting that an algorithm does not have."""
    near = did_you_mean(key, known)
    return UserError(
        f"{algorithm} has no setting called {shown(key)}.{near} See: spinup {algorithm} --help"
    )


def of_kind(name: str, value: Any, default: Any, words: tuple = ()) -> Any:
    """`value` as the kind of thing `default` is, where that loses nothing.

    words: may stand for a number
    """
    wanted = None
    if name in DICTS and value is not None:
        wanted = None if isinstance(value, dict) else f"--{name}:setting value"
    elif isinstance(default, bool):
        wanted = None if isinstance(value, bool) else "True or False"
    elif isinstance(default, int) and isinstance(value, float) and value.is_integer():
        return int(value)
    elif isinstance(default, str):
        wanted = None if isinstance(value, str) else "a string; put it in quotes twice, as \"'3'\""
    elif isinstance(default, (int, float)) and str(value).lower() in ("inf", "infinity"):
        return math.inf
    elif isinstance(default, (int, float)) and not isinstance(value, (int, float, type(None))):
        or_word = "".join(f" or {word!r}" for word in words)
        wanted = f"a number such as {default:g}{or_word}" if value not in words else None
    if wanted:
        raise UserError(f"--{name} must be {wanted}, not {shown(value)}.")
    return value


def _how_run() -> str:
    """What stands behind `python` to run the file again that was started."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return shlex.quote(sys.argv[0]) if spec is None else f"-m {spec.name}"


def documentation(function: Callable) -> str:
    """The docstring of a function; read from its file where `python -OO` has removed it."""
    if found := inspect.getdoc(function):
        return found
    program = ast.parse(Path(inspect.getfile(function)).read_text("utf-8"))
    for node in program.body:
        if isinstance(node, ast.FunctionDef) and node.name == function.__name__:
            return ast.get_docstring(node) or ""
    return ""


def describe(algorithm: Callable, config: dict | None = None) -> str:
    """Every setting of an algorithm with its default and meaning, for --help.

    config: the settings in config.json beside the algorithm's file, where that is run itself
    """
    head, _, explained = documentation(algorithm).partition("\n\n")
    meanings = dict(line.split(": ", 1) for line in explained.splitlines() if ": " in line)
    parameters = inspect.signature(algorithm).parameters
    settings = {
        key: ((config or {}).get(key, p.default), meanings.get(key, ""))
        for key, p in parameters.items()
        if key not in ONLY_IN_SCRIPTS
    }
    name = algorithm.__name__
    env = example_env(algorithm)
    command = f"spinup {name}" if config is None else f"python {_how_run()}"
    lines = [f"{command} --env {env} --epochs 10 --seed 3 --exp_name try", "", head, ""]
    for title, group in {f"Settings of {name}": settings, "The run": LAUNCHER}.items():
        lines.append(f"{title}:")
        for key, (default, meaning) in group.items():
            told = "" if default is None else f" [{default}]"
            lines.append(f"  --{key:18} {meaning}{told}")
        lines.append("")
    lines.append(GRID_HELP.format(name=name))
    lines.append("Short: " + ", ".join(f"--{s} for --{key}" for s, key in SUBSTITUTIONS.items()))
    return "\n".join(lines)
