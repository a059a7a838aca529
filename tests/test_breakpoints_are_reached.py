"""With SPINUP_FAST=0, as in `make shell`, a debugger sees every update; without it, only a few."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import sys
import gymnasium
from spinup.algos.pytorch.ddpg.ddpg import compute_loss_q, ddpg

seen = []

def trace(frame, event, arg):  # as debuggers do
    if event == "call" and frame.f_code is compute_loss_q.__code__:
        seen.append(frame)

sys.settrace(trace)
ddpg(
    lambda: gymnasium.make("Pendulum-v1"), ac_kwargs=dict(hidden_sizes=[8]), epochs=1,
    steps_per_epoch=60, start_steps=10, update_after=20, update_every=20, batch_size=8,
    num_test_episodes=1, max_ep_len=20, logger_kwargs=dict(output_dir=sys.argv[1]),
)
sys.settrace(None)
print("updates seen:", len(seen))
"""


def updates_seen(folder, **environment):
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    return int(run.stdout.rpartition("updates seen:")[2])


@pytest.mark.parametrize("value", ["0", "Off"])
def test_every_update_is_reached_with_fast_mode_off(tmp_path, value):
    assert updates_seen(tmp_path, SPINUP_FAST=value) == 40  # one for each step after update_after


def test_replayed_updates_are_not(tmp_path):
    assert updates_seen(tmp_path, SPINUP_FAST="1") < 10
