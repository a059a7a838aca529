"""DQN's network: the value of every action at once."""

from gymnasium.spaces import Discrete
from torch import nn

from spinup.parts.envs import require_actions
from spinup.parts.layers import count_vars, few_rows, image_encoder, mlp, observation_mlp

__all__ = ["MLPQNetwork", "count_vars", "mlp"]


class MLPQNetwork(nn.Module):
    """`q(obs)` gives the value of each action; `act(obs)` the action of the highest."""

    def __init__(self, observation_space, action_space, hidden_sizes=(64, 64), activation=nn.ReLU):
        super().__init__()
        require_actions(action_space, (Discrete,), "dqn", "For continuous actions use sac or ppo.")
        sizes = [*hidden_sizes, int(action_space.n)]
        features = image_encoder(observation_space)
        self.q = observation_mlp(observation_space.shape, sizes, activation, features)

    def act(self, obs, deterministic=True):
        """The greedy action, as an array; exploring is the training loop's business."""
        return few_rows(self.q, obs).argmax(-1)
