"""Fused layers: a whole network as one node of autograd's graph.

They take over only where a network is exactly what they know: `nn.Linear` layers and activations in
turn, float32 on a CPU, and nothing that hooks into them. Everything else, and differentiating
twice, goes through PyTorch's own layers.
"""

from contextvars import ContextVar

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from spinup.parts.pytorch.fast import private, switch
from spinup.parts.pytorch.fast.tracing import is_capturing, note_gradients, opaque

ACTIVATIONS = {nn.ReLU: "relu", nn.Tanh: "tanh", nn.Identity: "identity"}
PLAIN_ACTIVATIONS = dict(relu=torch.relu, tanh=torch.tanh, identity=lambda x: x)
HALF_LOG_2PI, LOG_2 = 0.5 * float(np.log(2 * np.pi)), float(np.log(2))

# Each thread has its own: a policy and a value may be fitted at once.
_REQUESTED = ContextVar("ids of the parameters whose gradients are computed, or None", default=None)


def gradients(loss, params):
    """The gradient of `loss` in each of `params`; None where it does not depend on one.

    Fused layers are told which are requested, for autograd does not tell them: a policy's loss goes
    through the critics, but their weights need no gradient there.
    """
    note_gradients(params)
    before = _REQUESTED.set(set(map(id, params)))
    try:
        return torch.autograd.grad(loss, params, allow_unused=True)
    finally:
        _REQUESTED.reset(before)


def _is_plain_linear(layer) -> bool:
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


def _layers(net):
    """The linear layers and activations of `net`; None where it is not exactly that."""
    if private.has_hooks(net) or "forward" in net.__dict__:
        return None
    modules = list(private.layers(net).values())
    linear, activations = modules[0::2], modules[1::2]
    if not linear or len(linear) != len(activations) or not all(map(_is_plain_linear, linear)):
        return None
    kinds = [ACTIVATIONS.get(type(a)) for a in activations]
    hooked = any(private.has_hooks(a) or "forward" in a.__dict__ for a in activations)
    return None if None in kinds or hooked else (linear, kinds)


def _takes(x) -> bool:
    return (
        switch.enabled()
        and type(x) is torch.Tensor
        and x.ndim == 2
        and x.dtype == torch.float32
        and x.is_cpu
        and not _functional()
    )


def _functional() -> bool:
    """Whether a transform of torch.func, a compiler or an exporter is at work."""
    return (
        private.in_transform()
        or private.in_forward_ad()
        or torch.jit.is_tracing()
        or torch.compiler.is_compiling()
        or torch.is_autocast_enabled("cpu")
        or private.hooked_everywhere()
    )


def mlp_forward(net, *columns):
    """What an mlp gives for rows; None where PyTorch's own layers must do it.

    columns: what the rows consist of, side by side; apart, for often only actions need a gradient
    """
    known = "IS_MLP" in vars(type(net)) and all(map(_takes, columns))
    found = _layers(net) if known else None
    if found is None:
        return None
    linear, kinds = found
    return _apply(columns, kinds, 1, _parameters(linear))


def heads_forward(net, heads, x):
    """What linear layers on top of an mlp give, side by side; None where PyTorch must do it."""
    found = _layers(net) if _takes(x) else None
    if found is None or not all(map(_is_plain_linear, heads)):
        return None
    linear, kinds = found
    return _apply([x], [*kinds, "identity"], len(heads), _parameters([*linear, *heads]))


def _parameters(linear):
    return [p for layer in linear for p in (layer.weight, layer.bias)]


def _apply(columns, kinds, heads, params):
    if torch.is_grad_enabled():
        return _FusedLayers.apply(tuple(kinds), heads, len(columns), *columns, *params)
    weights, biases = _joined(params, heads)
    return _forward(_side_by_side(columns), kinds, weights, biases)[-1]


def _side_by_side(columns):
    return torch.cat(columns, -1) if len(columns) > 1 else columns[0]


def _joined(params, heads):
    """Weights and biases of all layers; the last `heads` of them as one layer."""
    weights, biases = list(params[0::2]), list(params[1::2])
    if heads > 1:
        weights[-heads:] = [torch.cat(weights[-heads:])]
        biases[-heads:] = [torch.cat(biases[-heads:])]
    return weights, biases


def _forward(x, kinds, weights, biases):
    """What goes into each layer, then the result. Weights may be stacked, one layer per network."""
    outputs = [x]
    for kind, weight, bias in zip(kinds, weights, biases):
        if weight.ndim == 3:
            y = torch.baddbmm(bias, outputs[-1], weight.mT)
        else:
            y = torch.addmm(bias, outputs[-1], weight.t())
        if kind == "relu":
            y.relu_()
        elif kind == "tanh":
            opaque(_tanh_, y, writes=(0,))
        outputs.append(y)
    return outputs


class _NumpyTanh:
    """The hyperbolic tangent in place: NumPy's takes a sixth of the time of PyTorch's."""

    def __call__(self, x):
        self.prepared(x)()

    @staticmethod
    def prepared(x):
        array = x.detach().numpy()
        return lambda: np.tanh(array, out=array)


_tanh_ = _NumpyTanh()


def _needed(kinds, outputs):
    """What the chain rule needs of the outputs; what it does not, may be changed in place."""
    return outputs[1:-1] if kinds[-1] == "identity" else outputs[1:]


def _backward(grad, kinds, inputs, output, weights, wanted, widths):
    """Gradients of weights and biases (None where not wanted), then those of the columns.

    wanted: whether, of each weight and bias in turn, and at last of each column of the input
    widths: of these columns
    """
    wanted, of_columns = wanted[: -len(widths)], wanted[-len(widths) :]
    grads, given = [None] * (2 * len(weights)), grad
    product = torch.bmm if grad.ndim == 3 else torch.mm
    outputs = [*inputs[1:], *output]  # the last is needed only if it went through an activation
    for i in reversed(range(len(weights))):
        if kinds[i] != "identity":
            grad = grad.clone() if grad is given else grad  # what is given is not ours to change
            _ACTIVATION_BACKWARD[kinds[i]](grad, outputs[i])
        if wanted[2 * i]:
            grads[2 * i] = product(grad.mT, inputs[i])
        if wanted[2 * i + 1]:
            grads[2 * i + 1] = grad.sum(-2)
        if not any(wanted[: 2 * i]) and not any(of_columns):
            break
        thin = grad.shape[-1] == 1 and i > 0
        weight = weights[i]
        if i == 0:  # columns before the first that is wanted are left out
            first = of_columns.index(True)
            weight = weight[..., sum(widths[:first]) :]
            parts = product(grad, weight).split(widths[first:], -1)
            wanted_parts = zip(of_columns[first:], parts)
            return grads, [None] * first + [g if asked else None for asked, g in wanted_parts]
        grad = grad * weight if thin else product(grad, weight)
    return grads, [None] * len(widths)


# What a gradient is multiplied by on its way back through an activation, in place.
_ACTIVATION_BACKWARD = {
    "relu": lambda grad, y: torch.ops.aten.threshold_backward.grad_input(
        grad, y, 0, grad_input=grad
    ),
    "tanh": lambda grad, y: torch.ops.aten.tanh_backward.grad_input(grad, y, grad_input=grad),
}


class _FusedLayers(torch.autograd.Function):
    """The chain rule for a whole network at once: a fifth of autograd's steps, fewer copies."""

    @staticmethod
    def forward(ctx, kinds, heads, count, *tensors):
        columns, params = tensors[:count], tensors[count:]
        weights, biases = _joined(params, heads)
        outputs = _forward(_side_by_side(columns), kinds, weights, biases)
        ctx.kinds, ctx.heads, ctx.count, ctx.ids = kinds, heads, count, list(map(id, params))
        ctx.widths = [column.shape[-1] for column in columns]
        ctx.layers = len(weights)
        kept = _kept(columns, ctx.needs_input_grad[3:])
        ctx.save_for_backward(*kept, *params, outputs[0], *weights, *_needed(kinds, outputs))
        return outputs[-1]

    @staticmethod
    def backward(ctx, grad):
        asked = ctx.needs_input_grad[3:]
        n = len(asked)
        tensors, x, rest = (
            ctx.saved_tensors[:n],
            ctx.saved_tensors[n],
            ctx.saved_tensors[n + 1 :],
        )
        weights, outputs = rest[: ctx.layers], rest[ctx.layers :]
        if torch.is_grad_enabled():  # it will be differentiated again
            tensors = _aliases(tensors, x, ctx.widths)
            return None, None, None, *_differentiable(ctx, tensors, grad)
        of_columns, params = asked[: ctx.count], tensors[ctx.count :]
        learned = _requested(asked[ctx.count :], ctx.ids)
        tail, joined = learned[-2 * ctx.heads :], learned[: -2 * ctx.heads]
        wanted = [*joined, any(tail[0::2]), any(tail[1::2]), *of_columns]
        inputs = [x, *outputs[: len(weights) - 1]]
        rest = outputs[len(weights) - 1 :]
        grads, of_input = _backward(grad, ctx.kinds, inputs, rest, weights, wanted, ctx.widths)
        if ctx.heads > 1:
            sizes = [len(p) for p in params[-2 * ctx.heads :: 2]]
            parts = [None if g is None else g.split(sizes) for g in grads[-2:]]
            grads[-2:] = [
                None if part is None else part[i] for i in range(ctx.heads) for part in parts
            ]
        grads = [g if asked else None for g, asked in zip(grads, learned)]
        return None, None, None, *of_input, *grads


def _kept(columns, asked):
    """The columns that need a gradient, for who differentiates twice; None for the others."""
    return [column if one else None for column, one in zip(columns, asked)]


def _aliases(tensors, x, widths):
    """Tensors to differentiate by, each apart from the others, which it may have been made of.

    Columns that were not kept are taken from `x`, what all columns are side by side.
    """
    columns = x.detach().split(widths, -1)
    given = [c if t is None else t for t, c in zip(tensors, columns)] + [*tensors[len(widths) :]]
    return [t.view_as(t) for t in given]


def _requested(asked, ids):
    """Which parameters need a gradient, of those that autograd asks for."""
    requested = _REQUESTED.get()
    return [one and (requested is None or i in requested) for one, i in zip(asked, ids)]


def _differentiable(ctx, tensors, grad):
    """The same gradients as functions that can be differentiated again: PyTorch's own layers."""
    weights, biases = _joined(tensors[ctx.count :], ctx.heads)
    y = _side_by_side(tensors[: ctx.count])
    for kind, weight, bias in zip(ctx.kinds, weights, biases):
        y = PLAIN_ACTIVATIONS[kind](F.linear(y, weight, bias))
    return _differentiated(y, tensors, ctx.needs_input_grad[3:], grad)


def _differentiated(y, tensors, asked, grad):
    """The gradient in each of the tensors that are asked for; None in the others."""
    wanted = [i for i, one in enumerate(asked) if one]
    inputs = [tensors[i] for i in wanted]
    found = torch.autograd.grad(y, inputs, grad, create_graph=True, allow_unused=True)
    grads = [None] * len(tensors)
    for i, g in zip(wanted, found):
        grads[i] = g
    return grads


# --- Several critics of one shape ---


def arrange_critics(learner):
    """Move the weights of twin critics next to each other, so that one product serves both.

    Their moments in optimizers follow, so that a step of Adam goes through memory in one go. Only
    where nothing else looks at the memory: a parameter stays the same object with the same numbers.
    """
    parts = list(vars(learner).values())
    owners = [x for x in (*parts, learner) if isinstance(x, nn.Module)]
    optimizers = [x for x in parts if "READ_AT_EVERY_STEP" in vars(type(x))]
    for owner in {id(m): m for network in owners for m in network.modules()}.values():
        twins = [c for c in owner.children() if "STACKABLE" in vars(type(c))]
        if len(twins) > 1 and _twin_layers(twins) is not None:
            groups = _twin_parameters(twins)
            if _stacked(twins) is None:
                _stack(groups)
            for optimizer in optimizers:
                _stack_moments(optimizer, groups)


def _twin_parameters(critics):
    """The weights, and the biases, of each layer of critics of one shape."""
    linear, _ = _twin_layers(critics)
    return [
        [getattr(layer, name) for layer in twins]
        for twins in zip(*linear)
        for name in ("weight", "bias")
    ]


def _stack_moments(optimizer, groups):
    (group,) = optimizer.param_groups
    number = {id(p): i for i, p in enumerate(group["params"])}
    groups = [[number.get(id(p)) for p in params] for params in groups]
    groups = [numbers for numbers in groups if None not in numbers]
    for moments in (optimizer.exp_avgs, optimizer.exp_avg_sqs):
        of_groups = [[moments[i] for i in numbers] for numbers in groups]
        if len({private.storage_id(m) for twins in of_groups for m in twins}) > len(of_groups):
            _stack(of_groups)


def _twin_layers(critics):
    """The layers of critics of one shape; None where they are not exactly that."""
    for critic in critics:
        changed = {"forward", "columns", "values"} & critic.__dict__.keys()
        if private.has_hooks(critic) or changed or list(private.layers(critic)) != ["flat", "q"]:
            return None
        flat = critic.flat
        if "IS_FLATTEN" not in vars(type(flat)) or flat.dims != critics[0].flat.dims:
            return None
        if private.has_hooks(flat) or "forward" in flat.__dict__:
            return None
    found = [_layers(critic.q) for critic in critics]
    if None in found or len({type(critic) for critic in critics}) > 1:
        return None
    linear, kinds = zip(*found)
    shapes = {tuple(layer.weight.shape for layer in layers) for layers in linear}
    same = len(shapes) == 1 and len(set(map(tuple, kinds))) == 1
    return (linear, kinds[0]) if same else None


def _stack(groups):
    """Move the tensors of each group into one memory, if they are alone where they are now."""
    for tensors in groups:
        alone = all(map(private.is_only_user, tensors))
        if not alone or len(set(map(id, tensors))) < len(tensors):
            return
    for tensors in groups:
        together = torch.stack([t.detach() for t in tensors])
        for tensor, part in zip(tensors, together):
            tensor.data = part


def _stacked(critics):
    """Weights and biases of critics as stacked views of their memory; None if they lie apart."""
    linear, kinds = _twin_layers(critics)
    weights, biases = [], []
    with private.DisableTorchFunction():
        for twins in zip(*linear):
            for name, views in (("weight", weights), ("bias", biases)):
                params = [getattr(layer, name).detach() for layer in twins]
                first, size = params[0], params[0].numel()
                for i, p in enumerate(params):
                    same = private.storage_id(p) == private.storage_id(first)
                    if not same or p.storage_offset() != first.storage_offset() + i * size:
                        return None
                strides = (size, *first.stride())
                views.append(first.as_strided((len(params), *first.shape), strides))
    return linear, kinds, weights, [bias.unsqueeze(1) for bias in biases]


def stacked_forward(critics, columns):
    """What each of several critics gives for the same rows; None where they run one by one.

    Only in a capture: an update that runs eagerly must not depend, to the last bit, on whether
    somebody has once tried to capture it and moved the weights.

    columns: what the rows consist of, side by side
    """
    if not is_capturing() or not all(map(_takes, columns)) or _twin_layers(critics) is None:
        return None
    found = _stacked(critics)
    if found is None:
        return None
    linear, kinds, weights, biases = found
    if not torch.is_grad_enabled():
        x = _side_by_side(columns)
        return _forward(x.expand(len(critics), *x.shape), kinds, weights, biases)[-1]
    params = [p for layers in linear for p in _parameters(layers)]
    return _FusedCritics.apply(tuple(kinds), weights, biases, len(columns), *columns, *params)


class _FusedCritics(torch.autograd.Function):
    """The same for several networks of one shape, whose products are made in one batched call."""

    @staticmethod
    def forward(ctx, kinds, weights, biases, count, *tensors):
        x = _side_by_side(tensors[:count])
        outputs = _forward(x.expand(len(weights[0]), *x.shape), kinds, weights, biases)
        ctx.kinds, ctx.weights, ctx.count = kinds, weights, count
        ctx.ids = list(map(id, tensors[count:]))
        ctx.widths = [column.shape[-1] for column in tensors[:count]]
        kept = _kept(tensors[:count], ctx.needs_input_grad[4:])
        ctx.save_for_backward(*kept, *tensors[count:], x, *_needed(kinds, outputs))
        return outputs[-1]

    @staticmethod
    def backward(ctx, grad):
        asked, members = ctx.needs_input_grad[4:], len(ctx.weights[0])
        n = len(asked)
        tensors, x, outputs = (
            ctx.saved_tensors[:n],
            ctx.saved_tensors[n],
            ctx.saved_tensors[n + 1 :],
        )
        if torch.is_grad_enabled():
            tensors = _aliases(tensors, x, ctx.widths)
            return None, None, None, None, *_differentiable_critics(ctx, tensors, grad)
        learned = _requested(asked[ctx.count :], ctx.ids)
        per_member = len(learned) // members
        wanted = [any(learned[i::per_member]) for i in range(per_member)]
        wanted += asked[: ctx.count]
        inputs = [x.expand(members, *x.shape), *outputs[: len(ctx.weights) - 1]]
        rest = outputs[len(ctx.weights) - 1 :]
        grads, of_columns = _backward(
            grad, ctx.kinds, inputs, rest, ctx.weights, wanted, ctx.widths
        )
        of_params = [
            grads[i][member] if grads[i] is not None and learned[member * per_member + i] else None
            for member in range(members)
            for i in range(per_member)
        ]
        of_columns = [None if g is None else g.sum(0) for g in of_columns]
        return None, None, None, None, *of_columns, *of_params


def _differentiable_critics(ctx, tensors, grad):
    x, params = _side_by_side(tensors[: ctx.count]), tensors[ctx.count :]
    count = len(params) // len(ctx.weights[0])
    rows = []
    for member in range(len(ctx.weights[0])):
        y, own = x, params[member * count : (member + 1) * count]
        for kind, weight, bias in zip(ctx.kinds, own[0::2], own[1::2]):
            y = PLAIN_ACTIVATIONS[kind](F.linear(y, weight, bias))
        rows.append(y)
    return _differentiated(torch.stack(rows), tensors, ctx.needs_input_grad[4:], grad)


# --- The squashed Gaussian ---


def squashed_sample(mu, log_std, noise, low, high):
    """tanh(u), where u = mu + exp(log_std) noise, and its log-probability; None: not for us.

    low, high: bounds of log_std
    """
    fits = all(_takes(t) for t in (mu, log_std, noise))
    return _SquashedSample.apply(mu, log_std, noise, low, high) if fits else None


def _squashed(mu, raw, noise, low, high):
    log_std = raw.clamp(low, high)
    std_noise = log_std.exp() * noise
    u = mu + std_noise
    log_slope = 2 * (LOG_2 - u - F.softplus(-2 * u))
    logp = (-0.5 * noise.square() - log_std - log_slope - HALF_LOG_2PI).sum(-1)
    return torch.tanh(u), logp, log_std, std_noise


class _SquashedSample(torch.autograd.Function):
    """With the chain rule written out: a third of autograd's steps."""

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
            wanted = [t for t, asked in zip((mu, raw, noise), ctx.needs_input_grad) if asked]
            outputs = _squashed(mu, raw, noise, *ctx.bounds)[:2]
            found = iter(
                torch.autograd.grad(outputs, wanted, (grad_unit, grad_logp), create_graph=True)
            )
            return (
                *(next(found) if asked else None for asked in ctx.needs_input_grad[:3]),
                None,
                None,
            )
        grad_logp = grad_logp.unsqueeze(-1)
        # d tanh(u) / du = 1 - tanh(u)^2, and d logp / du = 2 tanh(u).
        grad_u = torch.addcmul(grad_unit, unit, 2 * grad_logp - unit * grad_unit)
        grad_log_std = (grad_u * std_noise - grad_logp) * inside
        of_noise = None
        if ctx.needs_input_grad[2]:
            of_noise = grad_u * (std_noise / noise) - grad_logp * noise
        return grad_u, grad_log_std, of_noise, None, None
