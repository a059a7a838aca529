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
from spinup.parts.pytorch.critics import Ensemble, MLPQFunction
from spinup.parts.pytorch.fast import recorded
from spinup.parts.pytorch.learning import Adam, gradient_step

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


# --- Operations that tell ---

USED = []  # with how many threads the operations below were carried out


def note_threads_(x):
    USED.append(torch.get_num_threads())


def add_threads_(x):
    USED.append(torch.get_num_threads())
    x.add_(USED[-1])


class World:
    """A clock that advances by what a replay takes, with one thread and with two."""

    def __init__(self):
        self.now, self.takes, self.used, self.fails = 0.0, {1: 3.0, 2: 2.0}, [], False

    def replay(self):
        if self.fails:
            raise ZeroDivisionError
        self.used.append(torch.get_num_threads())
        self.now += self.takes[self.used[-1]]

    def perf_counter(self):
        return self.now


WORLDS = []  # the one of the running test


def pass_time_(x):
    for world in WORLDS:
        world.replay()


LIBRARY = torch.library.Library("spinup_test", "DEF")
for function in (note_threads_, add_threads_, pass_time_):
    LIBRARY.define(f"{function.__name__}(Tensor(a!) x) -> ()")
    LIBRARY.impl(function.__name__, function, "CPU")


# --- Beside other programs ---


@pytest.fixture
def world(two_threads):
    WORLDS[:] = [World()]
    two_threads.setattr(time, "perf_counter", WORLDS[0].perf_counter)
    torch.set_num_threads(2)
    yield WORLDS[0]
    WORLDS.clear()


@pytest.fixture
def replays(world):
    """A function that replays an update so often; gives the threads that each replay used."""

    @recorded
    def update(learner, batch):
        torch.ops.spinup_test.pass_time_(learner.ac.bias.detach())
        loss = (learner.ac(batch.x).squeeze(-1) - batch.y).square().mean()
        gradient_step(learner.optimizer, loss)
        return dict(Loss=loss.detach())

    net, batch = nn.Linear(2, 1), Batch(torch.ones(4, 2), torch.ones(4))
    learner = Learner(net, Adam(net.parameters(), 1e-3))

    def replay(count, **takes):
        if takes:
            world.takes = {1: takes["one"], 2: takes["two"]}
        before = len(world.used)
        for _ in range(count):
            update(learner, batch)
        assert update.report(learner).reason is None
        return world.used[before:]

    update(learner, batch)
    update(learner, batch)
    return replay


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


def test_all_threads_are_used_while_that_is_quicker(replays):
    used = replays(3000, one=3.0, two=2.0)
    assert 0 < used.count(1) < 60  # a look soon after the start, and now and then
    assert used[:15] == [2] * 15
    assert torch.get_num_threads() == 2


def test_one_thread_is_used_while_others_are_busy(replays):
    replays(200, one=3.0, two=2.0)
    busy = replays(200, one=3.5, two=8.0)  # noticed at once, for it is far slower than usual
    assert busy.count(2) <= 20 and set(busy[30:]) == {1}
    assert torch.get_num_threads() == 2  # outside
    still = replays(800, one=3.5, two=8.0)
    assert 0 < still.count(2) <= 40
    quiet = replays(300, one=3.0, two=2.0)
    assert set(quiet[-10:]) == {2}


def test_a_single_slow_replay_changes_nothing(replays):
    replays(300, one=3.0, two=2.0)
    used = replays(1, one=3.0, two=100.0) + replays(200, one=3.0, two=2.0)
    assert set(used) == {2}


def test_a_slow_hour_of_the_whole_machine_changes_nothing(replays):
    """What slows both ways down alike, a replay or a hundred, is no reason to use one thread."""
    used = []
    for number in range(3000):
        slower = 1 + 2 * (number % 300 < 12) + 5 * (number > 1500)
        used += replays(1, one=3.0 * slower, two=2.0 * slower)
    assert 0 < used.count(1) < 150
    looks = "".join(map(str, used)).split("2")
    assert max(map(len, looks)) <= 10  # each ends soon, with two threads again


def test_a_replay_that_fails_leaves_the_threads_as_they_were(world, replays):
    replays(200, one=3.5, two=8.0)
    assert replays(1) == [1]
    world.fails = True
    with pytest.raises(ZeroDivisionError):
        replays(1)
    assert torch.get_num_threads() == 2


# --- Which updates have a choice ---


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
