"""GAE-lambda and returns are what the papers' sums say, however the paths end."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from spinup.algos.pytorch.ppo import ppo as ppo_module
from spinup.parts.buffers import GAEBuffer, discount_cumsum
from spinup.parts.pytorch import buffers as tensor_buffers

exactly = settings(max_examples=80, deadline=None, derandomize=True, database=None)
number = st.floats(-10, 10, width=32)


def textbook(rewards, values, last_value, gamma, lam):
    """Advantages and returns of one path, each as the explicit sum over all later steps."""
    steps, values = len(rewards), [*values, last_value]
    delta = [rewards[t] + gamma * values[t + 1] - values[t] for t in range(steps)]
    advantages = [
        sum((gamma * lam) ** l * delta[t + l] for l in range(steps - t)) for t in range(steps)
    ]
    returns = [
        sum(gamma**l * rewards[t + l] for l in range(steps - t)) + gamma ** (steps - t) * last_value
        for t in range(steps)
    ]
    return advantages, returns


@st.composite
def rollouts(draw):
    """Rewards and values of some environments, and the value at each step where a path ends.

    Such a value is 0 for a terminated path and anything for a truncated one; every path that
    is still open at the last step is cut there by the end of the rollout.
    """
    size, num_envs = draw(st.integers(1, 12)), draw(st.integers(1, 4))
    table = st.lists(number, min_size=size * num_envs, max_size=size * num_envs)
    rew, val = (np.reshape(draw(table), (size, num_envs)) for _ in range(2))
    places = st.tuples(st.integers(0, size - 1), st.integers(0, num_envs - 1))
    ends = draw(st.dictionaries(places, st.one_of(st.just(0.0), number), max_size=8))
    for env in range(num_envs):
        ends.setdefault((size - 1, env), draw(number))
    gamma, lam = draw(st.floats(0, 1)), draw(st.floats(0, 1))
    return rew, val, ends, gamma, lam


def fill(buffer, rew, val, ends):
    """Store a rollout whose observation at step t of environment i is (t, i)."""
    size, num_envs = rew.shape
    for t in range(size):
        obs = [[t, i] for i in range(num_envs)]
        act, logp = [100 * t + i for i in range(num_envs)], [-t - i / 8 for i in range(num_envs)]
        buffer.store(obs, act, rew[t], val[t], logp)
        for env in range(num_envs):
            if (t, env) in ends:
                buffer.finish_path(ends[t, env], env)


def expected(rew, val, ends, gamma, lam):
    advantages, returns = np.empty(rew.shape), np.empty(rew.shape)
    for env in range(rew.shape[1]):
        start = 0
        for t in range(rew.shape[0]):
            if (t, env) in ends:
                path = slice(start, t + 1), env
                sums = textbook(rew[path], val[path], ends[t, env], gamma, lam)
                advantages[path], returns[path] = sums
                start = t + 1
    return advantages, returns


@exactly
@given(rollouts())
def test_each_path_of_each_environment(rollout):
    rew, val, ends, gamma, lam = rollout
    size, num_envs = rew.shape
    buffer = GAEBuffer(2, None, size, gamma, lam, num_envs, act_dtype=np.int64)
    fill(buffer, rew, val, ends)
    advantages, returns = expected(rew, val, ends, gamma, lam)
    found = buffer.adv_buf.reshape(rew.shape), buffer.ret_buf.reshape(rew.shape)
    np.testing.assert_allclose(found[0], advantages, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(found[1], returns, rtol=1e-5, atol=1e-4)


@exactly
@given(rollouts())
def test_get_gives_every_row_once_with_normalised_advantages(rollout):
    rew, val, ends, gamma, lam = rollout
    size, num_envs = rew.shape
    buffer = GAEBuffer(2, None, size, gamma, lam, num_envs, act_dtype=np.int64)
    fill(buffer, rew, val, ends)
    raw = buffer.adv_buf.astype(np.float64).reshape(rew.shape)
    ret = buffer.ret_buf.copy().reshape(rew.shape)
    obs, act, got_ret, adv, logp = buffer.get()
    t, env = obs.astype(int).T
    assert sorted(zip(t, env)) == [(t, i) for t in range(size) for i in range(num_envs)]
    np.testing.assert_array_equal(act, 100 * t + env)
    np.testing.assert_array_equal(logp, -t - env / 8)
    np.testing.assert_array_equal(got_ret, ret[t, env])
    normalised = (raw - raw.mean()) / (raw.std() + 1e-8)
    np.testing.assert_allclose(adv, normalised[t, env], rtol=1e-4, atol=1e-4)


def test_normalised_advantages_have_mean_zero_and_deviation_one():
    rng = np.random.default_rng(0)
    buffer = GAEBuffer(2, None, 50, 0.9, 0.8, 3)
    fill(buffer, 7 + rng.normal(size=(50, 3)), rng.normal(size=(50, 3)), {(49, 0): 0, (49, 1): 2})
    buffer.finish_path(3.0, 2)
    adv = buffer.get().adv.astype(np.float64)
    assert adv.mean() == pytest.approx(0, abs=1e-6)
    assert adv.std() == pytest.approx(1, abs=1e-6)


def test_equal_advantages_become_zero_not_nan():
    buffer = GAEBuffer(1, 1, 4, gamma=0.0, lam=0.0)
    for _ in range(4):
        buffer.store([0.0], [0.0], 0.7, 0.2, 0.0)
    buffer.finish_path(0)
    np.testing.assert_allclose(buffer.get().adv, 0, atol=1e-5)


def test_one_environment_without_a_batch_dimension():
    """As scripts for the original use it; gamma and lam 1/2 make sums one can do in one's head."""
    buffer = tensor_buffers.GAEBuffer((3,), (2,), 4, gamma=0.5, lam=0.5)
    rows = [(np.full(3, float(t)), np.full(2, -float(t)), 1.0, 2.0, -0.5) for t in range(4)]
    for row in rows[:2]:
        buffer.store(*row)
    buffer.finish_path()  # terminated: deltas 1 + 1 - 2 = 0 and 1 - 2 = -1
    for row in rows[2:]:
        buffer.store(*row)
    buffer.finish_path(8.0)  # cut: deltas 0 and 1 + 4 - 2 = 3
    raw = [-0.25, -1.0, 0.75, 3.0]
    assert buffer.adv_buf.ravel().tolist() == raw
    rollout = buffer.get()
    assert rollout["ret"].tolist() == [1.5, 1.0, 3.5, 5.0]
    assert rollout["obs"].shape == (4, 3)
    assert rollout["act"].shape == (4, 2)
    assert rollout["logp"].tolist() == [-0.5] * 4
    expected_adv = (np.array(raw) - np.mean(raw)) / np.std(raw)
    np.testing.assert_allclose(rollout["adv"], expected_adv, rtol=1e-6)
    assert all(column.dtype == torch.float32 for column in rollout)


def test_a_rollout_taken_from_the_torch_buffer_does_not_change_when_it_fills_again():
    buffer = tensor_buffers.GAEBuffer(1, 1, 2)
    for value in (1.0, 2.0):
        buffer.store([value], [value], value, 0.0, 0.0)
    buffer.finish_path()
    rollout = buffer.get()
    kept = [column.clone() for column in rollout]
    for value in (7.0, 9.0):
        buffer.store([value], [value], value, 1.0, 1.0)
    buffer.finish_path(3)
    assert all(torch.equal(a, b) for a, b in zip(rollout, kept))
    assert buffer.get().obs.ravel().tolist() == [7.0, 9.0]


def test_too_many_steps_are_refused():
    buffer = GAEBuffer(1, 1, 2)
    for _ in range(2):
        buffer.store([0.0], [0.0], 0.0, 0.0, 0.0)
    with pytest.raises(IndexError, match="full"):
        buffer.store([0.0], [0.0], 0.0, 0.0, 0.0)


def test_an_incomplete_rollout_is_refused():
    buffer = GAEBuffer(1, 1, 3)
    for _ in range(2):
        buffer.store([0.0], [0.0], 0.0, 0.0, 0.0)
    buffer.finish_path()
    with pytest.raises(IndexError, match="not complete"):
        buffer.get()


def test_an_unfinished_path_is_refused():
    buffer = GAEBuffer(1, 1, 2, num_envs=2)
    for _ in range(2):
        buffer.store(np.zeros((2, 1)), np.zeros((2, 1)), [0.0] * 2, [0.0] * 2, [0.0] * 2)
    buffer.finish_path(0, env=1)
    with pytest.raises(IndexError, match="not complete"):
        buffer.get()


@exactly
@given(st.lists(number, max_size=20), st.floats(0, 1))
def test_discounted_sums(x, discount):
    sums = [sum(discount**l * x[t + l] for l in range(len(x) - t)) for t in range(len(x))]
    np.testing.assert_allclose(discount_cumsum(np.array(x), discount), sums, atol=1e-9)


class Corridor(gym.Env):
    """Rewards of 1; after three steps the task is over, or only the clock has run out."""

    observation_space, action_space = Box(0, 9, (1,)), Discrete(2)

    def __init__(self, ends_by="termination"):
        self.ends_by = ends_by

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return np.array([0.0], np.float32), {}

    def step(self, action):
        self.t += 1
        over, clock = (self.t == 3 and self.ends_by == way for way in ("termination", "clock"))
        return np.array([self.t], np.float32), 1.0, over, clock, {}


class Hundred(nn.Linear):
    """Deems every state worth 100, so that each bootstrap shows."""

    def forward(self, obs):
        return torch.full(obs.shape[:-1], 100.0)


class HundredEverywhere(nn.Module):
    """Always does the same, and judges as above."""

    def __init__(self, observation_space, action_space):
        super().__init__()
        self.pi, self.v = nn.Linear(1, 2), Hundred(1, 1)

    def step(self, obs):
        n = len(obs)
        return np.zeros(n, np.int64), self.v(obs).numpy(), np.zeros(n, np.float32)


@pytest.mark.parametrize(
    ("ends_by", "steps", "returns"),
    [
        # The last step of the epoch is the last of an episode: nothing follows it.
        ("termination", 6, [1.75, 1.5, 1, 1.75, 1.5, 1]),
        # The clock ran out, also on the last step of the epoch: 100 follows.
        ("clock", 6, [14.25, 26.5, 51, 14.25, 26.5, 51]),
        # The epoch cuts the second episode after one step.
        ("termination", 4, [1.75, 1.5, 1, 51]),
    ],
)
def test_ppo_bootstraps_what_was_cut_and_nothing_that_ended(
    ends_by, steps, returns, monkeypatch, tmp_path
):
    rollouts = []
    monkeypatch.setattr(
        ppo_module, "update", lambda learner, rollout, **_: rollouts.append(rollout) or {}
    )
    ppo_module.ppo(
        lambda: Corridor(ends_by),
        HundredEverywhere,
        steps_per_epoch=steps,
        epochs=2,
        gamma=0.5,
        logger_kwargs=dict(output_dir=tmp_path),
    )
    assert rollouts[0].ret.tolist() == returns
    assert len(rollouts) == 2


def test_ppo_bootstraps_each_of_several_environments_by_itself(monkeypatch, tmp_path):
    ends = iter(["termination", "clock"])
    rollouts = []
    monkeypatch.setattr(
        ppo_module, "update", lambda learner, rollout, **_: rollouts.append(rollout) or {}
    )
    ppo_module.ppo(
        lambda: Corridor(next(ends)),
        HundredEverywhere,
        steps_per_epoch=8,
        epochs=1,
        gamma=0.5,
        num_envs=2,
        logger_kwargs=dict(output_dir=tmp_path),
    )
    first, second = rollouts[0].ret.reshape(4, 2).T.tolist()
    assert first == [1.75, 1.5, 1, 51]
    assert second == [14.25, 26.5, 51, 51]
