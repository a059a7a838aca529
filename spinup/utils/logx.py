"""Logging: the original's name for `spinup.parts.logger`."""

from spinup.parts.logger import EpochLogger, Logger
from spinup.parts.terminal import COLORS as color2num
from spinup.parts.terminal import colorize

__all__ = ["EpochLogger", "Logger", "color2num", "colorize", "restore_tf_graph"]


def restore_tf_graph(sess, fpath):
    """As `spinup.parts.tf1.models.restore_tf_graph`; TensorFlow is imported only here."""
    from spinup.parts.tf1 import models

    return models.restore_tf_graph(sess, fpath)
