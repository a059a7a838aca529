"""Logging: the original's name for `spinup.parts.logger`."""

from spinup.parts.logger import EpochLogger, Logger
from spinup.parts.terminal import COLORS as color2num
from spinup.parts.terminal import colorize
from spinup.parts.tf1.models import restore_tf_graph

__all__ = ["EpochLogger", "Logger", "color2num", "colorize", "restore_tf_graph"]
