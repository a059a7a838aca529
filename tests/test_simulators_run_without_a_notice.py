"""Locomotion, Fetch, Box2D and Atari environments are found by their ids and run in silence."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
from spinup.parts.envs import VectorEnv
from spinup.parts.make_env import EnvMaker

env = VectorEnv(EnvMaker(sys.argv[1]), n=2, seed=0, max_ep_len=20)
for _ in range(30):
    step = env.step(env.sample_actions())
assert env.obs.shape[0] == 2 and step.rew.shape == (2,)
"""


@pytest.mark.parametrize(
    "env_name", ["HalfCheetah-v5", "Ant-v5", "FetchReach-v4", "LunarLander-v3", "ALE/Pong-v5"]
)
def test_it_runs_in_silence(env_name):
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, env_name],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout + ended.stderr == ""
