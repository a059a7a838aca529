"""Hindsight gives a transition only goals it may have, at the right rate, and pays it rightly."""

from collections import Counter
from importlib import import_module

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary
from small_learner import replace_update

from spinup.parts.buffers import Transitions
from spinup.parts.envs import VectorEnv
from spinup.parts.errors import UserError
from spinup.parts.hindsight import GoalLayout, HindsightBuffer, goal_layout
from spinup.parts.make_env import EnvMaker
from spinup.parts.pytorch.tensors import as_tensors

# An observation is (what was achieved, a number of the row, what is desired). Row number k of the
# run achieves k + 0.5 and desires -1 - k, so that each number tells where it is from.
LAYOUT = GoalLayout(
    achieved=slice(0, 1),
    desired=slice(2, 3),
    rewards=lambda achieved, desired: 10 * achieved[:, 0] - desired[:, 0],
    terminations=lambda achieved, desired: (achieved == desired).all(-1),
)


def observation(k, after=False):
    return [k + 0.5 * after, 100 + k + 0.25 * after, -1 - k]


def made(size, num_envs=1, strategy="future", k=4, seed=0, goals=LAYOUT, **more):
    """A buffer, and what was stored in it: the environment and episode of each row in turn."""
    buffer = HindsightBuffer(goals, 3, 1, size, seed, strategy=strategy, k=k, **more)
    buffer.history, buffer.episode = [], [0] * num_envs
    return buffer


def play(buffer, ends):
    """Store a joint step of all environments for each entry of `ends`.

    ends: for each step one letter per environment: '.' continues, 'T' terminated, 'C' truncated
    """
    for letters in ends:
        first = len(buffer.history)
        rows = range(first, first + len(letters))
        for i, letter in enumerate(letters):
            buffer.history.append((i, buffer.episode[i]))
            buffer.episode[i] += letter != "."
        columns = (
            [observation(k) for k in rows],
            [[-k] for k in rows],
            [float(k) for k in rows],
            [observation(k, after=True) for k in rows],
            [x == "T" for x in letters],
            [x == "C" for x in letters],
        )
        single = len(letters) == 1 and first % 2  # as scripts store: one row without a batch
        buffer.store(*(np.array(column[0] if single else column) for column in columns))
    return buffer


def may_be_drawn(buffer):
    """By definition: for each row there is, the rows whose achieved goal it may be given."""
    total, size = len(buffer.history), buffer.ring.max_size
    there = range(max(0, total - size), total)
    allowed = {}
    for row in there:
        same = [other for other in there if buffer.history[other] == buffer.history[row]]
        allowed[row] = dict(
            future=[other for other in same if other >= row], final=[max(same)], episode=same
        )[buffer.strategy]
    return allowed


def drawn(buffer, times=4000):
    """How often each row was given the goal of each; rows that kept their own are left out."""
    batch = buffer.sample_batch(times)
    rows = (batch.obs[:, 1] - 100).astype(int)
    new = batch.obs[:, 2] != -1 - rows
    return Counter(zip(rows[new].tolist(), (batch.obs[new, 2] - 0.5).astype(int).tolist()))


HISTORIES = {
    "one whole episode": (20, ["."] * 4 + ["C"]),
    "one unfinished episode": (20, ["."] * 5),
    "several episodes": (40, [*"..T", *"C", *"....C", *"TT", *"..."]),
    "wrapped around": (10, [*"...C", *"..T", *"....C", *".."]),
    "beginning overwritten": (7, [*"..C", *"......"]),
    "beginning overwritten, then ended": (7, [*"..C", *".......T", *"."]),
    "longer than the ring": (5, [*"................"]),
    "ring of one row": (1, [*"..C."]),
    "three environments": (60, ["...", ".C.", "...", "T..", "..C", "...", "CCC", "..."]),
    "three environments wrapped": (11, ["...", ".C.", "...", "T..", "..C", "...", ".T.", "..."]),
    "ring as large as a step": (3, ["...", ".C.", "..."]),
    "ring smaller than a step": (2, ["...", ".C.", "..."]),
    "two environments, a multiple": (8, ["..", "C.", "..", "..", ".C", "..", "C."]),
}


@pytest.mark.parametrize("strategy", ["future", "final", "episode"])
@pytest.mark.parametrize("history", HISTORIES)
def test_exactly_what_may_be_drawn_is_drawn_evenly(history, strategy):
    size, ends = HISTORIES[history]
    buffer = play(made(size, len(ends[0]), strategy), ends)
    allowed = may_be_drawn(buffer)
    counts = drawn(buffer, 600 * len(allowed) * max(map(len, allowed.values())))
    assert set(counts) == {(row, goal) for row, goals in allowed.items() for goal in goals}
    for row, goals in allowed.items():
        times = np.array([counts[row, goal] for goal in goals])
        expected = times.sum() / len(goals)
        assert (np.abs(times - expected) <= 5 * np.sqrt(expected)).all()


def test_any_history_of_any_number_of_environments():
    """The same at random: 40 histories, compared after several of their steps."""
    rng = np.random.default_rng(0)
    for case in range(40):
        num_envs, size = rng.integers(1, 5), rng.integers(1, 25)
        strategy = ("future", "final", "episode")[case % 3]
        buffer = made(size, num_envs, strategy, seed=case)
        for _ in range(3):
            ends = rng.choice(
                [".", "T", "C"], p=[0.7, 0.15, 0.15], size=(rng.integers(1, 9), num_envs)
            )
            play(buffer, ["".join(letters) for letters in ends])
            allowed = may_be_drawn(buffer)
            pairs = {(row, goal) for row, goals in allowed.items() for goal in goals}
            counts = drawn(buffer, 40 * len(allowed) * max(map(len, allowed.values())))
            assert set(counts) == pairs


@pytest.mark.parametrize("k", [0, 1, 4, 8])
def test_k_transitions_get_a_new_goal_for_each_that_keeps_its_own(k):
    buffer = play(made(50, k=k), [*"....C"] * 4)
    n = 20_000
    share = sum(drawn(buffer, n).values()) / n
    assert share == pytest.approx(k / (k + 1), abs=5 * np.sqrt(0.25 / n))
    assert k > 0 or share == 0


def test_goal_and_reward_change_and_nothing_else():
    buffer = play(made(12), [*"..T", *"....C", *"....C", *"..T"])
    batch = buffer.sample_batch(3000)
    o, a, r, o2, terminated = batch
    rows = (o[:, 1] - 100).astype(int)
    new = o[:, 2] != -1 - rows
    assert 0 < new.sum() < len(new)
    assert np.array_equal(o[:, :2], [observation(k)[:2] for k in rows])
    assert np.array_equal(o2[:, :2], [observation(k, after=True)[:2] for k in rows])
    assert np.array_equal(a[:, 0], -rows)
    assert np.array_equal(o[:, 2], o2[:, 2])  # the goal is the same before and after
    # With a new goal: 10 times what the row itself achieved, less the goal; over if they are equal.
    assert np.array_equal(r[new], 10 * (rows[new] + 0.5) - o[new, 2])
    assert np.array_equal(terminated[new], o[new, 2] == rows[new] + 0.5)
    assert terminated[new].any() and not terminated[new].all()
    # With its own: as stored.
    ends = [k for k in range(len(buffer.history)) if k in (2, 15)]
    assert np.array_equal(r[~new], rows[~new])
    assert np.array_equal(terminated[~new], np.isin(rows[~new], ends))


def test_where_goals_do_not_decide_the_end_it_stays_as_it_was():
    buffer = play(made(20, goals=LAYOUT._replace(terminations=None)), [*"..T", *"...."])
    batch = buffer.sample_batch(500)
    assert np.array_equal(batch.terminated, batch.obs[:, 1] == 102)


def test_what_is_stored_stays_as_it_is():
    buffer = play(made(9), [*"..T", *"....C", *"..."])
    before = buffer.ring.storage.copy()
    for _ in range(20):
        batch = buffer.sample_batch(64)
    assert np.array_equal(buffer.ring.storage, before)
    kept = [column.copy() for column in batch]
    play(buffer, [*"........."])
    assert all(np.array_equal(a, b) for a, b in zip(kept, batch))


def test_batches_become_what_a_backend_wants():
    buffer = play(made(20, convert=as_tensors("cpu")), [*"....C"])
    batch = buffer.sample_batch(16)
    assert isinstance(batch, Transitions)
    assert all(column.dtype == torch.float32 and len(column) == 16 for column in batch)


def test_a_change_of_the_number_of_environments_is_noticed():
    buffer = play(made(20, 2), ["..", ".C"])
    with pytest.raises(ValueError, match="2 environments stored before, now 3"):
        buffer.store(*np.zeros((2, 3, 1)), np.zeros(3), np.zeros((3, 1)), np.zeros(3, bool))


def test_an_unknown_strategy_gets_a_sentence():
    with pytest.raises(UserError, match="'future', 'final' or 'episode', not 'futur'"):
        made(10, strategy="futur")


# --- Saved and read back ---


@pytest.mark.parametrize("strategy", ["future", "final", "episode"])
@pytest.mark.parametrize("history", HISTORIES)
def test_read_back_it_draws_the_same_for_ever(tmp_path, history, strategy):
    size, ends = HISTORIES[history]
    for cut in (1, len(ends) // 2, len(ends)):
        whole = play(made(size, len(ends[0]), strategy), ends[:cut])
        whole.sample_batch(5)
        whole.ring.append_log(tmp_path / str(cut))
        again = made(size, len(ends[0]), strategy, seed=99)
        again.load_state_dict(whole.state_dict())
        again.ring.read_log(tmp_path / str(cut))
        again.history, again.episode = list(whole.history), list(whole.episode)
        for letters in [*ends[cut:], *ends]:
            for one, other in zip(whole.sample_batch(7), again.sample_batch(7)):
                assert np.array_equal(one, other)
            play(whole, [letters])
            play(again, [letters])


# --- What an environment must have ---


class Goals(gym.Env):
    """Two numbers to reach; says how far they are, for one pair of goals at a time or for many."""

    def __init__(self, parts=("observation", "achieved_goal", "desired_goal"), goal=None):
        goal = goal or Box(-9, 9, (2,), np.float64)
        spaces = dict(
            observation=Box(-9, 9, (3,), np.float64),
            achieved_goal=goal,
            desired_goal=goal,
            extra=Discrete(4),
        )
        self.observation_space = Dict({name: spaces[name] for name in (*parts, "extra")})
        self.action_space = Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        sample = self.observation_space.sample()
        return sample, {}

    def compute_reward(self, achieved_goal, desired_goal, info):
        assert info == {} or all(i == {} for i in info)
        return -np.abs(achieved_goal - desired_goal).sum(-1)


class OnePairAtATime(Goals):
    def compute_reward(self, achieved_goal, desired_goal, info):
        return -float(np.abs(achieved_goal - desired_goal).sum())  # of a batch: one number

    def compute_terminated(self, achieved_goal, desired_goal, info):
        return np.array_equal(achieved_goal, desired_goal)


class WrongForBatches(Goals):
    def compute_reward(self, achieved_goal, desired_goal, info):
        distance = np.abs(np.atleast_2d(achieved_goal - desired_goal)).sum(-1)
        return -distance if np.ndim(achieved_goal) == 1 else distance


class WithNoTermination(Goals):
    def compute_terminated(self, achieved_goal, desired_goal, info):
        raise NotImplementedError


@pytest.mark.parametrize(
    ("kind", "ends"),
    [(Goals, False), (OnePairAtATime, True), (WrongForBatches, False), (WithNoTermination, False)],
)
def test_rewards_are_those_of_the_environment_pair_by_pair(kind, ends):
    env = VectorEnv(kind, 1)
    layout = goal_layout(env)
    # Given as a dict, spaces are put in the order of their names: achieved_goal, desired_goal, …;
    # given as keywords, as in our own environments, they stay in theirs.
    assert (layout.achieved, layout.desired) == (slice(0, 2), slice(2, 4))
    goals = np.random.default_rng(0).integers(-2, 3, (2, 50, 2)).astype(np.float32)
    rewards = layout.rewards(*goals)
    assert rewards.shape == (50,)
    assert rewards.dtype == np.float32
    assert np.array_equal(rewards, [-abs(a - d).sum() for a, d in zip(*goals)])
    assert (layout.terminations is not None) == ends
    if ends:
        terminated = layout.terminations(*goals)
        assert np.array_equal(terminated, [(a == d).all() for a, d in zip(*goals)])
        assert 0 < terminated.sum() < 50


def test_goals_are_found_where_gymnasium_puts_them():
    for env_id in ("spinup/BitFlip-v0", "spinup/Reach-v0", "FetchReach-v4"):
        env = VectorEnv(EnvMaker(env_id), 1)
        layout = goal_layout(env)
        plain = EnvMaker(env_id)()
        obs, _ = plain.reset(seed=env.episode_seeds[0])
        for part, name in ((layout.achieved, "achieved_goal"), (layout.desired, "desired_goal")):
            assert np.array_equal(env.obs[0][part], obs[name].astype(np.float32))
        env.close()


def test_goals_of_bits_reach_the_environment_as_bits():
    seen = []

    class Bits(Goals):
        def __init__(self):
            super().__init__(goal=MultiBinary((2, 3)))

        def compute_reward(self, achieved_goal, desired_goal, info):
            seen.append((achieved_goal.dtype, achieved_goal.shape[-2:]))
            return (achieved_goal == desired_goal).all((-1, -2)) - 1.0

    layout = goal_layout(VectorEnv(Bits, 1))
    bits = np.random.default_rng(0).integers(0, 2, (2, 9, 6)).astype(np.float32)
    bits[0, :4] = bits[1, :4]
    assert np.array_equal(layout.rewards(*bits), (bits[0] == bits[1]).all(-1) - 1.0)
    assert set(seen) == {(np.dtype(np.int8), (2, 3))}


class NeedsInfo(Goals):
    def compute_reward(self, achieved_goal, desired_goal, info):
        return info["force"]


@pytest.mark.parametrize(
    ("env_fn", "sentence"),
    [
        (EnvMaker("CartPole-v1"), "her needs a goal environment.*use sac, td3 or dqn"),
        (lambda: Goals(parts=("observation", "achieved_goal")), "her needs a goal environment"),
        (lambda: Goals(goal=Discrete(3)), "arrays of one shape"),
        (NeedsInfo, "empty info .KeyError: 'force'.*infos are not kept"),
        (lambda: gym.wrappers.TransformReward(Goals(), abs), "TransformReward changes rewards"),
    ],
)
def test_environments_that_hindsight_cannot_learn_in_get_a_sentence(env_fn, sentence):
    with pytest.raises(UserError, match=sentence):
        goal_layout(VectorEnv(env_fn, 1))


@pytest.mark.parametrize("name", ["sac", "ddpg", "td3"])
def test_any_off_policy_algorithm_can_learn_from_it(name, tmp_path, monkeypatch):
    """Only the buffer is another one; the batches it gives are those of hindsight."""
    module = import_module(f"spinup.algos.pytorch.{name}.{name}")
    maker, batches = EnvMaker("spinup/Reach-v0"), []
    layout, update = goal_layout(VectorEnv(maker)), module.update

    def made_for(device, **kwargs):
        return HindsightBuffer(layout, convert=as_tensors(device), **kwargs)

    def watched(learner, batch, **settings):
        batches.append(batch)
        return update(learner, batch, **settings)

    monkeypatch.setattr(module, "ReplayBuffer", made_for)
    replace_update(monkeypatch, module, watched)
    getattr(module, name)(
        maker,
        steps_per_epoch=200,
        epochs=1,
        start_steps=200,
        update_after=100,
        update_every=50,
        num_envs=2,
        batch_size=64,
        num_test_episodes=1,
        ac_kwargs=dict(hidden_sizes=(8,)),
        logger_kwargs=dict(output_dir=tmp_path),
    )
    obs2 = torch.cat([batch.obs2 for batch in batches])
    rewards = torch.cat([batch.rew for batch in batches])
    reached = (obs2[:, layout.achieved] == obs2[:, layout.desired]).all(-1)
    assert len(batches) == 100 and reached.float().mean() > 0.02  # by chance alone: never
    assert (rewards[reached] == 0).all()
