"""DQN's network: the value of every action at once."""

import numpy as np
import torch
from gymnasium.spaces import Discrete
from torch import nn

from spinup.parts.pytorch.architecture import records_architecture
from spinup.parts.pytorch.layers import (
    Flatten,
    apply_to_arrays,
    count_vars,
    image_encoder,
    mlp,
    observation_mlp,
)
from spinup.parts.spaces import require_actions


@records_architecture
class MLPQNetwork(nn.Module):
    """`q(obs)` gives the value of each action; `act(obs)` the action of the highest."""

    def __init__(
        self,
        observation_space,
        action_space,
        hidden_sizes=(64, 64),
        activation=nn.ReLU,
        dueling=False,
    ):
        super().__init__()
        require_actions(action_space, (Discrete,), "dqn", "For continuous actions use sac or ppo.")
        obs_dim, actions = observation_space.shape, int(action_space.n)
        features = image_encoder(observation_space)
        if dueling:
            self.q = DuelingMLP(obs_dim, actions, hidden_sizes, activation, features)
        else:
            self.q = observation_mlp(obs_dim, [*hidden_sizes, actions], activation, features)

    def act(self, obs, deterministic=True):
        """The greedy action, as an array; exploring is the training loop's business."""
        q = self.q
        best = q.advantages(obs) if isinstance(q, DuelingMLP) else apply_to_arrays(q, obs)
        return best.argmax(-1)


class DuelingMLP(nn.Module):
    """The value of a state, plus what each action is better or worse than their mean.

    Both are read off the same features, each through a last hidden layer of its own.
    """

    def __init__(self, obs_dim, actions, hidden_sizes, activation, features=None):
        super().__init__()
        features = features or Flatten(obs_dim)
        shared = hidden_sizes[:-1] or hidden_sizes  # the only layer, if there is but one
        own = hidden_sizes[len(shared) :]
        layers = mlp([features.size, *shared], activation, activation)
        self.features = nn.Sequential(features, layers)
        self.v, self.a = (mlp([shared[-1], *own, n], activation) for n in (1, actions))

    def forward(self, obs):
        features = self.features(obs)
        v, a = self.v(features), self.a(features)
        return v + a - a.mean(-1, keepdim=True)

    def advantages(self, obs):
        """The advantages A(s, a) of all actions for a few observations, as an array."""
        features = torch.from_numpy(apply_to_arrays(self.features, obs))
        return apply_to_arrays(self.a, features.to(obs.device))
