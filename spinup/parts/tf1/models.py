"""Saved graphs: TensorFlow's SavedModel, and beside it the names of inputs and outputs as JSON.

A graph is a program: among its operations may be some that run Python or write files. So a saved
graph is not handed to TensorFlow's own loader. Of the file only those operations are taken on
which the outputs depend, and only if each of them is known to compute, and nothing else.
"""

import inspect
import io
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from spinup.parts.errors import UserError
from spinup.parts.image_layout import is_image
from spinup.parts.jsonio import read_json, regular_file, write_json, write_whole
from spinup.parts.settings import layer_sizes
from spinup.parts.tf1.framework import tf
from spinup.parts.tf1.layers import activation_by_name
from spinup.parts.tf1.networks import Networks

INFO = "model_info.json"
# Operations that compute numbers from numbers. None of them runs a program, reads or writes a
# file, prints, or reaches another machine.
_ALLOWED = """
    Const Placeholder PlaceholderWithDefault Identity IdentityN NoOp StopGradient PreventGradient
    Assert CheckNumerics EnsureShape Shape ShapeN Size Rank Cast Bitcast

    VarHandleOp ReadVariableOp AssignVariableOp AssignAddVariableOp AssignSubVariableOp
    VarIsInitializedOp Variable VariableV2 Assign AssignAdd AssignSub IsVariableInitialized

    Add AddV2 AddN Sub Mul MulNoNan Div DivNoNan RealDiv FloorDiv FloorMod Mod TruncateDiv
    TruncateMod Neg Abs Sign Square SquaredDifference Sqrt Rsqrt Reciprocal Inv Pow Exp Expm1 Log
    Log1p Sin Cos Tan Asin Acos Atan Atan2 Sinh Cosh Tanh Asinh Acosh Atanh Erf Erfc Erfinv Lgamma
    Digamma Floor Ceil Round Rint Minimum Maximum ClipByValue IsNan IsInf IsFinite

    Relu Relu6 Elu Selu LeakyRelu Sigmoid Softplus Softsign Softmax LogSoftmax L2Loss
    MatMul BatchMatMul BatchMatMulV2 BatchMatMulV3 Einsum BiasAdd BiasAddV1 Conv2D MaxPool AvgPool
    FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3

    Sum Mean Prod Min Max All Any ArgMax ArgMin Cumsum Cumprod Bincount
    Less LessEqual Greater GreaterEqual Equal NotEqual LogicalAnd LogicalOr LogicalNot
    Select SelectV2 Where TopK TopKV2 InTopK InTopKV2 OneHot

    Reshape Squeeze ExpandDims Pack Unpack Stack Concat ConcatV2 Split SplitV Slice StridedSlice
    Tile Transpose Gather GatherV2 GatherNd Pad PadV2 Reverse ReverseV2 Fill ZerosLike OnesLike
    Range LinSpace BroadcastTo BroadcastArgs Diag DiagPart MatrixDiag MatrixDiagPart

    RandomUniform RandomUniformInt RandomStandardNormal TruncatedNormal Multinomial
    StatelessMultinomial StatelessRandomUniform StatelessRandomUniformV2 StatelessRandomNormal
    StatelessRandomNormalV2 StatelessTruncatedNormal StatelessTruncatedNormalV2
    StatelessRandomGetKeyCounter StatelessRandomGetAlg StatelessRandomGetKeyCounterAlg

    Switch RefSwitch Merge RefMerge Enter RefEnter Exit RefExit NextIteration RefNextIteration
    LoopCond If StatelessIf While StatelessWhile PartitionedCall StatefulPartitionedCall
"""
ALLOWED = frozenset(_ALLOWED.split())


# --- Save ---


def save_model(folder: Path, network: Networks) -> None:
    """Write what a training gives back."""
    save_graph(folder, network.session, network.inputs, network.outputs)


def save_graph(folder: Path, session: Any, inputs: dict, outputs: dict) -> None:
    """Write that part of a session's graph which makes outputs of inputs, with its variables.

    A folder that was there before is replaced only when the new one is whole.
    """
    folder = Path(folder)
    new, old = (folder.with_name(f"{folder.name}.{word}") for word in ("new", "old"))
    for path in (new, old):
        shutil.rmtree(path, ignore_errors=True)
    _write_graph(new, session, inputs, outputs)
    kinds = dict(inputs=inputs, outputs=outputs)
    names = {kind: {key: t.name for key, t in tensors.items()} for kind, tensors in kinds.items()}
    write_json(new / INFO, names)
    if os.path.lexists(folder):
        os.replace(folder, old)
    os.replace(new, folder)
    shutil.rmtree(old, ignore_errors=True)


def _write_graph(folder, session, inputs, outputs):
    """Copy what is to be saved into a graph of its own, so that the one in training stays small."""
    graph_def = session.graph.as_graph_def()
    for node in graph_def.node:
        node.device = ""  # so that it loads where there is no such device
    ends = [tensor.op.name for tensor in (*inputs.values(), *outputs.values())]
    needed = {node.name for node in _part_of_graph(graph_def, ends).node}
    with session.graph.as_default():
        variables = [v for v in tf.global_variables() if v.op.name in needed]
        descriptions = [variable.to_proto() for variable in variables]
    for about in descriptions:  # with what would make and read them in another program
        names = (about.initializer_name, about.initial_value_name, about.snapshot_name)
        ends += [name.removeprefix("^").partition(":")[0] for name in names if name]
    values = session.run(variables)
    with tf.Graph().as_default(), tf.Session() as copy:
        tf.import_graph_def(_part_of_graph(graph_def, ends), name="")
        for variable, about, value in zip(variables, descriptions, values):
            twin = type(variable).from_proto(about)
            tf.add_to_collection(tf.GraphKeys.GLOBAL_VARIABLES, twin)
            feed = tf.placeholder(twin.dtype.base_dtype, twin.shape)
            copy.run(tf.assign(twin, feed).op, {feed: value})
        tensors = [
            {key: copy.graph.get_tensor_by_name(t.name) for key, t in named.items()}
            for named in (inputs, outputs)
        ]
        tf.saved_model.simple_save(copy, str(folder), *tensors)


def _part_of_graph(graph_def, ends):
    """The operations of a graph on which those called `ends` depend, with the functions in them."""
    part = tf.graph_util.extract_sub_graph(graph_def, ends)
    functions = {function.signature.name: function for function in part.library.function}
    used, todo = {}, list(part.node)
    while todo:
        node = todo.pop()
        named = {node.op}
        for value in node.attr.values():
            named |= {value.func.name, *(function.name for function in value.list.func)}
        for name in named & functions.keys() - used.keys():
            used[name] = functions[name]
            todo += functions[name].node_def
    del part.library.function[:], part.library.gradient[:]
    part.library.function.extend(
        function for function in functions.values() if function.signature.name in used
    )
    return part


def save_variables(folder: Path, variables: dict | None, itr: int | None = None) -> list[str]:
    """Save what a script hands to `save_state` besides its graph, as arrays in one file of NumPy's.

    Gives the names of what is left out, such as an environment, with their types.
    """
    kept, left_out = {}, []
    for key, value in (variables or {}).items():
        if isinstance(value, (bool, int, float, str, np.generic, np.ndarray)):
            array = np.asarray(value)
            if array.dtype != object:
                kept[key] = array
                continue
        left_out.append(f"{key!r} ({type(value).__name__})")
    if kept:
        buffer = io.BytesIO()
        np.savez(buffer, **kept)  # type: ignore[arg-type]
        write_whole(Path(folder) / f"vars{'' if itr is None else itr}.npz", buffer.getvalue())
    return left_out


# --- Load ---


def load_model(path: Path, actor_critic: Callable | None = None) -> Networks:
    """A saved agent in a session of its own."""
    if actor_critic is not None:
        raise UserError(f"{path} holds its whole graph; leave actor_critic away.")
    session = tf.Session(graph=tf.Graph())
    with session.graph.as_default():
        inputs, outputs = _restore(session, Path(path))
    if "x" not in inputs or "pi" not in outputs:
        raise UserError(f"{path} has no input called 'x' and output called 'pi', as an agent has.")
    return Networks(session, inputs, outputs)


def restore_tf_graph(sess: Any, fpath: Path | str) -> dict:
    """Load what `setup_tf_saver` and `save_state` wrote; gives its inputs and outputs by name."""
    with sess.graph.as_default():
        inputs, outputs = _restore(sess, Path(fpath))
    return {**inputs, **outputs}


def _restore(session, folder) -> tuple[dict, dict]:
    graph_def, inputs, outputs = _read_graph(folder)
    names = list(dict.fromkeys([*inputs.values(), *outputs.values()]))
    try:
        handles = [n for n in graph_def.node if n.op in ("VarHandleOp", "VariableV2", "Variable")]
        found = tf.import_graph_def(
            graph_def, name="", return_elements=[*names, *(f"{node.name}:0" for node in handles)]
        )
        tensors = dict(zip(names, found))
        _restore_variables(session, folder, handles, found[len(names) :])
    except UserError:
        raise
    except Exception as error:  # whatever a damaged graph or damaged values lead to
        raise UserError(f"{folder} holds no graph that can be loaded ({_first_line(error)}).")
    made = [{key: tensors[name] for key, name in named.items()} for named in (inputs, outputs)]
    return made[0], made[1]


def _restore_variables(session, folder, nodes, handles):
    """Give the variables of an imported graph the values that are saved for them."""
    if not nodes:
        return
    saved = tf.train.load_checkpoint(str(folder / "variables" / "variables"))
    known, feed, assigned = saved.get_variable_to_dtype_map(), {}, []
    for node, handle in zip(nodes, handles):
        name = node.attr["shared_name"].s.decode() or node.name
        name = name if name in known else node.name
        value = tf.placeholder(tf.as_dtype(node.attr["dtype"].type))
        feed[value] = saved.get_tensor(name)
        is_handle = node.op == "VarHandleOp"
        assign = tf.raw_ops.AssignVariableOp if is_handle else tf.raw_ops.Assign
        where = dict(resource=handle) if is_handle else dict(ref=handle)
        assigned.append(assign(**where, value=value))
    session.run([getattr(op, "op", op) for op in assigned], feed)


def _read_graph(folder) -> tuple[Any, dict[str, str], dict[str, str]]:
    """The part of a saved graph that its outputs need, and the names of inputs and outputs."""
    from tensorflow.core.protobuf import saved_model_pb2  # has no place in tf itself

    path = folder / "saved_model.pb"
    saved = saved_model_pb2.SavedModel()
    try:
        saved.ParseFromString(regular_file(path).read_bytes())
        meta = saved.meta_graphs[0]
        inputs, outputs = _names(folder, meta)
        ends = [name.partition(":")[0] for name in (*inputs.values(), *outputs.values())]
        graph_def = _part_of_graph(meta.graph_def, ends)
    except UserError:
        raise
    except Exception as error:  # of the protocol buffer, or a name that is not in the graph
        raise UserError(f"{path} is no graph saved by TensorFlow ({_first_line(error)}).")
    refuse_programs(graph_def, path)
    return graph_def, inputs, outputs


def _names(folder, meta) -> tuple[dict[str, str], dict[str, str]]:
    """The names of inputs and outputs: of the JSON file; else as the SavedModel itself has them."""
    if os.path.lexists(folder / INFO):
        info = read_json(folder / INFO)
        found = [info.get(kind) or {} for kind in ("inputs", "outputs")]
        for named in found:
            if not isinstance(named, dict) or not all(isinstance(n, str) for n in named.values()):
                raise UserError(f"{folder / INFO} does not name the inputs and outputs of a graph.")
        return found[0], found[1]
    signature = meta.signature_def["serving_default"]
    kinds = (signature.inputs, signature.outputs)
    inputs, outputs = ({key: info.name for key, info in named.items()} for named in kinds)
    return inputs, outputs


def refuse_programs(graph_def: Any, path: Path | str) -> None:
    """Refuse a graph with an operation that may do something else than compute.

    Bodies of functions are looked at, too: a branch or a loop runs them.
    """
    functions = graph_def.library.function
    own = {function.signature.name for function in functions}
    nodes = [*graph_def.node, *(node for function in functions for node in function.node_def)]
    if found := sorted({node.op for node in nodes} - ALLOWED - own):
        raise UserError(
            f"{path} is refused, and nothing of it was run: besides arithmetic, its graph has "
            f"operations that could do anything, such as {', '.join(found[:3])}."
        )


def _first_line(error) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


# --- Settings of networks ---


def check_ac_kwargs(actor_critic: Callable, ac_kwargs: dict | None) -> dict:
    """Settings of a network as it takes them: those it has, with the activation that is named."""
    ac_kwargs = dict(ac_kwargs or {})
    known = inspect.signature(actor_critic).parameters
    if not any(p.kind is p.VAR_KEYWORD for p in known.values()):
        for key in ac_kwargs:
            if key not in known:
                other = " normalize is a setting of the PyTorch version of the algorithm, "
                other = f"{other}ALGO_pytorch." if key == "normalize" else ""
                names = [name for name in list(known)[2:] if name != "action_space"]
                raise UserError(
                    f"The networks of TensorFlow have no setting {key!r}; ac_kwargs may hold "
                    f"{', '.join(names)}.{other}"
                )
    for key in ("activation", "output_activation"):
        if key in ac_kwargs:
            ac_kwargs[key] = activation_by_name(ac_kwargs[key])
    if "hidden_sizes" in ac_kwargs:
        ac_kwargs["hidden_sizes"] = layer_sizes(ac_kwargs["hidden_sizes"])
    return ac_kwargs


def network_kwargs(actor_critic: Callable, env: Any, ac_kwargs: dict | None) -> dict:
    """What `actor_critic` is called with besides placeholders: its settings, the action space."""
    module = getattr(getattr(actor_critic, "func", actor_critic), "__module__", "")
    if module.startswith("spinup.") and is_image(env.observation_space):
        raise UserError(
            "The networks of TensorFlow have no encoder for images, but observations are images "
            f"of shape {env.observation_space.shape}. Use the PyTorch version of the algorithm, "
            "ALGO_pytorch, or pass an actor_critic of your own."
        )
    ac_kwargs = check_ac_kwargs(actor_critic, ac_kwargs)
    known = inspect.signature(actor_critic).parameters
    if "action_space" in known or any(p.kind is p.VAR_KEYWORD for p in known.values()):
        ac_kwargs.setdefault("action_space", env.action_space)
    return ac_kwargs
