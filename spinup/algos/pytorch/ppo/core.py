"""PPO's networks: a policy and a value function, as all on-policy algorithms have them."""

from spinup.parts.buffers import combined_shape, discount_cumsum
from spinup.parts.pytorch.layers import count_vars, mlp, update_normalizers
from spinup.parts.pytorch.networks import (
    Actor,
    MLPActorCritic,
    MLPCategoricalActor,
    MLPCritic,
    MLPGaussianActor,
)

__all__ = [
    "Actor", "MLPActorCritic", "MLPCategoricalActor", "MLPCritic", "MLPGaussianActor",
    "combined_shape", "count_vars", "discount_cumsum", "mlp", "update_normalizers",
]  # fmt: skip
