"""The squashed Gaussian of SAC as one node of autograd's graph."""

import numpy as np
import torch
from torch.nn import functional as F

from spinup.parts.pytorch.fast.chain_rule import gradients_with_graph
from spinup.parts.pytorch.fast.fusable import accepts

HALF_LOG_2PI, LOG_2 = 0.5 * float(np.log(2 * np.pi)), float(np.log(2))


def squashed_sample(mu, log_std, noise, low, high):
    """tanh(u), where u = mu + exp(log_std) noise, and its log-probability; None for plain code.

    low, high: bounds of log_std
    """
    fits = all(accepts(t) for t in (mu, log_std, noise))
    return _SquashedSample.apply(mu, log_std, noise, low, high) if fits else None


def _squashed(mu, raw, noise, low, high):
    """The sample and its log-probability, then what the backward pass needs of the way there."""
    log_std = raw.clamp(low, high)
    std_noise = log_std.exp() * noise
    u = mu + std_noise
    log_slope = 2 * (LOG_2 - u - F.softplus(-2 * u))
    logp = (-0.5 * noise.square() - log_std - log_slope - HALF_LOG_2PI).sum(-1)
    return torch.tanh(u), logp, log_std, std_noise


class _SquashedSample(torch.autograd.Function):
    """The chain rule written out: a third of autograd's steps."""

    @staticmethod
    def forward(ctx, mu, raw, noise, low, high):
        unit, logp, log_std, std_noise = _squashed(mu, raw, noise, low, high)
        ctx.bounds = low, high
        ctx.save_for_backward(mu, raw, noise, unit, std_noise, log_std == raw)
        return unit, logp

    @staticmethod
    def backward(ctx, grad_unit, grad_logp):
        mu, raw, noise, unit, std_noise, inside = ctx.saved_tensors
        if torch.is_grad_enabled():  # it will be differentiated again
            outputs = _squashed(mu, raw, noise, *ctx.bounds)[:2]
            tensors, needs_grad = (mu, raw, noise), ctx.needs_input_grad[:3]
            grads = gradients_with_graph(outputs, tensors, needs_grad, (grad_unit, grad_logp))
            return *grads, None, None
        grad_logp = grad_logp.unsqueeze(-1)
        # d tanh(u) / du = 1 - tanh(u)^2, and d logp / du = 2 tanh(u).
        grad_u = torch.addcmul(grad_unit, unit, 2 * grad_logp - unit * grad_unit)
        grad_log_std = (grad_u * std_noise - grad_logp) * inside
        of_noise = None
        if ctx.needs_input_grad[2]:
            of_noise = grad_u * (std_noise / noise) - grad_logp * noise
        return grad_u, grad_log_std, of_noise, None, None
