"""`spinup.load` gives the network of any saved run, and who calls `torch.load` learns of it."""

import json
import subprocess
import sys
import textwrap

import gymnasium as gym
import numpy as np
import pytest
import torch

import spinup
from spinup import ppo_pytorch
from spinup.algos.pytorch.ppo import core as core_of_ppo
from spinup.parts.errors import UserError
from spinup.parts.make_env import EnvMaker
from spinup.parts.pytorch.architecture import records_architecture
from spinup.run import main
from spinup.utils.test_policy import load_policy_and_env, run_policy

TINY = dict(epochs=1, steps_per_epoch=60, ac_kwargs=dict(hidden_sizes=(8, 8)))
CARTPOLE, PENDULUM = "CartPole-v1", "Pendulum-v1"
# What a script of the original's kind builds itself: algorithm, environment, further arguments.
OWN_LOOPS = {
    "reinforce": ("reinforce", CARTPOLE, {}),
    "vpg": ("vpg", CARTPOLE, dict(hidden_sizes=[8])),
    "vpg continuous": ("vpg", PENDULUM, dict(hidden_sizes=np.array([8, 4]))),
    "ppo activation": ("ppo", PENDULUM, dict(hidden_sizes=(8,), activation=torch.nn.ELU)),
    "ppo normalized": ("ppo", CARTPOLE, dict(normalize=True)),
    "trpo": ("trpo", PENDULUM, {}),
    "ddpg": ("ddpg", PENDULUM, dict(hidden_sizes=[8, 8])),
    "td3": ("td3", PENDULUM, dict(hidden_sizes=[8, 8], activation=torch.nn.Tanh)),
    "sac": ("sac", PENDULUM, dict(hidden_sizes=[8, 8])),
    "sac discrete": ("sac", CARTPOLE, {}),
    "acer": ("acer", CARTPOLE, {}),
    "dqn": ("dqn", CARTPOLE, dict(dueling=True)),
}


def saved_by_a_script(algorithm, env, folder, ac_kwargs):
    """The loop of a user's script, as far as the model goes: no training function, no config."""
    from importlib import import_module

    from spinup.utils.logx import EpochLogger

    core = import_module(f"spinup.algos.pytorch.{algorithm}.core")
    network_class = core.MLPQNetwork if algorithm == "dqn" else core.MLPActorCritic
    logger = EpochLogger(output_dir=str(folder))
    ac = network_class(env.observation_space, env.action_space, **ac_kwargs)
    logger.setup_pytorch_saver(ac)
    logger.save_state({}, None)
    return ac


@pytest.mark.parametrize("kind", OWN_LOOPS)
def test_a_model_of_a_scripts_own_loop_loads(kind, tmp_path):
    algorithm, env_name, ac_kwargs = OWN_LOOPS[kind]
    env = gym.make(env_name)
    ac = saved_by_a_script(algorithm, env, tmp_path, ac_kwargs)
    assert not (tmp_path / "config.json").exists()
    loaded = spinup.load(tmp_path)
    assert type(loaded) is type(ac) and not loaded.training
    for name, weights in ac.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], weights)
    obs = torch.as_tensor(env.reset(seed=0)[0])[None]
    greedy = () if algorithm in ("ddpg", "td3") else (True,)  # their act takes observations alone
    assert np.array_equal(loaded.act(obs, *greedy), ac.act(obs, *greedy))
    made, get_action = load_policy_and_env(tmp_path, env_fn=lambda: gym.make(env_name))
    assert made.action_space.contains(get_action(made.reset(seed=0)[0]))


def test_a_partial_network_loads_with_all_its_arguments(tmp_path):
    from functools import partial

    from spinup.algos.pytorch.ppo.core import MLPActorCritic

    where = dict(output_dir=str(tmp_path))
    normalizing = partial(MLPActorCritic, normalize=True)
    ac = spinup.ppo_pytorch(EnvMaker(CARTPOLE), normalizing, logger_kwargs=where, **TINY)
    obs = torch.ones(3, 4)
    assert torch.equal(spinup.load(tmp_path).pi.logits_net(obs), ac.pi.logits_net(obs))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "ppo run"
    where = dict(output_dir=str(folder), keep_models=True)
    settings = dict(TINY, epochs=2, save_freq=1)
    return folder, spinup.ppo_pytorch(EnvMaker(CARTPOLE), logger_kwargs=where, **settings)


def test_load_takes_a_run_or_a_model_of_it(run):
    folder, trained = run
    obs = torch.ones(5, 4)
    expected = trained.pi.logits_net(obs)
    for path in (folder, str(folder), folder / "pyt_save" / "model.pt"):
        ac = spinup.load(path)
        assert torch.equal(ac.pi.logits_net(obs), expected)
        assert ac.act(obs[0]) in (0, 1)
        assert {p.device.type for p in ac.parameters()} == {"cpu"}
    assert not torch.equal(spinup.load(folder, itr=0).pi.logits_net(obs), expected)
    assert torch.equal(spinup.load(folder, 1).pi.logits_net(obs), expected)


@pytest.mark.parametrize(
    ("path", "options", "sentence"),
    [
        ("", dict(itr=7), "numbered ones: 0, 1"),
        ("pyt_save/model.pt", dict(itr=7), "leave itr=7 out"),
        ("pyt_save/other.pt", {}, "There is no saved model"),
        ("nowhere", {}, "There is no folder"),
    ],
)
def test_load_says_what_is_wrong(path, options, sentence, run):
    with pytest.raises(UserError, match=sentence):
        spinup.load(run[0] / path, **options)


def test_importing_spinup_for_load_imports_no_framework():
    code = "import sys, spinup; spinup.load; print('torch' in sys.modules, 'load' in dir(spinup))"
    words = [sys.executable, "-c", code]
    assert subprocess.check_output(words, text=True) == "False True\n"


def test_what_torch_load_gives_says_how_to_load_the_network(run):
    """A script that knows only PyTorch: safe loading works, and what it shows names spinup.load."""
    script = """
        import sys, torch
        ac = torch.load(sys.argv[1], weights_only=True)
        print(ac)
        assert "spinup" not in sys.modules
        ac.act(torch.zeros(4))
    """
    path = str(run[0] / "pyt_save" / "model.pt")
    words = [sys.executable, "-c", textwrap.dedent(script), path]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.stdout.startswith("{'how_to_load': \"spinup.load('RUN') gives the network")
    assert "AttributeError" in done.stderr


class Wide(torch.nn.Module):
    """A class of the user's own, whose constructor notes nothing."""

    def __init__(self, width):
        super().__init__()
        self.pi = torch.nn.Linear(4, width)


def test_a_class_that_notes_nothing_is_explained(tmp_path):
    logger = spinup.EpochLogger(output_dir=str(tmp_path))
    logger.setup_pytorch_saver(Wide(2))
    logger.save_state({}, None)
    with pytest.raises(UserError, match="a class of your own, .*Wide"):
        spinup.load(tmp_path)
    with pytest.raises(UserError, match="does not say how .*load_state_dict") as caught:
        spinup.load(tmp_path, actor_critic=Wide)
    network = Wide(2)  # as the sentence says
    advice = str(caught.value).rpartition(": ")[2].rstrip(".")
    assert advice.startswith("network.load_state_dict(torch.load(")
    network.load_state_dict(torch.load(tmp_path / "pyt_save" / "model.pt")["weights"])


def test_a_subclass_of_ours_is_the_users_own(tmp_path):
    from spinup.algos.pytorch.ppo.core import MLPActorCritic

    class Half(MLPActorCritic):
        def __init__(self, observation_space, action_space, width):
            super().__init__(observation_space, action_space, (width // 2,))

    env = gym.make(CARTPOLE)
    logger = spinup.EpochLogger(output_dir=str(tmp_path))
    logger.setup_pytorch_saver(Half(env.observation_space, env.action_space, 8))
    logger.save_state({}, None)
    with pytest.raises(UserError, match="a class of your own"):
        spinup.load(tmp_path)


def test_a_model_under_the_name_of_an_earlier_version_loads(run, tmp_path):
    folder, trained = run
    content = torch.load(folder / "pyt_save" / "model.pt", weights_only=True)
    architecture = json.loads(content["architecture"])
    architecture["network"] = "spinup.parts.networks.MLPActorCritic"
    old = dict(architecture=json.dumps(architecture), weights=content["weights"])
    torch.save(old, tmp_path / "model.pt")
    obs = torch.ones(2, 4)
    assert torch.equal(spinup.load(tmp_path / "model.pt").v(obs), trained.v(obs))


@pytest.mark.parametrize("damage", ["no config", "no environment", "unknown id", "stranger's id"])
def test_an_environment_that_cannot_be_made_again_is_none(damage, tmp_path, capsys):
    where = dict(output_dir=str(tmp_path))
    ac = spinup.td3_pytorch(EnvMaker(PENDULUM), logger_kwargs=where, num_test_episodes=0, **TINY)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    if damage == "no config":
        path.unlink()
    else:
        changes = {"no environment": None, "unknown id": "Missing-v7", "stranger's id": "me:Env-v0"}
        config["environment"]["id"] = changes[damage]
        path.write_text(json.dumps(config))
    with pytest.warns(UserWarning, match="The environment is None; the policy is loaded"):
        env, get_action = load_policy_and_env(tmp_path, deterministic=False)
    assert env is None
    obs = np.array([0.3, -0.4, 1.0], np.float32)
    assert np.allclose(get_action(obs), ac.act(torch.as_tensor(obs)))
    assert gym.make(PENDULUM).action_space.contains(get_action(obs))
    with pytest.raises(UserError, match="env_fn=your_function"):
        run_policy(env, get_action)
    with pytest.raises(SystemExit) as ended:
        main(["watch", str(tmp_path), "-nr", "-n", "1"])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "Traceback" not in said and ("--env" in said or "Missing" in said)
    main(["watch", str(tmp_path), "-nr", "-n", "1", "-l", "3", "--env", PENDULUM])


def test_the_policy_is_checked_where_the_environment_is_none(tmp_path):
    """No environment is no reason to be silent about a model that is missing."""
    (tmp_path / "progress.txt").write_text("Epoch\n0\n")
    with (
        pytest.warns(UserWarning, match="None"),
        pytest.raises(UserError, match="no saved model"),
    ):
        load_policy_and_env(tmp_path)


class Named(core_of_ppo.MLPActorCritic):
    """With an attribute of the user's own that has the name of ours."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.architecture = "mine"


@records_architecture
class WithKeywords(core_of_ppo.MLPActorCritic):
    def __init__(self, observation_space, action_space, **settings):
        super().__init__(observation_space, action_space, **settings)


@pytest.mark.parametrize("kind", [Named, WithKeywords])
def test_networks_of_a_user_train_and_load(kind, tmp_path):
    ppo_pytorch(
        lambda: gym.make("CartPole-v1"),
        kind,
        dict(hidden_sizes=(8,)),
        steps_per_epoch=60,
        epochs=1,
        train_pi_iters=1,
        train_v_iters=1,
        logger_kwargs=dict(output_dir=tmp_path),
    )
    ac = spinup.load(tmp_path, actor_critic=kind)
    assert ac.act(torch.zeros(4)) in (0, 1) and ac.pi.logits_net[0].out_features == 8
