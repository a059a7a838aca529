"""Each copy of an environment is an object of its own; one that is given out twice is refused."""

import gym as gym_of_old
import gymnasium as gym
import numpy as np
import pytest
from algorithm_kinds import ALGORITHMS, ENVS, OFF_POLICY

import spinup
from spinup.parts.envs import VectorEnv
from spinup.parts.errors import UserError


def made(name):
    import spinup.envs  # noqa: F401  (registers the goal environments)

    return gym.make(ENVS[name])


@pytest.mark.parametrize("name", ALGORITHMS)
def test_one_object_for_two_copies_is_refused_and_no_folder_is_touched(name, tmp_path):
    env, where = made(name), tmp_path / "run"
    with pytest.raises(UserError, match="same .* object twice.*lambda: gymnasium.make"):
        getattr(spinup, f"{name}_pytorch")(
            lambda: env, num_envs=2, logger_kwargs=dict(output_dir=where)
        )
    assert not where.exists()


@pytest.mark.parametrize("name", OFF_POLICY)
def test_one_object_for_training_and_evaluation_is_refused(name, tmp_path):
    env, where = made(name), tmp_path / "run"
    with pytest.raises(UserError, match="the evaluation, needs an environment of its own"):
        getattr(spinup, f"{name}_pytorch")(lambda: env, logger_kwargs=dict(output_dir=where))
    assert not where.exists()


def test_one_simulator_behind_two_wrappers_is_refused():
    inside = gym.make("CartPole-v1").unwrapped
    with pytest.raises(UserError, match="same CartPoleEnv object twice"):
        VectorEnv(lambda: gym.wrappers.TimeLimit(inside, 20), n=2)


class Old(gym_of_old.Env):
    observation_space = gym_of_old.spaces.Box(-9, 9, (1,), np.float32)
    action_space = gym_of_old.spaces.Discrete(2)

    def reset(self):
        return np.zeros(1, np.float32)

    def step(self, action):
        return np.zeros(1, np.float32), 1.0, False, {}


def test_one_simulator_of_the_old_gym_is_refused():
    inside = Old()
    with pytest.raises(UserError, match="same Old object twice"):
        VectorEnv(lambda: inside, n=2)
    assert len(VectorEnv(Old, n=2)) == 2


def test_one_object_where_there_is_one_environment_trains_as_a_new_one_does(tmp_path):
    env, settings = gym.make("CartPole-v1"), dict(steps_per_epoch=60, epochs=1, train_v_iters=1)
    tables = []
    for i, env_fn in enumerate([lambda: env, lambda: env, lambda: gym.make("CartPole-v1")]):
        spinup.vpg_pytorch(env_fn, **settings, logger_kwargs=dict(output_dir=tmp_path / str(i)))
        header, row = (tmp_path / str(i) / "progress.txt").read_text().splitlines()
        tables.append({k: v for k, v in zip(header.split("\t"), row.split("\t")) if k != "Time"})
    assert tables[0] == tables[1] == tables[2]
