"""Logging: the original's name for `spinup.parts.logger`."""

from spinup.parts.logger import EpochLogger, Logger, colorize
from spinup.parts.tf1.models import restore_tf_graph

__all__ = ["EpochLogger", "Logger", "colorize", "restore_tf_graph"]
