"""Networks as parts of a graph: policies and value functions, out of which each core.py builds."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete

from spinup.parts.envs import require_actions
from spinup.parts.errors import UserError
from spinup.parts.tf1.framework import tf
from spinup.parts.tf1.layers import flatten, mlp, standard_normal, uniform

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


@dataclass
class Policy:
    """The tensors of a policy; `pi, logp, logp_pi = policy` takes the first three, as ever."""

    pi: Any  # actions sampled at the observations
    logp: Any  # log probabilities of the actions that are fed
    logp_pi: Any  # of those sampled
    mode: Any = None  # the most probable actions
    entropy: Any = None  # of the distribution at each observation, per dimension

    def __iter__(self) -> Iterator:
        return iter((self.pi, self.logp, self.logp_pi))


@dataclass
class ActorCritic:
    """A policy and a value function; `pi, logp, logp_pi, v = ac` takes the first four, as ever."""

    pi: Any
    logp: Any
    logp_pi: Any
    v: Any
    mode: Any = None  # a function of the user's own need not give this and the next
    entropy: Any = None

    def __iter__(self) -> Iterator:
        return iter((self.pi, self.logp, self.logp_pi, self.v))

    @classmethod
    def of(cls, found: Any) -> "ActorCritic":
        """What an `actor_critic` gave, a tuple of four or one of these."""
        return found if isinstance(found, cls) else cls(*found)

    def outputs(self) -> dict[str, Any]:
        """What a saved model gives, by the names that they have there."""
        found = dict(pi=self.pi, v=self.v)
        return found if self.mode is None else found | dict(mu=self.mode)

    def mean_entropy(self, ent_coef: float = 0.0) -> Any:
        """The mean entropy; without one, the estimate that the probabilities of actions give.

        ent_coef: where it is not 0, the entropy is part of a loss, and an estimate will not do
        """
        if self.entropy is None and ent_coef:
            raise UserError(
                "ent_coef needs the entropy of the policy, which this actor_critic does not give. "
                "Let it return an ActorCritic with an entropy, or leave ent_coef at 0."
            )
        return tf.reduce_mean(-self.logp if self.entropy is None else self.entropy)


def gaussian_likelihood(x: Any, mu: Any, log_std: Any) -> Any:
    """The log probability of each row of `x` under independent Gaussians."""
    z = (x - mu) * tf.exp(-log_std)
    return tf.reduce_sum(-0.5 * tf.square(z) - log_std - HALF_LOG_2PI, axis=1)


def mlp_categorical_policy(
    x: Any,
    a: Any,
    hidden_sizes: Sequence[int],
    activation: Callable,
    output_activation: Callable | None,
    action_space: Discrete,
) -> Policy:
    """A probability for each of finitely many actions."""
    n = int(action_space.n)
    logits = mlp(x, [*hidden_sizes, n], activation, None)
    logp_all = tf.nn.log_softmax(logits)
    probs = tf.exp(logp_all)
    # The first action at which the summed probabilities pass a uniform random number.
    draw = uniform((tf.shape(logits)[0], 1))
    passed = tf.cast(tf.cumsum(probs, axis=1)[:, :-1] < draw, tf.int32)
    pi = tf.reduce_sum(passed, axis=1)
    logp, logp_pi = (tf.reduce_sum(tf.one_hot(act, n) * logp_all, axis=1) for act in (a, pi))
    entropy = -tf.reduce_sum(probs * logp_all, axis=1)
    return Policy(pi, logp, logp_pi, tf.argmax(logits, axis=1, output_type=tf.int32), entropy)


def mlp_gaussian_policy(
    x: Any,
    a: Any,
    hidden_sizes: Sequence[int],
    activation: Callable,
    output_activation: Callable | None,
    action_space: Box,
) -> Policy:
    """A diagonal Gaussian; its width does not depend on the observation."""
    act_dim = int(a.shape[-1])
    mu = mlp(x, [*hidden_sizes, act_dim], activation, output_activation)
    start = tf.constant_initializer(-0.5)
    log_std = tf.get_variable("log_std", (act_dim,), tf.float32, start, use_resource=True)
    pi = mu + standard_normal(tf.shape(mu)) * tf.exp(log_std)
    logp, logp_pi = (gaussian_likelihood(act, mu, log_std) for act in (a, pi))
    return Policy(pi, logp, logp_pi, mu, 0.5 + HALF_LOG_2PI + log_std)


def mlp_actor_critic(
    x: Any,
    a: Any,
    hidden_sizes: Sequence[int] = (64, 64),
    activation: Callable = tf.tanh,
    output_activation: Callable | None = None,
    policy: Callable | None = None,
    action_space: Any = None,
) -> ActorCritic:
    """A policy for discrete or continuous actions, and a value function.

    x, a: placeholders for observations and actions
    policy: makes the policy; none: the one for `action_space`
    """
    require_actions(action_space, (Box, Discrete), "This policy", "Make one number of them first.")
    if policy is None:
        continuous = isinstance(action_space, Box)
        policy = mlp_gaussian_policy if continuous else mlp_categorical_policy
    x = flatten(x)
    with tf.variable_scope("pi"):
        chosen = policy(x, a, hidden_sizes, activation, output_activation, action_space)
    with tf.variable_scope("v"):
        v = tf.squeeze(mlp(x, [*hidden_sizes, 1], activation, None), axis=1)
    pi, logp, logp_pi = chosen
    more = (chosen.mode, chosen.entropy) if isinstance(chosen, Policy) else ()
    return ActorCritic(pi, logp, logp_pi, v, *more)


class Networks:
    """What a training gives back: a session that holds the weights, and its tensors by name."""

    def __init__(self, session: Any, inputs: dict[str, Any], outputs: dict[str, Any]):
        """Name the tensors.

        inputs: `x`, the placeholder for observations, and others
        outputs: `pi`, the actions; `mu`, the greedy ones, if there are any; and others
        """
        self.session, self.inputs, self.outputs = session, inputs, outputs

    def act(self, obs: Any, deterministic: bool = False) -> np.ndarray:
        """The action for one observation or for each of a batch, or the most probable one."""
        if deterministic and "mu" not in self.outputs:
            raise UserError(
                "The graph of this agent has no 'mu', the most probable action; watch it without "
                "--deterministic, or give setup_tf_saver an output of that name."
            )
        x, a = self.inputs["x"], self.outputs["mu" if deterministic else "pi"]
        obs = np.asarray(obs, x.dtype.as_numpy_dtype)
        single = obs.ndim == x.shape.ndims - 1
        act = self.session.run(a, {x: obs[None] if single else obs})
        return act[0] if single else act
