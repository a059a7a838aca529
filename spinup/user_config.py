"""Defaults that are yours to change."""

import os
import os.path as osp

from spinup.algos import ALGORITHMS

# The backend that `spinup ppo` means, pytorch or tf1; the names `spinup ppo_pytorch` and
# `spinup ppo_tf1` say it themselves. To change one: DEFAULT_BACKEND["ppo"] = "tf1"
DEFAULT_BACKEND = {name: backend for backend in ("tf1", "pytorch") for name in ALGORITHMS[backend]}

# Where runs are kept: the folder `data` in the one you start from.
DEFAULT_DATA_DIR = osp.join(osp.abspath(osp.curdir), "data")

# Whether every run folder begins with the date, asked for or not.
FORCE_DATESTAMP = False

# Whether a setting that has no short name of its own gets one in the names of experiments.
DEFAULT_SHORTHAND = True

# Seconds to look at a grid on a terminal before it starts; Ctrl-C stops it.
WAIT_BEFORE_LAUNCH = 5

# Whether fast versions may stand in for plain code: updates that are captured once and replayed,
# fused layers, acting in NumPy. False runs every line as it is written, with the same numbers to
# rounding: for a debugger, or to be sure. SPINUP_FAST=0 in the environment does so for one command.
FAST = os.environ.get("SPINUP_FAST", "1").lower() not in ("0", "false", "no", "off")
