"""PPO's networks, which all on-policy algorithms share: see parts/tf1/networks.py.

`mlp_actor_critic` makes a policy (categorical or diagonal Gaussian) and a value function of two
placeholders.
"""

import numpy as np

from spinup.parts.buffers import combined_shape, discount_cumsum
from spinup.parts.tf1.framework import tf
from spinup.parts.tf1.layers import (
    action_placeholder,
    count_vars,
    get_vars,
    mlp,
    placeholder,
    placeholder_from_space,
    placeholders,
    placeholders_from_spaces,
)
from spinup.parts.tf1.networks import (
    ActorCritic,
    gaussian_likelihood,
    mlp_actor_critic,
    mlp_categorical_policy,
    mlp_gaussian_policy,
)
