"""Replay draws by priority as the sums say, looks n steps ahead within an episode, and is saved."""

from collections import Counter

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Discrete
from hypothesis import given, settings
from hypothesis import strategies as st
from small_learner import replace_update

from spinup.algos.pytorch.dqn import dqn
from spinup.parts.buffers import NStepReplayBuffer, ReplayBuffer
from spinup.parts.checkpoint import read_tree, write_tree
from spinup.parts.prioritized import EPSILON, Priorities, SumTree
from spinup.parts.pytorch.tensors import as_tensors

quickly = settings(max_examples=80, deadline=None, derandomize=True, database=None)
numbers = st.floats(0, 1e6, allow_nan=False, width=32)


# --- The tree ---


def tree_of(values):
    tree = SumTree(len(values))
    tree.set(np.arange(len(values)), values)
    tree.refresh()
    return tree


@quickly
@given(st.lists(numbers, min_size=1, max_size=70))
def test_the_root_is_the_sum_and_every_node_that_of_its_two(values):
    tree = tree_of(values)
    assert tree.total == pytest.approx(sum(values), rel=1e-12)
    assert tree.get(np.arange(len(values))).tolist() == values
    for k in range(1, tree.first):
        assert tree.nodes[k] == tree.nodes[2 * k] + tree.nodes[2 * k + 1]


@quickly
@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=70).filter(any),
    st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=40),
)
def test_what_the_tree_finds_is_what_a_cumulative_sum_finds(values, shares):
    """Integers, so that both are exact."""
    amounts = np.floor(np.array(shares) * sum(values))
    slow = [next(i for i, s in enumerate(np.cumsum(values)) if s > amount) for amount in amounts]
    assert tree_of(values).find(amounts).tolist() == slow


class AtTheEdge:
    """A stream whose numbers are as close to 1 as they get, where rounding goes wrong if it may."""

    def random(self, count):
        return np.full(count, np.nextafter(1, 0))


@quickly
@given(st.lists(numbers, min_size=1, max_size=40), st.integers(1, 50), st.integers(0, 30))
def test_a_row_that_is_not_filled_is_never_drawn(errors, count, more):
    priorities = Priorities(len(errors) + more, 1.0)
    priorities.add(np.arange(len(errors)), len(errors))
    priorities.update(np.arange(len(errors)), np.array(errors))
    for rng in (AtTheEdge(), np.random.default_rng(0)):
        rows, probabilities = priorities.sample(count, rng)
        assert (rows >= 0).all() and (rows < len(errors)).all()
        assert (probabilities > 0).all()


@quickly
@given(
    st.integers(1, 40),
    st.lists(st.lists(st.tuples(st.integers(0, 39), numbers), min_size=1, max_size=9), max_size=9),
)
def test_a_tree_with_a_history_equals_one_made_of_its_leaves_to_the_last_bit(size, history):
    lived, leaves = SumTree(size), np.zeros(size)
    for changes in history:
        rows, values = (np.array(column) for column in zip(*changes))
        lived.set(rows % size, values)
        for row, value in changes:  # where one is named twice, the last counts
            leaves[row % size] = value
        if len(changes) % 2:  # now and then the sums are asked for in between
            assert lived.total == pytest.approx(leaves.sum(), rel=1e-12)
    lived.refresh()
    assert tree_of(leaves).nodes.tobytes() == lived.nodes.tobytes()


# --- Drawing by priority ---


def store(buffer, first, n, over=()):
    """Store steps first, first + 1, ... of a run, one each of `n` environments."""
    k = np.arange(first, first + n)
    ended = np.isin(k, list(over))
    buffer.store(k[:, None], k, k, k[:, None] + n, np.zeros(n), ended)


def prioritized(size, exponent=1.0, **more):
    return NStepReplayBuffer(1, None, size, priority_exponent=exponent, **more)


def test_rows_are_drawn_in_proportion_to_their_errors():
    buffer = prioritized(8)
    store(buffer, 0, 5)
    errors = np.array([1.0, 2.0, 0.0, 3.0, 4.0])
    buffer.update_priorities(np.arange(5), errors)
    drawn = Counter(row for _ in range(2500) for row in buffer.sample_batch(4).indices.tolist())
    assert set(drawn) <= set(range(5))
    for row, expected in enumerate(errors / 10):
        spread = 5 * np.sqrt(10_000 * expected * (1 - expected)) + 1
        assert abs(drawn[row] - 10_000 * expected) < spread


def test_one_row_is_drawn_from_each_equal_part_of_the_sum():
    buffer = prioritized(8)
    store(buffer, 0, 8)
    for _ in range(20):
        assert buffer.sample_batch(8).indices.tolist() == list(range(8))
        assert (buffer.sample_batch(4).indices // 2).tolist() == list(range(4))


@pytest.mark.parametrize(("exponent", "odds"), [(0.0, 1.0), (0.5, 3.0), (1.0, 9.0)])
def test_the_exponent_says_how_much_an_error_counts(exponent, odds):
    priorities = Priorities(2, exponent)
    priorities.add(np.arange(2), 2)
    priorities.update(np.arange(2), np.array([9.0, 1.0]))
    rows, probabilities = priorities.sample(50, np.random.default_rng(0))
    chance = dict(zip(rows.tolist(), probabilities))
    assert chance[0] / chance[1] == pytest.approx(odds, rel=1e-5)
    assert chance[0] + chance[1] == pytest.approx(1)


def test_a_row_without_error_can_still_be_drawn():
    priorities = Priorities(1, 1.0)
    priorities.update(np.zeros(1, int), np.zeros(1))
    assert priorities.tree.total == pytest.approx(EPSILON)


def test_new_rows_have_the_greatest_priority_so_far():
    buffer = prioritized(4)
    leaves = buffer.priorities.tree.get

    store(buffer, 0, 3)
    assert leaves(slice(3)).tolist() == [1, 1, 1]
    buffer.update_priorities([0, 1], [5.0, 0.25])
    store(buffer, 3, 1)
    np.testing.assert_allclose(leaves(slice(4)), [5, 0.25, 1, 5], rtol=1e-5)
    buffer.update_priorities([0, 3], [2.0, 2.0])  # nothing is that large any more, but it was
    store(buffer, 4, 2)  # in the place of rows 0 and 1
    np.testing.assert_allclose(leaves(slice(4)), [5, 5, 1, 2], rtol=1e-5)


@pytest.mark.parametrize(
    ("beta", "weights"),
    [
        # Priorities 1 and 3 of two rows: drawn with probability 1/4 and 3/4, where 1/2 each would
        # be even; so (2/4) ** -beta and (6/4) ** -beta, divided by the greater, the first.
        (0.0, [1.0, 1.0]),
        (0.5, [1.0, 3**-0.5]),
        (1.0, [1.0, 1 / 3]),
    ],
)
def test_importance_weights_by_hand(beta, weights):
    buffer = prioritized(2)
    store(buffer, 0, 2)
    buffer.update_priorities([0, 1], [1.0, 3.0])
    batch = buffer.sample_batch(8, beta)
    assert batch.indices.tolist() == [0, 0, 1, 1, 1, 1, 1, 1]
    np.testing.assert_allclose(batch.weight, np.array(weights)[batch.indices] / 8, rtol=1e-5)


def test_full_importance_weights_undo_the_uneven_draw():
    """The weighted mean over many draws is, up to a common factor, the mean over all rows."""
    buffer = prioritized(16)
    store(buffer, 0, 16)
    buffer.update_priorities(np.arange(16), 1.0 + np.arange(16) % 5)
    total = np.zeros(16)
    for _ in range(200):
        batch = buffer.sample_batch(256, 1.0)  # so many that the rarest row is always among them
        assert set(batch.indices) == set(range(16))
        np.add.at(total, batch.indices, batch.weight)
    np.testing.assert_allclose(total / total.mean(), 1, atol=0.02)


def test_without_priorities_rows_and_numbers_are_those_of_a_plain_buffer():
    plain, ours = ReplayBuffer(1, None, 20, seed=3), NStepReplayBuffer(1, None, 20, seed=3)
    for buffer in (plain, ours):
        for first in range(0, 33, 3):
            store(buffer, first, 3)
    for _ in range(3):
        a, b = plain.sample_batch(16), ours.sample_batch(16)
        for mine, theirs in zip(b[:5], a, strict=True):
            assert np.array_equal(mine, theirs)
        assert (b.discount, b.weight.tolist()) == (0.99, [1 / 16] * 16)
        assert np.array_equal(b.rew, ours.ring.columns["rew"][b.indices])


# --- Looking ahead ---


class Story:
    """Episodes of random lengths in several environments, and a plain list of all that happened."""

    def __init__(self, envs, seed, blind):
        self.rng, self.envs, self.rows = np.random.default_rng(seed), envs, []
        self.sees = 0 if blind else 1  # blind: every observation is the same
        self.obs = self.look()

    def look(self):
        return self.sees * self.rng.random((self.envs, 2)).astype(np.float32)

    def step(self, buffer):
        n, rng = self.envs, self.rng
        obs2 = self.look()
        rew, act = rng.normal(size=n).astype(np.float32), rng.integers(3, size=n)
        terminated, truncated = rng.random(n) < 0.15, rng.random(n) < 0.1
        buffer.store(self.obs, act, rew, obs2, terminated, truncated)
        self.rows += zip(self.obs, act, rew, obs2, terminated, truncated)
        self.obs = np.where((terminated | truncated)[:, None], self.look(), obs2)

    def n_step_returns(self, k, n, gamma):
        """By definition: walk along one environment to the end of its episode or of the list."""
        obs, act = self.rows[k][:2]
        total, steps = 0.0, 0
        while True:
            _, _, rew, obs2, terminated, truncated = self.rows[k]
            total += gamma**steps * float(rew)
            steps, k = steps + 1, k + self.envs
            if steps == n or terminated or truncated or k >= len(self.rows):
                return obs, act, total, obs2, terminated, gamma**steps


@quickly
@given(
    st.integers(1, 4),
    st.integers(1, 30),
    st.integers(1, 40),
    st.integers(1, 6),
    st.integers(0, 2**32 - 1),
    st.booleans(),
)
def test_n_step_transitions_equal_a_walk_along_the_episode(envs, size, turns, n, seed, blind):
    story = Story(envs, seed, blind)
    buffer = NStepReplayBuffer(2, None, size, seed, act_dtype=np.int64, n_step=n, gamma=0.9)
    for _ in range(turns):
        story.step(buffer)
    batch, total = buffer.sample_batch(64), envs * turns
    for i, row in enumerate(batch.indices):
        (k,) = [k for k in range(max(0, total - size), total) if k % size == row]
        discount = np.broadcast_to(batch.discount, 64)
        found = *(column[i] for column in batch[:5]), discount[i]
        for mine, expected in zip(found, story.n_step_returns(k, n, 0.9), strict=True):
            np.testing.assert_allclose(mine, expected, rtol=1e-6, atol=1e-6)


def test_looking_ahead_by_hand():
    """Two environments take turns; rewards are 0, 1, 2, ...; row 4 is the last of an episode."""
    buffer = NStepReplayBuffer(1, None, 6, n_step=3, gamma=0.5)
    for first in (0, 2, 4, 6):  # rows 6 and 7 take the places of 0 and 1
        store(buffer, first, 2, over=[4])
    _, _, rew, obs2, terminated, discount = buffer.n_step_returns(np.arange(6))
    # Places 0 and 1 hold rows 6 and 7, the newest: nothing follows them yet.
    # Row 2: 2 + 4/2, and there its episode ends. Row 3: 3 + 5/2 + 7/4. Row 4: an end. 5: 5 + 7/2.
    assert rew.tolist() == [6, 7, 2 + 2, 3 + 2.5 + 1.75, 4, 5 + 3.5]
    assert obs2[:, 0].tolist() == [8, 9, 6, 9, 6, 9]
    assert discount.tolist() == [0.5, 0.5, 0.25, 0.125, 0.5, 0.25]
    assert not terminated.any()


def test_rows_that_do_not_join_are_not_joined():
    """An environment that could not be restored after a kill starts a new episode, unmarked."""
    buffer = NStepReplayBuffer(1, None, 8, n_step=4, gamma=1.0)
    store(buffer, 0, 1)
    store(buffer, 1, 1)
    buffer.store(np.full((1, 1), 50), [0], [50], np.full((1, 1), 51), [False], [False])
    rew, obs2 = buffer.n_step_returns(np.arange(3))[2:4]
    assert rew.tolist() == [1, 1, 50]
    assert obs2[:, 0].tolist() == [2, 2, 51]


# --- Saved and restored ---


def test_a_restored_buffer_draws_learns_and_draws_the_same(tmp_path):
    def make(seed):
        return prioritized(13, 0.6, seed=seed, n_step=2)

    lived, rng = make(seed=0), np.random.default_rng(1)
    for first in range(0, 60, 3):
        store(lived, first, 3)
        batch = lived.sample_batch(7, 0.4)
        lived.update_priorities(batch.indices, rng.random(7))
    lived.ring.append_log(tmp_path / "rows")
    write_tree(tmp_path / "state", lived.state_dict())
    restored = make(seed=99)
    state = read_tree(tmp_path / "state")
    assert state["priorities"]["leaves"].nbytes == 4 * 13  # what it costs: four bytes a row
    restored.load_state_dict(state)
    restored.ring.read_log(tmp_path / "rows")
    assert restored.priorities.tree.total == lived.priorities.tree.total
    assert restored.priorities.tree.nodes.tobytes() == lived.priorities.tree.nodes.tobytes()
    for first in range(60, 90, 3):
        errors = rng.random(7)
        batches = []
        for buffer in (lived, restored):
            store(buffer, first, 3)
            batches.append(buffer.sample_batch(7, 0.4))
            buffer.update_priorities(batches[-1].indices, errors)
        for mine, theirs in zip(*batches, strict=True):
            assert np.array_equal(mine, theirs)
    assert restored.priorities.tree.total == lived.priorities.tree.total
    assert restored.priorities.tree.nodes.tobytes() == lived.priorities.tree.nodes.tobytes()


def test_a_half_full_buffer_saves_what_is_filled():
    buffer = prioritized(1000)
    store(buffer, 0, 10)
    assert len(buffer.state_dict()["priorities"]["leaves"]) == 10


# --- In DQN ---


class Circle(gym.Env):
    """Once around in five steps, each bringing its number; the clock ends every other round."""

    observation_space, action_space = gym.spaces.Box(0, 4, (1,)), Discrete(2)
    episodes = 0

    def reset(self, *, seed=None, options=None):
        self.place, self.episodes = 0, self.episodes + 1
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.place += 1
        over = self.place == 5
        terminated, truncated = over and self.episodes % 2 == 0, over and self.episodes % 2 == 1
        return np.full(1, self.place % 5, np.float32), float(self.place), terminated, truncated, {}


SMALL = dict(
    steps_per_epoch=60,
    epochs=1,
    start_steps=0,
    update_after=20,
    batch_size=32,
    num_test_episodes=0,
    replay_size=40,
    gamma=0.5,
)


@pytest.mark.parametrize("num_envs", [1, 3])
@pytest.mark.parametrize("prioritized", [False, True])
def test_dqn_learns_from_n_steps_of_one_episode(monkeypatch, tmp_path, num_envs, prioritized):
    batches, update = [], dqn.update

    def watched(learner, batch, **settings):
        batches.append(batch)
        return update(learner, batch, **settings)

    replace_update(monkeypatch, dqn, watched)
    dqn.dqn(
        Circle,
        n_step=3,
        prioritized=prioritized,
        num_envs=num_envs,
        logger_kwargs=dict(output_dir=tmp_path),
        **SMALL,
    )
    assert len(batches) >= 40 // num_envs
    whole = 0
    for batch in batches:
        for obs, obs2, rew, discount, terminated in zip(
            batch.obs[:, 0], batch.obs2[:, 0], batch.rew, batch.discount, batch.terminated
        ):
            steps = int(obs2 - obs) % 5
            assert 1 <= steps <= 3
            assert discount == 0.5**steps
            assert rew == sum(0.5**j * (obs + 1 + j) for j in range(steps))
            assert obs + steps <= 5  # never into the next round
            assert terminated == 0 or obs2 == 0
            whole += steps == 3
    assert whole > 0


def test_dqn_notes_the_errors_of_its_rows_and_anneals_their_weights(monkeypatch, tmp_path):
    noted, exponents = [], []
    update, sample = NStepReplayBuffer.update_priorities, NStepReplayBuffer.sample_batch

    def watched_update(self, rows, errors):
        noted.append((rows, errors))
        update(self, rows, errors)

    def watched_sample(self, batch_size, importance_exponent):
        exponents.append(importance_exponent)
        return sample(self, batch_size, importance_exponent)

    monkeypatch.setattr(NStepReplayBuffer, "update_priorities", watched_update)
    monkeypatch.setattr(NStepReplayBuffer, "sample_batch", watched_sample)
    where = dict(logger_kwargs=dict(output_dir=tmp_path))
    dqn.dqn(Circle, prioritized=True, importance_exponent=0.4, **SMALL, **where)
    assert len(noted) == len(exponents) >= 40
    assert all(len(rows) == len(errors) == 32 for rows, errors in noted)
    assert all((errors >= 0).all() for _, errors in noted)
    np.testing.assert_allclose(np.diff(exponents), 0.6 / 60, rtol=1e-6)  # a straight line to 1
    assert exponents[-1] == pytest.approx(1 - 0.6 / 60)


def test_the_loss_weighs_each_row_and_tells_each_error():
    class Table:
        def __init__(self, values):
            self.values = torch.tensor(values, requires_grad=True)

        def q(self, obs):
            return self.values[obs[:, 0].long()]

    ac, target = Table([[1.0, 2.0], [3.0, 5.0]]), Table([[0.0, 0.0], [4.0, 8.0]])
    buffer = NStepReplayBuffer(
        1, None, 2, act_dtype=np.int64, priority_exponent=1.0, convert=as_tensors("cpu"), gamma=0.5
    )
    buffer.store([[0], [0]], [0, 1], [1.0, 1.75], [[1], [1]], [0, 1], [0, 0])
    buffer.update_priorities([0, 1], [1.0, 3.0])
    batch = buffer.sample_batch(4, 1.0)  # rows 0, 1, 1, 1
    loss, stats = dqn.compute_loss_q(ac, target, batch)
    # Row 0: the network prefers action 1, which the copy says is worth 8: 1 + 0.5 * 8 = 5, not 1.
    # Row 1: terminated: 1.75, not 2. Huber: 3.5 and 1/32. Weights 1 and 1/3, over a batch of 4.
    torch.testing.assert_close(stats["TDError"], torch.tensor([4.0, 0.25, 0.25, 0.25]))
    assert loss.item() == pytest.approx((3.5 + 3 * (1 / 3) * (1 / 32)) / 4, rel=1e-5)
    loss.backward()
    slopes = [-1 / 4, 3 * (1 / 3) * 0.25 / 4]
    torch.testing.assert_close(ac.values.grad[0], torch.tensor(slopes))
