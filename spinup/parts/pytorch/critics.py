"""Critics in PyTorch: Q-functions of actions, one or several at once."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from spinup.parts.pytorch import fast
from spinup.parts.pytorch.layers import Flatten, as_shape, mlp


class MLPQFunction(nn.Module):
    """The value of an action at an observation."""

    STACKABLE = ("obs", "act")  # what goes into the layers, for fast/fused_critics.py

    def __init__(
        self,
        obs_dim: int | Sequence[int],
        act_dim: int,
        hidden_sizes: Sequence[int],
        activation: Callable,
    ):
        super().__init__()
        self.flat = Flatten(as_shape(obs_dim))
        self.q = mlp([self.flat.size + act_dim, *hidden_sizes, 1], activation)

    @fast.accelerated_by(fast.critic_forward)
    def forward(self, obs: Tensor, act: Tensor) -> Tensor:
        q = self.q(torch.cat([self.flat(obs), act], -1))
        return q.squeeze(-1)  # (batch,), never (batch, 1), which would broadcast


class MLPDiscreteQFunction(nn.Module):
    """The value of each of finitely many actions at an observation, or of one of them."""

    STACKABLE = ("obs",)  # what goes into the layers, for fast/fused_critics.py

    def __init__(
        self,
        obs_dim: int | Sequence[int],
        act_dim: int,
        hidden_sizes: Sequence[int],
        activation: Callable,
    ):
        super().__init__()
        self.flat = Flatten(as_shape(obs_dim))
        self.q = mlp([self.flat.size, *hidden_sizes, act_dim], activation)

    def forward(self, obs: Tensor, act: Tensor | None = None) -> Tensor:
        q = self.q(self.flat(obs))
        return q if act is None else q.gather(-1, act[..., None]).squeeze(-1)


class Ensemble(nn.ModuleList):
    """Several critics of one shape; gives one row of values per critic."""

    def forward(self, obs: Tensor, *act: Tensor) -> Tensor:
        return stack_values(self, obs, *act)


def stack_values(critics: Iterable[Any], obs: Tensor, *act: Tensor) -> Tensor:
    """What several critics say, one row each."""
    critics = list(critics)
    if fast.enabled() and len(critics) > 1 and all("STACKABLE" in vars(type(c)) for c in critics):
        values = fast.stacked_forward(critics, obs, *act)
        if values is not None:
            return values
    return torch.stack([critic(obs, *act) for critic in critics])


def q_values(ac: Any, obs: Tensor, *act: Tensor) -> Tensor:
    """What both critics of `ac` say, one row each.

    act: the actions to evaluate; without it, critics of finitely many actions evaluate them all
    """
    return stack_values((ac.q1, ac.q2), obs, *act)


def q_parameters(ac: Any) -> list[nn.Parameter]:
    """All that the critics of `ac` learn."""
    return [*ac.q1.parameters(), *ac.q2.parameters()]
