"""How long `spinup plot` takes to draw many runs: by default 200 of 1000 epochs.

    python benchmarks/plot_many.py [--runs 200] [--epochs 1000] [--experiments 5] [PLOT FLAGS …]

The folders are made once, with the columns of PPO, and are thrown away at the end. What is timed is
the whole command in a process of its own: start, imports, reading, drawing, writing the figure.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

HEADER = (
    "Epoch AverageEpRet StdEpRet MaxEpRet MinEpRet EpLen AverageVVals StdVVals MaxVVals MinVVals "
    "TotalEnvInteracts LossPi LossV DeltaLossPi DeltaLossV Entropy KL ClipFrac StopIter Time"
)
COLUMNS = HEADER.split()


def write_runs(folder, runs, epochs, experiments):
    """Make run folders whose curves climb at different speeds, with noise."""
    rng, epoch = np.random.default_rng(0), np.arange(epochs)
    for number in range(runs):
        name, seed = f"exp{number % experiments}", number // experiments
        climb = 500 * (1 - np.exp(-epoch / epochs * (1 + number % experiments)))
        table = rng.normal(size=(epochs, len(COLUMNS)))
        table[:, COLUMNS.index("Epoch")] = epoch
        table[:, COLUMNS.index("AverageEpRet")] = climb + rng.normal(size=epochs) * 20
        table[:, COLUMNS.index("TotalEnvInteracts")] = (epoch + 1) * 4000
        table[:, COLUMNS.index("Time")] = np.cumsum(rng.uniform(1, 2, size=epochs))
        run = folder / name / f"{name}_s{seed}"
        run.mkdir(parents=True)
        rows = ["\t".join(COLUMNS), *("\t".join(map(repr, row)) for row in table.tolist())]
        (run / "progress.txt").write_text("\n".join(rows) + "\n")
        settings = dict(exp_name=name, seed=seed, environment=dict(id="Hopper-v5"))
        (run / "config.json").write_text(json.dumps(settings))


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name, default in dict(runs=200, epochs=1000, experiments=5, turns=3).items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--command", default="plot", choices=["plot", "compare", "report"])
    args, flags = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        data, output = Path(folder) / "data", Path(folder) / "out"
        write_runs(data, args.runs, args.epochs, args.experiments)
        output = dict(plot=["-o", f"{output}.png"], report=["-o", f"{output}.html"], compare=[])
        command = [sys.executable, "-m", "spinup.run", args.command, str(data)]
        command += [*output[args.command], *flags]
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[1])}
        seconds = []
        for _ in range(args.turns):
            began = time.perf_counter()
            subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
            seconds.append(time.perf_counter() - began)
    turns = ", ".join(f"{s:.2f}" for s in seconds)
    print(f"spinup {args.command} of {args.runs} runs × {args.epochs} epochs: {turns} s")


if __name__ == "__main__":
    main()
