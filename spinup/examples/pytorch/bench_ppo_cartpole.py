"""PPO on CartPole with networks of two sizes and two activations: a grid, from a script.

    python -m spinup.examples.pytorch.bench_ppo_cartpole --num_runs 3 --jobs 2

The runs are kept in data/ppo-pyt-bench_…; called again, it continues where it was stopped.
"""

import argparse

import torch

from spinup import ppo_pytorch
from spinup.utils.run_utils import ExperimentGrid

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="PPO on CartPole, a small grid.")
    parser.add_argument("--cpu", type=int, default=1, help="processes that train one policy")
    parser.add_argument("--num_runs", type=int, default=3, help="seeds of each variant")
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--steps_per_epoch", type=int, default=4000)
    args = parser.parse_args()

    grid = ExperimentGrid(name="ppo-pyt-bench")
    grid.add("env_name", "CartPole-v1", "", True)  # in the name, though it has one value
    grid.add("seed", [10 * i for i in range(args.num_runs)])
    grid.add("epochs", args.epochs)
    grid.add("steps_per_epoch", args.steps_per_epoch)
    grid.add("ac_kwargs:hidden_sizes", [(32,), (64, 64)], "hid")
    grid.add("ac_kwargs:activation", [torch.nn.Tanh, torch.nn.ReLU], "")
    grid.run(ppo_pytorch, num_cpu=args.cpu, jobs=args.jobs)
