"""An environment that carries state between episodes is named when a run starts or is resumed."""

import gym as gym_of_old
import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.wrappers import NormalizeObservation, NormalizeReward

import spinup
from spinup.parts import run_setup
from spinup.parts.envs import VectorEnv
from spinup.parts.hidden_state import find_hidden_state
from spinup.parts.make_env import EnvMaker

SMALL = dict(steps_per_epoch=50, train_v_iters=1, ac_kwargs=dict(hidden_sizes=[4]))
RESUMED = "cannot be resumed exactly"
ORDINARY = [
    "CartPole-v1", "Pendulum-v1", "FrozenLake-v1", "HalfCheetah-v5", "Humanoid-v5",
    "LunarLander-v3", "FetchReach-v4", "ALE/Pong-v5", "spinup/Reach-v0", "spinup/BitFlip-v0",
]  # fmt: skip


class ShiftedByAll(gym.RewardWrapper):
    """Takes the mean of all rewards so far, of all episodes, off each reward."""

    def __init__(self, env):
        super().__init__(env)
        self.total, self.count = 0.0, 0

    def reward(self, reward):
        self.total, self.count = self.total + float(reward), self.count + 1
        return float(reward) - self.total / (self.count + 1)


class Levels(gym.Env):
    """Each new episode starts at a higher level."""

    observation_space, action_space = Box(-np.inf, np.inf, (2,), np.float32), Discrete(2)
    level = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.level, self.t = self.level + 1, 0
        return self._look(), {}

    def _look(self):
        return np.array([self.level, self.np_random.random()], np.float32)

    def step(self, action):
        self.t += 1
        return self._look(), 1.0, self.t == 7, False, {}


class FromGlobal(Levels):
    """Takes what it needs of chance from NumPy's global stream."""

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return self._look(), {}

    def _look(self):
        return np.random.random(2).astype(np.float32)


def train(env_fn, folder, capsys, epochs=1, resume=False):
    spinup.ppo_pytorch(
        env_fn, epochs=epochs, logger_kwargs=dict(output_dir=folder), resume=resume, **SMALL
    )
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("env_fn", "name"),
    [
        (lambda: NormalizeObservation(gym.make("CartPole-v1")), "NormalizeObservation"),
        (lambda: NormalizeReward(gym.make("Pendulum-v1")), "NormalizeReward"),
        (lambda: NormalizeReward(gym.make("CartPole-v1")), "NormalizeReward"),
        (lambda: gym.wrappers.TimeLimit(ShiftedByAll(gym.make("Pendulum-v1")), 20), "ShiftedByAll"),
        (lambda: gym.wrappers.TimeLimit(Levels(), 5), "Levels"),
        (FromGlobal, "FromGlobal"),
    ],
)
def test_it_is_named_at_the_start_and_at_every_resume(env_fn, name, tmp_path, capsys):
    said = train(env_fn, tmp_path / "run", capsys)
    before, _, _ = said.partition("AverageEpRet")
    assert f"does not set, is in {name}" in before
    assert "--ac_kwargs:normalize True" in before
    assert RESUMED not in said
    for epochs in (2, 3):
        said = train(env_fn, tmp_path / "run", capsys, epochs, resume=True)
        assert f"is in {name}" in said.partition("AverageEpRet")[0]
        assert RESUMED in said


def test_hidden_state_that_does_not_show_in_the_replay_is_told_all_the_same(tmp_path, capsys):
    """The epoch ends with an episode, so that there is nothing to play again."""

    def env_fn():
        return gym.wrappers.TimeLimit(NormalizeReward(gym.make("Pendulum-v1")), 25)

    train(env_fn, tmp_path, capsys)
    said = train(env_fn, tmp_path, capsys, 2, resume=True)
    assert "did not come back" not in said
    assert RESUMED in said


class OldWithSeed(gym_of_old.Env):
    observation_space = gym_of_old.spaces.Box(-9, 9, (1,), np.float32)
    action_space = gym_of_old.spaces.Discrete(2)

    def seed(self, seed=None):
        self.rng = np.random.default_rng(seed)
        return [seed]

    def reset(self):
        return self.rng.random(1).astype(np.float32)

    def step(self, action):
        obs = self.rng.random(1).astype(np.float32)
        return obs, float(action), bool(obs > 0.9), {}


@pytest.mark.parametrize(
    "env_fn",
    [
        *map(EnvMaker, ORDINARY),
        OldWithSeed,
        lambda: gym_of_old.make("CartPole-v1", disable_env_checker=True),
        lambda: gym.wrappers.RecordEpisodeStatistics(gym.make("CartPole-v1")),
        lambda: gym.wrappers.StickyAction(gym.make("Pendulum-v1"), 0.5),
    ],
    ids=lambda env_fn: getattr(env_fn, "env_name", None),
)
def test_ordinary_environments_are_not_named(env_fn):
    assert find_hidden_state(env_fn, VectorEnv(env_fn)) is None


def test_an_ordinary_run_says_nothing(tmp_path, capsys):
    said = train(EnvMaker("CartPole-v1"), tmp_path, capsys)
    said += train(EnvMaker("CartPole-v1"), tmp_path, capsys, 2, resume=True)
    assert "State carried between episodes" not in said
    assert RESUMED not in said


def table(folder):
    header, *rows = [line.split("\t") for line in (folder / "progress.txt").read_text().split("\n")]
    return [dict(zip(header, row)) | dict(Time=None) for row in rows]


@pytest.mark.parametrize("kind", [Levels, FromGlobal, OldWithSeed])
@pytest.mark.parametrize("shared", [False, True])
def test_looking_for_it_changes_nothing(kind, shared, tmp_path, capsys, monkeypatch):
    """Neither the hidden state of the environments of the run, nor the global random streams."""
    for name in ("looked", "not looked"):
        one = kind()
        train((lambda one=one: one) if shared else kind, tmp_path / name, capsys, 2)
        monkeypatch.setattr(run_setup, "find_hidden_state", lambda *_: None)
    assert table(tmp_path / "looked") == table(tmp_path / "not looked")


def test_an_environment_that_cannot_be_made_once_more_is_trained_all_the_same(tmp_path, capsys):
    only = iter([gym.make("CartPole-v1")])
    said = train(lambda: next(only), tmp_path, capsys)
    assert "AverageEpRet" in said
