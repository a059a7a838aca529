"""VPG's networks, which all on-policy algorithms share: see parts/pytorch/networks.py.

`MLPActorCritic` is a policy `pi` (categorical or diagonal Gaussian) and a value function `v`.
The other names are those that scripts take from here, by `from core import *` too.
"""

import numpy as np
import torch
from torch import nn

from spinup.parts.buffers import combined_shape, discount_cumsum
from spinup.parts.pytorch.layers import count_vars, mlp, update_normalizers
from spinup.parts.pytorch.networks import (
    Actor,
    MLPActorCritic,
    MLPCategoricalActor,
    MLPCritic,
    MLPGaussianActor,
)
