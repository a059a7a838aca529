"""`spinup resume RUN`: continue a run that was stopped."""

import argparse

from spinup.experiments.resume import resume


def main(argv=None):
    parser = argparse.ArgumentParser(
        "spinup resume", description="Continue a run that was stopped."
    )
    parser.add_argument("run", help="the run's folder")
    parser.add_argument("--epochs", type=int, help="train until this many epochs are done")
    parser.add_argument("--env", help="the run's package:Id once more, to allow that package")
    parser.add_argument("--wandb", action="store_true", help="send it to Weights & Biases again")
    args = parser.parse_args(argv)
    resume(args.run, args.epochs, args.env, args.wandb)
