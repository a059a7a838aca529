"""The smallest learner and batch that an update can be recorded with, and what compares two."""

from dataclasses import dataclass
from inspect import signature
from typing import Any, NamedTuple

import torch
from torch import nn

from spinup.parts.pytorch.learning import Adam


class Batch(NamedTuple):
    x: Any
    y: Any


@dataclass
class Learner:
    ac: nn.Module
    optimizer: Adam


def replace_update(monkeypatch, module, watched):
    """Let an algorithm call `watched` for its update, with the settings that its update takes."""
    watched.__signature__ = signature(module.update)
    monkeypatch.setattr(module, "update", watched)


def assert_close(found, expected, tolerance=2e-3):
    """Equal to rounding, as a whole: one number whose gradient is rounding may move otherwise."""
    found, expected = (torch.as_tensor(t).detach().double() for t in (found, expected))
    assert found.shape == expected.shape
    error, length = (found - expected).norm().item(), expected.norm().item()
    assert error <= tolerance * length + 1e-6, (error, length)
