"""Several critics of one shape as one node of autograd's graph, with batched matrix products."""

import torch
from torch import nn
from torch.nn import functional as F

from spinup.parts.pytorch.fast import private
from spinup.parts.pytorch.fast.chain_rule import (
    PLAIN_ACTIVATIONS,
    aliases,
    columns_with_grad,
    concatenate,
    gradients_with_graph,
    layers_backward,
    layers_forward,
    needed_outputs,
    parameters_of,
    which_requested,
)
from spinup.parts.pytorch.fast.context import is_capturing
from spinup.parts.pytorch.fast.fusable import accepts, mlp_layers


def arrange_critics(learner):
    """Move the weights of critics of one shape next to each other, for batched matrix products.

    The moments in their optimizers follow, so that Adam's step is one pass over memory. Weights
    whose memory is shared with anything else stay. A parameter stays the same object with the same
    numbers.
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
    """Move Adam's moments of each group of parameters next to each other, too."""
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
        changed = "forward" in critic.__dict__
        if private.has_hooks(critic) or changed or list(private.layers(critic)) != ["flat", "q"]:
            return None
        flat = critic.flat
        if "IS_FLATTEN" not in vars(type(flat)) or flat.dims != critics[0].flat.dims:
            return None
        if private.has_hooks(flat) or "forward" in flat.__dict__:
            return None
    found = [mlp_layers(critic.q) for critic in critics]
    if None in found or len({type(critic) for critic in critics}) > 1:
        return None
    linear, kinds = zip(*found)
    shapes = {tuple(layer.weight.shape for layer in layers) for layers in linear}
    same = len(shapes) == 1 and len(set(map(tuple, kinds))) == 1
    return (linear, kinds[0]) if same else None


def _stack(groups):
    """Move the tensors of each group into one memory, if nothing else uses theirs."""
    for tensors in groups:
        alone = all(map(private.is_only_user, tensors))
        if not alone or len(set(map(id, tensors))) < len(tensors):
            return
    for tensors in groups:
        together = torch.stack([t.detach() for t in tensors])
        for tensor, part in zip(tensors, together):
            tensor.data = part


def _stacked(critics):
    """Weights and biases of critics as stacked views of their memory; None if not adjacent."""
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


def stacked_forward(critics, obs, act=None):
    """The values of several critics for one batch; None where they must run one by one.

    Only in a capture: the numbers of an update that runs eagerly must not depend, to the last bit,
    on whether an earlier attempt to capture it has moved the weights.
    """
    if not is_capturing() or _twin_layers(critics) is None:
        return None
    with_act = "act" in type(critics[0]).STACKABLE
    columns = (critics[0].flat(obs), act) if with_act else (critics[0].flat(obs),)
    outputs = _outputs(critics, columns) if all(map(accepts, columns)) else None
    if outputs is None or (act is None and not with_act):
        return outputs
    if with_act:
        return outputs.squeeze(-1)
    return outputs.gather(-1, act.expand(outputs.shape[:-1])[..., None]).squeeze(-1)


def _outputs(critics, columns):
    """What comes out of the layers of several critics; None if their weights are not adjacent."""
    found = _stacked(critics)
    if found is None:
        return None
    linear, kinds, weights, biases = found
    if not torch.is_grad_enabled():
        x = concatenate(columns)
        return layers_forward(x.expand(len(critics), *x.shape), kinds, weights, biases)[-1]
    params = [p for layers in linear for p in parameters_of(layers)]
    return _FusedCritics.apply(tuple(kinds), weights, biases, len(columns), *columns, *params)


class _FusedCritics(torch.autograd.Function):
    """The chain rule for several networks of one shape at once."""

    @staticmethod
    def forward(ctx, kinds, weights, biases, count, *tensors):
        x = concatenate(tensors[:count])
        outputs = layers_forward(x.expand(len(weights[0]), *x.shape), kinds, weights, biases)
        ctx.kinds, ctx.weights, ctx.count = kinds, weights, count
        ctx.ids = list(map(id, tensors[count:]))
        ctx.widths = [column.shape[-1] for column in tensors[:count]]
        kept = columns_with_grad(tensors[:count], ctx.needs_input_grad[4:])
        ctx.save_for_backward(*kept, *tensors[count:], x, *needed_outputs(kinds, outputs))
        return outputs[-1]

    @staticmethod
    def backward(ctx, grad):
        needs_grad, members = ctx.needs_input_grad[4:], len(ctx.weights[0])
        saved, n = ctx.saved_tensors, len(needs_grad)
        tensors, x, outputs = saved[:n], saved[n], saved[n + 1 :]
        if torch.is_grad_enabled():  # it will be differentiated again
            tensors = aliases(tensors, x, ctx.widths)
            return None, None, None, None, *_double_backward(ctx, tensors, grad)
        learned = which_requested(needs_grad[ctx.count :], ctx.ids)
        per_member = len(learned) // members
        needed = [any(learned[i::per_member]) for i in range(per_member)]
        needed += needs_grad[: ctx.count]
        inputs = [x.expand(members, *x.shape), *outputs[: len(ctx.weights) - 1]]
        rest = outputs[len(ctx.weights) - 1 :]
        grads, of_columns = layers_backward(
            grad, ctx.kinds, inputs, rest, ctx.weights, needed, ctx.widths
        )
        of_params = [
            grads[i][member] if grads[i] is not None and learned[member * per_member + i] else None
            for member in range(members)
            for i in range(per_member)
        ]
        of_columns = [None if g is None else g.sum(0) for g in of_columns]
        return None, None, None, None, *of_columns, *of_params


def _double_backward(ctx, tensors, grad):
    """The same gradients with a graph, by PyTorch's own layers."""
    x, params = concatenate(tensors[: ctx.count]), tensors[ctx.count :]
    count = len(params) // len(ctx.weights[0])
    rows = []
    for member in range(len(ctx.weights[0])):
        y, own = x, params[member * count : (member + 1) * count]
        for kind, weight, bias in zip(ctx.kinds, own[0::2], own[1::2]):
            y = PLAIN_ACTIVATIONS[kind](F.linear(y, weight, bias))
        rows.append(y)
    return gradients_with_graph(torch.stack(rows), tensors, ctx.needs_input_grad[4:], grad)
