"""How fast versions stand in for the plain code of layers, policies and critics.

Plain code names its fast version in a decorator, `@fast.accelerated_by(fast.squash)`, and is read
without it. A fast version takes the same arguments and gives the same numbers to rounding, or None
where it does not know exactly what it would stand in for; then the plain code runs.
"""

from functools import wraps

from spinup.parts.pytorch.fast.fused_gaussian import squashed_sample
from spinup.parts.pytorch.fast.fused_mlp import heads_forward, mlp_forward
from spinup.parts.pytorch.fast.switch import enabled


def accelerated_by(fast_version):
    """Decorate plain code with the function that may stand in for it."""

    def decorate(plain_code):
        @wraps(plain_code)
        def call(*args):
            found = fast_version(*args) if enabled() else None
            return plain_code(*args) if found is None else found

        return call

    return decorate


def critic_forward(critic, obs, act):
    """The values of a critic whose layers are `q`, with observation and action side by side."""
    outputs = mlp_forward(critic.q, critic.flat(obs), act)
    return None if outputs is None else outputs.squeeze(-1)


def gaussian_heads(actor, obs):
    """The mean and the unbounded logarithm of the standard deviation, from one product."""
    both = heads_forward(actor.net, (actor.mu_layer, actor.log_std_layer), actor.flat(obs))
    return None if both is None else both.chunk(2, -1)


def squash(mu, log_std, noise, low, high):
    """tanh(mu + std * noise) and its log-probability."""
    return squashed_sample(mu, log_std, noise, low, high)
