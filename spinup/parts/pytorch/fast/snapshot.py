"""The state that an update changes, kept so that it can be put back and compared."""

import random

import numpy as np
import torch

from spinup.parts.pytorch.fast.private import tree_flatten


class Snapshot:
    """The state of everything that an update can change, to be put back."""

    def __init__(self, dependencies):
        self.dependencies = dependencies
        self.tensors = dependencies.all_tensors()
        self.values = [t.detach().clone() for t in self.tensors]
        self.grads = [p.grad for p in dependencies.parameters]
        self.grad_values = [None if g is None else g.detach().clone() for g in self.grads]
        self.streams = torch.get_rng_state(), np.random.get_state(), random.getstate()

    @torch.no_grad()
    def restore(self):
        self.dependencies.restore()
        for tensor, value in zip(self.tensors, self.values):
            tensor.detach().copy_(value)
        for p, grad, value in zip(self.dependencies.parameters, self.grads, self.grad_values):
            p.grad = grad
            if grad is not None:
                grad.detach().copy_(value)
        torch.set_rng_state(self.streams[0])
        np.random.set_state(self.streams[1])
        random.setstate(self.streams[2])

    def moved_streams(self) -> str | None:
        """Which random stream besides PyTorch's has moved since."""
        now = np.random.get_state()
        if any(not np.array_equal(a, b) for a, b in zip(now, self.streams[1])):
            return "NumPy"
        return None if random.getstate() == self.streams[2] else "Python's random module"

    def outcome(self, result) -> list:
        """What an update has done: the new values of all that it changed, and what it gave."""
        changed = [torch.get_rng_state(), *(t.detach().clone() for t in self.tensors)]
        grads = [p.grad for p in self.dependencies.parameters]
        grads = [None if g is None else g.detach().clone() for g in grads]
        leaves = [x.detach().clone() if torch.is_tensor(x) else x for x in tree_flatten(result)[0]]
        return [*changed, *grads, *leaves]
