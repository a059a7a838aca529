"""Defaults that are yours to change."""

import os.path as osp

# The backend that `spinup ppo` means; `spinup ppo_pytorch` and `spinup ppo_tf1` say it outright.
DEFAULT_BACKEND = dict.fromkeys(
    ("reinforce", "vpg", "trpo", "ppo", "acer", "dqn", "ddpg", "td3", "sac", "her"), "pytorch"
)

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
# rounding: for a debugger, or to be sure.
FAST = True
