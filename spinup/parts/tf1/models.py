"""Saved TensorFlow graphs."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from spinup.parts.errors import UserError
from spinup.parts.jsonio import read_json, write_json


def save_graph(folder: Path, session: Any, inputs: dict, outputs: dict) -> None:
    """Write the graph of a session, and beside it the names of its inputs and outputs."""
    import tensorflow as tf

    shutil.rmtree(folder, ignore_errors=True)  # TensorFlow does not write over a saved graph
    tf.compat.v1.saved_model.simple_save(session, str(folder), inputs, outputs)
    kinds = dict(inputs=inputs, outputs=outputs)
    names = {kind: {key: t.name for key, t in tensors.items()} for kind, tensors in kinds.items()}
    write_json(folder / "model_info.json", names)


def restore_tf_graph(sess: Any, fpath: Path | str) -> dict:
    """Load what `setup_tf_saver` and `save_state` wrote; gives its inputs and outputs by name."""
    import tensorflow as tf

    names = read_json(Path(fpath) / "model_info.json")
    tf.compat.v1.saved_model.loader.load(sess, [tf.saved_model.SERVING], str(fpath))
    graph = tf.compat.v1.get_default_graph()
    tensors = {**names["inputs"], **names["outputs"]}
    return {key: graph.get_tensor_by_name(name) for key, name in tensors.items()}


def policy_of(folder: Path, deterministic: bool = False) -> Callable:
    """A function that gives a saved agent's action for each of a batch of observations."""
    try:
        import tensorflow as tf
    except ImportError:
        raise UserError("This agent was made with TensorFlow: pip install 'spinup[tf]'")
    session = tf.compat.v1.Session(graph=tf.Graph())
    with session.graph.as_default():
        model = restore_tf_graph(session, folder)
    action = model["mu"] if deterministic and "mu" in model else model["pi"]
    return lambda obs: session.run(action, feed_dict={model["x"]: np.asarray(obs)})
