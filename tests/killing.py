"""Runs that are really killed, for the tests and the stress script that promise exact resuming.

As a program it is `spinup` itself with a trap: the environment variable KILL_AT names an
instant, such as `gradient_step:37`, at which the process ends itself with SIGKILL.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import kinds
import numpy as np

import spinup

REPOSITORY = Path(__file__).parents[1]
SETTINGS = dict(
    reinforce="reinforce --env CartPole-v1 --steps_per_epoch 400 --epochs 5 --baseline value "
    "--train_v_iters 7 --hid [16,16]",
    vpg="vpg --env CartPole-v1 --steps_per_epoch 400 --epochs 5 --train_v_iters 7 --hid [16,16]",
    trpo="trpo --env CartPole-v1 --steps_per_epoch 400 --epochs 5 --train_v_iters 24 --hid [16,16] "
    "--cg_iters 4 --backtrack_iters 3",
    ppo="ppo --env CartPole-v1 --steps_per_epoch 400 --epochs 5 --train_pi_iters 4 "
    "--train_v_iters 4 --hid [16,16] --minibatch_size 150 --ac_kwargs:normalize True",
    acer="acer --env CartPole-v1 --steps_per_epoch 240 --epochs 5 --n_steps 7 --hid [16,16] "
    "--replay_start 50 --replay_ratio 3 --replay_size 300 --num_test_episodes 1",
    sac="sac --env Pendulum-v1 --steps_per_epoch 240 --epochs 5 --start_steps 100 --hid [16,16] "
    "--update_after 100 --update_every 20 --batch_size 16 --replay_size 500 --alpha auto "
    "--num_test_episodes 1",
    ddpg="ddpg --env Pendulum-v1 --steps_per_epoch 240 --epochs 5 --start_steps 100 "
    "--hid [16,16] --update_after 100 --update_every 20 --batch_size 16 --replay_size 500 "
    "--num_test_episodes 1",
    td3="td3 --env Pendulum-v1 --steps_per_epoch 240 --epochs 5 --start_steps 100 --hid [16,16] "
    "--update_after 100 --update_every 20 --batch_size 16 --replay_size 500 --policy_delay 3 "
    "--num_test_episodes 1",
    dqn="dqn --env CartPole-v1 --steps_per_epoch 240 --epochs 5 --start_steps 100 --hid [16,16] "
    "--update_after 100 --update_every 4 --batch_size 16 --replay_size 500 --target_every 10 "
    "--num_test_episodes 1",
    her="her --env spinup/Reach-v0 --steps_per_epoch 240 --epochs 5 --start_steps 100 "
    "--hid [16,16] --update_after 100 --update_every 20 --batch_size 16 --replay_size 500 "
    "--strategy episode --num_test_episodes 1",
)
# Kinds of them that keep more state, or draw otherwise.
SETTINGS |= {name: kinds.small_flags(name) for name in kinds.ALGORITHMS if name not in SETTINGS}
SETTINGS |= {
    "dqn prioritized": SETTINGS["dqn"] + " --prioritized --n_step 3 --ac_kwargs:dueling",
    "sac discrete": SETTINGS["sac"].replace("Pendulum-v1", "CartPole-v1"),
}
# The same as computation graphs.
TF1 = {
    f"{name}_tf1": f"{name}_tf1" + SETTINGS[name].removeprefix(name).partition(" --ac_kwargs")[0]
    for name in spinup.ALGORITHMS["tf1"]
}
# Calls in one epoch of the settings above, about: what a random instant is drawn from.
INSTANTS = dict(step=400, gradient_step=60, fsync=5, torn=5, replace=3)


def command(algorithm, folder, num_envs=1, cpu=1) -> list[str]:
    """The command line of a small run whose data are kept in `folder`."""
    words = (SETTINGS | TF1)[algorithm].split()
    words += f"--num_envs {num_envs} --cpu {cpu} --seed 7 --exp_name run".split()
    return [sys.executable, str(Path(__file__)), *words, "--data_dir", str(folder)]


def run(command, kill_at="", kill_after=None, timeout=180) -> tuple[int, str]:
    """Start the command and wait; kill it at an instant of its own, or after some seconds."""
    environment = {
        **os.environ,
        "KILL_AT": kill_at,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(REPOSITORY),
    }
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if kill_after is not None:
        time.sleep(kill_after)
        process.kill()
    output, _ = process.communicate(timeout=timeout)
    return process.returncode, output


def run_until_done(command, instants) -> int:
    """Kill and restart until the run is finished; gives the number of times it was killed.

    instants: where to kill, one per attempt: a string for KILL_AT or a number of seconds
    """
    kills = 0
    for instant in instants:
        timed = isinstance(instant, (int, float))
        code, output = run(command, "" if timed else instant, instant if timed else None)
        if code == 0:
            return kills
        assert "Traceback" not in output and "spinup:" not in output, output
        kills += 1
    code, output = run(command)
    assert code == 0, output
    return kills


def random_instant(rng: random.Random):
    """A moment while collecting, updating or writing, or just any second."""
    if rng.random() < 0.15:
        return rng.uniform(1.5, 5.0)  # importing PyTorch takes the first of them
    place = rng.choice(list(INSTANTS))
    return f"{place}:{rng.randint(1, 2 * INSTANTS[place])}"


def remains(folder) -> dict:
    """All that a finished run has left, as comparable bytes; the times it took aside."""
    run_folder = Path(folder) / "run" / "run_s7"
    found = {}
    for path in sorted(run_folder.glob("checkpoint/*.npz")):
        with np.load(path) as arrays:
            for name in arrays.files:
                content = arrays[name].tobytes()
                if name == "outline":
                    content = _without_elapsed(json.loads(content))
                found[f"{path.name}/{name}"] = content
    for path in sorted(run_folder.glob("checkpoint/*/*.rows")):
        found[f"{path.parent.name}/{path.name}"] = path.read_bytes()
    rows = [line.split("\t") for line in (run_folder / "progress.txt").read_text().splitlines()]
    time_column = rows[0].index("Time")
    found["progress.txt"] = [row[:time_column] + row[time_column + 1 :] for row in rows]
    for path in run_folder.glob("pyt_save/model.pt"):  # a saved graph names where it was made
        found["model.pt"] = path.read_bytes()
    return found


def _without_elapsed(outline):
    """The outline of a checkpoint without the seconds the run took and the table's bytes."""
    if isinstance(outline, list):
        return [_without_elapsed(item) for item in outline]
    if isinstance(outline, dict) and "dict" in outline:
        items = [i for i in outline["dict"] if i[0] not in ("elapsed", "table_bytes")]
        return _without_elapsed(items)
    return outline


def set_trap(kill_at):
    """Make this process kill itself at the named instant."""
    place, _, count = kill_at.partition(":")
    left = int(count)

    def sprung(function):
        def trapped(*args, **kwargs):
            nonlocal left
            left -= 1
            if left == 0:
                if place == "torn":  # a part of what was last written is missing
                    size, name = os.fstat(args[0]).st_size, os.readlink(f"/proc/self/fd/{args[0]}")
                    os.ftruncate(args[0], size // 2 if name.endswith(".new") else size - 5)
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **kwargs)

        return trapped

    if place in ("fsync", "torn"):
        os.fsync = sprung(os.fsync)
    elif place == "replace":
        os.replace = sprung(os.replace)
    elif place == "step":
        from spinup.parts.envs import VectorEnv

        VectorEnv.step = sprung(VectorEnv.step)
    elif place == "session_run":
        from spinup.parts.tf1.framework import tf

        make = tf.Session.make_callable
        tf.Session.make_callable = lambda *args: sprung(make(*args))
    else:
        from spinup.parts.pytorch.fast.capture import Capture

        verify = Capture.verify_next

        def in_the_middle(self, *args):
            """Of the operations that an update replays."""
            verify(self, *args)
            self.steps.insert(len(self.steps) // 2, sprung(lambda: None))

        Capture.verify_next = in_the_middle


if __name__ == "__main__":
    sys.path[0] = str(REPOSITORY)
    if os.environ.get("KILL_AT"):
        set_trap(os.environ["KILL_AT"])
    from spinup.run import main

    main()
