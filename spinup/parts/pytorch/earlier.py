"""Saved numbers of earlier versions, under the names that parameters have now.

The first version stored the critics of SAC, TD3 and HER stacked, inputs first: `q.weights.0`
held the first layers of both. And the layers of a deterministic policy were called `pi.net`.
"""

import re
from collections.abc import Container


def current_names(state: dict) -> dict:
    """The state dict of an actor-critic with today's names."""
    weights = [key for key in state if re.fullmatch(r"q\.weights\.\d+", key)]
    if not weights:
        return _rename_policy(state)
    kept = {key: x for key, x in state.items() if not key.startswith("q.")}
    kept |= {key: x for key, x in state.items() if key.startswith("q.flat")}
    for layer in range(len(weights)):
        weight, bias = state[f"q.weights.{layer}"], state[f"q.biases.{layer}"]
        for i in range(len(weight)):
            # HER's critics are a list called q, the others' are q1 and q2.
            for name in (f"q{i + 1}.q", f"q.{i}.q"):
                kept[f"{name}.{2 * layer}.weight"] = weight[i].T
                kept[f"{name}.{2 * layer}.bias"] = bias[i, 0]
    return _rename_policy(kept)


def _rename_policy(state):
    """`pi.net` became `pi.pi` where that is all there is; SAC's policy has heads beside its net."""
    if any(key.startswith(("pi.mu_layer", "pi.logits_net")) for key in state):
        return state
    return {re.sub(r"^pi\.net\.", "pi.pi.", key): x for key, x in state.items()}


def only_known(state: dict, known: Container[str]) -> dict:
    """Of renamed numbers those that a network has; a file of today is left as it is."""
    renamed = current_names(state)
    changed = renamed.keys() != state.keys()
    return {k: x for k, x in renamed.items() if k in known} if changed else state


def unstacked(saved: list) -> list:
    """The moments of stacked critics, in the order of their parameters now."""
    half = len(saved) // 2
    weights, biases = saved[:half], saved[half:]
    return [
        part
        for i in range(len(weights[0]))
        for weight, bias in zip(weights, biases)
        for part in (weight[i].T, bias[i, 0])
    ]
