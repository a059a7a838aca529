"""The forward and the backward pass through linear layers and activations, written out.

fused_mlp.py and fused_critics.py make one node of autograd's graph of them.
"""

from contextvars import ContextVar

import numpy as np
import torch

from spinup.parts.pytorch.fast.context import note_gradients, opaque

PLAIN_ACTIVATIONS = dict(relu=torch.relu, tanh=torch.tanh, identity=lambda x: x)
# Each thread has its own: a policy and a value may be fitted at once.
_REQUESTED = ContextVar("ids of the parameters whose gradients are computed, or None", default=None)


def gradients(loss, params):
    """The gradient of `loss` in each of `params`; None where it does not depend on one.

    Autograd does not tell fused layers which parameters are requested, so they read it here: the
    loss of a policy depends on the critics, but their weights need no gradient.
    """
    note_gradients(params)
    before = _REQUESTED.set(set(map(id, params)))
    try:
        return torch.autograd.grad(loss, params, allow_unused=True)
    finally:
        _REQUESTED.reset(before)


def which_requested(needs_grad, ids):
    """Which of the parameters with these ids need a gradient; autograd's own flags say too much."""
    requested = _REQUESTED.get()
    return [one and (requested is None or i in requested) for one, i in zip(needs_grad, ids)]


def parameters_of(linear):
    """Weight and bias of each linear layer, in turn."""
    return [p for layer in linear for p in (layer.weight, layer.bias)]


def concatenate(columns):
    """The columns as one tensor."""
    return torch.cat(columns, -1) if len(columns) > 1 else columns[0]


def layers_forward(x, kinds, weights, biases):
    """The input of each layer, then the output. Weights may be stacked, one layer per network."""
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


def needed_outputs(kinds, outputs):
    """The outputs that the backward pass needs; the others may be changed in place."""
    return outputs[1:-1] if kinds[-1] == "identity" else outputs[1:]


# The backward pass through an activation, in place.
_ACTIVATION_BACKWARD = {
    "relu": lambda grad, y: torch.ops.aten.threshold_backward.grad_input(
        grad, y, 0, grad_input=grad
    ),
    "tanh": lambda grad, y: torch.ops.aten.tanh_backward.grad_input(grad, y, grad_input=grad),
}


def layers_backward(grad, kinds, inputs, output, weights, needed, widths):
    """The gradients of weights and biases, then those of the columns; None where not needed.

    needed: whether each weight and bias, in turn, and then each column needs its gradient
    widths: of the columns of the input
    """
    needed, of_columns = needed[: -len(widths)], needed[-len(widths) :]
    grads, given = [None] * (2 * len(weights)), grad
    product = torch.bmm if grad.ndim == 3 else torch.mm
    outputs = [*inputs[1:], *output]  # the last: only after an activation
    for i in reversed(range(len(weights))):
        if kinds[i] != "identity":
            grad = grad.clone() if grad is given else grad  # autograd may use its own again
            _ACTIVATION_BACKWARD[kinds[i]](grad, outputs[i])
        if needed[2 * i]:
            grads[2 * i] = product(grad.mT, inputs[i])
        if needed[2 * i + 1]:
            grads[2 * i + 1] = grad.sum(-2)
        if not any(needed[: 2 * i]) and not any(of_columns):
            break
        thin = grad.shape[-1] == 1 and i > 0
        weight = weights[i]
        if i == 0:  # columns before the first that needs a gradient are left out
            first = of_columns.index(True)
            weight = weight[..., sum(widths[:first]) :]
            parts = product(grad, weight).split(widths[first:], -1)
            pairs = zip(of_columns[first:], parts)
            return grads, [None] * first + [g if is_needed else None for is_needed, g in pairs]
        grad = grad * weight if thin else product(grad, weight)
    return grads, [None] * len(widths)


def columns_with_grad(columns, needs_grad):
    """The columns that need a gradient, which a double backward needs; None for the others."""
    return [column if one else None for column, one in zip(columns, needs_grad)]


def aliases(tensors, x, widths):
    """Views of the tensors to differentiate by, so that none is computed from another.

    Columns that were not saved are taken from `x`, the concatenation of all columns.
    """
    columns = x.detach().split(widths, -1)
    given = [c if t is None else t for t, c in zip(tensors, columns)] + [*tensors[len(widths) :]]
    return [t.view_as(t) for t in given]


def gradients_with_graph(y, tensors, needs_grad, grad):
    """The gradients of `y` in those tensors that need one, with a graph; None in the others."""
    needed = [i for i, one in enumerate(needs_grad) if one]
    inputs = [tensors[i] for i in needed]
    found = torch.autograd.grad(y, inputs, grad, create_graph=True, allow_unused=True)
    grads = [None] * len(tensors)
    for i, g in zip(needed, found):
        grads[i] = g
    return grads
