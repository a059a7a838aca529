"""How fast training goes, beside Stable-Baselines3 on the same work.

    make bench            (or: python benchmarks/speed.py --quick)

Each case is trained by both, turn about, several times; each turn in a process of its own, so that
neither inherits the other's memory or threads. Same environment, network sizes, batch, number of
updates. What counts is the best of the turns: this kind of machine is noisy, and noise only slows.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

# For each case: the environment, the steps that warm up and are not timed, and the steps that are.
CASES = {
    "sac HalfCheetah batch 100": ("HalfCheetah-v5", 200, 1500),
    "ppo HalfCheetah 4000 steps, 80+80 passes": ("HalfCheetah-v5", 4000, 12000),
    "dqn CartPole batch 64": ("CartPole-v1", 200, 4000),
}


def ours(case, warm, timed):
    """Train ours; gives the seconds that `timed` steps took."""
    import spinup
    from spinup.parts import envs

    algorithm, env_name = case.split()[0], CASES[case][0]
    clock, count = [], 0
    step = envs.VectorEnv.step

    def counting(self, actions):
        nonlocal count
        count += len(self)
        if count == warm + 1 and not clock:
            clock.append(time.perf_counter())
        return step(self, actions)

    envs.VectorEnv.step = counting
    total = warm + timed
    settings = dict(epochs=1, steps_per_epoch=total)
    if algorithm == "ppo":
        settings = dict(epochs=total // 4000, target_kl=None)  # all 80 policy passes
    else:
        settings |= dict(start_steps=0, update_after=warm, num_test_episodes=0)
        if algorithm == "dqn":
            settings |= dict(ac_kwargs=dict(hidden_sizes=(64, 64)), batch_size=64)
    getattr(spinup, f"{algorithm}_pytorch")(envs.EnvMaker(env_name), **settings)
    return time.perf_counter() - clock[0]


def stable_baselines3(case, warm, timed):
    """Train Stable-Baselines3 with the same sizes and counts."""
    import gymnasium as gym
    import torch
    from stable_baselines3 import DQN, PPO, SAC
    from stable_baselines3.common.callbacks import BaseCallback

    clock = []

    class Clock(BaseCallback):
        def _on_step(self):
            if self.num_timesteps > warm and not clock:
                clock.append(time.perf_counter())
            return True

    algorithm, env = case.split()[0], gym.make(CASES[case][0])
    if algorithm == "sac":
        model = SAC(
            "MlpPolicy", env, batch_size=100, learning_rate=1e-3, ent_coef=0.2, train_freq=50,
            gradient_steps=50, learning_starts=warm, policy_kwargs=dict(net_arch=[256, 256]),
        )  # fmt: skip
    elif algorithm == "dqn":
        model = DQN(
            "MlpPolicy", env, batch_size=64, learning_rate=1e-3, train_freq=1, gradient_steps=1,
            learning_starts=warm, target_update_interval=1, tau=0.005, buffer_size=100_000,
            policy_kwargs=dict(net_arch=[64, 64]),
        )  # fmt: skip
    else:
        model = PPO(
            "MlpPolicy", env, n_steps=4000, batch_size=4000, n_epochs=80, target_kl=None,
            policy_kwargs=dict(net_arch=[64, 64], activation_fn=torch.nn.Tanh),
        )  # fmt: skip
    model.learn(warm + timed, callback=Clock())
    return time.perf_counter() - clock[0]


def measure(system, case, timed):
    """One turn in a process of its own; gives environment steps per second."""
    command = [sys.executable, __file__, "--turn", system, case, str(timed)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout[-2000:] + done.stderr[-2000:])
    return timed / float(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two turns instead of five")
    parser.add_argument("--only", default="", help="cases whose name holds this text")
    parser.add_argument("--output", default="benchmarks/out/speed.json")
    parser.add_argument("--turn", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    systems = dict(ours=ours, sb3=stable_baselines3)
    if args.turn:
        system, case, timed = args.turn
        sys.path.insert(0, str(Path(__file__).parents[1]))
        print(systems[system](case, CASES[case][1], int(timed)))
        return
    results = {}
    for case, (_, _, timed) in CASES.items():
        if args.only not in case:
            continue
        speeds = {system: [] for system in systems}
        for _ in range(2 if args.quick else 5):
            for system in systems:
                speeds[system].append(measure(system, case, timed))
        best = {system: max(values) for system, values in speeds.items()}
        middle = {system: statistics.median(values) for system, values in speeds.items()}
        results[case] = dict(best=best, median=middle, all=speeds)
        print(
            f"{case}: ours {best['ours']:.0f} steps/s (median {middle['ours']:.0f}), "
            f"Stable-Baselines3 {best['sb3']:.0f} (median {middle['sb3']:.0f}), "
            f"{best['ours'] / best['sb3']:.2f} x at best, "
            f"{middle['ours'] / middle['sb3']:.2f} x in the median",
            flush=True,
        )
    packages = ("torch", "numpy", "gymnasium", "mujoco", "stable-baselines3")
    machine = dict(cores=os.cpu_count(), python=platform.python_version())
    machine |= {name: version(name) for name in packages}
    Path(args.output).parent.mkdir(parents=True, exist_ok=True)
    Path(args.output).write_text(json.dumps(dict(machine=machine, cases=results), indent=1))


if __name__ == "__main__":
    main()
