"""The settings of a run: what values they may have, and whether two runs have the same ones."""

import json

from spinup.parts.errors import UserError, shown
from spinup.parts.jsonio import convert_json
from spinup.parts.memory import check_sizes, finite

# The least and the greatest value of each setting that has such; a name ending in _lr or _iters
# has those of lr and of iters.
WHOLE_NUMBERS = dict(
    seed=(0, 2**31 - 1), epochs=(1, None), steps_per_epoch=(1, None), max_ep_len=(1, None),
    save_freq=(1, None), num_envs=(1, 100_000), num_cpu=(1, None), jobs=(1, None),
    replay_size=(1, None), batch_size=(1, None), minibatch_size=(1, None), update_every=(1, None),
    iters=(1, None), update_after=(0, None), start_steps=(0, None), num_test_episodes=(0, None),
    target_every=(1, None), epsilon_steps=(0, None), policy_delay=(1, None), n_step=(1, None),
    n_steps=(1, None), replay_start=(0, None), k=(0, None),
)  # fmt: skip
NUMBERS = dict(
    gamma=(0, 1), lam=(0, 1), polyak=(0, 1), epsilon_start=(0, 1), epsilon_end=(0, 1),
    clip_ratio=(0, None), target_kl=(0, None), lr=(0, None), alpha=(0, None),
    ent_coef=(0, None), max_grad_norm=(0, None), act_noise=(0, None), target_noise=(0, None),
    noise_clip=(0, None), priority_exponent=(0, 1), importance_exponent=(0, 1),
    delta=(0, None), damping_coeff=(0, None), backtrack_coeff=(0, 1), replay_ratio=(0, 1000),
    c=(0, None), random_eps=(0, 1),
)  # fmt: skip
LIMITS = WHOLE_NUMBERS | NUMBERS
MOST = 2**53  # beyond, floats cannot count: of whole numbers that have no limit of their own
MAY_BE_NONE = {"max_ep_len", "target_kl", "minibatch_size", "max_grad_norm"}  # for: no limit
WORDS = dict(alpha=("auto",), num_cpu=("auto",))  # words that may stand for a number
# Settings that are one of several words.
CHOICES = dict(
    baseline=("none", "average", "value"), algo=("trpo", "npg"),
    method=("auto", "td3", "ddpg", "dqn"), strategy=("future", "final", "episode"),
)  # fmt: skip
# Not part of what a run computes, or compared apart.
NOT_COMPARED = {"epochs", "planned_epochs", "logger_kwargs", "resume", "save_freq", "code"}
# Of config.json, what does not tell one experiment from another: the seeds of its runs, names and
# folders, and what follows from other settings.
NOT_OF_EXPERIMENT = NOT_COMPARED - {"code"} | {
    "seed", "exp_name", "logger", "spaces", "versions", "stops_when_not_finite", "job",
}  # fmt: skip
OF_ENVIRONMENT = ("id", "made_by", "kwargs", "wrappers", "max_episode_steps")


def check(settings: dict, **otherwise):
    """Refuse values that cannot be meant, naming what would do.

    otherwise: the limits of a setting whose name means something else here than elsewhere
    """
    limits = LIMITS | otherwise
    for name, value in settings.items():
        if name in CHOICES and value not in CHOICES[name]:
            *most, last = map(repr, CHOICES[name])
            raise UserError(f"{name} wants {', '.join(most)} or {last}, not {shown(value)}.")
        rule = name if name in limits else name.rpartition("_")[2]
        words = () if name in otherwise else WORDS.get(name, ())
        if rule not in limits or (isinstance(value, str) and value in words):
            continue
        if value is None and name in MAY_BE_NONE:
            continue
        least, greatest = limits[rule]
        wanted = "a whole number" if rule in WHOLE_NUMBERS else "a number"
        wanted += f" from {least}" + (f" to {greatest}" if greatest is not None else " up")
        wanted += "".join(f" or {word!r}" for word in words)
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        whole = isinstance(value, int) or (name == "replay_size" and number and value % 1 == 0)
        if not number or value != value or (rule in WHOLE_NUMBERS and not whole):
            raise UserError(f"{name} wants {wanted}, not {shown(value)}.")
        if value < least or (greatest is not None and value > greatest):
            raise UserError(f"{name} wants {wanted}, not {shown(value)}.")
        if name != "replay_size" and value > MOST and (isinstance(value, int) or not finite(value)):
            raise UserError(f"{name} {shown(value)} is too large to compute with.")
    check_sizes(settings)


def differences(saved: dict, settings: dict) -> list[str]:
    """What differs between the config.json of a run and the settings of another, one text each."""
    found = []
    for name, here in convert_json(settings).items():
        if name in NOT_COMPARED or name not in saved:
            continue
        there = saved[name]
        unnamed = " at 0x" in f"{here}{there}"  # objects with no name but where they lie
        if there != here and not unnamed and {str(there), str(here)} != {"{}", "None"}:
            found.append(f"{name} is {there!r} there, {here!r} here")
    return found


def experiment_settings(config: dict) -> dict[str, str]:
    """The settings in a config.json by which runs belong to one experiment, as texts.

    Those inside others have both names, `ac_kwargs:hidden_sizes`. Left out is NOT_OF_EXPERIMENT,
    and objects that have no name but their address.
    """
    config = {key: value for key, value in config.items() if key not in NOT_OF_EXPERIMENT}
    environment = config.get("environment")
    if isinstance(environment, dict):
        config.pop("env_fn", None)  # which says the same
        found = {key: environment[key] for key in OF_ENVIRONMENT if environment.get(key)}
        config["environment"] = found
    return _flat(config)


def _flat(settings, prefix="") -> dict[str, str]:
    texts = {}
    for key, value in settings.items():
        if isinstance(value, dict):
            texts |= _flat(value, f"{prefix}{key}:")
            continue
        if isinstance(value, float) and value.is_integer():
            value = int(value)  # as 1.0 and 1 are the same setting
        text = value if isinstance(value, str) and not _is_json(value) else json.dumps(value)
        if not _unnamed(f"{key}{text}"):
            texts[f"{prefix}{key}".removesuffix(":id")] = text
    return texts


def _unnamed(text) -> bool:
    """Whether a text in a config.json stands for an object with no name but its address."""
    return " at 0x" in text or "<lambda>" in text


def _is_json(text) -> bool:
    """Whether a string would look like another value, as "1" does like 1."""
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def what_differs(configs: list[dict], apart: tuple = ()) -> list[str]:
    """For each config.json of an experiment, the settings in which it is unlike others; or "".

    A setting that a file does not have at all, as those of other versions, is not known and tells
    nothing; one missing inside a dict that is there, such as ac_kwargs, has its default value.

    apart: first words of settings that are told apart in another way
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
    """For each setting its text in every config.json; None where a file does not know it."""
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
