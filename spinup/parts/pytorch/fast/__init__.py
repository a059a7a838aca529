"""Everything that exists only for speed, behind this one door.

`spinup.user_config.FAST = False` turns all of it off; then only the plain code of layers.py,
networks.py and learning.py runs, and gives the same numbers to rounding. Each fast version below
gives None where it does not know exactly what it would stand in for, and plain code runs.

    recorded            captures an update once and replays it; `.each`: for many batches
    reports             which updates of this process are captured, and why others are not
    run_concurrently    two parts of an update at once
    mlp_forward, heads_forward, stacked_forward, squashed_sample    fused layers
    adam_step, clip_gradients, move_towards                         one call for many parameters
    numpy_forward       a network applied to a few observations
    checked_once        one check for all networks that a policy asks
    standard_normal, uniform    a few random numbers as an array
    gradients           leaves out what nobody asked for
"""

from spinup.parts.pytorch.fast import capture, concurrency
from spinup.parts.pytorch.fast.acting import checked_once, numpy_forward, numpy_view
from spinup.parts.pytorch.fast.capture import recorded, reports
from spinup.parts.pytorch.fast.concurrency import run_concurrently
from spinup.parts.pytorch.fast.fused import (
    gradients,
    heads_forward,
    mlp_forward,
    squashed_sample,
    stacked_forward,
)
from spinup.parts.pytorch.fast.noise import standard_normal, uniform
from spinup.parts.pytorch.fast.steps import adam_step, average, clip_gradients, move_towards
from spinup.parts.pytorch.fast.switch import enabled, plain

__all__ = [
    "adam_step", "average", "checked_once", "clip_gradients", "enabled", "gradients",
    "heads_forward", "load_state_dict", "mlp_forward", "move_towards", "numpy_forward",
    "numpy_view", "plain", "recorded", "reports", "reset", "run_concurrently",
    "squashed_sample", "stacked_forward", "standard_normal", "state_dict", "uniform",
]  # fmt: skip


def reset():
    """Forget the choices made for an earlier run of this process."""
    for choices in (capture.given_up, capture.restored, concurrency.serial, concurrency.restored):
        choices.clear()


def state_dict() -> dict:
    """What a checkpoint keeps of the choices made here, so that a resumed run makes the same."""
    return dict(
        given_up=capture.restored | capture.given_up,
        serial=concurrency.restored | concurrency.serial,
    )


def load_state_dict(state: dict):
    reset()
    capture.restored.update(state["given_up"])
    concurrency.restored.update(state["serial"])
