"""Command-line flags as settings: literals only, nothing is ever evaluated."""

import ast
import inspect

from spinup.parts.settings import CHOICES, WORDS
from spinup.utils.errors import UserError, did_you_mean

SHORT_FOR = {
    "env": "env_name",
    "hid": "ac_kwargs:hidden_sizes",
    "act": "ac_kwargs:activation",
    "cpu": "num_cpu",
    "dt": "datestamp",
}
# What the launcher takes besides the algorithm's own settings: the default, and the meaning.
LAUNCHER = {
    "env_name": (None, "the environment's id, such as CartPole-v1, or package:Id"),
    "env_kwargs": (None, "arguments for making it; --env_kwargs:name value sets one"),
    "num_cpu": (1, "processes that train one policy together, under MPI"),
    "exp_name": (None, "what to call the experiment; names its folder"),
    "data_dir": (None, "where experiments are kept; the folder data, if not said"),
    "datestamp": (False, "begin the folder's name with date and time"),
    "overwrite": (False, "throw away what the run's folder holds and start anew"),
    "tensorboard": (False, "write the table for TensorBoard too, beside progress.txt"),
    "wandb": (False, "write it for Weights & Biases too, offline where there is no account"),
    "keep_models": (False, "keep every saved model, under its epoch's number, for watch --itr"),
}
LOGGING = ("tensorboard", "wandb", "keep_models")  # of these, what the logger is to do
ONLY_IN_SCRIPTS = ("env_fn", "actor_critic", "logger_kwargs", "resume")
TEXTS = ("env_name", "exp_name", "data_dir", *CHOICES)  # never read as numbers, or as None
DICTS = ("ac_kwargs", "env_kwargs")


def parse(argv) -> dict[str, list]:
    """Flags and the values behind each, as texts; a flag without value is True.

    A shorthand in brackets (`--hid[h] …`) is for the names of a grid's variants.
    """
    flags, key = {}, None
    for word in argv:
        if word.startswith("--"):
            key = word[2:].partition("[")[0]
            key = SHORT_FOR.get(key, key)
            if not key:
                raise UserError(f"{word!r} is no flag: a flag has a name, such as --epochs 10.")
            if key in flags:
                raise UserError(f"--{key} is there twice; give it once.")
            flags[key] = []
        elif key is None:
            raise UserError(f"{word!r} belongs to no flag. Settings look like --epochs 10.")
        else:
            flags[key].append(word)
    return {key: words or ["True"] for key, words in flags.items()}


def literal(text: str):
    """The number, list, truth value … that a text is, or the text itself."""
    if text.lower() in ("true", "false", "none"):
        text = text.capitalize()
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text


def single_values(flags: dict[str, list]) -> dict:
    """Each flag's one value, with `a:b` keys made nested dicts."""
    settings = {}
    for key, words in flags.items():
        if len(words) > 1:
            raise UserError(
                f"--{key} has {len(words)} values; one run takes one. "
                "Write a list without blanks: [64,64]."
            )
        first, *rest = key.split(":")
        value = words[0] if first in TEXTS else literal(words[0])
        if rest and first not in DICTS:
            raise UserError(f"--{key}: only {' and '.join(DICTS)} have settings inside them.")
        inner, path = settings, [first, *rest]
        for part in path[:-1]:
            inner = inner.setdefault(part, {})
        if not isinstance(inner, dict) or path[-1] in inner:
            raise UserError(f"--{key} contradicts another flag; say it once.")
        inner[path[-1]] = value
    return settings


def fit(algorithm, settings: dict) -> dict:
    """Settings that `algorithm` has, each of the kind its default is of; unknown ones raise."""
    parameters = inspect.signature(algorithm).parameters
    known = [name for name in parameters if name not in ONLY_IN_SCRIPTS]
    name = algorithm.__name__
    fitted = {}
    for key, value in settings.items():
        if key in ONLY_IN_SCRIPTS:
            raise UserError(f"{key} is set in a script, not on the command line.")
        if key in LAUNCHER:
            fitted[key] = of_kind(key, value, LAUNCHER[key][0])
        elif key in known:
            fitted[key] = of_kind(key, value, parameters[key].default)
        else:
            near = did_you_mean(key, [*known, *LAUNCHER, *SHORT_FOR])
            raise UserError(
                f"{name} has no setting called {key!r}.{near} See: spinup {name} --help"
            )
    return fitted


def of_kind(name, value, default):
    """`value` as the kind of thing `default` is, where that loses nothing."""
    wanted = None
    if name in DICTS and value is not None:
        wanted = None if isinstance(value, dict) else f"--{name}:setting value"
    elif isinstance(default, bool):
        wanted = None if isinstance(value, bool) else "True or False"
    elif isinstance(default, int) and isinstance(value, float) and value.is_integer():
        return int(value)
    elif isinstance(default, str) and not isinstance(value, str):
        wanted = f"a text such as {default}"
    elif isinstance(default, (int, float)) and isinstance(value, (str, list, tuple, dict)):
        wanted = f"a number such as {default:g}" if value not in WORDS.get(name, ()) else None
    if wanted:
        raise UserError(f"--{name} wants {wanted}, not {value!r}.")
    return value


def describe(algorithm) -> str:
    """Every setting of an algorithm with its default and meaning, for --help."""
    head, _, explained = inspect.getdoc(algorithm).partition("\n\n")
    meanings = dict(line.split(": ", 1) for line in explained.splitlines() if ": " in line)
    parameters = inspect.signature(algorithm).parameters
    settings = {
        key: (p.default, meanings.get(key, ""))
        for key, p in parameters.items()
        if key not in ONLY_IN_SCRIPTS
    }
    name = algorithm.__name__
    lines = [f"spinup {name} --env CartPole-v1 --epochs 10 --seed 3 --exp_name try", "", head, ""]
    for title, group in {f"Settings of {name}": settings, "The run": LAUNCHER}.items():
        lines.append(f"{title}:")
        for key, (default, meaning) in group.items():
            shown = "" if default is None else f" [{default}]"
            lines.append(f"  --{key:18} {meaning}{shown}")
        lines.append("")
    lines.append("Short: " + ", ".join(f"--{s} for --{key}" for s, key in SHORT_FOR.items()))
    return "\n".join(lines)
