"""The algorithms by kind, as their signatures and folders tell: a new one needs no edit here."""

import inspect
import json
from pathlib import Path

import gymnasium

import spinup
import spinup.envs
from spinup.parts.errors import UserError

ALGORITHMS = list(spinup.ALGORITHMS["pytorch"])
SMALL = dict(  # sizes with which every algorithm trains in seconds
    steps_per_epoch=240,
    train_pi_iters=2,
    train_v_iters=2,
    start_steps=100,
    update_after=100,
    update_every=20,
    replay_start=50,
    replay_size=500,
    batch_size=16,
    num_test_episodes=1,
)


def parameters(algorithm: str) -> dict:
    return inspect.signature(getattr(spinup, f"{algorithm}_pytorch")).parameters


def small(algorithm: str, **settings) -> dict:
    """The settings, and those of SMALL, as far as the algorithm has them."""
    known = parameters(algorithm)
    return {key: value for key, value in (SMALL | settings).items() if key in known}


def small_flags(algorithm: str) -> str:
    """A small run of five epochs as it is typed after `spinup`."""
    settings = " ".join(f"--{key} {value}" for key, value in small(algorithm).items())
    return f"{algorithm} --env {ENVS[algorithm]} --epochs 5 --hid [16,16] {settings}"


def takes(algorithm: str, actions: gymnasium.Space) -> bool:
    """Whether an algorithm's networks can be made for a space of actions."""
    make_networks = parameters(algorithm)["actor_critic"].default
    try:
        make_networks(gymnasium.spaces.Box(-1, 1, (3,)), actions, hidden_sizes=(4,))
    except UserError:
        return False
    return True


def _env(algorithm: str) -> str:
    folder = Path(spinup.__file__).parent / "algos" / "pytorch" / algorithm
    return json.loads((folder / "config.json").read_text())["env_name"]


OFF_POLICY = [name for name in ALGORITHMS if "replay_size" in parameters(name)]
ON_POLICY = [name for name in ALGORITHMS if name not in OFF_POLICY]
ENVS = {name: _env(name) for name in ALGORITHMS}  # one that the algorithm can train on
GOALS = [name for name in ALGORITHMS if ENVS[name].startswith("spinup/")]  # need goals
