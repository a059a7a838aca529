"""A saved TensorFlow graph that could do more than compute is refused, and nothing of it runs."""

import json

import numpy as np
import pytest

from spinup import ppo_tf1
from spinup.parts.errors import UserError
from spinup.parts.make_env import EnvMaker
from spinup.parts.tf1.framework import tf
from spinup.parts.tf1.models import restore_tf_graph, save_graph
from spinup.results.agents import load, load_tf_policy
from spinup.results.playback import load_policy_and_env, run_policy

SMALL = dict(steps_per_epoch=60, epochs=1, train_pi_iters=2, train_v_iters=2)


def touch(path):
    def run(x):
        path.write_text("run")
        return x

    return run


def write_file(x, path):
    with tf.control_dependencies([tf.io.write_file(str(path), "run")]):
        return tf.identity(x)


def in_a_branch(x, path):
    return tf.cond(tf.reduce_sum(x) > -1e9, lambda: write_file(x, path), lambda: x)


def in_a_function(x, path):
    @tf.function
    def called(x):
        return write_file(x, path)

    return called(x)


MALICIOUS = dict(
    python=lambda x, path: tf.py_func(touch(path), [x], tf.float32),
    numpy_function=lambda x, path: tf.numpy_function(touch(path), [x], tf.float32),
    file=write_file,
    file_in_a_branch=in_a_branch,
    file_in_a_function=in_a_function,
    read=lambda x, path: x + tf.cast(tf.strings.length(tf.io.read_file(str(path))), tf.float32),
    printed=lambda x, path: tf.Print(x, [x], "printed"),
)


def agent(folder, change):
    """A saved agent whose action is `change` of its observation, as TensorFlow itself saves it."""
    folder.mkdir(parents=True, exist_ok=True)
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float32, (None, 4))
        w = tf.get_variable("w", initializer=2.0, use_resource=True)
        pi = tf.identity(w * change(x))
        session.run(tf.global_variables_initializer())
        tf.saved_model.simple_save(session, str(folder / "tf1_save"), dict(x=x), dict(pi=pi))
        return {"inputs": {"x": x.name}, "outputs": {"pi": pi.name}}


@pytest.mark.parametrize("kind", MALICIOUS)
@pytest.mark.parametrize("names", ["as JSON", "of the SavedModel"])
def test_a_graph_that_does_more_than_compute_is_refused(kind, names, tmp_path):
    mark = tmp_path / "mark"
    info = agent(tmp_path / "run", lambda x: MALICIOUS[kind](x, mark))
    if names == "as JSON":
        (tmp_path / "run" / "tf1_save" / "model_info.json").write_text(json.dumps(info))
    with pytest.raises(UserError, match="is refused, and nothing of it was run"):
        load_tf_policy(tmp_path / "run")
    with tf.Session(graph=tf.Graph()) as session, pytest.raises(UserError, match="is refused"):
        restore_tf_graph(session, tmp_path / "run" / "tf1_save")
    assert not mark.exists()


def test_an_honest_graph_of_another_program_loads(tmp_path):
    """Also one without the names as JSON, as the original left it beside its pickle."""
    agent(tmp_path, lambda x: x + 1)
    act = load_tf_policy(tmp_path)
    assert act(np.zeros(4)) == pytest.approx(np.full(4, 2.0))


def test_what_no_output_needs_is_not_even_imported(tmp_path):
    mark = tmp_path / "mark"

    def beside(x):
        tf.py_func(touch(mark), [x], tf.float32, name="beside")
        return x

    agent(tmp_path, beside)
    with tf.Session(graph=tf.Graph()) as session:
        restore_tf_graph(session, tmp_path / "tf1_save")
        assert "beside" not in {op.name for op in session.graph.get_operations()}
    assert not mark.exists()


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("saved_model.pb", b"nonsense"),
        ("saved_model.pb", b""),
        ("model_info.json", b'{"inputs": {"x": "no:0"}, "outputs": {"pi": "such:0"}}'),
        ("model_info.json", b'{"inputs": 3, "outputs": ["pi"]}'),
        ("model_info.json", b"{}"),
        ("model_info.json", b"\x80\x04"),
        ("variables/variables.index", b"nonsense"),
    ],
)
def test_damage_gets_a_sentence(file, content, tmp_path):
    agent(tmp_path, lambda x: x)
    (tmp_path / "tf1_save" / file).write_bytes(content)
    with pytest.raises(UserError) as raised:
        load_tf_policy(tmp_path)
    assert "tf1_save" in str(raised.value)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    env = EnvMaker("CartPole-v1")
    return folder, ppo_tf1(env, logger_kwargs=dict(output_dir=folder, keep_models=True), **SMALL)


def test_a_trained_agent_acts_as_it_did(trained):
    folder, ac = trained
    obs = np.random.default_rng(0).normal(size=(50, 4))
    env, act = load_policy_and_env(folder, deterministic=True)
    assert [act(o) for o in obs] == ac.act(obs, deterministic=True).tolist()
    assert (load(folder).act(obs, deterministic=True) == ac.act(obs, deterministic=True)).all()
    assert {int(load_policy_and_env(folder)[1](obs[0])) for _ in range(3)} <= {0, 1}
    numbered = load_tf_policy(folder, itr=0, deterministic=True)
    assert [numbered(o) for o in obs] == ac.act(obs, deterministic=True).tolist()
    returns = run_policy(env, act, num_episodes=2, render=False)
    assert len(returns) == 2 and min(returns) > 0


def test_saving_again_replaces_the_graph_and_leaves_training_alone(trained, tmp_path):
    _, ac = trained
    operations = len(ac.session.graph.get_operations())
    for _ in range(2):
        save_graph(tmp_path / "tf1_save", ac.session, ac.inputs, ac.outputs)
    assert len(ac.session.graph.get_operations()) == operations
    assert [path.name for path in tmp_path.iterdir()] == ["tf1_save"]
    with tf.Session(graph=tf.Graph()) as session:  # TensorFlow's own loader reads it, too
        tf.saved_model.loader.load(session, ["serve"], str(tmp_path / "tf1_save"))
        obs = np.ones((3, 4), np.float32)
        found = session.run(ac.outputs["mu"].name, {ac.inputs["x"].name: obs})
        assert (found == ac.act(obs, deterministic=True)).all()
