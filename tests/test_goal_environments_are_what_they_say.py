"""Our own goal environments keep to their rules, are found by name, and can be watched."""

import subprocess
import sys
import warnings
from pathlib import Path

import gymnasium as gym
import imageio_ffmpeg
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import spinup
from spinup.parts.envs import VectorEnv
from spinup.parts.make_env import EnvMaker, make_env
from spinup.run import main

OWN = ("spinup/BitFlip-v0", "spinup/Reach-v0")


@pytest.mark.parametrize("env_id", OWN)
def test_gymnasium_finds_nothing_wrong(env_id):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*(different .* render|spec.*)")
        check_env(make_env(env_id, render_mode="rgb_array").unwrapped, skip_render_check=False)


def test_they_are_found_without_pytorch():
    code = (
        "import sys; from spinup.parts.make_env import make_env; make_env('spinup/Reach-v0');"
        "assert 'torch' not in sys.modules; import gymnasium, spinup.envs;"
        "gymnasium.make('spinup/BitFlip-v0', n=5)"
    )
    root = Path(__file__).parents[1]
    ended = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("env_id", OWN)
def test_rewards_and_ends_are_those_of_the_goals(env_id):
    env = make_env(env_id)
    env.action_space.seed(0)
    for seed in range(200):
        obs, _ = env.reset(seed=seed)
        over = False
        while not over:
            obs, reward, terminated, truncated, info = env.step(env.action_space.sample())
            goals = obs["achieved_goal"], obs["desired_goal"]
            assert reward == env.unwrapped.compute_reward(*goals, {})
            assert terminated == env.unwrapped.compute_terminated(*goals, {})
            assert info["is_success"] == (reward == 0)
            over = terminated or truncated


def test_bits_flip_one_by_one_until_they_are_right_or_the_steps_are_used_up():
    env = make_env("spinup/BitFlip-v0", n=6)
    for seed in range(100):
        obs, _ = env.reset(seed=seed)
        start, goal = obs["achieved_goal"], obs["desired_goal"]
        wrong = np.flatnonzero(start != goal)
        assert len(wrong) > 0
        for i, bit in enumerate(wrong):
            obs, reward, terminated, truncated, info = env.step(bit)
            last = i == len(wrong) - 1
            assert (reward, terminated, truncated) == (0.0 if last else -1.0, last, False)
            assert np.array_equal(obs["observation"], obs["achieved_goal"])
        assert np.array_equal(obs["achieved_goal"], goal)
        assert np.array_equal(start != obs["achieved_goal"], start != goal)  # start is a copy
        env.reset(seed=seed)
        for i in range(6):  # the same bit to and fro
            bit = wrong[0] if len(wrong) > 1 else (wrong[0] + 1) % 6
            _, reward, terminated, truncated, _ = env.step(bit)
            assert (reward, terminated, truncated) == (-1.0, False, i == 5)


def test_the_arm_has_the_geometry_of_an_arm():
    env = make_env("spinup/Reach-v0").unwrapped
    tips, goals = [], []
    for seed in range(300):
        obs, _ = env.reset(seed=seed)
        cos, sin = obs["observation"][:2], obs["observation"][2:]
        one, two = np.arctan2(sin, cos)
        tip = [
            0.5 * np.cos(one) + 0.5 * np.cos(one + two),
            0.5 * np.sin(one) + 0.5 * np.sin(one + two),
        ]
        assert np.allclose(obs["achieved_goal"], tip)
        turned, *_ = env.step(np.float32([1.0, -0.5]))
        angles = np.arctan2(turned["observation"][2:], turned["observation"][:2])
        change = (angles - [one, two] + np.pi) % (2 * np.pi) - np.pi
        assert np.allclose(change, [0.2, -0.1], atol=1e-6)
        tips.append(tip)
        goals.append(obs["desired_goal"])
    for points in (np.array(tips), np.array(goals)):
        assert np.linalg.norm(points, axis=1).max() <= 1 + 1e-9
        assert (points.min(0) < -0.8).all() and (points.max(0) > 0.8).all()
    near = np.linalg.norm(np.array(tips) - goals, axis=1) < 0.1
    assert near.mean() < 0.1  # few are there from the start


def test_an_episode_tells_whether_it_succeeded():
    env = VectorEnv(EnvMaker("spinup/BitFlip-v0"), 1)
    successes = []
    while len(successes) < 30:
        achieved, desired = env.obs[0].reshape(3, 8)[1:]  # behind the observation
        wrong = np.flatnonzero(achieved != desired)
        give_up = len(successes) % 3 == 0
        step = env.step([0 if give_up else wrong[0]])
        successes += [(episode.success, episode.length) for episode in step.episodes]
    assert {success for success, _ in successes} == {0.0, 1.0}
    assert all(success or length == 8 for success, length in successes)


@pytest.mark.parametrize("env_id", OWN)
def test_a_trained_agent_can_be_watched(env_id, tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    spinup.her_pytorch(
        EnvMaker(env_id),
        epochs=1,
        steps_per_epoch=60,
        num_test_episodes=1,
        ac_kwargs=dict(hidden_sizes=(8,)),
        logger_kwargs=dict(output_dir=str(tmp_path / "run")),
    )
    video = tmp_path / "play.mp4"
    main(["watch", str(tmp_path / "run"), "--episodes", "1", "--video", str(video), "--seed", "1"])
    assert "1 episodes: return" in capsys.readouterr().out
    frames, _ = imageio_ffmpeg.count_frames_and_secs(str(video))
    assert frames == (51 if "Reach" in env_id else 9)  # also after the last step


def test_images_show_the_state_and_the_goal():
    for env_id in OWN:
        env = make_env(env_id, render_mode="rgb_array")
        env.reset(seed=0)
        image = env.render()
        assert image.dtype == np.uint8 and image.ndim == 3 and image.shape[2] == 3
        assert len(np.unique(image.reshape(-1, 3), axis=0)) >= 3
        env.step(env.action_space.sample() if isinstance(env.action_space, gym.spaces.Box) else 0)
        assert not np.array_equal(env.render(), image)
