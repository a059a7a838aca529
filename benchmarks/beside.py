"""How fast this version trains beside another one, such as the version before.

    git worktree add ../before COMMIT
    python benchmarks/beside.py ../before

Both versions train each case at the same time, in two processes that take turns: one does a block
(50 environment steps and their updates, or a rollout and its epochs of updates) while the other
waits. A turn is so short that both meet the same noise of the machine. The ratio is the median over
all pairs of turns; the best block of each is printed beside it.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

from cases import CASES, Case, make_env

HERE = Path(__file__).resolve().parents[1]


class Turns:
    """A clock that waits at the beginning of each block for its turn, and tells the time of it."""

    def __init__(self, case: Case):
        self.case, self.steps, self.began = case, 0, None
        self.block = max(case.every, 50)

    def tick(self):
        """Note that a step is about to be taken."""
        if self.steps >= self.case.warm and (self.steps - self.case.warm) % self.block == 0:
            now = time.perf_counter()
            print(0.0 if self.began is None else now - self.began, file=sys.__stdout__, flush=True)
            if not sys.stdin.readline():
                os._exit(0)  # the measurement is over
            self.began = time.perf_counter()
        self.steps += 1


def train(case: Case):
    """What each of the two processes does."""
    from peers import ours

    clock = Turns(case)
    sys.stdout = sys.stderr
    ours(case, lambda: make_env(case.env, clock))


class Version:
    """A process that trains a case with the spinup of a checkout, a block at a time."""

    def __init__(self, checkout: Path, case: Case):
        environment = dict(os.environ, PYTHONPATH=str(checkout), TQDM_DISABLE="1")
        words = [sys.executable, __file__, "--train", json.dumps(asdict(case)), str(checkout)]
        self.process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        self.read()

    def read(self) -> float:
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{self.process.args[-1]} ended while it trained.")
        return float(line)

    def block(self) -> float:
        """The seconds of one block."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.read()

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def compare(case: Case, checkouts: list[Path], seconds: float) -> list[list[float]]:
    """The times of the blocks of each version, turn about, for so many seconds."""
    versions = [Version(checkout, case) for checkout in checkouts]
    times = [[] for _ in versions]
    while sum(map(sum, times)) < seconds or len(times[0]) < 10:
        order = list(zip(versions, times))
        for version, found in order if len(times[0]) % 2 else reversed(order):
            found.append(version.block())
    for version in versions:
        version.end()
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("other", type=Path, help="the folder of the other version")
    parser.add_argument(
        "--only", nargs="*", default=[""], help="cases whose name holds one of these"
    )
    parser.add_argument("--seconds", type=float, default=30.0, help="for each case, both together")
    parser.add_argument("--train", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.train:
        values = json.loads(args.train)
        train(Case(**values | dict(hidden=tuple(values["hidden"]))))
        return
    if not (args.other / "spinup").is_dir():
        parser.error(f"{args.other} is not a checkout of this project")
    print("Environment steps per second of the best block; how often as fast, here / there")
    print(f"{'case':40} {'here':>9} {'other':>9} {'best':>6} {'median':>7}  pairs")
    for case in [case for case in CASES if any(word in case.name for word in args.only)]:
        here, other = compare(case, [HERE, args.other.resolve()], args.seconds)
        rates = [max(case.every, 50) / min(times) for times in (here, other)]
        ratio = statistics.median(b / a for a, b in zip(here, other))
        print(
            f"{case.name:40} {rates[0]:9.0f} {rates[1]:9.0f} {rates[0] / rates[1]:6.2f} "
            f"{ratio:7.2f}  {len(here)}",
            flush=True,
        )


if __name__ == "__main__":
    main()
