"""A training uses as many threads as pay off for its products; the user has the last word.

While other programs keep the cores busy it uses one, and computes the same to the last bit.
"""

import time

import pytest
import torch
from small_learner import Batch, Learner
from torch import nn

import spinup
from spinup.parts.make_env import EnvMaker
from spinup.parts.mpi import THREADS
from spinup.parts.pytorch.fast import recorded
from spinup.parts.pytorch.fast.threads import (
    PROBE_EVERY,
    PROBE_EVERY_OF_ONE,
    PROBE_LENGTH,
    WARMUP,
    Threads,
)
from spinup.parts.pytorch.learning import Adam, gradient_step
from spinup.parts.pytorch.networks import Ensemble, MLPQFunction

TASKS = {
    "small batches of a small network": ("dqn", "CartPole-v1", dict(batch_size=64), 1),
    "small batches of a wide one": (
        "sac",
        "Pendulum-v1",
        dict(ac_kwargs=dict(hidden_sizes=(256, 256))),
        2,
    ),
    "whole rollouts of a small one": ("ppo", "CartPole-v1", dict(steps_per_epoch=1000), 2),
    "parts of them": ("ppo", "CartPole-v1", dict(steps_per_epoch=1000, minibatch_size=100), 1),
    "short segments": ("acer", "CartPole-v1", dict(steps_per_epoch=1000), 1),
}


@pytest.fixture
def two_threads(monkeypatch):
    """A process that may use two cores, where the user has not said how many threads to use."""
    before = torch.get_num_threads()
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv(THREADS, "2")
    yield monkeypatch
    torch.set_num_threads(before)


def train(task, folder):
    algorithm, env_name, settings, expected = TASKS[task]
    settings = dict(epochs=1, steps_per_epoch=20) | settings
    getattr(spinup, f"{algorithm}_pytorch")(
        EnvMaker(env_name), logger_kwargs=dict(output_dir=folder), **settings
    )
    return expected


@pytest.mark.parametrize("task", TASKS)
def test_threads(task, two_threads, tmp_path):
    torch.set_num_threads(2 if TASKS[task][-1] == 1 else 1)  # what an earlier training has left
    expected = train(task, tmp_path)
    assert torch.get_num_threads() == expected


def test_the_user_has_the_last_word(two_threads, tmp_path):
    two_threads.delenv(THREADS)
    two_threads.setenv("OMP_NUM_THREADS", "2")
    torch.set_num_threads(2)
    train("small batches of a small network", tmp_path)
    assert torch.get_num_threads() == 2


# --- Beside other programs ---


class World:
    """A clock that advances by what a step takes, with one thread and with two."""

    def __init__(self):
        self.now, self.takes, self.used = 0.0, {1: 3.0, 2: 2.0}, []

    def step(self):
        self.used.append(torch.get_num_threads())
        self.now += self.takes[self.used[-1]]

    def perf_counter(self):
        return self.now


@pytest.fixture
def world(two_threads):
    world = World()
    two_threads.setattr(time, "perf_counter", world.perf_counter)
    torch.set_num_threads(2)
    return world


@pytest.fixture
def clock_by_threads(two_threads):
    """A clock that advances whenever it is read, by this many seconds for a number of threads."""
    takes, now = {1: 1.0, 2: 1.0}, [0.0]

    def perf_counter():
        now[0] += takes[torch.get_num_threads()]
        return now[0]

    two_threads.setattr(time, "perf_counter", perf_counter)
    torch.set_num_threads(2)
    return takes


def test_all_threads_are_used_while_that_is_quicker(world):
    choice = Threads(2)
    for _ in range(3 * PROBE_EVERY):
        choice.run([world.step])
    assert world.used.count(1) == 3 * PROBE_LENGTH  # a look soon after the start, and now and then
    assert world.used[:WARMUP] == [2] * WARMUP
    assert torch.get_num_threads() == 2


def test_one_thread_is_used_while_others_are_busy(world):
    choice = Threads(2)

    def replays(count, **takes):
        world.takes = {1: takes["one"], 2: takes["two"]}
        before = len(world.used)
        for _ in range(count):
            choice.run([world.step])
        return world.used[before:]

    replays(200, one=3.0, two=2.0)
    busy = replays(200, one=3.5, two=8.0)  # noticed at once, for it is far slower than usual
    assert busy.count(2) <= 2 * PROBE_LENGTH and set(busy[3 * PROBE_LENGTH :]) == {1}
    assert torch.get_num_threads() == 2  # outside
    still = replays(4 * PROBE_EVERY_OF_ONE, one=3.5, two=8.0)
    assert 0 < still.count(2) <= 4 * PROBE_LENGTH
    quiet = replays(PROBE_EVERY_OF_ONE + 3 * PROBE_LENGTH, one=3.0, two=2.0)
    assert set(quiet[-PROBE_LENGTH:]) == {2}


def test_a_single_slow_replay_changes_nothing(world):
    choice = Threads(2)
    for number in range(500):
        world.takes[2] = 100.0 if number == 300 else 2.0
        choice.run([world.step])
    assert set(world.used[WARMUP + 2 * PROBE_LENGTH :]) == {2}


def test_a_slow_hour_of_the_whole_machine_changes_nothing(world):
    """What slows both ways down alike, a replay or a hundred, is no reason to use one thread."""
    choice = Threads(2)
    for number in range(3000):
        mood = 1 + 2 * (number % 300 < 12) + 5 * (number > 1500)
        world.takes = {1: 3.0 * mood, 2: 2.0 * mood}
        choice.run([world.step])
        assert choice.using == 2


def test_a_step_that_fails_leaves_the_threads_as_they_were(world):
    choice = Threads(2)
    choice.using = 1
    with pytest.raises(ZeroDivisionError):
        choice.run([lambda: 1 / 0])
    assert torch.get_num_threads() == 2


# --- Which updates have a choice ---

USED = []  # with how many threads the operations below were carried out


def note_threads_(x):
    USED.append(torch.get_num_threads())


def add_threads_(x):
    USED.append(torch.get_num_threads())
    x.add_(USED[-1])


LIBRARY = torch.library.Library("spinup_test", "DEF")
for function in (note_threads_, add_threads_):
    LIBRARY.define(f"{function.__name__}(Tensor(a!) x) -> ()")
    LIBRARY.impl(function.__name__, function, "CPU")


@recorded
def update(learner, batch):
    torch.ops.spinup_test.note_threads_(learner.ac[0].q[0].bias.detach())
    loss = (learner.ac(batch.x[:, :17], batch.x[:, 17:]) - batch.y).square().mean()
    gradient_step(learner.optimizer, loss)
    return dict(Loss=loss.detach())


def wide_learner():
    torch.manual_seed(0)
    critics = Ensemble([MLPQFunction(17, 6, (256, 256), nn.ReLU) for _ in range(2)])
    return Learner(critics, Adam(critics.parameters(), 1e-3))


def train_wide_learner():
    """Its weights after 70 updates, and the numbers of threads that the last of them used."""
    learner, generator = wide_learner(), torch.Generator().manual_seed(1)
    for _ in range(70):
        batch = Batch(*(torch.randn(100, n, generator=generator) for n in (23, 1)))
        update(learner, batch._replace(y=batch.y[:, 0]))
    assert update.report(learner).replays == 70
    return [p.detach().clone() for p in learner.ac.parameters()], set(USED[-20:])


def test_the_same_bits_with_one_thread_and_with_two(clock_by_threads):
    clock_by_threads[1], clock_by_threads[2] = 1.0, 3.0
    with_one, used = train_wide_learner()  # after a start and a probe with two
    assert used == {1}
    clock_by_threads[1], clock_by_threads[2] = 3.0, 1.0
    with_two, used = train_wide_learner()
    assert used == {2}
    assert all(map(torch.equal, with_one, with_two))


def test_no_choice_where_the_user_has_decided(clock_by_threads, monkeypatch):
    clock_by_threads[1], clock_by_threads[2] = 1.0, 3.0
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert train_wide_learner()[1] == {2}


def test_no_choice_where_bits_depend_on_it(clock_by_threads):
    """An operation that gives other numbers with other threads."""
    clock_by_threads[1], clock_by_threads[2] = 1.0, 3.0

    @recorded
    def uneven(learner, batch):
        for p in learner.ac.parameters():
            torch.ops.spinup_test.add_threads_(p.detach())
        return dict(y=batch.y.clone())

    learner = wide_learner()
    with torch.no_grad():
        for p in learner.ac.parameters():
            p.zero_()
    for _ in range(70):
        uneven(learner, Batch(torch.zeros(4, 23), torch.zeros(4)))
    assert uneven.report(learner).replays == 70
    for p in learner.ac.parameters():  # trying one thread has left no trace
        assert torch.equal(p, torch.full_like(p, 70 * 2))
