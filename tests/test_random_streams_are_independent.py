"""No two random streams of a run, of its processes, or of runs with other seeds, coincide."""

import itertools

import gymnasium as gym
import numpy as np
import pytest
from algorithm_kinds import ENVS, OFF_POLICY
from gymnasium.spaces import Box, Discrete

import spinup
from spinup.algos.pytorch.acer.acer import replays_due
from spinup.parts.checkpoint import read_tree
from spinup.parts.envs import VectorEnv
from spinup.parts.make_env import EnvMaker
from spinup.parts.seeds import Seeds, derive, framework_seed, run_seeds

SMALL = dict(
    steps_per_epoch=20,
    epochs=1,
    num_test_episodes=1,
    max_ep_len=5,
    replay_size=100,
    num_envs=2,
    ac_kwargs=dict(hidden_sizes=[4]),
)


def streams_of(checkpoint):
    """What tells the streams of a saved run apart, wherever they have got to by now."""
    state = read_tree(checkpoint)
    generators = [state["buffer"]["rng"]]
    for name in ("env", "test_env"):
        generators += [*state[name]["seeds"], state[name]["sampler"]]
    return [generator["state"]["inc"] for generator in generators]


@pytest.mark.parametrize("name", OFF_POLICY)
def test_buffer_sampler_and_environments_of_neighbouring_seeds_have_streams_of_their_own(
    name, tmp_path
):
    found = []
    for seed in (0, 1, 2, 10_000):
        where = tmp_path / str(seed)
        getattr(spinup, f"{name}_pytorch")(
            EnvMaker(ENVS[name]), seed=seed, logger_kwargs=dict(output_dir=where), **SMALL
        )
        found += streams_of(where / "checkpoint" / "epoch1.rank0.npz")
    assert len(found) == 4 * (1 + 3 + 2)
    assert len(set(found)) == len(found)


def test_seeds_processes_and_purposes_never_meet():
    seeds = [*range(200), 10_000, 20_000, 2**31 - 1]
    found = {}
    for seed, process in itertools.product(seeds, range(8)):
        for purpose, sequence in zip(Seeds._fields, run_seeds(seed, process)):
            found[tuple(sequence.generate_state(4))] = (seed, process, purpose)
            for copy in range(3):
                found[tuple(derive(sequence, 0, copy).generate_state(4))] = copy
            found[tuple(derive(sequence, 1).generate_state(4))] = "sampler"
    assert len(found) == len(seeds) * 8 * len(Seeds._fields) * 5
    for seed in range(50):  # nor do those that ACER makes of a seed and a step
        for t in (0, 1, 2, 100):
            assert tuple(np.random.SeedSequence((seed, t)).generate_state(4)) not in found


def test_equal_arguments_give_equal_streams():
    one, two = (run_seeds(3, 1) for _ in range(2))
    VectorEnv(EnvMaker("CartPole-v1"), 2, one.env)  # using a seed does not use it up
    starts = [VectorEnv(EnvMaker("CartPole-v1"), 2, s.env).obs.tobytes() for s in (one, two)]
    assert starts[0] == starts[1]


def test_the_framework_has_a_seed_of_its_own_in_every_process():
    found = [framework_seed(s, p) for s in [*range(300), 10_000] for p in range(4)]
    assert len(set(found)) == len(found)
    assert max(found) < 2**32  # all that PyTorch's generator reads


def test_evaluation_starts_unlike_the_training_of_the_next_seed():
    starts = []
    for seed in range(5):
        seeds = run_seeds(seed, 0)
        starts += [VectorEnv(EnvMaker("CartPole-v1"), 1, s).obs.tobytes() for s in seeds[:2]]
    assert len(set(starts)) == 10


class SharedSpaces(gym.Env):
    """Its spaces are the class's: every object has the same ones."""

    observation_space, action_space = Box(-1, 1, (1,), np.float32), Discrete(1000)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), 0.0, False, False, {}


def test_random_actions_are_the_same_whether_or_not_others_are_drawn():
    alone = VectorEnv(SharedSpaces, 1, 5)
    expected = [alone.sample_actions().tolist() for _ in range(6)]
    env, other = VectorEnv(SharedSpaces, 1, 5), VectorEnv(SharedSpaces, 1, 6)
    found = [(env.sample_actions().tolist(), other.sample_actions().tolist()) for _ in range(6)]
    assert [mine for mine, _ in found] == expected
    assert [theirs for _, theirs in found] != expected


def test_replays_follow_from_seed_and_step_as_they_did_before():
    """There is nothing to save of them, so a saved run relies on this."""
    due = [replays_due(t, replay_start=0, replay_ratio=4.0, seed=7) for t in range(0, 100, 20)]
    assert [int(count) for count in due] == [6, 7, 5, 1, 2]
