"""`spinup watch RUN`: see a trained agent play, or record a video of it."""

import argparse
from pathlib import Path

from spinup.parts.errors import UserError, shown
from spinup.parts.make_env import EnvMaker, allow_env
from spinup.results.playback import LIMITS, load_policy_and_env, named_class, run_policy
from spinup.results.video import VIDEOS, check_rendering, has_screen, render_without_screen


def main(argv=None, name="spinup watch", episodes=5):
    """The commands `spinup watch` and `spinup test_policy`."""
    parser = argparse.ArgumentParser(name, description="See a trained agent play.")
    parser.add_argument("fpath", help="the run's folder")
    parser.add_argument(
        "--len",
        "-l",
        type=int,
        default=0,
        help="steps per episode at most; 0: as many as the environment allows",
    )
    parser.add_argument("--episodes", "-n", type=int, default=episodes)
    parser.add_argument("--norender", "-nr", action="store_true", help="only print the returns")
    parser.add_argument("--itr", "-i", type=int, default=-1, help="number of a saved model")
    parser.add_argument("--deterministic", "-d", action="store_true", help="play the best action")
    parser.add_argument("--video", metavar="FILE.mp4", help="record to a file")
    parser.add_argument("--seed", type=int, help="where the first episode starts")
    parser.add_argument("--env", help="play in this environment, instead of the run's own")
    parser.add_argument("--actor_critic", metavar="MODULE:CLASS", help="networks of your own")
    parser.add_argument("--trust_graph", action="store_true", help="run a TensorFlow graph")
    args = parser.parse_args(argv)
    for flag, (least, most) in LIMITS.items():
        value = getattr(args, flag)
        if value is not None and not least <= value <= most:
            raise UserError(
                f"--{flag} must be an integer from {least} to {most}, not {shown(value)}."
            )
    if args.video and Path(args.video).suffix not in VIDEOS:
        raise UserError(
            f"--video must be a file that ends in {', '.join(VIDEOS)}, not {args.video}."
        )
    mode = "rgb_array" if args.video else "human" if has_screen() and not args.norender else None
    if mode is not None:
        render_without_screen()
    allow_env(args.env)
    env, get_action = load_policy_and_env(
        args.fpath,
        args.itr if args.itr >= 0 else "last",
        args.deterministic,
        actor_critic=named_class(args.actor_critic),
        env_fn=EnvMaker(args.env, dict(render_mode=mode)) if args.env else None,
        render_mode=mode,
        trust_graph=args.trust_graph,
    )
    if args.video:
        check_rendering(env)
    render = not args.norender
    run_policy(env, get_action, args.len or None, args.episodes, render, args.seed, args.video)
    env.close()
