"""Where the time of a training goes: microseconds of each environment step, kind by kind.

    python benchmarks/where_time_goes.py "SAC HalfCheetah, batch 100" [seconds]

trains one case and prints what it found; `speed.py` puts the cases that have goals in a table.
Every step of a replayed update is timed on its own, which slows small ones down a little. Where
policy and value learn side by side in two threads, the policy's is looked at: it takes longer.
"""

import argparse
import json
import sys
import threading
import time
from collections import defaultdict
from contextlib import redirect_stdout, suppress
from functools import wraps
from importlib import import_module

from cases import CASES, Clock, Measured, clock_for, make_env
from peers import ours

WIDE = 32  # rows, columns and what they are multiplied along, at the least
KINDS = [
    "wide products",
    "thin products",
    "activations and slopes",
    "Adam",
    "target network",
    "other steps of an update",
    "between the steps",
    "sampling batches",
    "acting",
    "environment",
    "all else",
]

totals = defaultdict(float)
inner = [0.0]  # seconds of what was timed within each call that is under way


def kind_of(operation, args) -> str:
    """Which kind of step an operation is."""
    name = getattr(operation, "function", operation)  # a function of ours, or PyTorch's operation
    name = str(name).lower()
    if name.split(".")[1] in ("mm", "bmm", "addmm", "baddbmm"):
        sides = (*args[-2].shape[-2:], args[-1].shape[-1])
        return "wide products" if min(sides) >= WIDE else "thin products"
    if any(word in name for word in ("relu", "tanh", "threshold")):
        return "activations and slopes"
    if "adam" in name:
        return "Adam"
    return (
        "target network" if "movetowards" in name or "lerp" in name else "other steps of an update"
    )


def timed(function, kind):
    """The same function, whose time counts as of that kind if the first thread calls it.

    What it calls and is timed too counts there alone.
    """

    @wraps(function)
    def call(*args, **kwargs):
        if threading.current_thread() is not threading.main_thread():
            return function(*args, **kwargs)
        inner.append(0.0)
        began = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            seconds = time.perf_counter() - began
            totals[kind] += seconds - inner.pop()
            inner[-1] += seconds

    # A method of a network is reachable from the update. A capture would look into a function of
    # this file and refuse it for its clock; what is PyTorch's it trusts.
    call.__module__ = "torch"
    return call


class FreshClock(Clock):
    """A clock that forgets what was counted before it began."""

    def tick(self):
        before = self.began
        super().tick()
        if not before and self.began:
            totals.clear()


def watch(algorithm):
    """Time the parts of an algorithm."""
    from spinup.parts.envs import VectorEnv
    from spinup.parts.pytorch.fast import capture

    module = import_module(f"spinup.algos.pytorch.{algorithm}.{algorithm}")
    replay_kernel = capture.replay_kernel

    def timed_step(operation, args, kwargs, result, threads):
        step = replay_kernel(operation, args, kwargs, result, threads)
        return timed(step, kind_of(operation, args))

    capture.replay_kernel = timed_step
    update = module.update
    module.update = timed(update, "between the steps")
    if hasattr(update, "each"):  # for a block of batches
        module.update.each = timed(update.each, "between the steps")
    VectorEnv.step = timed(VectorEnv.step, "environment")
    actor_critic = getattr(module.core, "MLPActorCritic", None) or module.core.MLPQNetwork
    for name in ("step", "act"):
        if name in vars(actor_critic):
            setattr(actor_critic, name, timed(getattr(actor_critic, name), "acting"))
    for name in ("ReplayBuffer", "NStepReplayBuffer"):
        if buffer := vars(module).get(name):
            buffer.sample_batch = timed(buffer.sample_batch, "sampling batches")


def profile(case, seconds: float) -> dict:
    """Microseconds per environment step of each kind."""
    from spinup.parts.pytorch.fast import reports

    watch(case.algorithm)
    clock = FreshClock(**vars(clock_for(case, seconds)))
    with redirect_stdout(sys.stderr), suppress(Measured):
        ours(case, lambda: make_env(case.env, clock))
    for name, report in reports().items():
        if report.reason:
            sys.exit(
                f"{name} runs eagerly, because {report.reason}: its steps cannot be told apart"
            )
    totals["all else"] = clock.seconds - sum(totals.values())
    return {kind: totals[kind] / clock.timed * 1e6 for kind in KINDS}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cases = {case.name: case for case in CASES}
    parser.add_argument("case", choices=cases, metavar="CASE", help=f"one of: {'; '.join(cases)}")
    parser.add_argument("seconds", type=float, nargs="?", default=4.0, help="how long to look")
    args = parser.parse_args()
    print(json.dumps(profile(cases[args.case], args.seconds)))
