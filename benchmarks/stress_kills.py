"""Kill runs at random instants, many times, and see that nothing is different in the end.

    python benchmarks/stress_kills.py --kills 60

Each configuration is run once unbroken, then once more with a SIGKILL at random instants (while
stepping environments, between gradient steps, while writing a checkpoint, with a torn file, or
after any number of seconds) until it is through. Weights, optimizers, replay contents, random
streams, models and progress.txt (its Time aside) must be equal bit for bit.
"""

import argparse
import itertools
import random
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))
import killed_runs


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=60, help="at least this many in all")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    configurations = list(itertools.product(killed_runs.SETTINGS, (1, 4), (1, 2)))
    each = -(-args.kills // len(configurations))
    killed, wrong = 0, []
    for algorithm, num_envs, cpu in configurations:
        with tempfile.TemporaryDirectory() as folder:
            whole, broken = Path(folder) / "whole", Path(folder) / "broken"
            began = time.time()
            killed_runs.run_until_done(killed_runs.command(algorithm, whole, num_envs, cpu), [])
            kills = 0
            while kills < each:  # an instant may lie past the end: then once more from the start
                left = [killed_runs.random_instant(rng) for _ in range(each - kills)]
                again = [*killed_runs.command(algorithm, broken, num_envs, cpu)]
                kills += killed_runs.run_until_done(again, left)
                a, b = killed_runs.remains(whole), killed_runs.remains(broken)
                differing = [key for key in a.keys() | b.keys() if a.get(key) != b.get(key)]
                if differing:
                    wrong.append((algorithm, num_envs, cpu, differing))
                if kills < each:
                    import shutil

                    shutil.rmtree(broken)
            killed += kills
            name = f"{algorithm}, {num_envs} environment(s), {cpu} process(es)"
            verdict = "DIFFERS" if differing else "equal"
            print(f"{name}: {kills} kills, {verdict}, {time.time() - began:.0f} s", flush=True)
    print(f"{killed} kills in {len(configurations)} configurations, {len(wrong)} differ {wrong}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
