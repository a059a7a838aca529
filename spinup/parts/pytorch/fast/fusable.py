"""Which networks and inputs fused layers may replace: exactly those that they know.

A network must consist of `nn.Linear` layers and activations in turn, in float32 on a CPU, and
nothing may hook into it. PyTorch's own layers do everything else.
"""

import torch
from torch import nn

from spinup.parts.pytorch.fast import private, switch

ACTIVATIONS = {nn.ReLU: "relu", nn.Tanh: "tanh", nn.Identity: "identity"}


def is_plain_linear(layer) -> bool:
    """Whether a layer is a linear one with a bias, as PyTorch makes it, with nothing added."""
    if type(layer) is not nn.Linear or private.has_hooks(layer) or "forward" in layer.__dict__:
        return False
    params = private.parameters(layer)
    return all(
        type(params.get(name)) is nn.Parameter
        and params[name].dtype == torch.float32
        and params[name].is_cpu
        and params[name].is_contiguous()
        for name in ("weight", "bias")
    )


def mlp_layers(net):
    """The linear layers and activations of `net`; None where it is not exactly that."""
    if private.has_hooks(net) or "forward" in net.__dict__:
        return None
    modules = list(private.layers(net).values())
    linear, activations = modules[0::2], modules[1::2]
    if not linear or len(linear) != len(activations) or not all(map(is_plain_linear, linear)):
        return None
    kinds = [ACTIVATIONS.get(type(a)) for a in activations]
    hooked = any(private.has_hooks(a) or "forward" in a.__dict__ for a in activations)
    return None if None in kinds or hooked else (linear, kinds)


def accepts(x) -> bool:
    """Whether fused layers can take these rows now."""
    return (
        switch.enabled()
        and type(x) is torch.Tensor
        and x.ndim == 2
        and x.dtype == torch.float32
        and x.is_cpu
        and not _in_transform()
    )


def _in_transform() -> bool:
    """Whether a transform of torch.func, a compiler or an exporter is at work."""
    return (
        private.in_transform()
        or private.in_forward_ad()
        or torch.jit.is_tracing()
        or torch.compiler.is_compiling()
        or torch.is_autocast_enabled("cpu")
        or private.hooked_everywhere()
    )
