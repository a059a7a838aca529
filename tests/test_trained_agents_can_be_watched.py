"""A trained agent plays from its run folder: same actions, its own environment, a real video."""

import json
import os
import subprocess
import sys

import algorithm_kinds
import gymnasium as gym
import imageio_ffmpeg
import numpy as np
import pytest
import torch

import spinup
from spinup.parts.errors import UserError
from spinup.parts.make_env import EnvMaker
from spinup.results.agents import load_pytorch_policy
from spinup.results.playback import load_policy_and_env, run_policy
from spinup.results.video import real_fps
from spinup.run import main

SMALL = dict(epochs=1, steps_per_epoch=60, ac_kwargs=dict(hidden_sizes=(8, 8)))
CARTPOLE, PENDULUM = "CartPole-v1", "Pendulum-v1"
ENVS = algorithm_kinds.ENVS | {
    "vpg continuous": PENDULUM,
    "ppo continuous": PENDULUM,
    "sac discrete": CARTPOLE,
    "her discrete": "spinup/BitFlip-v0",
}


@pytest.fixture(scope="module", params=ENVS)
def trained(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("agent") / "run"
    env_fn = EnvMaker(ENVS[request.param], dict(max_episode_steps=40))
    train = getattr(spinup, f"{request.param.split()[0]}_pytorch")
    return train(env_fn, logger_kwargs=dict(output_dir=str(folder)), **SMALL), folder


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
    draws = not algorithm.startswith(("dqn", "ddpg", "td3", "her"))  # those have nothing to draw
    env, _ = load_policy_and_env(folder)
    obs, get_action = env.reset(seed=0)[0], load_pytorch_policy(folder)
    torch.manual_seed(0)
    assert (len({np.asarray(get_action(obs)).tobytes() for _ in range(50)}) > 1) == draws


def numbers_in(shown):
    """The table at the end of what was shown."""
    cells = [line.split("|") for line in shown.splitlines() if line.startswith("|")]
    return {key.strip(): float(value) for _, key, value, _ in cells}


def test_watching_prints_returns_and_records(trained, capsys, monkeypatch):
    _, folder = trained
    monkeypatch.delenv("DISPLAY", raising=False)
    video = folder / "play.mp4"
    main(["watch", str(folder), "--episodes", "2", "--video", str(video), "--seed", "1"])
    shown = capsys.readouterr().out
    episodes = [line.split() for line in shown.splitlines() if line.startswith("Episode")]
    returns, lengths = ([float(words[i]) for words in episodes] for i in (3, 5))
    assert len(episodes) == 2
    assert "2 episodes: return" in shown
    expected = dict(
        AverageEpRet=np.mean(returns),
        StdEpRet=np.std(returns),
        MaxEpRet=max(returns),
        MinEpRet=min(returns),
        EpLen=np.mean(lengths),
        StdEpLen=np.std(lengths),
        MaxEpLen=max(lengths),
        MinEpLen=min(lengths),
    )
    assert numbers_in(shown) == pytest.approx(expected, rel=1e-3, abs=1e-3)
    frames, seconds = imageio_ffmpeg.count_frames_and_secs(str(video))
    assert frames == sum(lengths) + len(lengths)  # also what the last step of each led to
    fps = {CARTPOLE: 50, PENDULUM: 30, "spinup/Reach-v0": 20, "spinup/BitFlip-v0": 4}
    env_name = json.loads((folder / "config.json").read_text())["environment"]["id"]
    assert seconds == pytest.approx(frames / fps[env_name], rel=0.02)
    reader = imageio_ffmpeg.read_frames(str(video))
    size = next(reader)["size"]
    image = np.frombuffer(next(reader), np.uint8).reshape(size[1], size[0], 3)
    reader.close()
    assert image.std() > 5  # something is visible


def test_original_command_and_function(trained, capsys):
    _, folder = trained
    main(["test_policy", str(folder), "-n", "3", "-l", "5", "-nr", "-d"])
    assert capsys.readouterr().out.count("EpLen 5") == 3
    env, get_action = load_policy_and_env(folder)
    returns = run_policy(env, get_action, max_ep_len=7, num_episodes=2, render=False)
    assert len(returns) == 2


def test_numbered_models(tmp_path):
    from spinup.algos.pytorch.ppo.core import MLPActorCritic
    from spinup.parts.logger import EpochLogger
    from spinup.parts.pytorch.models import build_network

    env = gym.make("CartPole-v1")
    logger = EpochLogger(output_dir=str(tmp_path))
    network = build_network(MLPActorCritic, env.observation_space, env.action_space)
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


def test_models_are_kept_under_the_numbers_of_their_epochs(tmp_path, capsys):
    words = "ppo --env CartPole-v1 --steps_per_epoch 60 --hid [4] --save_freq 2 --exp_name kept"
    words = [*words.split(), "--train_pi_iters", "1", "--data_dir", str(tmp_path), "--keep_models"]
    main([*words, "--epochs", "4"])
    folder = tmp_path / "kept" / "kept_s0"
    models = folder / "pyt_save"
    assert {path.name for path in models.iterdir()} == {
        "model.pt",
        "model0.pt",
        "model2.pt",
        "model3.pt",
    }
    contents = [(models / f"model{n}.pt").read_bytes() for n in ("", 3, 2, 0)]
    assert contents[0] == contents[1]
    assert len(set(contents)) == 3
    main(["resume", str(folder), "--epochs", "5"])
    assert (models / "model4.pt").read_bytes() == (models / "model.pt").read_bytes()
    capsys.readouterr()
    main(["watch", str(folder), "--itr", "2", "-n", "1", "-nr", "--deterministic"])
    assert numbers_in(capsys.readouterr().out)["EpLen"] > 0
    with pytest.raises(SystemExit) as ended:
        main(["watch", str(folder), "--itr", "1"])
    assert ended.value.code == 2
    assert "numbered ones: 0, 2, 3, 4." in capsys.readouterr().err
    sac = dict(SMALL, epochs=2, num_test_episodes=0)
    where = dict(output_dir=str(tmp_path / "sac"), keep_models=True)
    spinup.sac_pytorch(EnvMaker("Pendulum-v1"), logger_kwargs=where, **sac)
    assert {path.name for path in (tmp_path / "sac" / "pyt_save").iterdir()} == {
        "model.pt",
        "model1.pt",
        "model2.pt",
    }


def test_only_the_newest_is_kept_unless_asked(trained):
    _, folder = trained
    assert [path.name for path in (folder / "pyt_save").iterdir()] == ["model.pt"]
    with pytest.raises(UserError, match="none; --keep_models"):
        load_pytorch_policy(folder, 10)


@pytest.mark.parametrize(
    ("env_name", "env_kwargs", "fps"),
    [
        ("CartPole-v1", {}, 50),
        ("ALE/Pong-v5", {}, 15),  # sixty frames a second, of which an agent sees every fourth
        ("ALE/Pong-v5", dict(frameskip=2), 30),
        ("ALE/Pong-v5", dict(preprocess=False), 15),
        ("PongNoFrameskip-v4", {}, 15),
        ("PongNoFrameskip-v4", dict(preprocess=False), 60),
        ("Pong-v4", dict(preprocess=False), 20),  # two to four at random
        ("HalfCheetah-v5", {}, 20),
        ("HalfCheetah-v5", dict(frame_skip=2), 50),
    ],
)
def test_videos_run_at_the_speed_of_the_game(env_name, env_kwargs, fps):
    assert real_fps(EnvMaker(env_name, env_kwargs)()) == pytest.approx(fps)


def test_skipping_wrappers_slow_a_video_down():
    env = gym.make("Pendulum-v1")
    assert real_fps(gym.wrappers.MaxAndSkipObservation(env, 3)) == pytest.approx(10)


def test_mujoco_is_recorded_without_a_screen_or_says_what_it_lacks(tmp_path):
    where = dict(output_dir=str(tmp_path))
    spinup.ppo_pytorch(EnvMaker("InvertedPendulum-v5"), logger_kwargs=where, **SMALL)
    without = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY")}
    without.pop("MUJOCO_GL", None)
    video = tmp_path / "play.mp4"
    words = [sys.executable, "-m", "spinup.run", "watch", str(tmp_path), "--episodes", "1"]
    words += ["--video", str(video)]
    wrong = subprocess.run(words, env=without | {"MUJOCO_GL": "no"}, capture_output=True, text=True)
    assert wrong.returncode == 2
    assert "apt-get install libegl1 libopengl0" in wrong.stderr
    assert "Traceback" not in wrong.stderr
    right = subprocess.run(words, env=without, capture_output=True, text=True)
    assert right.returncode == 0, right.stderr
    frames, seconds = imageio_ffmpeg.count_frames_and_secs(str(video))
    assert frames == numbers_in(right.stdout)["EpLen"] + 1  # one episode, its last state too
    assert seconds == pytest.approx(frames / 25, rel=0.02)
    reader = imageio_ffmpeg.read_frames(str(video))
    next(reader)
    assert np.frombuffer(next(reader), np.uint8).std() > 5


@pytest.mark.parametrize("kind", [".mp4", ".mkv", ".mov", ".webm", ".gif"])
def test_every_kind_of_video_can_be_written(kind, tmp_path, capfd):
    env = gym.make("CartPole-v1", render_mode="rgb_array")
    video = tmp_path / f"play{kind}"
    run_policy(env, lambda obs: 0, num_episodes=1, max_ep_len=4, video=video)
    assert imageio_ffmpeg.count_frames_and_secs(str(video))[0] == 5  # 4 steps
    assert capfd.readouterr().err == ""


def test_where_no_video_can_be_written_it_is_said(tmp_path):
    env = gym.make("CartPole-v1", render_mode="rgb_array")
    with pytest.raises(UserError, match="no folder"):
        run_policy(env, lambda obs: 0, video=tmp_path / "no" / "play.mp4")
    (tmp_path / "play.mp4").mkdir()
    with pytest.raises(UserError, match="Cannot record"):
        run_policy(env, lambda obs: 0, video=tmp_path / "play.mp4")
    with pytest.raises(UserError, match="render_mode='rgb_array'"):
        run_policy(gym.make("CartPole-v1"), lambda obs: 0, video=tmp_path / "other.mp4")


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
    settings = dict(SMALL, ac_kwargs=dict(width=5))
    where = dict(output_dir=str(tmp_path))
    spinup.ppo_pytorch(EnvMaker("CartPole-v1"), MyActorCritic, logger_kwargs=where, **settings)
    with pytest.raises(UserError, match="a class of your own, .* --actor_critic MODULE:CLASS"):
        load_policy_and_env(tmp_path)
    env, get_action = load_policy_and_env(tmp_path, actor_critic=MyActorCritic)
    assert get_action(env.reset(seed=0)[0]) in (0, 1)
    with pytest.raises(UserError, match="has no 'deterministic'"):
        load_policy_and_env(tmp_path, deterministic=True, actor_critic=MyActorCritic)


def test_an_environment_of_the_users_own_needs_its_function(tmp_path):
    from gymnasium.envs.classic_control import CartPoleEnv

    where = dict(output_dir=str(tmp_path))
    spinup.ppo_pytorch(CartPoleEnv, logger_kwargs=where, max_ep_len=20, **SMALL)
    with pytest.warns(UserWarning, match="env_fn=your_function"):
        assert load_policy_and_env(tmp_path)[0] is None
    env, get_action = load_policy_and_env(tmp_path, env_fn=CartPoleEnv)
    assert env.action_space.contains(get_action(env.reset(seed=0)[0]))


def test_wrappers_of_gymnasium_come_along(tmp_path, capsys):
    def wrapped():
        return gym.wrappers.RescaleObservation(
            gym.make("Pendulum-v1"), np.float32([-2, -2, -2]), np.float32([2, 2, 2])
        )

    where = dict(output_dir=str(tmp_path))
    spinup.sac_pytorch(wrapped, logger_kwargs=where, num_test_episodes=0, **SMALL)
    env, _ = load_policy_and_env(tmp_path)
    assert np.array_equal(env.reset(seed=3)[0], wrapped().reset(seed=3)[0])
    told = capsys.readouterr().err
    assert "made again from its id, Pendulum-v1. If that function changes it, pass it" in told
    load_policy_and_env(tmp_path, env_fn=wrapped)
    assert capsys.readouterr().err == ""


class OneReward(gym.Wrapper):
    def step(self, action):
        obs, reward, *rest = self.env.step(action)
        return obs, np.array([reward]), *rest


def test_a_reward_in_an_array_is_a_number(capsys):
    env = OneReward(gym.make("CartPole-v1"))
    returns = run_policy(env, lambda obs: 0, num_episodes=1, render=False, seed=0)
    assert len(returns) == 1 and returns[0] > 0


def test_an_agent_of_unknown_spaces_is_tried_out_first(tmp_path):
    spinup.ppo_pytorch(
        EnvMaker("CartPole-v1"),
        epochs=1,
        steps_per_epoch=50,
        train_pi_iters=1,
        train_v_iters=1,
        logger_kwargs=dict(output_dir=str(tmp_path)),
    )
    (tmp_path / "config.json").unlink()
    load_policy_and_env(tmp_path, env_fn=lambda: gym.make("CartPole-v1"))
    with pytest.raises(UserError, match="cannot act on observations of"):
        load_policy_and_env(tmp_path, env_fn=lambda: gym.make("MountainCar-v0"))
