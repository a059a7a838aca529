"""Layers of a computation graph: placeholders, fully connected layers, random numbers."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete, Space
from numpy.random import SeedSequence

from spinup.parts.errors import UserError, did_you_mean
from spinup.parts.ring import combined_shape
from spinup.parts.tf1.framework import tf

# Activations by the names that they have in tf.nn; some stand in tf itself as well.
ACTIVATIONS = (
    "crelu", "elu", "gelu", "leaky_relu", "relu", "relu6", "selu", "sigmoid", "silu", "softmax",
    "softplus", "softsign", "swish", "tanh",
)  # fmt: skip


def placeholder(dim: Any = None) -> Any:
    """Where a batch of numbers, or of arrays of shape `dim`, goes into the graph."""
    return tf.placeholder(tf.float32, shape=(None, *combined_shape(0, dim)[1:]))


def placeholders(*dims: Any) -> list:
    """A placeholder for each of these shapes."""
    return [placeholder(dim) for dim in dims]


def placeholder_from_space(space: Space) -> Any:
    """Where a batch of observations or actions of a space goes into the graph."""
    if isinstance(space, Box):
        return placeholder(space.shape)
    if isinstance(space, Discrete):
        return tf.placeholder(tf.int32, shape=(None,))
    raise UserError(f"There is no placeholder for {space}; make a Box or a Discrete of it.")


def placeholders_from_spaces(*spaces: Space) -> list:
    """A placeholder for each of these spaces."""
    return [placeholder_from_space(space) for space in spaces]


def action_placeholder(space: Space) -> Any:
    """As `placeholder_from_space`, with one row of numbers for an action of any shape."""
    if isinstance(space, Box):
        return placeholder(int(np.prod(space.shape)))
    return placeholder_from_space(space)


def flatten(x: Any) -> Any:
    """One row of numbers for each observation, whatever its shape."""
    size = int(np.prod(x.shape.as_list()[1:]))
    return x if x.shape.ndims == 2 else tf.reshape(x, (-1, size))


def dense(x: Any, units: int, activation: Callable | None = None) -> Any:
    """A fully connected layer; its variables are `dense/kernel` and `dense/bias`, then `dense_1/…`.

    The weights start Glorot-uniform (Glorot and Bengio, 2010), the biases at 0.
    """
    with tf.variable_scope(None, default_name="dense"):
        shape = (int(x.shape[-1]), int(units))
        glorot, zeros = tf.glorot_uniform_initializer(), tf.zeros_initializer()
        kernel = tf.get_variable("kernel", shape, tf.float32, glorot, use_resource=True)
        bias = tf.get_variable("bias", (int(units),), tf.float32, zeros, use_resource=True)
        y = tf.matmul(x, kernel) + bias
        return y if activation is None else activation(y)


def mlp(
    x: Any,
    hidden_sizes: Sequence[int] = (32,),
    activation: Callable | None = tf.tanh,
    output_activation: Callable | None = None,
) -> Any:
    """Fully connected layers of these sizes, with `activation` after each but the last."""
    for size in hidden_sizes[:-1]:
        x = dense(x, size, activation)
    return dense(x, hidden_sizes[-1], output_activation)


def get_vars(scope: str = "") -> list:
    """The variables that are learned and have `scope` in their names."""
    return [variable for variable in tf.trainable_variables() if scope in variable.name]


def count_vars(scope: str = "") -> int:
    """How many numbers are learned in the variables that have `scope` in their names."""
    return sum(int(np.prod(variable.shape.as_list())) for variable in get_vars(scope))


def activation_by_name(name: Any) -> Any:
    """The activation that a name like 'tf.nn.elu', 'nn.elu' or 'elu' means; others are kept."""
    if not isinstance(name, str):
        if name is not None and not callable(name):
            raise UserError(f"{name!r} is no activation. Try tf.nn.tanh or tf.nn.relu.")
        return name
    prefix, _, short = name.rpartition(".")
    if short not in ACTIVATIONS or prefix not in ("", "nn", "tf", "tf.nn"):
        hint = did_you_mean(short.lower(), ACTIVATIONS)
        if prefix in ("torch.nn", "torch"):
            hint += " It belongs to the PyTorch version of the algorithm, ALGO_pytorch."
        raise UserError(
            f"{name!r} is not an activation of tf.nn.{hint} Try tf.nn.tanh, tf.nn.relu or "
            "tf.nn.elu."
        )
    return getattr(tf.nn, short)


# --- Random numbers ---


def _random_key() -> Any:
    """A new key for one random operation, each time that the graph is run.

    Operations such as tf.random_normal keep their place in the random stream where nothing can
    read it. Here that place is a variable, so a checkpoint saves it like a weight.
    """
    graph_seed, operation = tf.get_seed(None)  # the seed of the graph; the operations before
    entropy = None if graph_seed is None else [abs(int(graph_seed)), int(operation or 0)]
    stream = int(SeedSequence(entropy).generate_state(1)[0])
    used = tf.Variable(
        0, trainable=False, dtype=tf.int64, name="random_numbers_used", use_resource=True
    )
    return tf.stack([tf.constant(stream, tf.int64), used.assign_add(1)])


def standard_normal(shape: Any) -> Any:
    """Numbers from the standard normal distribution, new ones each time the graph is run."""
    return tf.random.stateless_normal(shape, seed=_random_key())


def uniform(shape: Any) -> Any:
    """Numbers sampled uniformly from [0, 1), new ones each time the graph is run."""
    return tf.random.stateless_uniform(shape, seed=_random_key())
