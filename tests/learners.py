"""The smallest learner and batch that an update can be recorded with."""

from dataclasses import dataclass
from inspect import signature
from typing import Any, NamedTuple

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
