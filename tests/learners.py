"""The smallest learner and batch that an update can be recorded with."""

from dataclasses import dataclass
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
