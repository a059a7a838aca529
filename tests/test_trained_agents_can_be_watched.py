"""A trained agent plays from its run folder: same actions, its own environment, a real video."""

import json

import gymnasium as gym
import imageio_ffmpeg
import numpy as np
import pytest
import torch

import spinup
from spinup.parts.envs import EnvMaker
from spinup.run import main
from spinup.utils.errors import UserError
from spinup.utils.test_policy import load_policy_and_env, load_pytorch_policy, run_policy

TINY = dict(epochs=1, steps_per_epoch=60, ac_kwargs=dict(hidden_sizes=(8, 8)))
ENVS = dict(
    ppo="CartPole-v1", sac="Pendulum-v1", dqn="CartPole-v1", ddpg="Pendulum-v1", td3="Pendulum-v1",
    acer="CartPole-v1", vpg="CartPole-v1", trpo="CartPole-v1", reinforce="CartPole-v1",
)  # fmt: skip


@pytest.fixture(params=ENVS)
def trained(request, tmp_path):
    env_fn = EnvMaker(ENVS[request.param], dict(max_episode_steps=40))
    train = getattr(spinup, f"{request.param}_pytorch")
    network = train(env_fn, logger_kwargs=dict(output_dir=str(tmp_path / "run")), **TINY)
    return network, tmp_path / "run"


def test_loaded_policy_acts_as_the_trained_one(trained):
    network, folder = trained
    env, get_action = load_policy_and_env(folder, deterministic=True)
    for seed in range(20):
        obs, _ = env.reset(seed=seed)
        expected = network.act(torch.as_tensor(obs)[None], deterministic=True)[0]
        action = get_action(obs)
        assert env.action_space.contains(action)
        assert np.allclose(action, expected)
        assert np.array_equal(action, get_action(obs))  # deterministic means just that
    assert env.spec.max_episode_steps == 40  # the environment's arguments came along


def test_random_and_deterministic_differ(trained):
    _, folder = trained
    algorithm = json.loads((folder / "config.json").read_text())["algorithm"]
    draws = not algorithm.startswith(("dqn", "ddpg", "td3"))  # those have nothing to draw
    get_action = load_pytorch_policy(folder)
    obs = np.zeros(3 if "Pendulum" in (folder / "config.json").read_text() else 4, np.float32)
    torch.manual_seed(0)
    assert (len({np.asarray(get_action(obs)).tobytes() for _ in range(50)}) > 1) == draws


def test_watching_prints_returns_and_records(trained, capsys, monkeypatch):
    _, folder = trained
    monkeypatch.delenv("DISPLAY", raising=False)
    video = folder / "play.mp4"
    main(["watch", str(folder), "--episodes", "2", "--video", str(video), "--seed", "1"])
    shown = capsys.readouterr().out
    lengths = [int(line.split()[-1]) for line in shown.splitlines() if line.startswith("Episode")]
    assert len(lengths) == 2
    assert "2 episodes: return" in shown
    frames, _ = imageio_ffmpeg.count_frames_and_secs(str(video))
    assert frames == sum(lengths)
    reader = imageio_ffmpeg.read_frames(str(video))
    size = next(reader)["size"]
    picture = np.frombuffer(next(reader), np.uint8).reshape(size[1], size[0], 3)
    reader.close()
    assert picture.std() > 5  # something is drawn


def test_original_command_and_function(trained, capsys):
    _, folder = trained
    main(["test_policy", str(folder), "-n", "3", "-l", "5", "-nr", "-d"])
    assert capsys.readouterr().out.count("EpLen 5") == 3
    env, get_action = load_policy_and_env(folder)
    returns = run_policy(env, get_action, max_ep_len=7, num_episodes=2, render=False)
    assert len(returns) == 2


def test_numbered_models(tmp_path):
    from spinup.algos.pytorch.ppo.core import MLPActorCritic
    from spinup.parts.models import build
    from spinup.utils.logx import EpochLogger

    env = gym.make("CartPole-v1")
    logger = EpochLogger(output_dir=str(tmp_path))
    network = build(MLPActorCritic, env.observation_space, env.action_space)
    logger.setup_pytorch_saver(network)
    obs = np.float32([0.1, 0.2, 0.3, 0.4])
    for itr, action in ((3, 0), (12, 1)):
        with torch.no_grad():
            network.pi.logits_net[-2].bias.copy_(
                torch.tensor([1000.0, 0] if action == 0 else [0, 1000.0])
            )
        logger.save_state({}, itr)
    assert load_pytorch_policy(tmp_path, 3, deterministic=True)(obs) == 0
    assert load_pytorch_policy(tmp_path, "last", deterministic=True)(obs) == 1
    with pytest.raises(UserError, match="numbered ones: 3, 12"):
        load_pytorch_policy(tmp_path, 4)


class MyActorCritic(torch.nn.Module):
    """A user's own networks, with only the documented attributes."""

    def __init__(self, observation_space, action_space, width=8):
        super().__init__()
        from spinup.algos.pytorch.ppo import core

        self.pi = core.MLPCategoricalActor(4, 2, (width,), torch.nn.ReLU)
        self.v = core.MLPCritic(4, (width,), torch.nn.ReLU)

    def step(self, obs):
        with torch.no_grad():
            pi = self.pi._distribution(obs)
            a = pi.sample()
            return a.numpy(), self.v(obs).numpy(), pi.log_prob(a).numpy()

    def act(self, obs):
        return self.step(obs)[0]


def test_a_network_of_the_users_own_needs_its_class(tmp_path, capsys):
    settings = dict(TINY, ac_kwargs=dict(width=5))
    where = dict(output_dir=str(tmp_path))
    spinup.ppo_pytorch(EnvMaker("CartPole-v1"), MyActorCritic, logger_kwargs=where, **settings)
    with pytest.raises(UserError, match="a class of your own"):
        load_policy_and_env(tmp_path)
    env, get_action = load_policy_and_env(tmp_path, actor_critic=MyActorCritic)
    assert get_action(env.reset(seed=0)[0]) in (0, 1)
    with pytest.raises(UserError, match="has no 'deterministic'"):
        load_policy_and_env(tmp_path, deterministic=True, actor_critic=MyActorCritic)


def test_an_environment_of_the_users_own_needs_its_function(tmp_path):
    from gymnasium.envs.classic_control import CartPoleEnv

    where = dict(output_dir=str(tmp_path))
    spinup.ppo_pytorch(CartPoleEnv, logger_kwargs=where, max_ep_len=20, **TINY)
    with pytest.raises(UserError, match="env_fn=your_function"):
        load_policy_and_env(tmp_path)
    env, get_action = load_policy_and_env(tmp_path, env_fn=CartPoleEnv)
    assert env.action_space.contains(get_action(env.reset(seed=0)[0]))


def test_wrappers_of_gymnasium_come_along(tmp_path):
    def wrapped():
        return gym.wrappers.RescaleObservation(
            gym.make("Pendulum-v1"), np.float32([-2, -2, -2]), np.float32([2, 2, 2])
        )

    where = dict(output_dir=str(tmp_path))
    spinup.sac_pytorch(wrapped, logger_kwargs=where, num_test_episodes=0, **TINY)
    env, _ = load_policy_and_env(tmp_path)
    assert np.array_equal(env.reset(seed=3)[0], wrapped().reset(seed=3)[0])
