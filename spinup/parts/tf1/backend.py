"""TensorFlow as a `Backend` (see parts/backend.py): so far only what saved agents need."""

from spinup.parts.tf1.models import policy_of, restore_tf_graph, save_graph

__all__ = ["PACKAGE", "policy_of", "restore_tf_graph", "save_graph"]
PACKAGE = "tensorflow"
