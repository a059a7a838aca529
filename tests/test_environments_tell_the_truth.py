"""What an environment says happened is what happened: ends, successors, seeds, spaces, errors."""

import json
import re
import sys

import gym as gym_of_old
import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Sequence, Tuple

import spinup
from spinup.algos.pytorch.ddpg import ddpg as ddpg_module
from spinup.algos.pytorch.dqn import dqn as dqn_module
from spinup.algos.pytorch.sac import sac as sac_module
from spinup.algos.pytorch.td3 import td3 as td3_module
from spinup.parts import run_setup
from spinup.parts.checkpoint import read_tree, write_tree
from spinup.parts.envs import Episode, VectorEnv, evaluate
from spinup.parts.errors import Diverged, UserError
from spinup.parts.jsonio import convert_json
from spinup.parts.make_env import EnvMaker, describe_env, make_env
from spinup.parts.pytorch.buffers import ReplayBuffer


class Counter(gym.Env):
    """Observes how many steps it took, plus 100 for each earlier episode; always pays 0.5.

    The task is over after `length` steps, or the clock has run out after `clock`.
    """

    def __init__(self, length=None, clock=None, action_space=None):
        self.observation_space = Box(0, np.inf, (1,), np.float32)
        self.action_space = action_space or Discrete(2)
        self.length, self.clock, self.episode, self.taken = length, clock, -1, []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode, self.t = self.episode + 1, 0
        return self._obs(), {}

    def _obs(self):
        return np.array([100 * self.episode + self.t], np.float32)

    def step(self, action):
        self.t += 1
        self.taken.append(action)
        return self._obs(), 0.5, self.t == self.length, self.t == self.clock, {}


def run(env, steps, action=None):
    """All that `steps` steps say, with random actions or always the same one."""
    found = []
    for _ in range(steps):
        obs = env.obs
        act = env.sample_actions() if action is None else np.full(len(env), action)
        found.append((obs, act, *env.step(act)))
    return found


def same(these, those):
    """Whether two runs agree in every bit."""
    flat = [[np.asarray(x).tobytes() for row in run for x in row[:-2]] for run in (these, those)]
    return flat[0] == flat[1] and [r[-2:] for r in these] == [r[-2:] for r in those]


# --- The moment an episode ends ---


@pytest.mark.parametrize("how", ["length", "clock", "max_ep_len"])
def test_the_successor_is_the_true_one_and_obs_is_the_new_start(how):
    env = VectorEnv(
        lambda: Counter(**({} if how == "max_ep_len" else {how: 3})),
        n=2,
        max_ep_len=3 if how == "max_ep_len" else None,
    )
    for t in (1, 2):
        step = env.step([0, 0])
        assert step.obs2.ravel().tolist() == env.obs.ravel().tolist() == [t, t]
        assert step.ended == step.episodes == []
    step = env.step([0, 0])
    assert step.obs2.ravel().tolist() == [3, 3]
    assert env.obs.ravel().tolist() == [100, 100]
    assert step.ended == [0, 1]
    assert step.episodes == [Episode(1.5, 3)] * 2
    assert step.terminated.tolist() == [how == "length"] * 2
    assert step.truncated.tolist() == [how != "length"] * 2
    assert env.step([0, 0]).obs2.ravel().tolist() == [101, 101]


def test_an_end_by_the_task_stays_one_when_the_clock_runs_out_at_the_same_step():
    step = run(VectorEnv(lambda: Counter(length=3), max_ep_len=3), 3)[-1]
    assert step[4].tolist() == [True]


def test_the_environments_own_time_limit_is_no_termination():
    env = VectorEnv(lambda: gym.wrappers.TimeLimit(Counter(), 4))
    step = run(env, 4)[-1]
    assert step[4].tolist() == [False]
    assert step[5].tolist() == [True]


def test_each_environment_ends_by_itself():
    lengths = iter([2, 3])
    env = VectorEnv(lambda: Counter(length=next(lengths)), n=2)
    seen = [env.step([0, 0]) for _ in range(6)]
    assert [step.ended for step in seen] == [[], [0], [1], [0], [], [0, 1]]
    assert [step.episodes for step in seen] == [
        [],
        [Episode(1.0, 2)],
        [Episode(1.5, 3)],
        [Episode(1.0, 2)],
        [],
        [Episode(1.0, 2), Episode(1.5, 3)],
    ]
    assert [step.obs2[0, 0] for step in seen] == [1, 2, 101, 102, 201, 202]
    assert env.obs.ravel().tolist() == [300, 200]


def test_observations_that_were_handed_out_do_not_change_afterwards():
    env = VectorEnv(lambda: Counter(length=2), n=2)
    handed_out = [env.obs]
    for _ in range(4):
        step = env.step([0, 0])
        handed_out += [step.obs2, env.obs]
    assert [obs[0, 0] for obs in handed_out] == [0, 1, 1, 2, 100, 101, 101, 102, 200]


def test_playing_gives_whole_episodes_from_fresh_starts():
    env = VectorEnv(lambda: Counter(length=3))
    env.step([0])  # half an episode that must not be counted
    episodes = list(evaluate(env, lambda obs: np.zeros(len(obs), int), 4))
    assert episodes == [Episode(1.5, 3)] * 4
    assert list(evaluate(env, lambda obs: np.zeros(len(obs), int), 0)) == []


@pytest.mark.parametrize("how", ["length", "clock", "max_ep_len"])
@pytest.mark.parametrize("module", [sac_module, dqn_module, ddpg_module, td3_module])
def test_off_policy_algorithms_learn_terminations_only_from_the_task(
    module, how, monkeypatch, tmp_path
):
    batches, name = [], module.__name__.rpartition(".")[2]
    monkeypatch.setattr(module, "update", lambda _, batch, **__: batches.append(batch) or {})
    space = Discrete(2) if name == "dqn" else Box(-1, 1, (1,))
    limit = {} if how == "max_ep_len" else {how: 3}
    getattr(module, name)(
        lambda: Counter(**limit, action_space=space),
        steps_per_epoch=30,
        epochs=1,
        update_after=20,
        batch_size=64,
        update_every=1,
        num_test_episodes=0,
        replay_size=30,
        max_ep_len=3 if how == "max_ep_len" else 1000,
        logger_kwargs=dict(output_dir=tmp_path),
    )
    assert len(batches) == 10
    for obs, _, _, obs2, terminated, *_ in batches:
        assert (obs2 == obs + 1).all()  # never the start of the next episode
        over = (obs2[:, 0] % 100 == 3).float() if how == "length" else torch.zeros(64)
        assert torch.equal(terminated, over)


# --- Seeds ---


@pytest.mark.parametrize("env_name", ["CartPole-v1", "Pendulum-v1"])
def test_equal_seeds_give_equal_trajectories_and_others_differ(env_name):
    one, two, other = (VectorEnv(EnvMaker(env_name), 2, seed, 30) for seed in (3, 3, 4))
    runs = [run(env, 70) for env in (one, two, other)]
    assert same(runs[0], runs[1])
    assert not same(runs[0], runs[2])
    starts = [env.obs.tobytes() for env in (VectorEnv(EnvMaker(env_name), 2, s) for s in range(9))]
    assert len(set(starts)) == 9  # seed 0 is a seed like any other


def test_the_copies_differ_and_so_do_their_episodes():
    env = VectorEnv(EnvMaker("CartPole-v1"), 4, seed=0, max_ep_len=2)
    starts = [env.obs]
    for _ in range(6):
        if env.step(np.zeros(4, int)).ended:
            starts.append(env.obs)
    assert len(starts) == 4
    assert len({row.tobytes() for obs in starts for row in obs}) == 16


@pytest.mark.parametrize("space", [lambda: Discrete(1000), lambda: Box(-1, 1, (3,))])
def test_random_actions_follow_the_seed(space):
    envs = [VectorEnv(lambda: Counter(action_space=space()), 2, seed) for seed in (0, 0, 1)]
    one, two, other = ([env.sample_actions().tobytes() for _ in range(5)] for env in envs)
    assert one == two
    assert one != other


# --- Spaces ---


def test_actions_are_moved_to_the_bounds_of_each_dimension():
    space = Box(np.array([-1, -10], np.float32), np.array([2, 0.5], np.float32))
    env = VectorEnv(lambda: Counter(action_space=space), n=2)
    env.step(np.array([[5.0, 5.0], [-5.0, -50.0]]))
    env.step(np.array([[0.25, -9.5], [1.5, 0.25]]))
    assert [a.tolist() for a in env.envs[0].taken] == [[2, 0.5], [0.25, -9.5]]
    assert [a.tolist() for a in env.envs[1].taken] == [[-1, -10], [1.5, 0.25]]
    assert all(space.contains(a) for e in env.envs for a in e.taken)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64, np.uint64])
def test_actions_of_integers_are_rounded_and_clipped_before_they_are_cast(dtype):
    space = Box(0, 100, (5,), dtype)
    env = VectorEnv(lambda: Counter(action_space=space))
    env.step(np.array([[300.7, -1000.2, 41.6, 99.4, 1e30]]))
    env.step(np.array([[300, -1000, 42, 99, 2**40]]))
    assert [a.tolist() for a in env.envs[0].taken] == [[100, 0, 42, 99, 100], [100, 0, 42, 99, 100]]
    assert all(space.contains(a) for a in env.envs[0].taken)


@pytest.mark.parametrize("dtype", [np.int8, np.int64])
def test_integers_without_bounds_stop_at_those_of_their_kind(dtype):
    space = Box(-np.inf, np.inf, (3,), dtype)
    env = VectorEnv(lambda: Counter(action_space=space))
    env.step(np.array([[1e30, -1e30, 7.4]], np.float32))
    (taken,) = env.envs[0].taken
    assert taken.tolist() == [space.high[0], space.low[0], 7]
    assert taken.dtype == dtype


def test_an_integer_that_is_no_number_gets_a_sentence():
    env = VectorEnv(lambda: Counter(action_space=Box(0, 9, (1,), np.int8)))
    with pytest.raises(Diverged, match="NaN.*smaller learning rate"):
        env.step(np.array([[np.nan]]))


@pytest.mark.parametrize("name", ["ppo", "sac"])
def test_algorithms_train_with_integer_actions(name, tmp_path):
    envs, space = [], Box(-3, 100, (2,), np.int8)

    def env_fn():
        envs.append(Counter(clock=5, action_space=space))
        return envs[-1]

    train, ac_kwargs = getattr(spinup, f"{name}_pytorch"), dict(hidden_sizes=[4])
    where = dict(output_dir=tmp_path)
    train(env_fn, steps_per_epoch=60, epochs=1, ac_kwargs=ac_kwargs, logger_kwargs=where)
    taken = envs[0].taken
    assert len(taken) == 60
    assert all(space.contains(action) for action in taken)


def test_integers_without_bounds_are_no_bounds_for_a_squashed_policy(tmp_path):
    space = Box(-np.inf, np.inf, (2,), np.int64)
    with pytest.raises(UserError, match="needs bounds for its actions"):
        sac_module.sac(lambda: Counter(action_space=space), logger_kwargs=dict(output_dir=tmp_path))


def test_actions_of_several_axes_are_flat_for_the_algorithm_only():
    space = Box(-1, 1, (2, 3), np.float32)
    env = VectorEnv(lambda: Counter(action_space=space), n=2)
    actions = env.sample_actions()
    assert actions.shape == (2, 6)
    env.step(actions)
    assert np.array_equal(env.envs[1].taken[0], actions[1].reshape(2, 3))


def test_whole_numbers_that_start_elsewhere_are_counted_from_zero():
    env = VectorEnv(lambda: Counter(action_space=Discrete(3, start=5)), n=2)
    sampled = np.concatenate([env.sample_actions() for _ in range(30)])
    assert set(sampled.tolist()) == {0, 1, 2}
    env.step([0, 2])
    assert [int(e.taken[0]) for e in env.envs] == [5, 7]


class Shows(gym.Env):
    """Always observes the same thing."""

    def __init__(self, space, value):
        self.observation_space, self.action_space, self.value = space, Discrete(2), value

    def reset(self, *, seed=None, options=None):
        return self.value, {}

    def step(self, action):
        return self.value, 0.0, False, False, {}


@pytest.mark.parametrize(
    ("space", "value", "flat"),
    [
        (Discrete(4), 2, [0, 0, 1, 0]),
        (Discrete(3, start=-1), -1, [1, 0, 0]),
        (MultiBinary(3), np.array([1, 0, 1], np.int8), [1, 0, 1]),
        (
            Dict(far=Box(0, 9, (2,)), near=Discrete(2)),
            dict(far=np.array([7, 8], np.float32), near=1),
            [7, 8, 0, 1],
        ),
        (
            Tuple([Discrete(2), Box(0, 9, (2, 1))]),
            (0, np.array([[3], [4]], np.float32)),
            [1, 0, 3, 4],
        ),
    ],
)
def test_observations_that_are_no_arrays_are_flattened(space, value, flat):
    env = VectorEnv(lambda: Shows(space, value), n=2)
    assert env.obs.tolist() == [flat] * 2
    assert env.step([0, 0]).obs2.tolist() == [flat] * 2
    assert env.observation_space.shape == (len(flat),)


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.float64, np.float32])
def test_numbers_of_any_kind_are_given_to_networks_as_floats(dtype):
    value = np.array([3, -4], dtype)
    env = VectorEnv(lambda: Shows(Box(-9, 9, (2,), dtype), value))
    step = env.step([0])
    for obs in (env.obs, step.obs2):
        assert obs.dtype == np.float32
        assert obs.tolist() == [[3, -4]]


def test_an_observation_space_that_cannot_be_flattened_is_named():
    with pytest.raises(UserError, match="Sequence.*Box, Discrete"):
        VectorEnv(lambda: Shows(Sequence(Discrete(3)), (1, 2)))


def test_images_stay_bytes_until_a_batch_is_drawn():
    image = np.random.default_rng(0).integers(256, size=(4, 4, 3)).astype(np.uint8)
    env = VectorEnv(lambda: Shows(Box(0, 255, (4, 4, 3), np.uint8), image), n=2)
    step = env.step([0, 1])
    assert env.obs.dtype == step.obs2.dtype == np.uint8
    assert np.array_equal(step.obs2, [image, image])
    buffer = ReplayBuffer(size=10, **run_setup.space_dims(env))
    buffer.store(env.obs, [0, 1], step.rew, step.obs2, step.terminated)
    assert buffer.ring.columns["obs"].dtype == np.uint8
    batch = buffer.sample_batch(5)
    assert batch.obs.dtype == torch.float32
    assert np.array_equal(batch.obs[0].numpy(), image)
    assert batch.act.dtype == torch.int64


@pytest.mark.parametrize("shape", [(0,), (3, 0)])
def test_spaces_without_a_number_get_a_sentence(shape):
    with pytest.raises(UserError, match="Observations.*holds no number.*constant"):
        VectorEnv(lambda: Shows(Box(0, 1, shape), np.zeros(shape, np.float32)))
    with pytest.raises(UserError, match="Observations.*cannot be made one array"):
        VectorEnv(lambda: Shows(Dict({}), {}))
    with pytest.raises(UserError, match="Actions.*nothing to choose"):
        VectorEnv(lambda: Counter(action_space=Box(0, 1, shape)))


def test_an_observation_of_another_size_than_the_space_gets_a_sentence():
    with pytest.raises(UserError, match=r"shape \(1,\).*says \(3,\)"):
        VectorEnv(lambda: Shows(Box(0, 1, (3,)), np.zeros(1, np.float32)))
    assert VectorEnv(lambda: Shows(Box(0, 1, (1,)), 0.5)).obs.tolist() == [[0.5]]


class Pays(Counter):
    """Always pays `reward`, whatever that is."""

    def __init__(self, reward):
        super().__init__(length=3)
        self.reward = reward

    def step(self, action):
        obs, _, over, clock, info = super().step(action)
        return obs, self.reward, np.array([over]), clock, info


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "reward", [np.array([0.25]), np.array([[0.25]], np.float32), np.float32(0.25), 0.25]
)
def test_a_reward_that_is_an_array_of_one_number_is_that_number(reward):
    env = VectorEnv(lambda: Pays(reward))
    steps = [env.step([0]) for _ in range(3)]
    assert [step.rew.tolist() for step in steps] == [[0.25]] * 3
    assert steps[-1].episodes == [Episode(0.75, 3)]
    assert steps[-1].terminated.tolist() == [True]


@pytest.mark.parametrize("reward", [np.zeros(2), None, "0.5", np.zeros(0)])
def test_a_reward_that_is_no_number_gets_a_sentence(reward):
    with pytest.raises(UserError, match="Pays.*reward.*one number"):
        VectorEnv(lambda: Pays(reward)).step([0])


# --- Saving and restoring the present moment ---


@pytest.mark.parametrize(
    ("env_name", "copies"), [("CartPole-v1", 3), ("Pendulum-v1", 1), ("HalfCheetah-v5", 2)]
)
def test_a_saved_moment_continues_bit_for_bit(env_name, copies, tmp_path, capsys):
    path = tmp_path / "moment.npz"
    env = VectorEnv(EnvMaker(env_name), copies, seed=1, max_ep_len=17)
    run(env, 25)
    write_tree(path, env.state_dict())
    expected = run(env, 40)
    fresh = VectorEnv(EnvMaker(env_name), copies, seed=2, max_ep_len=17)
    run(fresh, 5)
    fresh.load_state_dict(read_tree(path))
    assert same(run(fresh, 40), expected)
    assert capsys.readouterr().out == ""


def test_a_moment_at_which_an_episode_has_just_begun_continues_bit_for_bit(tmp_path):
    env = VectorEnv(EnvMaker("CartPole-v1"), 2, seed=1, max_ep_len=5)
    run(env, 5)
    write_tree(tmp_path / "moment.npz", env.state_dict())
    expected = run(env, 20)
    fresh = VectorEnv(EnvMaker("CartPole-v1"), 2, seed=2, max_ep_len=5)
    fresh.load_state_dict(read_tree(tmp_path / "moment.npz"))
    assert same(run(fresh, 20), expected)


def test_saving_does_not_disturb(tmp_path):
    disturbed, left_alone = (VectorEnv(EnvMaker("CartPole-v1"), 2, 1, 9) for _ in range(2))
    found = []
    for i in range(20):
        write_tree(tmp_path / f"{i}.npz", disturbed.state_dict())
        found += run(disturbed, 1)
    assert same(found, run(left_alone, 20))


class Moody(Counter):
    """Keeps randomness to itself, which no seed reaches; will not be stepped when it is over."""

    rng = np.random.default_rng(0)

    def reset(self, *, seed=None, options=None):
        self.over, self.mood = False, 0.0
        return super().reset(seed=seed)

    def _obs(self):
        return np.array([self.t + self.mood], np.float32)

    def step(self, action):
        assert not self.over, "stepped after the end"
        self.mood = self.rng.random()
        obs, rew, self.over, clock, info = super().step(action)
        self.over = self.over or self.mood < self.length
        return obs, rew, self.over, clock, info


@pytest.mark.parametrize(
    "chance_of_end",
    [
        0.0,
        # When it is played again its episode may be over earlier than it was.
        0.4,
    ],
)
def test_private_randomness_is_noticed_and_said_and_a_new_episode_begins(chance_of_end, capsys):
    Moody.rng = np.random.default_rng(5)
    envs = [VectorEnv(lambda: Moody(length=chance_of_end), n=1, seed=0) for _ in range(2)]
    while envs[0].lengths[0] < 6:
        envs[0].step([0])
    state = envs[0].state_dict()
    assert capsys.readouterr().out == ""
    Moody.rng = np.random.default_rng(6)
    envs[1].load_state_dict(state)
    said = capsys.readouterr().out
    assert "Environment 0" in said
    assert "new episode" in said
    assert envs[1].obs.tolist() == [[0.0]]
    assert envs[1].lengths == [0]
    assert envs[1].returns == [0]
    step = envs[1].step([0])
    assert 1 <= step.obs2[0, 0] < 2
    assert step.episodes in ([], [Episode(0.5, 1)])


# --- Mistakes, in the user's words ---


@pytest.mark.parametrize(
    ("env_name", "named"),
    [
        ("CartPol-v1", "CartPole-v1"),
        ("cartpole-v1", "CartPole-v1"),
        ("CartPole", "CartPole-v1"),
        ("CartPole-v7", "CartPole-v1"),
        ("Pendlum-v1", "Pendulum-v1"),
        ("HalfCheetah-v2", "HalfCheetah-v5"),
        ("HalfCheetah-v99", "HalfCheetah-v5"),
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_wrong_id_names_the_right_one(env_name, named):
    with pytest.raises(UserError) as error:
        make_env(env_name)
    assert env_name in str(error.value)
    assert named in str(error.value)


def test_an_id_like_no_other_is_named_without_a_guess():
    with pytest.raises(UserError, match="no environment called 'xqzw'") as error:
        make_env("xqzw")
    assert "Did you mean" not in str(error.value)


def test_an_environment_whose_module_is_missing_names_the_module():
    with pytest.raises(UserError, match="no_such_module"):
        make_env("no_such_module:Thing-v0")


def test_a_module_may_register_its_environment(tmp_path, monkeypatch):
    (tmp_path / "my_registering_module.py").write_text(
        "import gymnasium as gym\n"
        "from gymnasium.envs.classic_control import CartPoleEnv\n"
        "gym.register('MyThing-v0', CartPoleEnv, max_episode_steps=7)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    try:
        env = make_env("my_registering_module:MyThing-v0")
        assert env.spec.max_episode_steps == 7
        with pytest.raises(UserError, match="MyThing-v0"):
            make_env("my_registering_module:MyThin-v0")
    finally:
        gym.registry.pop("MyThing-v0", None)
        sys.modules.pop("my_registering_module", None)


@pytest.mark.parametrize("env_name", ["CartPole-v1", "HalfCheetah-v5"])
def test_unknown_arguments_are_named(env_name):
    with pytest.raises(UserError, match=f"{env_name}.*env_kwargs.*gravitation"):
        make_env(env_name, gravitation=3)


@pytest.mark.parametrize("mode", [2, True, ["human"], {}, "rgb", "human2"])
def test_a_render_mode_that_there_is_not_gets_a_sentence(mode):
    with pytest.raises(UserError, match=r"CartPole-v1.*render_mode must be.*rgb_array"):
        make_env("CartPole-v1", render_mode=mode)


@pytest.mark.parametrize("mode", [None, "human", "rgb_array", "rgb_array_list"])
def test_a_render_mode_that_there_is_reaches_the_environment(mode):
    assert make_env("CartPole-v1", render_mode=mode).render_mode == mode


def test_arguments_reach_the_environment():
    assert EnvMaker("CartPole-v1", dict(sutton_barto_reward=True))().unwrapped._sutton_barto_reward


def test_an_env_fn_that_makes_no_environment_is_told_so():
    with pytest.raises(UserError, match="made a str"):
        VectorEnv(lambda: "CartPole-v1")


class ThreeValues(Counter):
    def step(self, action):
        return super().step(action)[:3]


def test_a_step_of_three_values_gets_a_sentence():
    with pytest.raises(UserError, match=r"ThreeValues.*obs, reward, terminated, truncated, info"):
        VectorEnv(ThreeValues).step([0])


class OwnMistake(Counter):
    def step(self, action):
        _x, _y = [1, 2, 3]  # the author's mistake, which has nothing to do with Gymnasium


def test_a_mistake_inside_an_environment_stays_its_own():
    with pytest.raises(ValueError, match="too many values") as error:
        VectorEnv(OwnMistake).step([0])
    assert not isinstance(error.value, UserError)


# --- Advice that works ---


def advice(error):
    """The wrapped environment that a sentence recommends, as a function of the environment."""
    code = re.search(r"gymnasium\.wrappers\.TransformAction\(.*\)(?=\.| does)", str(error.value))[0]
    return lambda env: eval(code, dict(gymnasium=gym, np=np, env=env))


class Checks(Counter):
    """Takes no action outside its space."""

    def step(self, action):
        assert self.action_space.contains(action)
        return super().step(action)


@pytest.mark.parametrize(
    ("space", "named", "then"),
    [
        (Box(-np.inf, np.inf, (2,)), "td3", "td3"),
        (Box(-np.inf, np.inf, (2,)), "sac", "sac"),
        (MultiDiscrete([2, 3]), "td3", "dqn"),
        (MultiDiscrete([2, 3], start=[5, -1]), "dqn", "ppo"),
        (MultiDiscrete([[2, 3], [2, 2]]), "ppo", "dqn"),
        (MultiBinary(3), "sac", "ppo"),
    ],
)
def test_what_an_error_recommends_for_other_actions_can_be_trained(space, named, then, tmp_path):
    where = dict(output_dir=tmp_path)
    with pytest.raises(UserError, match="TransformAction") as error:
        getattr(spinup, f"{named}_pytorch")(lambda: Checks(action_space=space), logger_kwargs=where)
    assert "RescaleAction" not in str(error.value)
    wrapped = advice(error)
    getattr(spinup, f"{then}_pytorch")(
        lambda: wrapped(Checks(action_space=space)),
        steps_per_epoch=30,
        epochs=1,
        max_ep_len=5,
        ac_kwargs=dict(hidden_sizes=[4]),
        logger_kwargs=where,
    )


# --- Environments of the old Gym ---


class Old(gym_of_old.Env):
    """Four values from step, one from reset, and no idea of seeds."""

    observation_space = gym_of_old.spaces.Box(-9, 9, (1,), np.float32)
    action_space = gym_of_old.spaces.Discrete(2)

    def __init__(self, info=None):
        self.info = info or {}

    def reset(self):
        self.t = 0
        return np.array([0], np.float32)

    def step(self, action):
        self.t += 1
        return np.array([self.t], np.float32), 1.0, self.t == 3, self.info if self.t == 3 else {}


class OldWithSeed(Old):
    def seed(self, seed=None):
        self.rng = np.random.default_rng(seed)
        return [seed]

    def reset(self):
        super().reset()
        return self.rng.random(1).astype(np.float32)


@pytest.mark.parametrize("kind", [Old, OldWithSeed])
def test_an_environment_of_the_old_gym_steps_and_ends(kind):
    env = VectorEnv(kind, n=2, seed=0)
    steps = [env.step(env.sample_actions()) for _ in range(6)]
    assert [step.obs2[0, 0] for step in steps] == [1, 2, 3, 1, 2, 3]
    assert [step.terminated.tolist() for step in steps] == [[t % 3 == 2] * 2 for t in range(6)]
    assert steps[2].episodes == [Episode(3.0, 3)] * 2
    assert not any(step.truncated.any() for step in steps)


def test_the_old_gyms_time_limit_is_no_termination():
    env = VectorEnv(lambda: OldWithSeed({"TimeLimit.truncated": True}))
    step = [env.step([0]) for _ in range(3)][-1]
    assert step.terminated.tolist() == [False]
    assert step.truncated.tolist() == [True]


def test_equal_seeds_give_equal_starts_in_the_old_gym_too():
    starts = [VectorEnv(OldWithSeed, 2, seed).obs.tobytes() for seed in (0, 0, 1)]
    assert starts[0] == starts[1] != starts[2]


def test_an_environment_that_the_old_gym_made_steps_and_can_be_described():
    env = VectorEnv(lambda: gym_of_old.make("CartPole-v1", disable_env_checker=True), 1, 0, 20)
    steps = [env.step([0]) for _ in range(20)]
    assert sum(len(step.ended) for step in steps) >= 1
    assert "CartPole" in json.dumps(convert_json(describe_env(env.envs[0])))


def test_dqn_trains_on_an_environment_of_the_old_gym(tmp_path):
    from spinup.algos.pytorch.dqn.core import MLPQNetwork

    start = []

    class Watched(MLPQNetwork):
        def __init__(self, *args):
            super().__init__(*args)
            start.extend(p.detach().clone() for p in self.parameters())

    ac = dqn_module.dqn(
        OldWithSeed,
        Watched,
        steps_per_epoch=40,
        epochs=1,
        start_steps=10,
        update_after=20,
        batch_size=8,
        num_test_episodes=1,
        logger_kwargs=dict(output_dir=tmp_path),
    )
    assert any(not torch.equal(a, b) for a, b in zip(start, ac.parameters()))


class FromGlobalStream(gym.Env):
    """Its rewards come from NumPy's global stream, as those of some older simulators."""

    made = []
    observation_space, action_space = Box(-1, 1, (2,)), Discrete(2)
    metadata = dict(render_modes=["rgb_array"])

    def __init__(self, size=1, render_mode=None):
        self.made.append(render_mode)

    def reset(self, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), float(np.random.rand()), False, False, {}


def test_trying_out_arguments_moves_no_random_stream():
    """They are tried out once in a process, so runs of one seed would differ."""
    gym.register("tests/FromGlobalStream-v0", FromGlobalStream)
    try:
        rewards = []
        for _ in range(2):
            np.random.seed(0)
            env = EnvMaker("tests/FromGlobalStream-v0", dict(size=3))()
            rewards.append([env.step(0)[1] for _ in range(3) if env.reset()])
        assert rewards[0] == rewards[1]
        FromGlobalStream.made.clear()
        EnvMaker("tests/FromGlobalStream-v0")(render_mode="rgb_array", max_episode_steps=7)
        assert FromGlobalStream.made == ["rgb_array"]
    finally:
        gym.registry.pop("tests/FromGlobalStream-v0")
