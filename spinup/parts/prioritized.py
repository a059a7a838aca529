"""Prioritized replay: the priorities of rows, and the sum tree that samples rows by them."""

import numpy as np
from numpy.typing import ArrayLike

EPSILON = 1e-6  # so that a row whose TD error was 0 can still be sampled again


class SumTree:
    """Numbers at the leaves of a binary tree in which every other node is the sum of its two.

    Node k has the children 2k and 2k + 1; the root is node 1. Adding up what has changed, or
    finding where a running sum is reached, takes as many steps as the tree has levels, each for a
    whole batch at once. A sum is always computed from the two below, never corrected by a
    difference: it depends on the leaves alone, and a tree made of saved leaves is the same to the
    last bit.
    """

    def __init__(self, size: int):
        self.levels = max(1, int(size - 1).bit_length())
        self.first = 2**self.levels  # where the leaves begin
        self.nodes = np.zeros(2 * self.first)
        self.changed: list[np.ndarray] = []  # leaves above which the sums are still the old ones

    @property
    def total(self) -> float:
        """The sum of all leaves."""
        self.refresh()
        return float(self.nodes[1])

    def get(self, leaves: np.ndarray | slice) -> np.ndarray:
        return self.nodes[self.first :][leaves]

    def set(self, leaves: np.ndarray, values: ArrayLike) -> None:
        """Give leaves new numbers; where a leaf is named twice, the last one counts."""
        node = leaves + self.first
        self.nodes[node] = values
        self.changed.append(node)

    def refresh(self) -> None:
        """Bring the sums up to date, for all changes together: many take hardly longer than one."""
        if not self.changed:
            return
        node, self.changed = np.concatenate(self.changed), []
        for _ in range(self.levels):
            node = node // 2
            self.nodes[node] = self.nodes[2 * node] + self.nodes[2 * node + 1]

    def find(self, amounts: np.ndarray) -> np.ndarray:
        """For each amount, the leaf at which the sum of the leaves from the left passes it.

        Sums are rounded: an amount close to the total may find a leaf behind the last that counts.
        """
        self.refresh()
        node, rest = np.ones(len(amounts), np.int64), np.array(amounts, np.float64)
        for _ in range(self.levels):
            node *= 2
            left = self.nodes.take(node)
            right = rest >= left
            rest -= left * right
            node += right
        return node - self.first


class Priorities:
    """How often each row of a ring is sampled: in proportion to a power of its TD error.

    This is the proportional variant of Schaul and others, 2016.
    """

    def __init__(self, size: int, exponent: float):
        """Begin without rows.

        exponent: 0 samples all rows equally often, 1 in full proportion to their TD errors
        """
        self.tree, self.exponent = SumTree(size), exponent
        self.filled, self.max_priority = 0, 1.0  # the largest of all priorities so far

    def add(self, rows: np.ndarray, filled: int) -> None:
        """Add rows; until their TD errors are known they have the largest priority so far."""
        self.tree.set(rows, self.max_priority)
        self.filled = filled

    def update(self, rows: np.ndarray, errors: np.ndarray) -> None:
        """Set priorities by how large the TD errors of some rows were in the last update."""
        # Rounded to the four bytes in which they are saved.
        new = ((errors + EPSILON) ** self.exponent).astype(np.float32)
        self.tree.set(rows, new)
        self.max_priority = max(self.max_priority, float(new.max()))

    def sample(self, count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Rows, one from each of `count` equal parts of the sum, and the probability of each."""
        amounts = (np.arange(count) + rng.random(count)) * (self.tree.total / count)
        rows = np.minimum(self.tree.find(amounts), self.filled - 1)
        return rows, self.tree.get(rows) / self.tree.total

    def state_dict(self) -> dict:
        leaves = self.tree.get(slice(self.filled)).astype(np.float32)
        return dict(leaves=leaves, max_priority=self.max_priority)

    def load_state_dict(self, state: dict) -> None:
        self.filled = len(state["leaves"])
        self.max_priority = state["max_priority"] if "max_priority" in state else state["greatest"]
        self.tree.set(np.arange(self.filled), state["leaves"])
