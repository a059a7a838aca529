"""Everything that exists only for speed, behind this one door.

`spinup.user_config.FAST = False` turns all of it off; then only the plain code of layers.py,
networks.py, critics.py, bounded_policies.py and learning.py runs, and gives the same numbers to
rounding. An update is *captured* and replayed; or it runs *eagerly*, line by line as it is written,
over fused layers; or, switched off, it is *plain*, without those too.

    recorded            captures an update once and replays it; `.each`: for many batches
    reports             which updates of this process are captured, and why others are not
    run_concurrently    two parts of an update at once
    checked_once        one check for all networks that a policy asks
    gradients           those of a loss in some parameters; fused layers do not compute the others
    average             the mean over processes, as one operation that a capture can hold
    accelerated_by      names, above plain code, the function that may stand in for it
    enabled, plain      whether this is switched on; a context in which it is off
    reset, state_dict, load_state_dict    the choices made here, which a checkpoint keeps

These give None where they do not know exactly what they would stand in for, and plain code runs:

    mlp_forward, critic_forward, gaussian_heads, squash, stacked_forward    fused layers
    adam_step, clip_gradients, move_towards                         one call for many parameters
    numpy_forward, numpy_view    a network applied to a few observations; a parameter as an array
    standard_normal, uniform     a few random numbers as an array
"""

from spinup.parts.pytorch.fast import concurrency, recording
from spinup.parts.pytorch.fast.acting import checked_once, numpy_forward, numpy_view
from spinup.parts.pytorch.fast.chain_rule import gradients
from spinup.parts.pytorch.fast.concurrency import run_concurrently
from spinup.parts.pytorch.fast.fused_critics import stacked_forward
from spinup.parts.pytorch.fast.fused_mlp import mlp_forward
from spinup.parts.pytorch.fast.noise import standard_normal, uniform
from spinup.parts.pytorch.fast.recording import recorded, reports
from spinup.parts.pytorch.fast.stand_in import (
    accelerated_by,
    critic_forward,
    gaussian_heads,
    squash,
)
from spinup.parts.pytorch.fast.steps import adam_step, average, clip_gradients, move_towards
from spinup.parts.pytorch.fast.switch import enabled, plain

__all__ = [
    "accelerated_by",
    "adam_step",
    "average",
    "checked_once",
    "clip_gradients",
    "critic_forward",
    "enabled",
    "gaussian_heads",
    "gradients",
    "load_state_dict",
    "mlp_forward",
    "move_towards",
    "numpy_forward",
    "numpy_view",
    "plain",
    "recorded",
    "reports",
    "reset",
    "run_concurrently",
    "squash",
    "stacked_forward",
    "standard_normal",
    "state_dict",
    "uniform",
]


def reset():
    """Forget the choices made for an earlier run of this process."""
    for choices in (
        recording.given_up,
        recording.restored,
        concurrency.serial,
        concurrency.restored,
    ):
        choices.clear()


def state_dict() -> dict:
    """What a checkpoint keeps of the choices made here, so that a resumed run makes the same."""
    return dict(
        given_up=recording.restored | recording.given_up,
        serial=concurrency.restored | concurrency.serial,
    )


def load_state_dict(state: dict):
    reset()
    recording.restored.update(state["given_up"])
    concurrency.restored.update(state["serial"])
