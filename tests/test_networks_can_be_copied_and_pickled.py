"""Copying and pickling an algorithm's network works, also after it has acted and was trained."""

import copy
import io
import pickle

import numpy as np
import pytest
import torch
from gymnasium.spaces import flatten

import spinup
from spinup.parts.make_env import EnvMaker

CARTPOLE, PENDULUM = "CartPole-v1", "Pendulum-v1"
SMALL = dict(hidden_sizes=(8, 8))
OFF_POLICY = dict(start_steps=20, update_after=20, update_every=10, num_test_episodes=0)
RUNS = {
    "reinforce": (CARTPOLE, {}),
    "vpg": (CARTPOLE, {}),
    "trpo": (PENDULUM, {}),
    "ppo": (CARTPOLE, {}),
    "ppo continuous": (PENDULUM, dict(ac_kwargs=SMALL | dict(normalize=True))),
    "acer": (CARTPOLE, {}),
    "dqn": (CARTPOLE, {}),
    "ddpg": (PENDULUM, OFF_POLICY),
    "td3": (PENDULUM, OFF_POLICY),
    "sac": (PENDULUM, OFF_POLICY),
    "sac discrete": (CARTPOLE, OFF_POLICY),
    "her": ("spinup/Reach-v0", {}),
}


def test_every_algorithm_is_here():
    assert {kind.split()[0] for kind in RUNS} == set(spinup.ALGORITHMS["pytorch"])


@pytest.fixture(scope="module", params=RUNS)
def trained(request, tmp_path_factory):
    """A network that has acted, and whose updates were captured and replayed."""
    env_name, settings = RUNS[request.param]
    where = dict(output_dir=str(tmp_path_factory.mktemp("run")))
    train = getattr(spinup, f"{request.param.split()[0]}_pytorch")
    settings = dict(epochs=2, steps_per_epoch=120, ac_kwargs=SMALL) | settings
    ac = train(EnvMaker(env_name), logger_kwargs=where, **settings)
    space = EnvMaker(env_name)().observation_space
    obs = torch.as_tensor(flatten(space, space.sample()), dtype=torch.float32)
    return ac, obs[None]


def acts(ac, obs):
    torch.manual_seed(7)
    return np.asarray(ac.act(obs))


def saved_and_loaded(ac):
    file = io.BytesIO()
    torch.save(ac, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize(
    "copied",
    [saved_and_loaded, lambda ac: pickle.loads(pickle.dumps(ac)), copy.deepcopy, copy.copy],
    ids=["torch.save", "pickle", "deepcopy", "copy"],
)
def test_a_copy_acts_alike_and_learns_apart(copied, trained):
    ac, obs = trained
    expected = acts(ac, obs)
    twin = copied(ac)
    assert type(twin) is type(ac)
    assert np.array_equal(acts(twin, obs), expected)
    if copied is copy.copy:
        return  # shares its weights, as PyTorch's modules do
    with torch.no_grad():
        for weights in twin.parameters():
            weights.mul_(-3).add_(0.7)
    assert np.array_equal(acts(ac, obs), expected)
    assert any(not torch.equal(a, b) for a, b in zip(ac.parameters(), twin.parameters()))
    assert np.array_equal(acts(copied(twin), obs), acts(twin, obs))


def test_a_copy_can_be_saved_by_a_logger(trained, tmp_path):
    ac, obs = trained
    logger = spinup.EpochLogger(output_dir=str(tmp_path))
    logger.setup_pytorch_saver(copy.deepcopy(ac))
    logger.save_state({}, None)
    assert np.array_equal(acts(spinup.load(tmp_path), obs), acts(ac, obs))
