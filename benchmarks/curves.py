"""Draw the learning curve in each algorithm's README: five seeds of a small task.

    python benchmarks/curves.py [ALGORITHM …]

The runs are kept in data/curves and are not trained twice.
"""

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
FAST_PPO = (
    "--num_envs 8 --pi_lr 1e-3 --vf_lr 3e-3 --lam 0.95 --target_kl 0.02 --train_pi_iters 10 "
    "--train_v_iters 10 --minibatch_size 250"
)
TASKS = dict(
    reinforce="--env CartPole-v1 --epochs 100 --steps_per_epoch 1000 --num_envs 2 --vf_lr 1e-2 "
    "--train_v_iters 20",
    vpg="--env CartPole-v1 --epochs 100 --steps_per_epoch 1000 --num_envs 2 --pi_lr 7e-3 "
    "--vf_lr 3e-3",
    trpo="--env CartPole-v1 --epochs 30 --steps_per_epoch 2000 --num_envs 4 --delta 0.02 "
    "--vf_lr 1e-2 --train_v_iters 40",
    ppo=f"--env CartPole-v1 --epochs 30 --steps_per_epoch 2000 {FAST_PPO}",
    acer="--env CartPole-v1 --epochs 20 --steps_per_epoch 3000 --num_envs 8 --pi_lr 1e-3 "
    "--q_lr 3e-3 --replay_ratio 8 --replay_size 10000 --delta 0.1",
    sac="--env Pendulum-v1 --hid [64,64] --epochs 10 --steps_per_epoch 1000 --start_steps 1000",
    ddpg="--env Pendulum-v1 --hid [64,64] --epochs 15 --steps_per_epoch 1000 --start_steps 1000 "
    "--act_noise 0.2",
    td3="--env Pendulum-v1 --hid [64,64] --epochs 12 --steps_per_epoch 1000 --start_steps 1000 "
    "--pi_lr 3e-4",
    her="--env spinup/Reach-v0 --epochs 10 --steps_per_epoch 1000 --num_envs 4 --gamma 0.95 "
    "--hid [128,128] --num_test_episodes 50",
    dqn="--env CartPole-v1 --epochs 20 --steps_per_epoch 2500 --lr 5e-4 --batch_size 128 "
    "--n_step 3 --epsilon_steps 5000",
)
VALUES = dict(her="TestSuccessRate")  # what is drawn, where it is not the return


def main(algorithms):
    folder = REPOSITORY / "data" / "curves"
    for algorithm in algorithms:
        for seed in range(5):
            words = f"{algorithm} {TASKS[algorithm]} --seed {seed} --exp_name {algorithm}".split()
            spinup("run", *words, "--data_dir", folder)
        curve = REPOSITORY / "spinup" / "algos" / "pytorch" / algorithm / "curve.svg"
        value = VALUES.get(algorithm, "Performance")
        spinup("utils.plot", folder / algorithm, "-o", curve, "-y", value)


def spinup(module, *words):
    command = [sys.executable, "-m", f"spinup.{module}", *map(str, words)]
    subprocess.run(command, check=True, cwd=REPOSITORY)


if __name__ == "__main__":
    main(sys.argv[1:] or TASKS)
