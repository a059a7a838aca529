"""`spinup export RUN`: the trained policy as an ONNX file."""

import argparse
from pathlib import Path

from spinup.parts.plain_text import say
from spinup.results.agents import named_class
from spinup.results.export import BATCHES, USE, export


def main(argv=None):
    """The command `spinup export`."""
    parser = argparse.ArgumentParser(
        "spinup export", description="Write a trained policy as an ONNX file."
    )
    parser.add_argument("run", help="the run's folder")
    parser.add_argument(
        "--output", "-o", metavar="FILE.onnx", help="policy.onnx in the run's folder"
    )
    parser.add_argument("--itr", "-i", type=int, default=-1, help="number of a saved model")
    parser.add_argument("--actor_critic", metavar="MODULE:CLASS", help="networks of your own")
    args = parser.parse_args(argv)
    output = Path(args.output or Path(args.run) / "policy.onnx")
    itr = args.itr if args.itr >= 0 else "last"
    difference, dtype = export(args.run, output, itr, named_class(args.actor_critic))
    size = output.stat().st_size / 1000
    say(
        f"Wrote {output}, {size:.0f} kB. On {sum(BATCHES)} random observations its largest "
        f"difference from the network is {difference:.1g}."
    )
    say(USE.format(path=str(output), dtype=dtype))
