"""TensorFlow as a `Backend`: what the framework-free parts need of it (see parts/backend.py)."""

from collections.abc import Callable
from typing import Any

import numpy as np

from spinup.parts.tf1.framework import tf
from spinup.parts.tf1.models import (
    check_ac_kwargs,
    load_model,
    restore_tf_graph,
    save_graph,
    save_model,
    save_variables,
)

__all__ = [
    "PACKAGE",
    "check_ac_kwargs",
    "concatenate",
    "for_part",
    "load_model",
    "load_state_dict",
    "policy_of",
    "restore_tf_graph",
    "rng_state",
    "save_graph",
    "save_model",
    "save_variables",
    "seed",
    "set_rng_state",
    "setup_saver",
    "state_dict",
    "tensor",
    "use_threads",
]
PACKAGE = "tensorflow"


def seed(seed: int) -> None:
    """Set the seed of the graph that a script is in; `new_graph` hands it to each training."""
    # tf.set_random_seed would set another seed where a script is in no graph (eager execution).
    tf.get_default_graph().seed = seed


def rng_state() -> dict:
    return {}  # the places in random streams are variables, saved with the weights


def set_rng_state(state: dict) -> None:
    """There is nothing outside of the variables."""


def use_threads(network: Any = None, batch_size: int = 0) -> None:
    """A session has its threads from its start: see `learning.start_session`."""


def setup_saver(logger: Any, network: Any) -> None:
    logger.setup_tf_saver(network.session, network.inputs, network.outputs)


def policy_of(network: Any, deterministic: bool = False) -> Callable:
    return lambda obs: network.act(obs, deterministic)


def tensor(array: np.ndarray) -> np.ndarray:
    return array


def concatenate(tensors: list) -> np.ndarray:
    return np.concatenate([np.ravel(x) for x in tensors])


def for_part(part: Any, state: dict) -> dict:
    return state


def state_dict() -> dict:
    return {}


def load_state_dict(state: dict) -> None:
    """There are no choices to make again."""
