"""Algorithms as TensorFlow graphs train as their sisters do, and as scripts of the original ask."""

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import spinup
from spinup.parts.errors import UserError
from spinup.parts.make_env import EnvMaker
from spinup.parts.tf1.framework import tf
from spinup.parts.tf1.layers import activation_by_name, dense, mlp
from spinup.utils.mpi_tf import assign_params_from_flat, flat_concat, sync_all_params
from spinup.utils.run_utils import ExperimentGrid

ROOT = Path(__file__).parents[1]
ALGORITHMS = spinup.ALGORITHMS["tf1"]
SMALL = dict(steps_per_epoch=120, epochs=2, train_v_iters=2, ac_kwargs=dict(hidden_sizes=(16,)))
FAST_PPO = dict(
    pi_lr=1e-3, vf_lr=3e-3, lam=0.95, target_kl=0.02,
    train_pi_iters=10, train_v_iters=10, minibatch_size=250,
)  # fmt: skip
LEARNING = dict(
    ppo=(400, dict(epochs=20, steps_per_epoch=2000, num_envs=8, **FAST_PPO)),
    vpg=(300, dict(epochs=60, steps_per_epoch=1000, num_envs=2, pi_lr=7e-3, vf_lr=3e-3)),
)
every_algorithm = pytest.mark.parametrize("algorithm", ALGORITHMS)


def train(algorithm, folder, env="CartPole-v1", seed=0, **settings):
    function = getattr(spinup, f"{algorithm}_tf1")
    settings = SMALL | settings
    if algorithm == "ppo":
        settings.setdefault("train_pi_iters", 2)
    maker = EnvMaker(env) if isinstance(env, str) else env
    return function(maker, seed=seed, logger_kwargs=dict(output_dir=str(folder)), **settings)


def table(folder):
    """The rows of progress.txt without the time they took."""
    header, *rows = [
        line.split("\t") for line in (folder / "progress.txt").read_text().splitlines()
    ]
    return [{k: v for k, v in zip(header, row) if k != "Time"} for row in rows]


def command(*words, cwd, code=0, **environment):
    """Run a command of a new Python; gives what it printed."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"} | environment
    ended = subprocess.run(
        [sys.executable, *map(str, words)], cwd=cwd, env=environment, text=True, timeout=400,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert ended.returncode == code, ended.stdout[-3000:]
    return ended.stdout


@every_algorithm
def test_learns_cartpole(algorithm, tmp_path):
    wanted, settings = LEARNING[algorithm]
    function = getattr(spinup, f"{algorithm}_tf1")
    where = dict(output_dir=str(tmp_path))
    function(EnvMaker("CartPole-v1"), seed=0, logger_kwargs=where, **settings)
    assert float(table(tmp_path)[-1]["AverageEpRet"]) >= wanted


@every_algorithm
@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_equal_seeds_equal_runs(algorithm, env, tmp_path):
    settings = dict(num_envs=2) | (dict(minibatch_size=50) if algorithm == "ppo" else {})
    for name, seed in (("one", 3), ("same", 3), ("other", 4)):
        train(algorithm, tmp_path / name, env, seed, **settings)
        np.random.rand(7)  # what a script does in between makes no difference
    assert table(tmp_path / "one") == table(tmp_path / "same") != table(tmp_path / "other")


def test_the_test_of_the_original_passes():
    with tf.Graph().as_default():
        spinup.ppo_tf1(
            lambda: gym.make("CartPole-v1"),
            ac_kwargs=dict(hidden_sizes=(32,)),
            steps_per_epoch=100,
            epochs=10,
        )


@every_algorithm
def test_several_trainings_in_one_process(algorithm, tmp_path):
    """One after the other, and within a graph of the user's own that has variables already."""
    first = train(algorithm, tmp_path / "1")
    obs = np.random.default_rng(0).normal(size=(20, 4))
    acts = first.act(obs, deterministic=True)
    with tf.Graph().as_default() as graph:
        with tf.variable_scope("pi"):
            tf.get_variable("log_std", (3,))
            dense(tf.placeholder(tf.float32, (None, 2)), 4)
        before = len(graph.get_operations())
        train(algorithm, tmp_path / "2")
        assert len(graph.get_operations()) == before
    assert table(tmp_path / "1") == table(tmp_path / "2")
    assert (first.act(obs, deterministic=True) == acts).all()  # its session is its own


def own_actor_critic(x, a, **kwargs):
    """As a script of the original has it: plain tensors, TensorFlow's own random numbers."""
    n = kwargs["action_space"].n
    with tf.variable_scope("own_policy"):
        w = tf.get_variable("w", (4, n))
        logits = tf.matmul(x, w)
        pi = tf.squeeze(tf.multinomial(logits, 1), axis=1)
        logp_all = tf.nn.log_softmax(logits)
        logp, logp_pi = (tf.reduce_sum(tf.one_hot(act, n) * logp_all, 1) for act in (a, pi))
    with tf.variable_scope("own_value"):
        v = tf.squeeze(mlp(x, [kwargs["width"], 1], tf.nn.elu), axis=1)
    return pi, logp, logp_pi, v


@every_algorithm
def test_a_users_own_actor_critic_trains(algorithm, tmp_path):
    ac = train(
        algorithm, tmp_path, actor_critic=own_actor_critic, ac_kwargs=dict(width=8), pi_lr=0.05
    )
    assert [row["TotalEnvInteracts"] for row in table(tmp_path)] == ["120", "240"]
    with ac.session.graph.as_default():
        (w,) = [v for v in tf.global_variables() if v.op.name == "own_policy/w"]
        start = ac.session.run(w.initial_value)
    assert np.abs(ac.session.run(w) - start).max() > 0.01
    assert spinup.load(tmp_path).act(np.zeros((5, 4))).shape == (5,)
    with pytest.raises(UserError, match="has no 'mu'"):
        ac.act(np.zeros(4), deterministic=True)


def test_random_numbers_that_no_checkpoint_can_hold_are_named(tmp_path, capsys):
    own = dict(actor_critic=own_actor_critic, ac_kwargs=dict(width=8))
    sentence = "starts its random numbers again"
    train("vpg", tmp_path / "own", epochs=1, **own)
    train("vpg", tmp_path / "ours", epochs=1)
    assert sentence not in capsys.readouterr().out
    train("vpg", tmp_path / "ours", epochs=2, resume=True)
    assert sentence not in capsys.readouterr().out
    train("vpg", tmp_path / "own", epochs=2, resume=True, **own)
    said = " ".join(capsys.readouterr().out.split())
    assert sentence in said and "Multinomial" in said
    assert len(table(tmp_path / "own")) == 2


def test_a_bonus_for_an_entropy_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(UserError, match="ent_coef needs the entropy"):
        train("ppo", tmp_path, actor_critic=own_actor_critic, ac_kwargs=dict(width=8), ent_coef=0.1)


def test_a_policy_for_mlp_actor_critic_may_be_given(tmp_path):
    core = import_module("spinup.algos.tf1.vpg.core")

    def policy(x, a, hidden_sizes, activation, output_activation, action_space):
        found = core.mlp_gaussian_policy(
            x, a, hidden_sizes, activation, output_activation, action_space
        )
        return tuple(found)

    train("vpg", tmp_path, "Pendulum-v1", ac_kwargs=dict(policy=policy, hidden_sizes=(8,)))
    assert len(table(tmp_path)) == 2


@every_algorithm
def test_a_run_imports_no_pytorch(algorithm, tmp_path):
    code = f"""if True:
        import sys
        from spinup.run import main
        main("{algorithm} --backend tf1 --env CartPole-v1 --epochs 1 --steps_per_epoch 60 "
             "--train_v_iters 2 --act tf.nn.elu --exp_name run".split())
        loaded = [name for name in sys.modules
                  if name.partition(".")[0] == "torch" or name.startswith("spinup.parts.pytorch")]
        assert "tensorflow" in sys.modules and loaded == [], loaded
    """
    said = command("-c", code, cwd=tmp_path)
    assert "oneDNN" not in said and "WARNING" not in said and "cuda" not in said
    config = json.loads((tmp_path / "data" / "run" / "run_s0" / "config.json").read_text())
    assert config["algorithm"] == f"{algorithm}_tf1"
    assert config["versions"]["tensorflow"] == tf.__version__
    assert "torch" not in config["versions"]


def test_two_processes_agree_and_commands_read_the_run(tmp_path):
    spinup_run = ("-m", "spinup.run")
    flags = "--env CartPole-v1 --cpu 2 --epochs 2 --steps_per_epoch 200 --train_v_iters 3"
    flags += " --train_pi_iters 3 --exp_name run --data_dir data --minibatch_size 30"
    command(*spinup_run, "ppo_tf1", *flags.split(), cwd=tmp_path)
    run = tmp_path / "data" / "run" / "run_s0"
    with (
        np.load(run / "checkpoint" / "epoch2.rank0.npz") as one,
        np.load(run / "checkpoint" / "epoch2.rank1.npz") as two,
    ):
        outlines = [json.loads(arrays["outline"].tobytes()) for arrays in (one, two)]
        weights = [dict(_arrays(outline)) for outline in outlines]
        assert weights[0].keys() == weights[1].keys() and len(weights[0]) > 20
        for name, key in weights[0].items():
            assert np.array_equal(one[key], two[weights[1][name]]), name
    assert table(run)[-1]["TotalEnvInteracts"] == "400"
    resumed = command(*spinup_run, "resume", run, "--epochs", 3, cwd=tmp_path)
    assert "after 2 of 3 epochs" in resumed and len(table(run)) == 3
    assert "ppo_tf1" in command(*spinup_run, "ls", "data", cwd=tmp_path)
    watched = command(*spinup_run, "watch", run, "-nr", "-n", 2, "-d", cwd=tmp_path)
    assert "2 episodes: return" in watched
    command(*spinup_run, "plot", run, "-o", "curve.png", cwd=tmp_path)
    assert "run (1)" in command(*spinup_run, "compare", "data", cwd=tmp_path)
    command(*spinup_run, "report", "data", cwd=tmp_path)
    refused = command(*spinup_run, "export", run, "-o", "p.onnx", cwd=tmp_path, code=2)
    assert "TensorFlow" in refused and "Traceback" not in refused


def _arrays(outline):
    """The variables in the outline of a checkpoint, each with the name of its array."""
    content = dict(outline["dict"])["networks"]
    return ((name, where["array"]) for name, where in content["dict"])


def test_grids_over_both_backends(tmp_path):
    grid = ExperimentGrid("both")
    grid.add("algo", [spinup.vpg_pytorch, spinup.vpg_tf1])
    assert len(grid.variants()) == 2
    assert [v["algo"].__module__.split(".")[2] for v in grid.variants()] == ["pytorch", "tf1"]


BAD = {
    "--act torch.nn.ELU": "is not an activation of tf.nn",
    "--act tf.nn.elo": "Did you mean 'elu'?",
    "--ac_kwargs:normalize True": "setting of the PyTorch version",
    "--device cuda": "There is no device 'cuda'",
    "--hid -3": "hidden_sizes must be integers",
}


def test_bad_settings_get_a_sentence(tmp_path, capsys):
    from spinup.run import main

    for flags, sentence in BAD.items():
        with pytest.raises(SystemExit) as ended:
            main(f"ppo_tf1 --env CartPole-v1 --data_dir {tmp_path} {flags}".split())
        assert ended.value.code == 2
        assert sentence in " ".join(capsys.readouterr().err.split()), flags


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("dqn --backend tf1", "dqn has no version for tf1"),
        ("ppo --backend jax", "--backend takes one value"),
        ("ppo --backend", "--backend takes one value"),
        ("ppo --backend tf1 pytorch", "--backend takes one value"),
        ("ppo_pytorch --backend tf1", "ppo_pytorch is not an algorithm of tf1"),
    ],
)
def test_the_flag_for_the_backend_is_checked(line, sentence, capsys):
    from spinup.run import main

    with pytest.raises(SystemExit) as ended:
        main(f"{line} --env CartPole-v1".split())
    assert ended.value.code == 2
    assert sentence in " ".join(capsys.readouterr().err.split())


def test_images_are_refused_with_the_name_of_what_takes_them(tmp_path):
    class Images(gym.Env):
        observation_space = gym.spaces.Box(0, 255, (20, 20, 3), np.uint8)
        action_space = gym.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            return self.observation_space.sample(), {}

        def step(self, action):
            return self.observation_space.sample(), 0.0, False, False, {}

    with pytest.raises(UserError, match="Use the PyTorch version"):
        train("ppo", tmp_path, Images)


def test_a_missing_tensorflow_gets_a_sentence(tmp_path):
    """As where the extra is not installed; all that does not need it works."""
    code = """if True:
        import sys
        class Hidden:
            def find_spec(self, name, path=None, target=None):
                if name.partition(".")[0] == "tensorflow":
                    raise ModuleNotFoundError(name)
        from importlib import util
        sys.meta_path.insert(0, Hidden())
        found = util.find_spec
        util.find_spec = lambda name, *a: None if name == "tensorflow" else found(name, *a)
        import spinup.utils.logx, spinup.utils.test_policy
        from spinup.run import main
        main("ppo_tf1 --env CartPole-v1".split())
    """
    said = command("-c", code, cwd=tmp_path, code=2)
    assert "pip install 'spinup[tf]'" in said and "Traceback" not in said


@pytest.mark.parametrize("name", ["tf.nn.elu", "nn.elu", "elu"])
def test_activations_have_several_names(name):
    assert activation_by_name(name) is tf.nn.elu
    assert activation_by_name("tf.tanh") is tf.nn.tanh
    assert activation_by_name(tf.nn.relu) is tf.nn.relu


def test_flat_values_go_to_variables_in_order():
    with tf.Graph().as_default(), tf.Session() as session:
        a, b = tf.get_variable("a", (2, 3)), tf.get_variable("b", (4,))
        session.run(tf.global_variables_initializer())
        session.run(sync_all_params())
        before = session.run(flat_concat([a, b]))
        assert before == pytest.approx(np.append(session.run(a).ravel(), session.run(b)))
        session.run(assign_params_from_flat(tf.range(10.0), [a, b]))
        assert session.run(a).tolist() == [[0, 1, 2], [3, 4, 5]]
        assert session.run(b).tolist() == [6, 7, 8, 9]
