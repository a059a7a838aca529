"""PyTorch as a `Backend`: what the framework-free parts need of it (see parts/backend.py)."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from spinup.parts.pytorch import fast, models
from spinup.parts.pytorch.earlier import only_known
from spinup.parts.pytorch.models import (
    check_ac_kwargs,
    load_model,
    policy_of,
    save_model,
    save_variables,
)
from spinup.parts.pytorch.mpi import setup_pytorch_for_mpi

__all__ = [
    "PACKAGE",
    "build_network",
    "check_ac_kwargs",
    "concatenate",
    "for_part",
    "load_model",
    "load_state_dict",
    "policy_of",
    "rng_state",
    "save_model",
    "save_variables",
    "seed",
    "set_rng_state",
    "setup_saver",
    "state_dict",
    "tensor",
    "use_threads",
]
PACKAGE = "torch"
POSITIONS = 100  # places of an image at which a convolution's weight is used, roughly


def seed(seed: int) -> None:
    torch.manual_seed(seed)
    fast.reset()


def rng_state() -> dict:
    state: dict = dict(torch=torch.get_rng_state())
    if torch.cuda.is_initialized():
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def set_rng_state(state: dict) -> None:
    if "torch" in state:
        torch.set_rng_state(state["torch"])
    if "cuda" in state:
        torch.cuda.set_rng_state_all(state["cuda"])


def use_threads(network: Any = None, batch_size: int = 0) -> None:
    if network is None:
        setup_pytorch_for_mpi()
        return
    weights = [p.numel() * (POSITIONS if p.ndim == 4 else 1) for p in network.parameters()]
    setup_pytorch_for_mpi(batch_size * max(weights, default=0))


def build_network(
    actor_critic: Callable, env: Any, ac_kwargs: dict | None = None, device: str = "cpu"
) -> nn.Module:
    spaces = env.observation_space, env.action_space
    return models.build_network(actor_critic, *spaces, ac_kwargs, device)


def setup_saver(logger: Any, network: nn.Module) -> None:
    logger.setup_pytorch_saver(network)


def tensor(array: np.ndarray) -> torch.Tensor:
    return torch.tensor(array)


def concatenate(tensors: list) -> np.ndarray:
    return torch.cat([t.reshape(-1) for t in tensors]).cpu().numpy()


def for_part(part: Any, state: dict) -> dict:
    return only_known(state, part.state_dict()) if hasattr(part, "named_parameters") else state


def state_dict() -> dict:
    return fast.state_dict()


def load_state_dict(state: dict) -> None:
    fast.load_state_dict(state)
