"""Environments of the old Gym, and those without a base class, train as Gymnasium's own do.

Each is given to a training function as a script of the original library gives it.
"""

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import gym as old_gym
import gymnasium
import numpy as np
import pytest
import torch

from spinup import dqn_pytorch, ppo_pytorch, sac_pytorch
from spinup.parts.envs import Episode, VectorEnv
from spinup.parts.errors import UserError
from spinup.parts.hidden_state import find_hidden_state
from spinup.parts.standardize import standardize
from spinup.results.playback import load_policy_and_env

SCRIPT = """
import gym
from spinup import ppo_pytorch
ppo_pytorch(
    lambda: gym.make("CartPole-v1"), ac_kwargs=dict(hidden_sizes=[8]), steps_per_epoch=200,
    epochs=2, train_pi_iters=2, train_v_iters=2, logger_kwargs=dict(output_dir="run"),
)
"""


def test_a_script_that_imports_the_old_gym_runs_unchanged(tmp_path):
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=tmp_path,
        env={"PYTHONPATH": str(Path(__file__).parents[1])},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    assert "Traceback" not in ended.stderr and "bool8" not in ended.stderr
    assert len((tmp_path / "run" / "progress.txt").read_text().splitlines()) == 3
    assert "State carried between episodes" not in ended.stdout  # CartPole has none


@pytest.mark.parametrize("wrap", [lambda env: env, old_gym.wrappers.RecordEpisodeStatistics])
def test_an_old_environment_is_the_same_as_its_successor(wrap):
    """Gym's CartPole and Gymnasium's are one simulator: equal seeds, equal episodes."""
    old = VectorEnv(lambda: wrap(old_gym.make("CartPole-v1")), 2, seed=3, max_ep_len=9)
    new = VectorEnv(lambda: gymnasium.make("CartPole-v1"), 2, seed=3, max_ep_len=9)
    for _ in range(30):
        actions = old.sample_actions()
        assert np.array_equal(actions, new.sample_actions())
        one, other = old.step(actions), new.step(actions)
        assert np.array_equal(one.obs2, other.obs2) and np.array_equal(old.obs, new.obs)
        assert np.array_equal(one.terminated, other.terminated)
        assert np.array_equal(one.truncated, other.truncated)
        assert one.episodes == other.episodes
    old.close()


class Duck:
    """An environment without a base class, as short as the original's users write them."""

    def __init__(self, spaces=gymnasium.spaces, action=None):
        self.observation_space = spaces.Box(-1, 1, (3,), np.float32)
        self.action_space = action or spaces.Discrete(2)

    def seed(self, seed=None):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.t = 0
        return self._obs()

    def _obs(self):
        return self.rng.uniform(-1, 1, 3).astype(np.float32)

    def step(self, action):
        self.t += 1
        return self._obs(), 1.0, self.t >= 10, {"TimeLimit.truncated": self.t >= 10}


class DuckOfGym(Duck):
    def __init__(self):
        super().__init__(old_gym.spaces)


class DuckOfItsOwn(Duck):
    """Its spaces have the attributes of a space and no class that anybody knows."""

    def __init__(self):
        self.observation_space = SimpleNamespace(low=-np.ones(3), high=np.ones(3), shape=(3,))
        self.action_space = SimpleNamespace(n=2)


class DuckWithNewReset(Duck):
    def reset(self, seed=None, options=None):
        self.rng = np.random.default_rng(seed) if seed is not None else self.rng
        return super().reset(), {}

    def seed(self, seed=None):
        raise AssertionError("reset takes the seed")

    def step(self, action):
        obs, rew, done, info = super().step(action)
        return obs, rew, False, done, info


class OldInterfaceOfGym(old_gym.Env):
    """Of the old base class, with its random generator, and no `seed`."""

    observation_space = old_gym.spaces.Box(-1, 1, (3,), np.float32)
    action_space = old_gym.spaces.Discrete(2)

    def reset(self):
        self.t = 0
        return self._obs()

    def _obs(self):
        return self.np_random.uniform(-1, 1, 3).astype(np.float32)

    def step(self, action):
        self.t += 1
        return self._obs(), 1.0, self.t >= 10, {"TimeLimit.truncated": self.t >= 10}


class OldInterfaceOfGymnasium(gymnasium.Env):
    """The new base class around the old interface."""

    observation_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    reset, _obs, step = (vars(OldInterfaceOfGym)[name] for name in ("reset", "_obs", "step"))


class OldStepOnly(OldInterfaceOfGymnasium):
    def reset(self, *, seed=None, options=None):
        gymnasium.Env.reset(self, seed=seed)
        return super().reset()


class WrapperThatTakesNoSeed(gymnasium.Wrapper):
    def reset(self):
        return self.env.reset()


KINDS = {
    kind.__name__: kind
    for kind in (
        Duck, DuckOfGym, DuckOfItsOwn, DuckWithNewReset, OldInterfaceOfGym,
        OldInterfaceOfGymnasium, OldStepOnly,
    )
} | dict(
    old_wrapper=lambda: old_gym.Wrapper(OldInterfaceOfGym()),
    wrapper_without_seed=lambda: WrapperThatTakesNoSeed(OldStepOnly()),
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_it_trains_and_its_ends_and_seeds_are_right(kind, tmp_path):
    env_fn = KINDS[kind]
    env = VectorEnv(env_fn, 2, seed=0)
    steps = [env.step(env.sample_actions()) for _ in range(10)]
    assert not any(step.terminated.any() for step in steps)
    assert steps[-1].truncated.tolist() == [True, True]
    assert steps[-1].episodes == [Episode(10.0, 10)] * 2
    starts = [VectorEnv(env_fn, 2, seed).obs.tobytes() for seed in (0, 0, 1)]
    assert starts[0] == starts[1] != starts[2]
    assert find_hidden_state(env_fn, env) is None  # so that a checkpoint can save it
    saved = env.state_dict()
    fresh = VectorEnv(env_fn, 2, seed=7)
    fresh.load_state_dict(saved)
    assert np.array_equal(fresh.step([0, 1]).obs2, env.step([0, 1]).obs2)
    ppo_pytorch(
        env_fn,
        steps_per_epoch=40,
        epochs=1,
        train_pi_iters=1,
        train_v_iters=1,
        ac_kwargs=dict(hidden_sizes=[4]),
        logger_kwargs=dict(output_dir=tmp_path),
    )
    assert len((tmp_path / "progress.txt").read_text().splitlines()) == 2
    env.close()


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - {"OldStepOnly"}))
def test_a_loop_of_ones_own_finds_the_interface_of_gymnasium(kind):
    env = standardize(KINDS[kind]())
    assert isinstance(env, gymnasium.Env)
    for seed in (1, None):
        obs, info = env.reset(seed=seed)
        assert obs.shape == (3,) and info == {}
    obs, reward, terminated, truncated, info = env.step(1)
    assert (obs.shape, reward, terminated, truncated) == ((3,), 1.0, False, False)


def test_an_end_by_the_task_is_no_time_limit():
    class Ends(Duck):
        def step(self, action):
            obs, rew, done, _ = super().step(action)
            return obs, rew, done, {}

    env = VectorEnv(Ends)
    step = [env.step([0]) for _ in range(10)][-1]
    assert step.terminated.tolist() == [True] and step.truncated.tolist() == [False]


def test_continuous_actions_of_a_duck_reach_it_within_their_bounds(tmp_path):
    taken = []

    class Continuous(Duck):
        def step(self, action):
            taken.append(action)
            return super().step(action)

    box = SimpleNamespace(low=np.array([-1.0, -3.0]), high=np.array([1.0, 0.5]), shape=(2,))
    sac_pytorch(
        lambda: Continuous(action=box),
        steps_per_epoch=60,
        epochs=1,
        start_steps=30,
        update_after=30,
        update_every=10,
        batch_size=8,
        num_test_episodes=1,
        ac_kwargs=dict(hidden_sizes=[4]),
        logger_kwargs=dict(output_dir=tmp_path),
    )
    assert np.shape(taken[0]) == (2,) and len(taken) >= 60
    assert all((box.low <= action).all() and (action <= box.high).all() for action in taken)


def test_observations_of_a_duck_that_are_no_arrays_are_flattened(tmp_path):
    class Numbered(Duck):
        def __init__(self):
            super().__init__()
            self.observation_space = SimpleNamespace(n=3)

        def _obs(self):
            return self.t % 3

    env = VectorEnv(Numbered)
    assert env.obs.tolist() == [[1, 0, 0]]
    assert env.step([0]).obs2.tolist() == [[0, 1, 0]]
    network = dqn_pytorch(
        Numbered,
        steps_per_epoch=40,
        epochs=1,
        start_steps=10,
        update_after=20,
        batch_size=4,
        num_test_episodes=1,
        logger_kwargs=dict(output_dir=tmp_path),
    )
    assert all(torch.isfinite(p).all() for p in network.parameters())


@pytest.mark.parametrize("name", ["observation_space", "action_space"])
@pytest.mark.parametrize("space", [None, 3])
def test_a_space_that_is_none_gets_a_sentence(name, space):
    duck = Duck()
    setattr(duck, name, space)
    with pytest.raises(UserError, match=f"The {name} of Duck is {space}, but must be a space"):
        VectorEnv(lambda: duck)


def test_a_gymnasium_wrapper_around_the_old_reset_says_what_to_do():
    with pytest.raises(UserError, match="Take the wrapper off"):
        VectorEnv(lambda: gymnasium.wrappers.TimeLimit(OldInterfaceOfGymnasium(), 5))


@pytest.mark.parametrize("algorithm", ["vpg", "ppo", "trpo", "reinforce", "ddpg", "td3", "sac"])
def test_networks_take_the_spaces_of_the_old_gym(algorithm):
    """As scripts with a loop of their own make them."""
    core = import_module(f"spinup.algos.pytorch.{algorithm}.core")
    env = old_gym.make("Pendulum-v1")
    ac = core.MLPActorCritic(env.observation_space, env.action_space, hidden_sizes=(8,))
    assert ac.act(torch.zeros(3)).shape == (1,)
    if algorithm in ("vpg", "ppo", "trpo", "reinforce"):
        discrete = old_gym.make("CartPole-v1")
        ac = core.MLPActorCritic(discrete.observation_space, discrete.action_space)
        assert ac.act(torch.zeros(4)) in (0, 1)


def test_a_run_of_an_old_environment_can_be_watched_in_its_successor(tmp_path):
    subprocess.run([sys.executable, "-c", SCRIPT], cwd=tmp_path, check=True, capture_output=True)
    env, get_action = load_policy_and_env(
        tmp_path / "run", env_fn=lambda: gymnasium.make("CartPole-v1")
    )
    assert get_action(env.reset(seed=0)[0]) in (0, 1)
    with pytest.raises(UserError, match="has learned with observations"):
        load_policy_and_env(tmp_path / "run", env_fn=lambda: gymnasium.make("Acrobot-v1"))


@pytest.mark.parametrize("values", [4, 5])
def test_a_step_without_info_is_a_step(values):
    class Silent(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-1, 1, (1,))
        action_space = gymnasium.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            return np.zeros(1, np.float32), {}

        def step(self, action):
            ends = (True,) if values == 4 else (True, False)
            return (np.zeros(1, np.float32), 1.0, *ends, None)

    env = VectorEnv(Silent, 1, seed=0)
    assert env.step([0]).episodes == [Episode(1.0, 1)]
