"""HER's networks: policy and critics of TD3 or DDPG, or the values of DQN; and how they explore."""

from typing import NamedTuple

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch import nn

from spinup.parts.pytorch.architecture import records_architecture
from spinup.parts.pytorch.bounded_policies import ActionRange, MLPActor, action_limits
from spinup.parts.pytorch.critics import Ensemble, MLPQFunction
from spinup.parts.pytorch.layers import apply_to_arrays, count_vars, mlp, observation_mlp
from spinup.parts.pytorch.tensors import standard_normal, uniform
from spinup.parts.spaces import refuse_images, require_actions


@records_architecture
class MLPActorCritic(nn.Module):
    """For continuous actions a policy `pi` and `q(obs, act)`, one row of values per critic.

    For discrete ones only `q(obs)`, the value of each action.
    """

    def __init__(
        self,
        observation_space,
        action_space,
        hidden_sizes=(256, 256),
        activation=nn.ReLU,
        critics=2,
    ):
        super().__init__()
        refuse_images(observation_space, "her")
        require_actions(action_space, (Box, Discrete), "her", "Make one number of them first.")
        obs_dim = observation_space.shape
        if isinstance(action_space, Box):
            act_dim, limits = int(np.prod(action_space.shape)), action_limits(action_space)
            self.pi = MLPActor(obs_dim, act_dim, hidden_sizes, activation, **limits)
            self.q = Ensemble(
                [MLPQFunction(obs_dim, act_dim, hidden_sizes, activation) for _ in range(critics)]
            )
        else:
            self.q = observation_mlp(obs_dim, [*hidden_sizes, int(action_space.n)], activation)

    def act(self, obs, deterministic=True):
        """The best action, as an array; exploring is the training loop's business."""
        return self.pi.act(obs) if hasattr(self, "pi") else apply_to_arrays(self.q, obs).argmax(-1)


class Recipe(NamedTuple):
    """What the three learners differ in; as it stands, that of DQN."""

    networks: tuple = ()  # how they differ: settings of MLPActorCritic and their values
    target_noise: float = 0.0  # target policy smoothing: standard deviation of the noise
    noise_clip: float = 0.0  # bound of that noise
    policy_delay: int = 1  # updates of the critics for each of the policy and the target network
    bounds: ActionRange | None = None  # of continuous actions


RECIPES = dict(
    td3=Recipe(target_noise=0.2, noise_clip=0.5, policy_delay=2),
    ddpg=Recipe(networks=(("critics", 1),)),
    dqn=Recipe(),
)


def choose_recipe(method, action_space, device) -> Recipe:
    """That of the learner asked for, if it has actions of this kind, or of the usual one."""
    usual = "td3" if isinstance(action_space, Box) else "dqn"
    name = usual if method == "auto" else method
    kind, instead = (Discrete, "td3 or ddpg") if name == "dqn" else (Box, "dqn")
    require_actions(action_space, (kind,), f"her with method {name}", f"Use method {instead} here.")
    if kind is Discrete:
        return RECIPES[name]
    return RECIPES[name]._replace(bounds=ActionRange(**action_limits(action_space)).to(device))


def explore(env, bounds, act, *, act_noise, random_eps):
    """Continuous actions with noise, in the units of the action; of any kind, some at random."""
    if bounds is not None:
        act = bounds.clip_numpy(act + act_noise * standard_normal(act.shape))
    at_random = uniform((len(act),)) < random_eps
    at_random = at_random.reshape(-1, *[1] * (act.ndim - 1))
    return np.where(at_random, env.sample_actions(), act) if at_random.any() else act
