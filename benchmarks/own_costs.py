"""Costs measured without other libraries: start, memory, checkpoints, pauses, how speed grows.

python benchmarks/speed.py --no-cases      (all of it)
python benchmarks/own_costs.py buffer|sac|ppo  (one part, in a process of its own)
"""

import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

from cases import CASES, CHEETAH, make_env
from report import GOALS

ROOT = Path(__file__).parents[1]
MILLION = 1_000_000


def environment(**more) -> dict:
    """The environment variables under which processes of ours find this copy of the package."""
    places = [str(ROOT), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places)), **more}


def figures(measure, turns: int, seconds: float, quick=False):
    """Yield one record after the other: what it is, its value, and the goal where there is one.

    measure: gives the steps per second of ours on a case, the clock running for so many seconds
    quick: only what takes a few seconds
    """
    yield start_up(turns)
    yield from part("buffer")
    if quick:
        return
    yield from part("sac")
    yield from part("ppo")
    for algorithm in ("ppo", "vpg", "trpo"):
        yield two_processes(algorithm, turns)
    yield beside_a_busy_program(measure, turns, seconds)
    yield from scaling(measure, turns, seconds)
    yield where_time_goes(seconds)


def figure(what, value, unit, goal=None, least=False) -> dict:
    """One figure.

    goal: what it should stay under, or reach with `least`
    """
    return dict(what=what, value=value, unit=unit, goal=goal, least=least)


def part(name: str) -> list:
    """The figures of one of the parts below, measured in a process of its own."""
    words = [sys.executable, __file__, name]
    done = subprocess.run(words, env=environment(), capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr[-2000:])
    return json.loads(done.stdout.splitlines()[-1])


# --- Parts that run in a process of their own ---


def resident() -> float:
    """Megabytes of memory that this process has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def fill(buffer):
    """Store a million made-up transitions, a thousand at a time."""
    import numpy as np

    rng, columns = np.random.default_rng(0), buffer.ring.columns
    shapes = [(1000, *columns[name].shape[1:]) for name in ("obs", "act", "rew", "obs2")]
    for _ in range(MILLION // 1000):
        rows = [rng.standard_normal(shape, np.float32) for shape in shapes]
        buffer.store(*rows, np.zeros(1000, np.float32))


def buffer() -> list:
    """Storing and sampling at a million rows of HalfCheetah's shapes."""
    import numpy as np

    from spinup.algos.pytorch.sac.sac import ReplayBuffer

    replay = ReplayBuffer(obs_dim=17, act_dim=6, size=MILLION)
    before = resident()
    fill(replay)
    memory = resident() - before
    obs, act, one = np.zeros((1, 17), np.float32), np.zeros((1, 6), np.float32), np.zeros(1)

    def seconds_of(work, times):
        began = time.perf_counter()
        for _ in range(times):
            work()
        return (time.perf_counter() - began) / times

    store = min(seconds_of(lambda: replay.store(obs, act, one, obs, one), 5000) for _ in range(5))
    found = [figure("replay buffer: memory of a million rows", memory, "MB")]
    found.append(figure("replay buffer: storing a row into a million", store * 1e6, "µs"))
    for rows in (100, 256):
        sample = min(seconds_of(lambda n=rows: replay.sample_batch(n), 1000) for _ in range(5))
        found.append(figure(f"replay buffer: {rows} rows out of a million", sample * 1e6, "µs"))
    return found


class Watch:
    """Notes when each step begins; stands in for the clock of a case."""

    def __init__(self):
        self.times, self.most = [], 0.0

    def tick(self):
        if len(self.times) % 1000 == 500:
            self.most = max(self.most, resident()) if len(self.times) > 4000 else 0.0
        self.times.append(time.perf_counter())

    def pauses(self, every) -> list:
        """Seconds between the last step of an epoch and the first of the next."""
        last = range(every, len(self.times), every)
        return [self.times[i] - self.times[i - 1] for i in last]


def sac() -> list:
    """SAC with a million transitions stored: memory, checkpoints, the pause after an epoch.

    Updates begin only after the last pause, so that a pause is made of logging and saving alone.
    """
    from spinup.algos.pytorch.sac import sac as module
    from spinup.parts.checkpoint import Checkpoint

    saves, save, make = [], Checkpoint.save, module.ReplayBuffer

    def timed(self, epoch):
        began = time.perf_counter()
        save(self, epoch)
        saves.append(time.perf_counter() - began)

    def full(*args, **kwargs):
        made = make(*args, **kwargs)
        fill(made)
        return made

    Checkpoint.save, module.ReplayBuffer = timed, full
    watch, epochs, steps = Watch(), 4, 4000
    with tempfile.TemporaryDirectory() as folder:
        module.sac(
            lambda: make_env(CHEETAH, watch),
            epochs=epochs,
            steps_per_epoch=steps,
            start_steps=0,
            update_after=epochs * steps - 700,
            num_test_episodes=0,
            replay_size=MILLION,
            logger_kwargs=dict(output_dir=folder),
        )
    first, *later = saves
    return [
        figure("SAC with a million transitions: memory in all", watch.most, "MB", goal=600),
        figure("its first checkpoint, of all rows at once", first * 1e3, "ms"),
        figure("its later checkpoints, of 4000 new rows", max(later) * 1e3, "ms"),
        figure("longest pause to log and save, SAC", max(watch.pauses(steps)[1:]), "s", goal=0.2),
    ]


def ppo() -> list:
    """The pause after an epoch of PPO, with one pass of each network instead of 80."""
    import spinup

    watch, steps = Watch(), 4000
    with tempfile.TemporaryDirectory() as folder:
        spinup.ppo_pytorch(
            lambda: make_env(CHEETAH, watch),
            epochs=5,
            steps_per_epoch=steps,
            train_pi_iters=1,
            train_v_iters=1,
            save_freq=1,
            logger_kwargs=dict(output_dir=folder),
        )
    return [figure("longest pause to log and save, PPO", max(watch.pauses(steps)), "s", goal=0.2)]


# --- Runs of the command line ---


def spinup(*words, **options):
    command = [sys.executable, "-m", "spinup.run", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode:
        sys.exit(done.stdout[-1000:] + done.stderr[-1000:])


def start_up(turns) -> dict:
    """From the command to the first step of its environment."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        noted = Path(folder) / "noted"
        for i in range(turns):
            began = time.time()
            spinup(
                "ppo",
                "--env",
                "first_step:FirstStep-v0",
                "--epochs",
                1,
                "--steps_per_epoch",
                50,
                "--data_dir",
                folder,
                "--exp_name",
                f"start{i}",
                env=environment(FIRST_STEP=str(noted)),
            )
            found.append(float(noted.read_text()) - began)
    return figure("spinup ppo: start to the first step", median(found), "s", goal=4)


def two_processes(algorithm, turns, epochs=5) -> dict:
    """Environment steps per second with --cpu 2, against one process on one core."""
    found = {1: [], 2: []}
    with tempfile.TemporaryDirectory() as folder:
        for i in range(turns):
            for cpu, speeds in found.items():
                name = f"{algorithm}_{cpu}_{i}"
                words = [algorithm, "--env", CHEETAH, "--epochs", epochs, "--data_dir", folder]
                words += ["--exp_name", name, "--cpu", cpu]
                words += ["--target_kl", None] if algorithm == "ppo" else []
                spinup(*words, env=environment(), preexec_fn=to_one_core if cpu == 1 else None)
                speeds.append(speed_of(Path(folder) / name))
    one, two = max(found[1]), max(found[2])
    what = f"{algorithm.upper()} HalfCheetah --cpu 2: {two:.0f} steps/s, one core {one:.0f}"
    return figure(what, two / one, "×", goal=1.7, least=True)


def beside_a_busy_program(measure, turns, seconds) -> dict:
    """SAC while something else computes on one of the cores, against SAC alone."""
    sac, found = CASES[0], {False: [], True: []}
    for _ in range(turns):
        for busy, speeds in found.items():
            other = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if busy else None
            try:
                speeds.append(measure(sac, seconds))
            finally:
                if other:
                    other.kill()
                    other.wait()
    alone, beside = (median(speeds) for speeds in found.values())
    what = f"{sac.name}, one core kept busy: {beside:.0f} steps/s, alone {alone:.0f} (medians)"
    return figure(what, beside / alone, "×")


def where_time_goes(seconds) -> dict:
    """The profile of each case that has a goal, each in a process of its own."""
    profiles = {}
    for name in GOALS:
        words = [sys.executable, str(Path(__file__).with_name("where_time_goes.py")), name]
        words.append(str(seconds))
        done = subprocess.run(words, env=environment(), capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stderr[-2000:])
        profiles[name] = json.loads(done.stdout.splitlines()[-1])
    return dict(what="where the time goes", profiles=profiles)


def to_one_core():
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def speed_of(experiment: Path) -> float:
    """Environment steps per second of a run, from its second epoch on."""
    (progress,) = experiment.rglob("progress.txt")
    with progress.open() as lines:
        rows = list(csv.DictReader(lines, delimiter="\t"))
    steps, seconds = (
        float(rows[-1][column]) - float(rows[0][column]) for column in ("TotalEnvInteracts", "Time")
    )
    return steps / seconds


def scaling(measure, turns, seconds):
    """How steps per second grow with environments, width and batch; one row of values each."""
    ppo = next(case for case in CASES if case.algorithm == "ppo")
    sac = replace(CASES[0], every=48)  # so that all numbers of environments divide it
    counts, widths, batches = (1, 2, 4, 8, 16), (32, 64, 128, 256, 512), (32, 64, 128, 256, 512)
    tables = {
        "PPO HalfCheetah, environments": {n: replace(ppo, num_envs=n) for n in counts},
        "SAC HalfCheetah, environments": {n: replace(sac, num_envs=n) for n in counts},
        "SAC HalfCheetah, batch 100, width": {n: replace(sac, hidden=(n, n)) for n in widths},
        "SAC HalfCheetah, width 256, batch": {n: replace(sac, batch=n) for n in batches},
    }
    turns, seconds = min(turns, 2), min(seconds, 3.0)
    for what, cases in tables.items():
        best = dict.fromkeys(cases, 0.0)
        for _ in range(turns):
            for n, case in cases.items():
                best[n] = max(best[n], measure(case, seconds))
        yield dict(what=what, values=best, unit="steps/s")


if __name__ == "__main__":
    print(json.dumps(dict(buffer=buffer, sac=sac, ppo=ppo)[sys.argv[1]]()))
