"""The settings of a run: what values they may have, and whether two runs have the same ones."""

from spinup.parts.memory import check_sizes, finite
from spinup.utils.errors import UserError, shown
from spinup.utils.serialization_utils import convert_json

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
NOT_COMPARED = {"epochs", "logger_kwargs", "resume", "save_freq"}


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
        if name != "replay_size" and value > MOST and (rule in WHOLE_NUMBERS or not finite(value)):
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
