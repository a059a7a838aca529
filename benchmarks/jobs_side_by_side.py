"""How much sooner a grid of 12 runs is through when two of them run side by side.

    python benchmarks/jobs_side_by_side.py

Each run is a process of its own that loads PyTorch and trains VPG on CartPole for some seconds.
The results must be the same either way; the times are of the whole grid, starts included.
"""

import argparse
import contextlib
import io
import sys
import tempfile
import time
from pathlib import Path

from spinup import vpg_pytorch
from spinup.experiments.job import Job
from spinup.experiments.jobs import run_jobs
from spinup.experiments.processes import cores


def grid(data_dir, count, epochs) -> list[Job]:
    settings = dict(
        env_name="CartPole-v1",
        steps_per_epoch=1000,
        epochs=epochs,
        train_v_iters=20,
        ac_kwargs=dict(hidden_sizes=[32, 32]),
    )
    return [
        Job(
            "side",
            vpg_pytorch,
            dict(
                settings,
                seed=seed,
                logger_kwargs=dict(output_dir=f"{data_dir}/side_s{seed}", exp_name="side"),
            ),
        )
        for seed in range(count)
    ]


def timed(at_once, count, epochs):
    """Seconds for the whole grid, and what its tables hold but for the times."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        began = time.time()
        run_jobs(grid(folder, count, epochs), at_once)
        seconds, tables = time.time() - began, []
        for path in sorted(Path(folder).glob("*/progress.txt")):
            rows = [line.split("\t") for line in path.read_text().splitlines()]
            column = rows[0].index("Time")
            training = float(rows[-1][column])
            tables.append([row[:column] + row[column + 1 :] for row in rows])
    print(f"{count} runs, {at_once} at once: {seconds:.1f} s (the last trained {training:.1f} s)")
    return seconds, tables


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=12)
    parser.add_argument("--epochs", type=int, default=20, help="of 1000 steps, in each run")
    args = parser.parse_args()
    print(f"{cores()} cores")
    two, tables = timed(2, args.runs, args.epochs)
    one, same = timed(1, args.runs, args.epochs)
    print(f"side by side takes {two / one:.2f} of the time; results equal: {tables == same}")
    sys.exit(tables != same)


if __name__ == "__main__":
    main()
