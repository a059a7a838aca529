"""How fast this version trains beside another one, such as the version before.

    git worktree add ../before COMMIT
    python benchmarks/beside.py ../before --turns 5

Each case is trained by both, turn about, each turn in a process of its own; the best of the turns
counts. Compare only what was measured in one run.
"""

import argparse
import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from cases import CASES

HERE = Path(__file__).resolve().parents[1]


def steps_per_second(checkout: Path, case, seconds: float) -> float:
    """One turn of a checkout on a case."""
    environment = dict(os.environ, PYTHONPATH=str(checkout), TQDM_DISABLE="1")
    script = str(checkout / "benchmarks" / "peers.py")
    words = [sys.executable, script, "ours", json.dumps(asdict(case)), str(seconds)]
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    if done.returncode:
        sys.exit(f"{checkout} failed at {case.name}: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout.splitlines()[-1])["steps_per_second"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("other", type=Path, help="the folder of the other version")
    parser.add_argument(
        "--only", nargs="*", default=[""], help="cases whose name holds one of these"
    )
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="how long a turn takes at least")
    args = parser.parse_args()
    if not (args.other / "benchmarks" / "peers.py").exists():
        parser.error(f"{args.other} is not a checkout of this project")
    versions = dict(here=HERE, other=args.other.resolve())
    print(f"{'case':45} {'here':>9} {'other':>9} {'ratio':>6}   turns (here | other)")
    for case in [case for case in CASES if any(word in case.name for word in args.only)]:
        found = {name: [] for name in versions}
        for _ in range(args.turns):
            for name, checkout in versions.items():
                found[name].append(steps_per_second(checkout, case, args.seconds))
        here, other = max(found["here"]), max(found["other"])
        turns = " | ".join(" ".join(f"{x:.0f}" for x in found[name]) for name in versions)
        print(f"{case.name:45} {here:9.0f} {other:9.0f} {here / other:6.2f}   {turns}", flush=True)


if __name__ == "__main__":
    main()
