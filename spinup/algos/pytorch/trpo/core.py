"""TRPO's networks, as all on-policy algorithms have them, and arithmetic on weights as vectors."""

import numpy as np
import torch
from torch import distributions, nn

from spinup.parts.buffers import combined_shape, discount_cumsum
from spinup.parts.errors import UserError
from spinup.parts.mpi import mpi_avg
from spinup.parts.pytorch import networks
from spinup.parts.pytorch.architecture import records_architecture
from spinup.parts.pytorch.layers import count_vars, mlp, update_normalizers
from spinup.parts.pytorch.networks import Actor, MLPCategoricalActor, MLPCritic, MLPGaussianActor
from spinup.parts.spaces import refuse_images


@records_architecture
class MLPActorCritic(networks.MLPActorCritic):
    """A policy `pi` and a value function `v`, on anything but images."""

    def __init__(
        self,
        observation_space,
        action_space,
        hidden_sizes=(64, 64),
        activation=nn.Tanh,
        normalize=False,
    ):
        refuse_images(observation_space, "trpo")
        super().__init__(observation_space, action_space, hidden_sizes, activation, normalize)


def kl_divergence(old_pi, pi):
    """How many nats apart the distributions of two policies are, in closed form."""
    try:
        return distributions.kl_divergence(old_pi, pi)
    except NotImplementedError:
        raise UserError(
            f"trpo needs the KL divergence of two policies, but PyTorch has none for "
            f"{type(pi).__name__}. Let pi give a Normal or a Categorical, or use ppo."
        )


def trainable(module):
    """The parameters of a network that may change, in a fixed order."""
    return [p for p in module.parameters() if p.requires_grad]


def flat_concat(tensors):
    """All numbers of several tensors as one vector."""
    return torch.cat([x.reshape(-1) for x in tensors])


def flat_grad(f, params, **kwargs):
    """The gradient of `f` as one vector; zeros where it does not depend on a parameter."""
    return flat_concat(torch.autograd.grad(f, params, materialize_grads=True, **kwargs))


def hessian_vector_product(f, params, damping_coeff=0.0):
    """The function v -> Hv, with H the second derivative of `f` over all processes, damped."""
    grad = flat_grad(f, params, create_graph=True)
    return lambda v: average(flat_grad(grad @ v, params, retain_graph=True)) + damping_coeff * v


def average(x):
    """The mean of a vector over all processes, in one exchange."""
    return torch.as_tensor(mpi_avg(x.cpu().numpy()), device=x.device)


@torch.no_grad()
def assign_params_from_flat(x, params):
    """Overwrite parameters with the numbers of one vector, in the order of `flat_concat`."""
    for p, part in zip(params, x.split([p.numel() for p in params])):
        p.copy_(part.view_as(p))


def conjugate_gradient(product, b, iters, tolerance=1e-10):
    """Solve A x = b for a symmetric positive definite A, which is given as the function v -> A v.

    tolerance: stop when the squared residual is this share of the squared b
    """
    x, r, p = torch.zeros_like(b), b.clone(), b.clone()
    rr = r @ r
    small = tolerance * rr
    for _ in range(iters):
        if rr <= small:
            break
        Ap = product(p)
        pAp = p @ Ap
        if not pAp > 0:  # by rounding, or not a number: x as it is must do
            break
        alpha = rr / pAp
        x += alpha * p
        r -= alpha * Ap
        rr, before = r @ r, rr
        p = r + rr / before * p
    return x
