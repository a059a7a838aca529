"""What a framework must offer: the `Backend` that an algorithm hands to the parts it uses.

Each framework has one, the module `spinup.parts.<name>.backend`. The parts in this folder know
only the functions below; they import no framework and never guess which one a run uses.
"""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np


class Backend(Protocol):
    """The functions of a module `spinup.parts.<name>.backend`."""

    PACKAGE: str  # what the framework's package is called; config.json notes its version

    def seed(self, seed: int) -> None:
        """Seed the framework's random generator, and start with nothing left of earlier runs."""

    def rng_state(self) -> dict[str, Any]:
        """The state of the framework's random generators, by name."""

    def set_rng_state(self, state: dict[str, Any]) -> None:
        """Put back what `rng_state` gave; names that are missing are left as they are."""

    def use_threads(self, network: Any = None, batch_size: int = 0) -> None:
        """Divide the cores among the processes here; only as many threads as a batch can use."""

    def setup_saver(self, logger: Any, network: Any) -> None:
        """Let the logger of a run save its network."""

    def save_model(self, path: Path, network: Any) -> None:
        """Write a network, in a way that reading it can run nothing but the network."""

    def load_model(self, path: Path, actor_critic: Any = None) -> Any:
        """Read what `save_model` wrote; a network class of the user's own must be given."""

    def policy_of(self, network: Any, deterministic: bool = False) -> Callable:
        """A function from a batch of observations to the network's actions."""

    def save_variables(self, folder: Path, variables: dict | None, itr: int | None) -> list[str]:
        """Write named values that a script saves beside its model; gives what it leaves out."""

    def check_ac_kwargs(self, actor_critic: Any, ac_kwargs: dict | None) -> dict:
        """The arguments of a network with activations in place of their names; or a UserError."""

    def tensor(self, array: np.ndarray) -> Any:
        """An array as a tensor, as a checkpoint restores it."""

    def concatenate(self, tensors: list) -> np.ndarray:
        """The elements of tensors as one flat array, read from their device at once."""

    def for_part(self, part: Any, state: dict) -> dict:
        """The saved state of a part, that of earlier versions under the names of today."""

    def state_dict(self) -> dict:
        """The choices of the framework that a resumed run must make again."""

    def load_state_dict(self, state: dict) -> None:
        """Make those choices."""


def backend_named(name: str) -> Backend:
    """The backend `pytorch` or `tf1`; this imports the framework."""
    return import_module(f"spinup.parts.{name}.backend")
