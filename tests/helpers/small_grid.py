"""A small grid of runs, for the tests that promise it survives whatever happens to it.

As a program, it runs the grid: `python small_grid.py DATA_DIR AT_ONCE [EPOCHS]`.
"""

import contextlib
import io
import re
import sys
from pathlib import Path

from spinup import dqn_pytorch, vpg_pytorch
from spinup.experiments.job import Job
from spinup.parts.make_env import EnvMaker

REPOSITORY = Path(__file__).parents[2]
EPOCHS, SEEDS = 8, range(4)
SMALL = dict(env_name="CartPole-v1", steps_per_epoch=300, ac_kwargs=dict(hidden_sizes=[8]))
DQN = dict(
    start_steps=50,
    update_after=50,
    update_every=10,
    batch_size=8,
    replay_size=500,
    num_test_episodes=1,
)
# An algorithm, one that keeps a replay, and a function of the script around an algorithm.
KINDS = {
    "vpg": (vpg_pytorch, dict(train_v_iters=2)),
    "dqn": (dqn_pytorch, DQN),
    "wrapped": (
        lambda lr, **settings: vpg_pytorch(pi_lr=lr, **settings),
        dict(train_v_iters=2, lr=0.01),
    ),
}


def wheels_come_off(**settings):
    raise RuntimeError("the wheels came off")


def job(name, thunk, settings, seed, data_dir, **more) -> Job:
    where = dict(output_dir=f"{data_dir}/{name}/{name}_s{seed}", exp_name=name)
    return Job(name, thunk, dict(settings, seed=seed, logger_kwargs=where), **more)


def twelve(data_dir, epochs=EPOCHS, seeds=SEEDS, **more) -> list[Job]:
    """Three kinds of run with four seeds each."""
    return [
        job(name, thunk, SMALL | settings | dict(epochs=epochs) | more, seed, data_dir)
        for seed in seeds
        for name, (thunk, settings) in KINDS.items()
    ]


def train_here(jobs):
    """The same runs by themselves: no grid, no other process, nothing that could interrupt."""
    with contextlib.redirect_stdout(io.StringIO()):
        for one in jobs:
            settings = dict(one.kwargs)
            one.thunk(env_fn=EnvMaker(settings.pop("env_name")), **settings)


def tables(data_dir) -> dict:
    """What every progress.txt holds, the time it took aside, by the name of its folder."""
    found = {}
    for path in sorted(Path(data_dir).glob("*/*/progress.txt")):
        rows = [line.split("\t") for line in path.read_text().splitlines()]
        time_column = rows[0].index("Time")
        found[path.parent.name] = [row[:time_column] + row[time_column + 1 :] for row in rows]
    return found


def sessions(run_folder) -> list[list[int]]:
    """The epochs that each start of a run has done, by what it said; of those that did any."""
    _, *said = (Path(run_folder) / "output.txt").read_text().split("_pytorch on CartPole-v1, seed")
    epochs = [[int(n) for n in re.findall(r"\| +Epoch \| +(\d+) \|", text)] for text in said]
    return [numbers for numbers in epochs if numbers]


def continues(sessions) -> bool:
    """Whether each start began where the one before ended; an epoch not yet saved is made again."""
    pairs = zip(sessions, sessions[1:])
    return all(after[0] in (before[-1], before[-1] + 1) for before, after in pairs)


def marked(mark) -> list[list[str]]:
    """The command lines of processes that live, and have MARK in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            dead = process.joinpath("stat").read_text().rpartition(")")[2].split()[0] in "ZX"
            if f"MARK={mark}".encode() in process.joinpath("environ").read_bytes() and not dead:
                found.append(process.joinpath("cmdline").read_text().split("\0")[:-1])
    return found


if __name__ == "__main__":
    from spinup.experiments.jobs import run_jobs
    from spinup.parts.report_errors import report_errors

    data_dir, at_once, *epochs = sys.argv[1:]
    grid = twelve(data_dir, *map(int, epochs))
    grid.insert(1, job("broken", wheels_come_off, SMALL, 0, data_dir))
    report_errors(lambda: run_jobs(grid, int(at_once)))
