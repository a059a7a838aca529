"""Images are seen by convolutions, kept as bytes, and Atari games are played as usual."""

import csv
import json
from functools import partial

import gymnasium as gym
import imageio_ffmpeg
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from torch.nn import functional as F

import spinup
from spinup.algos.pytorch.dqn.core import MLPQNetwork
from spinup.parts import run_setup
from spinup.parts.envs import VectorEnv
from spinup.parts.errors import UserError
from spinup.parts.make_env import EnvMaker, describe_env, env_from_description
from spinup.parts.pytorch.buffers import GAEBuffer, ReplayBuffer
from spinup.parts.pytorch.layers import ImageEncoder
from spinup.parts.pytorch.networks import MLPActorCritic
from spinup.parts.spaces import is_image
from spinup.results.playback import load_policy_and_env, make_run_env
from spinup.run import main


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)
    return np.random.default_rng(0)


def image_space(shape):
    return Box(0, 255, shape, np.uint8)


def table(folder):
    with open(folder / "progress.txt") as file:
        return [row | dict(Time=0) for row in csv.DictReader(file, delimiter="\t")]


# --- The encoder ---

SHAPES = [
    (4, 84, 84), (84, 84, 3), (3, 96, 96), (84, 84), (1, 84, 84), (84, 84, 1), (210, 160, 3),
    (64, 64, 3), (60, 60), (59, 59), (12, 12), (10, 10, 4), (10, 17), (4, 36, 96),
    (4, 84, 84, 3), (2, 3, 20, 20),
]  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_any_shape_of_picture_becomes_a_vector(shape, seed):
    encoder = ImageEncoder(shape)
    obs = torch.as_tensor(seed.integers(256, size=(3, *shape)).astype(np.uint8))
    out = encoder(obs)
    assert out.shape == (3, encoder.size)
    assert 100 < encoder.size < 25_000
    torch.testing.assert_close(encoder(obs[1]), out[1])  # one image, no batch
    torch.testing.assert_close(encoder(obs[None])[0], out)  # a batch of batches
    assert out.std() > 0


def test_the_paper_s_network_on_the_paper_s_frames():
    encoder = ImageEncoder((4, 84, 84))
    assert [tuple(p.shape) for p in encoder.parameters() if p.ndim == 4] == [
        (32, 4, 8, 8),
        (64, 32, 4, 4),
        (64, 64, 3, 3),
    ]
    assert encoder.size == 64 * 7 * 7


@pytest.mark.parametrize(("size", "strides", "padding"), [(84, (4, 2, 1), 0), (12, (2, 2, 1), 1)])
def test_it_computes_three_convolutions_of_brightness_between_0_and_1(size, strides, padding, seed):
    encoder = ImageEncoder((3, size, size))
    obs = torch.as_tensor(seed.integers(256, size=(2, 3, size, size)).astype(np.uint8))
    x = obs.float() / 255
    weights = list(encoder.parameters())
    for weight, bias, stride in zip(weights[0::2], weights[1::2], strides, strict=True):
        x = F.conv2d(x, weight, bias, stride, padding).relu()
    torch.testing.assert_close(encoder(obs), x.flatten(1))
    torch.testing.assert_close(encoder(obs.float()), x.flatten(1))


@pytest.mark.parametrize("size", [84, 12])
def test_the_order_of_channels_does_not_matter(size, seed):
    first, last = ImageEncoder((3, size, size)), ImageEncoder((size, size, 3))
    last.load_state_dict(first.state_dict())
    obs = torch.as_tensor(seed.integers(256, size=(2, 3, size, size)).astype(np.uint8))
    torch.testing.assert_close(first(obs), last(obs.permute(0, 2, 3, 1)))
    one, flat = ImageEncoder((1, size, size)), ImageEncoder((size, size))
    flat.load_state_dict(one.state_dict())
    torch.testing.assert_close(one(obs[:, :1]), flat(obs[:, 0]))
    stacked, joined = ImageEncoder((2, size, size, 3)), ImageEncoder((6, size, size))
    joined.load_state_dict(stacked.state_dict())
    frames = obs.permute(0, 2, 3, 1)[None]
    torch.testing.assert_close(stacked(frames), joined(obs.reshape(1, 6, size, size)))


def test_what_is_a_picture_and_what_is_not():
    for shape in SHAPES:
        assert is_image(image_space(shape)), shape
    assert not is_image(image_space((128,)))  # an Atari game's memory
    assert not is_image(image_space((7, 7, 3)))  # too small for convolutions
    assert not is_image(image_space((9, 84)))
    assert not is_image(Box(0, 1, (84, 84), np.float32))
    assert not is_image(Box(0, 1, (19, 19), np.uint8))  # a board
    assert not is_image(MultiDiscrete([256, 256]))


def encoders(module):
    return [m for m in module.modules() if isinstance(m, ImageEncoder)]


def test_networks_take_it_by_themselves():
    for actions in (Discrete(3), Box(-1, 1, (2,), np.float32)):
        ac = MLPActorCritic(image_space((4, 84, 84)), actions, hidden_sizes=(32,))
        (of_pi,), (of_v,) = encoders(ac.pi), encoders(ac.v)
        assert of_pi is not of_v
        assert encoders(MLPActorCritic(Box(-1, 1, (4, 84, 84)), actions)) == []
        act, value, logp = ac.step(torch.zeros(2, 4, 84, 84))
        assert value.shape == logp.shape == (2,)
        assert len(act) == 2
    assert len(encoders(MLPQNetwork(image_space((84, 84, 3)), Discrete(3)))) == 1
    assert encoders(MLPQNetwork(image_space((8, 8)), Discrete(3))) == []


def test_pictures_are_not_normalised_twice():
    with pytest.raises(UserError, match="scaled anyway"):
        MLPActorCritic(image_space((84, 84)), Discrete(3), normalize=True)


# --- Algorithms without an encoder ---


class Noise(gym.Env):
    """Shows bytes that mean nothing."""

    def __init__(self, shape, action_space):
        self.observation_space, self.action_space = image_space(shape), action_space

    def _look(self):
        return self.np_random.integers(256, size=self.observation_space.shape, dtype=np.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._look(), {}

    def step(self, action):
        return self._look(), 0.0, False, False, {}


@pytest.mark.parametrize("shape", [(24, 24, 3), (4, 16, 16), (12, 12)])
@pytest.mark.parametrize("name", ["sac", "td3", "ddpg", "acer", "trpo"])
def test_images_are_refused_by_those_that_have_no_encoder(name, shape, tmp_path):
    space = Discrete(2) if name in ("acer", "trpo") else Box(-1, 1, (1,))
    with pytest.raises(UserError, match=f"{name} has no encoder for images.*ppo or dqn"):
        getattr(spinup, f"{name}_pytorch")(
            lambda: Noise(shape, space), logger_kwargs=dict(output_dir=tmp_path / "run")
        )
    assert not (tmp_path / "run").exists()


class Own(torch.nn.Module):
    """A policy and values of a user's own, which take images as they are."""

    def __init__(self, observation_space, action_space):
        super().__init__()
        pixels = int(np.prod(observation_space.shape))
        self.pi, self.q = (
            torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(pixels, int(action_space.n)))
            for _ in "pq"
        )

    @torch.no_grad()
    def step(self, obs):
        logp = self.pi(obs).log_softmax(-1)
        return torch.multinomial(logp.exp(), 1)[:, 0].numpy(), logp.numpy()

    def act(self, obs, deterministic=False):
        return self.step(obs)[1].argmax(-1)


def test_an_actor_critic_of_ones_own_may_take_images_and_so_may_one_who_flattens_them(tmp_path):
    settings = dict(
        steps_per_epoch=40,
        epochs=1,
        n_steps=5,
        replay_start=10,
        replay_size=100,
        num_test_episodes=1,
        max_ep_len=5,
    )
    env_fn, own, flat = partial(Noise, (12, 12), Discrete(2)), tmp_path / "own", tmp_path / "flat"
    spinup.acer_pytorch(env_fn, Own, **settings, logger_kwargs=dict(output_dir=own))
    spinup.acer_pytorch(
        lambda: gym.wrappers.FlattenObservation(env_fn()),
        ac_kwargs=dict(hidden_sizes=[4]),
        **settings,
        logger_kwargs=dict(output_dir=flat),
    )
    assert len(table(own)) == len(table(flat)) == 1


# --- A task that must be seen ---


class Side(gym.Env):
    """A bright dot somewhere in the left or in the right half: press that side."""

    action_space = Discrete(2)

    def __init__(self, shape=(12, 12), steps=20):
        self.observation_space, self.steps = image_space(shape), steps

    def _look(self):
        self.left = bool(self.np_random.integers(2))
        image = np.zeros(self.observation_space.shape, np.uint8)
        row, column = self.np_random.integers((12, 6))
        image[row, column + (0 if self.left else 6)] = 255
        return image

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._look(), {}

    def step(self, action):
        reward, self.t = float((action == 0) == self.left), self.t + 1
        return self._look(), reward, self.t == self.steps, False, {}


SEES = dict(
    ppo=dict(
        steps_per_epoch=640,
        epochs=10,
        num_envs=8,
        pi_lr=3e-4,
        vf_lr=3e-4,
        gamma=0.0,
        train_pi_iters=10,
        train_v_iters=2,
        minibatch_size=80,
        target_kl=0.02,
    ),
    dqn=dict(
        steps_per_epoch=600,
        epochs=3,
        start_steps=200,
        update_after=100,
        num_envs=2,
        gamma=0.0,
        epsilon_steps=500,
        num_test_episodes=5,
    ),
)


@pytest.mark.parametrize(("algorithm", "shape"), [("ppo", (12, 12)), ("dqn", (12, 12, 3))])
def test_it_learns_to_press_the_side_it_sees(algorithm, shape, tmp_path, seed=0):
    train, where = getattr(spinup, f"{algorithm}_pytorch"), dict(output_dir=str(tmp_path))
    ac = train(partial(Side, shape), seed=seed, logger_kwargs=where, **SEES[algorithm])
    assert encoders(ac)
    last = table(tmp_path)[-1]
    assert float(last.get("AverageTestEpRet", last["AverageEpRet"])) >= 18.5  # of 20; blindly 10
    env, get_action = load_policy_and_env(tmp_path, deterministic=True, env_fn=partial(Side, shape))
    right, obs = 0, env.reset(seed=1)[0]
    for _ in range(200):
        obs, reward, over, _, _ = env.step(get_action(obs))
        right += reward
        obs = env.reset()[0] if over else obs
    assert right >= 185


def test_pictures_are_kept_as_bytes(seed):
    env = VectorEnv(Side, n=3, seed=0)
    dims = run_setup.space_dims(env)
    replay = ReplayBuffer(size=50, **dims)
    rollout = GAEBuffer(size=2, num_envs=3, **dims)
    for _ in range(2):
        obs, step = env.obs, env.step(env.sample_actions())
        replay.store(obs, [0, 1, 0], step.rew, step.obs2, step.terminated)
        rollout.store(obs, [0, 1, 0], step.rew, np.zeros(3), np.zeros(3))
    assert replay.ring.columns["obs"].dtype == replay.ring.columns["obs2"].dtype == np.uint8
    assert rollout.obs_buf.dtype == np.uint8
    assert replay.ring.storage.dtype.itemsize < 2 * 144 + 30
    for i in range(3):
        rollout.finish_path(0, i)
    assert rollout.get().obs.max() == 255  # as they were; the network divides
    assert replay.sample_batch(20).obs.unique().tolist() == [0, 255]


# --- Atari ---

TINY = dict(
    dqn=dict(
        steps_per_epoch=60,
        start_steps=20,
        update_after=30,
        update_every=10,
        batch_size=4,
        replay_size=100,
        num_test_episodes=0,
        max_ep_len=50,
    ),
    ppo=dict(steps_per_epoch=60, num_envs=2, train_pi_iters=2, train_v_iters=2, minibatch_size=30),
)


@pytest.mark.parametrize("algorithm", TINY)
def test_pong_trains_resumes_and_can_be_watched(algorithm, tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    words = [algorithm, "--env", "ALE/Pong-v5", "--hid", "[16]", "--data_dir", str(tmp_path)]
    words += [str(x) for key, value in TINY[algorithm].items() for x in (f"--{key}", value)]
    main([*words, "--epochs", "4", "--exp_name", "whole"])
    main([*words, "--epochs", "2", "--exp_name", "broken"])
    whole, broken = (tmp_path / name / f"{name}_s0" for name in ("whole", "broken"))
    main(["resume", str(broken), "--epochs", "4"])
    assert "did not come back" not in capsys.readouterr().out  # its episode was played again
    assert table(whole) == table(broken)
    weights = [(folder / "pyt_save" / "model.pt").read_bytes() for folder in (whole, broken)]
    assert weights[0] == weights[1]

    learned_with, watched_with = EnvMaker("ALE/Pong-v5")(), make_run_env(whole)
    assert str(learned_with) == str(watched_with)  # the same wrappers, each once
    for env in (learned_with, watched_with):
        env.action_space.seed(0)
    same = [env.reset(seed=3)[0] for env in (learned_with, watched_with)]
    for _ in range(30):
        assert np.array_equal(*same)
        same = [env.step(env.action_space.sample())[0] for env in (learned_with, watched_with)]

    video = tmp_path / "play.mp4"
    main(["watch", str(whole), "--episodes", "1", "--len", "12", "--video", str(video)])
    assert imageio_ffmpeg.count_frames_and_secs(str(video))[0] == 13  # also after the last
    reader = imageio_ffmpeg.read_frames(str(video))
    assert next(reader)["size"] == (160, 210)  # the game itself, not what the agent sees
    assert np.frombuffer(next(reader), np.uint8).std() > 5


@pytest.mark.parametrize("env_name", ["ALE/Breakout-v5", "PongNoFrameskip-v4", "Pong-v4"])
def test_atari_is_preprocessed_as_usual(env_name):
    env = EnvMaker(env_name)()
    assert env.observation_space == image_space((4, 84, 84))
    assert env.unwrapped._frameskip == 1
    assert is_image(env.observation_space)
    env.reset(seed=0)
    before = env.unwrapped.ale.getEpisodeFrameNumber()
    assert 1 <= before <= 30  # a start of doing nothing
    env.step(0)
    assert env.unwrapped.ale.getEpisodeFrameNumber() == before + 4


@pytest.mark.parametrize(
    ("env_kwargs", "shape"),
    [
        (dict(preprocess=False), (210, 160, 3)),
        (dict(obs_type="ram"), (128,)),
        (dict(obs_type="grayscale"), (210, 160)),
        (dict(screen_size=[60, 84], frameskip=2, clip_reward=True), (4, 84, 60)),
        (dict(grayscale_obs=False, stack_size=2), (2, 84, 84, 3)),
        (dict(continuous=True, max_episode_steps=50), (4, 84, 84)),
    ],
)
def test_the_user_may_ask_otherwise(env_kwargs, shape):
    env = EnvMaker("ALE/Pong-v5", env_kwargs)()
    assert env.observation_space.shape == shape
    again = env_from_description(json.loads(json.dumps(describe_env(env))))
    assert str(again) == str(env)
    assert np.array_equal(env.reset(seed=0)[0], again.reset(seed=0)[0])
    env.action_space.seed(0)
    for _ in range(20):
        action = env.action_space.sample()
        (obs, reward, *_), (obs_again, reward_again, *_) = env.step(action), again.step(action)
        assert np.array_equal(obs, obs_again)
        assert reward == reward_again


def test_rewards_are_the_game_s_score_unless_clipped():
    def best(**env_kwargs):
        env = VectorEnv(EnvMaker("ALE/MsPacman-v5", env_kwargs), n=1, seed=0)
        return max(env.step(env.sample_actions()).rew[0] for _ in range(120))

    assert best() >= 10  # a pill is ten points
    assert best(clip_reward=True) == 1


def test_an_episode_in_the_middle_is_played_again_exactly(capsys):
    """Sticky actions are sampled by the simulator itself, but from the seed of the episode."""
    env, again = (VectorEnv(EnvMaker("ALE/Pong-v5"), n=2, seed=s, max_ep_len=70) for s in (0, 9))
    for _ in range(100):
        env.step(env.sample_actions())
    again.load_state_dict(env.state_dict())
    assert np.array_equal(env.obs, again.obs)
    for _ in range(100):
        action = env.sample_actions()
        for a, b in zip(env.step(action)[:5], again.step(action)[:5]):
            assert np.array_equal(a, b)
    assert capsys.readouterr().out == ""


MISTYPED = {
    "ALE/Pnog-v5": "'ALE/Pong-v5'", "ALE/Pong": "ALE/Pong-v5", "Pong-v5": "ALE/Pong-v5",
    "PongNoFrameskip-v9": "PongNoFrameskip-v4", "Breakuot-v4": "'Breakout-v4'",
}  # fmt: skip


@pytest.mark.parametrize("typed", MISTYPED)
def test_a_mistyped_game_gets_the_nearest(typed):
    with pytest.raises(UserError, match=f"Did you mean {MISTYPED[typed]}"):
        EnvMaker(typed)()
