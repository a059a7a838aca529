"""An exported policy, run by onnxruntime alone, acts as the trained agent does when watched."""

import json
import subprocess
import sys
from functools import partial

import algorithm_kinds
import gymnasium as gym
import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from gymnasium.spaces import Box, Discrete

import spinup
from spinup.parts.errors import UserError
from spinup.parts.make_env import EnvMaker
from spinup.parts.pytorch.models import build_network
from spinup.results import export
from spinup.results.playback import load_policy_and_env
from spinup.run import main


class Odd(gym.Env):
    """Observations in a table, or images; actions with bounds of their own, or from 5 on."""

    def __init__(self, actions, image=False):
        self.observation_space = (
            Box(0, 255, (12, 14, 3), np.uint8) if image else Box(-np.inf, np.inf, (2, 3))
        )
        self.action_space = dict(
            uneven=Box(np.float32([-1, 0]), np.float32([3, 10])),
            from_5=Discrete(3, start=5),
            whole=Box(np.int32([-9, 0]), np.int32([9, 10]), dtype=np.int32),
        )[actions]

    def _look(self):
        shape = self.observation_space.shape
        if self.observation_space.dtype == np.uint8:
            return self.np_random.integers(0, 256, shape, np.uint8)
        return self.np_random.normal(100, [[1, 20, 300]], shape).astype(np.float32)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return self._look(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        return self._look(), 0.0, bool(self.np_random.random() < 0.1), False, {}


ONCE = dict(epochs=1, steps_per_epoch=30, ac_kwargs=dict(hidden_sizes=(8, 8)), max_ep_len=20)
OFF = dict(ONCE, start_steps=10, update_after=10, update_every=10, batch_size=8, replay_size=100)
OFF |= dict(num_test_episodes=0)
ACER = dict(ONCE, n_steps=5, replay_start=10, replay_size=100, num_test_episodes=0)


def with_networks(settings, **ac_kwargs):
    return dict(settings, ac_kwargs=settings["ac_kwargs"] | ac_kwargs)


NORMAL = with_networks(ONCE, normalize=True)
RUNS = {
    "reinforce": ("reinforce", EnvMaker("CartPole-v1"), ONCE),
    "vpg normalised": ("vpg", partial(Odd, "uneven"), NORMAL),
    "trpo normalised": ("trpo", partial(Odd, "from_5"), NORMAL),
    "ppo other activation": ("ppo", partial(Odd, "uneven"), with_networks(ONCE, activation="ELU")),
    "ppo images": ("ppo", partial(Odd, "uneven", True), ONCE),
    "ppo integers": ("ppo", partial(Odd, "whole"), ONCE),
    "acer": ("acer", partial(Odd, "from_5"), ACER),
    "dqn dueling images": (
        "dqn", partial(Odd, "from_5", True), with_networks(OFF, dueling=True)
    ),
    "ddpg": ("ddpg", partial(Odd, "uneven"), OFF),
    "td3": ("td3", partial(Odd, "uneven"), OFF),
    "sac": ("sac", partial(Odd, "uneven"), OFF),
    "sac discrete": ("sac", partial(Odd, "from_5"), OFF),
    "her": ("her", EnvMaker("spinup/Reach-v0"), OFF),
    "her discrete": ("her", EnvMaker("spinup/BitFlip-v0", dict(n=5)), OFF),
}  # fmt: skip
RUNS |= {
    name: (name, EnvMaker(algorithm_kinds.ENVS[name]), algorithm_kinds.small(name, **ONCE))
    for name in algorithm_kinds.ALGORITHMS
    if name not in {algorithm for algorithm, *_ in RUNS.values()}
}


def train(kind, folder, keep_models=False, **more):
    algorithm, env_fn, settings = RUNS[kind]
    where = dict(output_dir=str(folder), keep_models=keep_models)
    function = getattr(spinup, f"{algorithm}_pytorch")
    return function(env_fn, logger_kwargs=where, **settings | more)


def seen(env, count):
    """Observations as they come when playing at random."""
    env.action_space.seed(0)
    found = [env.reset(seed=0)[0]]
    while len(found) < count:
        obs, _, terminated, truncated, _ = env.step(env.action_space.sample())
        found.append(env.reset()[0] if terminated or truncated else obs)
    return found


@pytest.mark.parametrize("kind", RUNS)
def test_the_file_acts_as_the_agent(kind, tmp_path, capsys):
    algorithm, env_fn, _ = RUNS[kind]
    train(kind, tmp_path / "run")
    path = tmp_path / "policy.onnx"
    main(["export", str(tmp_path / "run"), "-o", str(path)])
    assert "largest difference" in capsys.readouterr().out

    env, get_action = load_policy_and_env(tmp_path / "run", deterministic=True, env_fn=env_fn)
    policy = onnxruntime.InferenceSession(path)
    (takes,), (gives,) = policy.get_inputs(), policy.get_outputs()
    assert (takes.name, gives.name) == ("obs", "act")
    assert takes.shape == ["batch", *env.observation_space.shape]
    assert gives.shape == ["batch", *env.action_space.shape]
    observations = seen(env, 40)
    dtype = np.uint8 if "images" in kind else np.float32
    batch = np.stack(observations).astype(dtype)
    together = policy.run(["act"], {"obs": batch})[0]
    for obs, act in zip(observations, together, strict=True):
        (alone,) = policy.run(["act"], {"obs": np.asarray(obs, dtype)[None]})[0]
        assert env.action_space.contains(alone)
        tolerance = dict(rtol=1e-4, atol=1e-4)
        assert np.allclose(alone, get_action(obs), **tolerance)
        assert np.allclose(alone, act, **tolerance)
    about = {prop.key: prop.value for prop in onnx.load(path).metadata_props}
    assert about["algorithm"] == f"{algorithm}_pytorch"
    assert about["spinup_version"] == spinup.__version__
    if isinstance(env_fn, EnvMaker):
        assert about["env_id"] == env_fn.env_name
    if algorithm == "her":
        obs, parts = env.reset(seed=3)[0], env.unwrapped._observation()
        layout = json.loads(about["obs_layout"])
        assert layout.keys() == parts.keys()
        for name, (begin, end) in layout.items():
            assert np.allclose(obs[begin:end], parts[name])


def test_the_printed_lines_work_and_need_neither_spinup_nor_torch(tmp_path, capsys):
    train("sac", tmp_path, keep_models=True, epochs=2)
    main(["export", str(tmp_path)])  # without a name it goes beside the run's other files
    lines = capsys.readouterr().out.partition("To use it:\n")[2].splitlines()
    assert len(lines) == 3
    program = "\n".join(["obs = [[0, 1, 2], [3, 4, 5]]", *(line.strip() for line in lines)])
    program += "\nimport sys; print(act.shape, {'torch', 'spinup'} & set(sys.modules))"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.stdout.strip() == "(2,) set()", ended.stderr
    content = (tmp_path / "policy.onnx").read_bytes()
    assert b"export.py" not in content  # nor does it tell where it was made
    main(["export", str(tmp_path), "--itr", "1", "-o", str(tmp_path / "earlier.onnx")])
    assert (tmp_path / "earlier.onnx").read_bytes() != content


def network(seed=0, **ac_kwargs):
    from spinup.algos.pytorch.ppo.core import MLPActorCritic

    torch.manual_seed(seed)
    return build_network(MLPActorCritic, Box(-1, 1, (4,)), Discrete(9), ac_kwargs)


def test_a_file_that_acts_otherwise_is_noticed():
    content = export.to_onnx(network())
    assert export.largest_difference(network(), content) == 0
    with pytest.raises(UserError, match="acts otherwise"):
        export.largest_difference(network(seed=1), content)


OWN = """
import torch
from spinup.algos.pytorch.ppo import core

class Net(core.MLPActorCritic):
    "A user's own, with only what is documented."
    def __init__(self, observation_space, action_space):
        super().__init__(observation_space, action_space, (8,), torch.nn.ReLU)
        del self.pi
        self.pi = Pi(4, 2, (8,), torch.nn.ReLU)

    def act(self, obs):
        return self.step(obs)[0]

class Pi(core.MLPCategoricalActor):
    mode = property()  # which a policy of one's own need not have

class Contrary(Net):
    def act(self, obs, deterministic=False):
        return 1 - self.pi._distribution(obs).logits.argmax(-1).numpy()

class Foreign(Net):
    def __init__(self, *spaces):
        super().__init__(*spaces)
        self.pi._distribution = lambda obs: torch.distributions.Categorical(
            logits=torch.as_tensor(obs.numpy()[:, :2]))
"""


def test_networks_of_the_user_s_own(tmp_path, monkeypatch, capsys):
    (tmp_path / "nets_of_mine.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    import nets_of_mine

    where, out = dict(output_dir=str(tmp_path / "run")), tmp_path / "policy.onnx"
    settings = dict(ONCE, ac_kwargs=None)
    spinup.ppo_pytorch(EnvMaker("CartPole-v1"), nets_of_mine.Net, logger_kwargs=where, **settings)
    words = ["export", str(tmp_path / "run"), "-o", str(out)]
    assert "a class of your own" in fails(words, capsys)
    assert "act that is not the best" in fails(
        [*words, "--actor_critic", "nets_of_mine:Contrary"], capsys
    )
    assert "cannot be written as ONNX" in fails(
        [*words, "--actor_critic", "nets_of_mine:Foreign"], capsys
    )
    assert not out.exists()
    main([*words, "--actor_critic", "nets_of_mine:Net"])
    found = onnxruntime.InferenceSession(out).run(["act"], {"obs": np.eye(4, dtype=np.float32)})[0]
    assert found.shape == (4,)
    assert set(found) <= {0, 1}


def fails(words, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    return capsys.readouterr().err


def test_mistakes_get_a_sentence(tmp_path, capsys, monkeypatch):
    run, out = tmp_path / "run", str(tmp_path / "policy.onnx")
    train("reinforce", run)
    said = {
        "There is no folder": ["export", str(tmp_path / "nowhere")],
        "is not a run. Name one of the runs below it": ["export", str(tmp_path)],
        "numbered ones: none": ["export", str(run), "--itr", "3"],
        "ends in .onnx": ["export", str(run), "-o", "policy.pt"],
        "to write to": ["export", str(run), "-o", str(tmp_path / "nowhere" / "policy.onnx")],
        "Write it as module:Class": ["export", str(run), "--actor_critic", "nothing"],
    }
    for sentence, words in said.items():
        assert sentence in fails(words, capsys)
    (tmp_path / "folder.onnx").mkdir()
    assert "Cannot write" in fails(
        ["export", str(run), "-o", str(tmp_path / "folder.onnx")], capsys
    )
    for package in ("onnx", "onnxscript", "onnxruntime"):
        with monkeypatch.context() as without:
            without.setitem(sys.modules, package, None)
            assert "pip install 'spinup[onnx]'" in fails(["export", str(run), "-o", out], capsys)
    assert not list(tmp_path.glob("policy.onnx*"))
    (run / "tf1_save").mkdir()
    assert "TensorFlow" in fails(["export", str(run), "-o", out], capsys)
