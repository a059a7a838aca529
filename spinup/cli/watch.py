"""`spinup watch RUN`: see a trained agent play, or record a video of it."""

import argparse
from pathlib import Path

from spinup.parts.errors import UserError, shown
from spinup.parts.make_env import EnvMaker, allow_env
from spinup.parts.run_folder import require_run
from spinup.results.agents import named_class
from spinup.results.playback import LIMITS, load_policy_for, make_run_env, run_policy
from spinup.results.video import VIDEOS, check_rendering, has_screen, render_without_screen


def main(argv=None, name="spinup watch", episodes=5):
    """The commands `spinup watch` and `spinup test_policy`."""
    args = _parser(name, episodes).parse_args(argv)
    _check(args)
    mode = "rgb_array" if args.video else "human" if has_screen() and not args.norender else None
    if mode is not None:
        render_without_screen()
    allow_env(args.env)
    folder = require_run(args.fpath, name)
    env_fn = EnvMaker(args.env, dict(render_mode=mode)) if args.env else None
    env = make_run_env(folder, env_fn, mode)
    itr = args.itr if args.itr >= 0 else "last"
    network_class = named_class(args.actor_critic)
    get_action = load_policy_for(folder, env, itr, args.deterministic, network_class)
    if args.video:
        check_rendering(env)
    render = not args.norender
    run_policy(env, get_action, args.len or None, args.episodes, render, args.seed, args.video)
    env.close()


def _parser(name, episodes) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(name, description="See a trained agent play.")
    add = parser.add_argument
    add("fpath", help="the run's folder")
    steps = "steps per episode at most; 0: as many as the environment allows"
    add("--len", "-l", type=int, default=0, help=steps)
    add("--episodes", "-n", type=int, default=episodes, help="how many to play (%(default)s)")
    add("--norender", "-nr", action="store_true", help="only print the returns")
    add("--itr", "-i", type=int, default=-1, help="number of a saved model")
    add("--deterministic", "-d", action="store_true", help="play the greedy action")
    add("--video", metavar="FILE.mp4", help="record to a file")
    add("--seed", type=int, help="seed of the first episode's start")
    add("--env", help="play in this environment, instead of the run's own")
    add("--actor_critic", metavar="MODULE:CLASS", help="networks of your own")
    return parser


def _check(args):
    """Refuse numbers out of their limits, and a video of an unknown kind."""
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
