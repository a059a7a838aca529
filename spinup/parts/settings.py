"""The settings of a run: what values they may have, and whether two runs have the same ones."""

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from spinup.parts.errors import UserError, shown
from spinup.parts.jsonio import convert_json
from spinup.parts.memory import check_sizes, finite

# Limits of the settings that algorithms share: the least and the greatest value, None for no limit,
# and words that are allowed besides. A name ending in _lr or _iters has the limits of lr or iters.
# What only one algorithm has stands in the LIMITS of its own file.
INTEGERS: dict[str, tuple] = dict(
    seed=(0, 2**31 - 1), epochs=(1, None), steps_per_epoch=(1, None), max_ep_len=(1, None),
    save_freq=(1, None), num_envs=(1, 100_000), num_cpu=(1, None, "auto"), jobs=(1, None),
    replay_size=(1, None), batch_size=(1, None), minibatch_size=(1, None), update_every=(1, None),
    iters=(1, None), train_pi_iters=(0, None), train_v_iters=(0, None), update_after=(0, None),
    start_steps=(0, None), num_test_episodes=(0, None), target_every=(1, None),
    epsilon_steps=(0, None), policy_delay=(1, None), n_step=(1, None), n_steps=(1, None),
    replay_start=(0, None), k=(0, None),
)  # fmt: skip
NUMBERS: dict[str, tuple] = dict(
    gamma=(0, 1), lam=(0, 1), polyak=(0, 1), epsilon_start=(0, 1), epsilon_end=(0, 1),
    clip_ratio=(0, None), target_kl=(0, None), lr=(0, None), ent_coef=(0, None),
    max_grad_norm=(0, None), act_noise=(0, None), target_noise=(0, None), noise_clip=(0, None),
    priority_exponent=(0, 1), importance_exponent=(0, 1), delta=(0, None),
    damping_coeff=(0, None), backtrack_coeff=(0, 1), replay_ratio=(0, 1000), c=(0, None),
    random_eps=(0, 1),
)  # fmt: skip
MAX_INTEGER = 2**53  # floats cannot count beyond it; for integers without a limit of their own
MAY_BE_NONE = {"max_ep_len", "target_kl", "minibatch_size", "max_grad_norm"}  # None: no limit
# Not part of what a run computes, or compared apart.
NOT_COMPARED = {"epochs", "planned_epochs", "logger_kwargs", "resume", "save_freq", "code"}
# Of config.json, what does not tell one experiment from another: the seeds of its runs, names and
# folders, and what follows from other settings.
NOT_OF_EXPERIMENT = NOT_COMPARED - {"code"} | {
    "seed", "exp_name", "logger", "spaces", "versions", "stops_when_not_finite", "job",
}  # fmt: skip
OF_ENVIRONMENT = ("id", "made_by", "kwargs", "wrappers", "max_episode_steps")


def check(settings: dict, **limits: tuple) -> None:
    """Refuse values that cannot be meant, naming what would do.

    limits: those of the algorithm, its LIMITS; a tuple of words is a choice, two numbers are the
        least and the greatest value, words after them are allowed as well, None is no limit
    """
    known = INTEGERS | NUMBERS | limits
    settings = as_python(settings)
    for name, value in settings.items():
        rule = name if name in known else name.rpartition("_")[2]
        if rule not in known or (value is None and name in MAY_BE_NONE):
            continue
        if all(isinstance(limit, str) for limit in known[rule]):
            _check_choice(name, value, known[rule])
        elif not (isinstance(value, str) and value in known[rule][2:]):
            _check_number(name, value, rule in INTEGERS, *known[rule])
    check_sizes(settings)


def _check_choice(name, value, words):
    if not isinstance(value, str) or value not in words:
        *most, last = map(repr, words)
        raise UserError(f"{name} must be {', '.join(most)} or {last}, not {shown(value)}.")


def _check_number(name, value, is_integer, least, most, *words):
    needed = f"{'an integer' if is_integer else 'a number'} from {least} "
    needed += "up" if most is None else f"to {most}"
    needed += "".join(f" or {word!r}" for word in words)
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    wrong_kind = not is_number or value != value or (is_integer and value % 1 != 0)
    if wrong_kind or value < least or (most is not None and value > most):
        raise UserError(f"{name} must be {needed}, not {shown(value)}.")
    too_large = value > MAX_INTEGER and (isinstance(value, int) or not finite(value))
    if too_large and name != "replay_size":
        raise UserError(f"{name} {shown(value)} is too large to compute with.")


def as_python(settings: dict) -> dict:
    """Settings with Python's own numbers and lists, so that equal ones are the same.

    NumPy's numbers and arrays become Python's; 1e3 becomes 1000 where an integer is meant; an
    infinite max_ep_len is None, which means that there is no limit.
    """
    found = {name: _as_python(value) for name, value in settings.items()}
    for name, value in found.items():
        rule = name if name in INTEGERS else name.rpartition("_")[2]
        if rule in INTEGERS and isinstance(value, float) and value.is_integer():
            found[name] = int(value)
        if name == "max_ep_len" and value == math.inf:
            found[name] = None
    return found


def _as_python(value):
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    if type(value) is dict:
        return {name: _as_python(inside) for name, inside in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_as_python(inside) for inside in value)
    return value


def layer_sizes(sizes: int | Sequence[int] | np.ndarray) -> tuple[int, ...]:
    """The widths of hidden layers, Python's integers or NumPy's; one number means one layer."""
    listed = as_python(dict(sizes=sizes))["sizes"]
    listed = [listed] if isinstance(listed, int) else listed
    several = isinstance(listed, (list, tuple)) and len(listed) > 0
    if several and all(type(size) is int and size > 0 for size in listed):
        return tuple(listed)
    raise UserError(f"hidden_sizes must be integers above 0 like [64,64], not {sizes!r}.")


def differences(saved: dict, settings: dict) -> list[str]:
    """What differs between the config.json of a run and other settings, one string each."""
    found, saved = [], as_python(saved)
    for name, here in convert_json(as_python(settings)).items():
        if name in NOT_COMPARED or name not in saved:
            continue
        there = saved[name]
        unnamed = " at 0x" in f"{here}{there}"  # objects with no name but where they lie
        if there != here and not unnamed and {str(there), str(here)} != {"{}", "None"}:
            found.append(f"{name} is {there!r} there, {here!r} here")
    return found


def experiment_settings(config: dict) -> dict[str, str]:
    """The settings in a config.json by which runs belong to one experiment, as strings.

    Those inside others have both names, `ac_kwargs:hidden_sizes`. Left out is NOT_OF_EXPERIMENT,
    and objects that have no name but their address.
    """
    config = {key: value for key, value in config.items() if key not in NOT_OF_EXPERIMENT}
    environment = config.get("environment")
    if isinstance(environment, dict):
        config.pop("env_fn", None)  # which says the same
        found = {key: environment[key] for key in OF_ENVIRONMENT if environment.get(key)}
        config["environment"] = found
    return {
        name.removesuffix(":id"): text
        for name, value in flatten_settings(config).items()
        if value != {} and not _unnamed(f"{name}{(text := _as_text(value))}")
    }


def flatten_settings(settings: dict, prefix: str = "") -> dict[str, Any]:
    """Settings with those inside others by both names, `ac_kwargs:hidden_sizes`, as in flags."""
    found: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, dict) and value:
            found |= flatten_settings(value, f"{prefix}{key}:")
        else:
            found[f"{prefix}{key}"] = value
    return found


def _as_text(value) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # as 1.0 and 1 are the same setting
    return value if isinstance(value, str) and not _is_json(value) else json.dumps(value)


def _unnamed(text) -> bool:
    """Whether a string in a config.json stands for an object with no name but its address."""
    return " at 0x" in text or "<lambda>" in text


def _is_json(text) -> bool:
    """Whether a string would look like another value, as "1" does like 1."""
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def what_differs(configs: list[dict], apart: tuple[str, ...] = ()) -> list[str]:
    """For each config.json of an experiment, the settings in which it is unlike others; or "".

    A setting that a file does not have at all, as those of other versions, is not known and tells
    nothing; one missing inside a dict that is there, such as ac_kwargs, has its default value.

    apart: first words of settings that are compared in another way
    """
    columns = _columns(configs, apart)
    differing = [name for name, found in columns.items() if len({*found} - {None}) > 1]
    return [
        ", ".join(f"{name} {columns[name][i] or 'unknown'}" for name in differing)
        for i in range(len(configs))
    ]


def unknown_settings(configs: list[dict]) -> list[str]:
    """The settings of which some of these config.json files do not say what they were."""
    known = {name for name, found in _columns(configs).items() if None in found}
    unnamed = {
        name
        for config in configs
        for name, value in config.items()
        if name not in NOT_OF_EXPERIMENT and not (name == "env_fn" and "environment" in config)
        if _unnamed(str(value))
    }
    return sorted(known | unnamed)


def _columns(configs, apart=()) -> dict[str, list[str | None]]:
    """For each setting its value in every config.json, as a string; None where it is unknown."""
    settings = [experiment_settings(config) for config in configs]
    names = list(dict.fromkeys(name for one in settings for name in one))

    def value(config, texts, name):
        inside = ":" in name and name.partition(":")[0] in config
        return texts.get(name, "default" if inside else None)

    return {
        name: [value(config, texts, name) for config, texts in zip(configs, settings)]
        for name in names
        if name.partition(":")[0] not in apart
    }
