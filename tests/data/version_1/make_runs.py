"""Make the runs in this folder, with the version of spinup they are named after.

    cd tests/data/version_1 && python make_runs.py

Every run is stopped after its first epoch. Beside the runs, in expected/, stands what that version
computes: NAME.txt is progress.txt after one more epoch, and NAME.npz holds what the networks give
for some observations, before and after that epoch. `test_runs_of_earlier_versions_resume.py` holds
the present version to it, and uses the functions below that look at a run.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

# The first version stretched the schedule of prioritised replay over the epochs that `resume` was
# given, so this one is resumed for all the epochs that it was started with.
RESUMED_TO = dict(dqn_prioritized=3)
SMALL = "--hid [8,8] --epochs 3 --seed 0 --data_dir ."
ON_POLICY = f"{SMALL} --env CartPole-v1 --steps_per_epoch 200 --train_v_iters 5"
OFF_POLICY = (
    f"{SMALL} --steps_per_epoch 150 --start_steps 60 --update_after 60 --update_every 10 "
    "--batch_size 16 --replay_size 120 --num_test_episodes 1"
)
PENDULUM = f"{OFF_POLICY} --env Pendulum-v1 --max_ep_len 50"
CARTPOLE = f"{OFF_POLICY} --env CartPole-v1"
RUNS = {
    "reinforce": f"reinforce {ON_POLICY} --baseline value",
    "vpg": f"vpg {ON_POLICY}",
    "trpo": f"trpo {ON_POLICY}",
    "ppo": f"ppo {ON_POLICY} --train_pi_iters 5 --num_envs 2",
    "ppo_normalize": f"ppo {SMALL} --env Pendulum-v1 --max_ep_len 50 --steps_per_epoch 200 "
    "--train_pi_iters 4 --train_v_iters 4 --minibatch_size 80 --max_grad_norm 0.5 "
    "--ac_kwargs:normalize True",
    "acer": f"acer {SMALL} --env CartPole-v1 --steps_per_epoch 160 --n_steps 8 --replay_start 40 "
    "--replay_ratio 2 --replay_size 120 --num_test_episodes 1",
    "dqn": f"dqn {CARTPOLE} --target_every 10",
    "dqn_prioritized": f"dqn {CARTPOLE} --target_every 10 --prioritized --n_step 3 "
    "--ac_kwargs:dueling",
    "ddpg": f"ddpg {PENDULUM}",
    "td3": f"td3 {PENDULUM} --policy_delay 3",
    "sac": f"sac {PENDULUM} --alpha auto",
    "sac_discrete": f"sac {CARTPOLE} --alpha auto",
    "her_td3": f"her {OFF_POLICY} --env spinup/Reach-v0 --method td3",
    "her_dqn": f"her {OFF_POLICY} --env spinup/BitFlip-v0 --method dqn",
}
HERE = Path(__file__).parent
OBSERVATIONS = 16


def run_folder(data_dir, name) -> Path:
    return Path(data_dir) / name / f"{name}_s0"


def look(folder, seen=None) -> dict:
    """What the networks of a run give, by names that every version has.

    seen: observations and actions to judge; those of a random walk if not said
    """
    import torch

    from spinup.results.playback import load_network, load_policy_and_env

    env, get_action = load_policy_and_env(folder, deterministic=True)
    obs, act = seen if seen is not None else _walk(env)
    ac = load_network(folder)
    o, a = torch.as_tensor(obs), torch.as_tensor(act)
    found = dict(obs=obs, act=act, actions=np.stack([get_action(row) for row in obs]))
    with torch.no_grad():
        found["values"] = _values(ac, o, a)
    # The order and the names of parameters may change from version to version, not the numbers.
    found["parameters"] = np.sort(np.concatenate([p.detach().ravel() for p in ac.parameters()]))
    env.close()
    return found


def _values(ac, o, a):
    """What the critics say: of each observation, of it and an action, or of it and each action."""
    if hasattr(ac, "v"):
        return ac.v(o).numpy()
    judged = (o, a) if a.is_floating_point() else (o,)
    if hasattr(ac, "q1"):
        return np.stack([ac.q1(*judged), ac.q2(*judged)])
    return ac.q(*judged).numpy()


def _walk(env):
    """Observations and actions of a random walk."""
    env.action_space.seed(0)
    obs, actions = [env.reset(seed=0)[0]], []
    while len(actions) < OBSERVATIONS:
        actions.append(env.action_space.sample())
        step = env.step(actions[-1])
        obs.append(env.reset()[0] if step[2] or step[3] else step[0])
    return np.stack(obs[:-1]).astype(np.float32), np.stack(actions)


def _stop_after_one_epoch():
    from spinup.parts.checkpoint import Checkpoint

    save = Checkpoint.save

    def save_and_interrupt(self, epoch):
        os.kill(os.getpid(), signal.SIGINT)
        save(self, epoch)

    Checkpoint.save = save_and_interrupt


def make(name):
    """Make one run, and what is expected of it."""
    words = f"{RUNS[name]} --exp_name {name}".split()
    shutil.rmtree(HERE / name, ignore_errors=True)
    subprocess.run([sys.executable, __file__, "stop", *words], cwd=HERE)
    folder, expected = run_folder(HERE, name), HERE / "expected"
    (folder / ".lock").unlink()
    expected.mkdir(exist_ok=True)
    before = look(folder)
    with tempfile.TemporaryDirectory() as there:
        copy = Path(shutil.copytree(folder, run_folder(there, name)))
        epochs = ["--epochs", str(RESUMED_TO.get(name, 2))]
        resume = [sys.executable, "-m", "spinup.run", "resume", str(copy), *epochs]
        subprocess.run(resume, check=True)
        after = look(copy, (before["obs"], before["act"]))
        shutil.copy(copy / "progress.txt", expected / f"{name}.txt")
    after = {f"after_{key}": value for key, value in after.items() if key not in ("obs", "act")}
    np.savez_compressed(expected / f"{name}.npz", **before, **after)


if __name__ == "__main__":
    if sys.argv[1:2] == ["stop"]:
        from spinup.run import main

        _stop_after_one_epoch()
        main(sys.argv[2:])
    else:
        for name in sys.argv[1:] or RUNS:
            make(name)
