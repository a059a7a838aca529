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

# Whether updates are recorded once and then replayed, which is faster. If not, they run line by
# line each time, as they are written: for a debugger, or for what you print in them.
RECORD_UPDATES = True
