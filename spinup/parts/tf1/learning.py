"""What TensorFlow's algorithms share: a graph and its session, calls of it, minibatches."""

import contextlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from spinup.parts.buffers import Rollout
from spinup.parts.errors import UserError
from spinup.parts.mpi import proc_id
from spinup.parts.plain_text import say
from spinup.parts.tf1.framework import tf
from spinup.parts.tf1.mpi import sync_all_params, threads

# Random operations whose place in their stream no checkpoint can read.
NOT_SAVED = {"Multinomial", "RandomStandardNormal", "RandomUniform", "RandomUniformInt"}
NOT_SAVED |= {"TruncatedNormal", "RandomShuffle", "RandomGamma", "RandomPoissonV2"}


@contextlib.contextmanager
def new_graph(device: str = "cpu") -> Iterator[Any]:
    """A graph of its own for one training, with the seed that `backend.seed` has set.

    What is built within goes there, also where a script is inside a graph of its own; so a second
    training meets no variables of the first.
    """
    graph, where = tf.Graph(), device_by_name(device)
    seed = tf.get_default_graph().seed
    with graph.as_default(), tf.device(where):
        tf.set_random_seed(seed)
        yield graph


def device_by_name(name: str) -> str:
    """TensorFlow's name of a device, if this machine has it."""
    kind, _, number = str(name).lower().removeprefix("/").partition(":")
    kind = {"cuda": "GPU"}.get(kind, kind.upper())
    known = [device.name.rpartition("device:")[2] for device in tf.config.list_physical_devices()]
    found = [device.removeprefix("/physical_") for device in known]
    if (wanted := f"{kind}:{number or 0}") not in found:
        raise UserError(
            f"There is no device {name!r} for TensorFlow here. device='cpu' always works."
        )
    return f"/{wanted}"


def start_session() -> Any:
    """The session of the graph: every variable starts there, the same in all processes.

    It has the threads of this process; TensorFlow keeps those of the first session.
    """
    graph, count = tf.get_default_graph(), threads()
    config = tf.ConfigProto(intra_op_parallelism_threads=count, inter_op_parallelism_threads=count)
    if not any("GPU" in operation.device for operation in graph.get_operations()):
        config.device_count["GPU"] = 0
    config.allow_soft_placement = True  # placeholders of integers have no place on a GPU
    session = tf.Session(config=config)
    session.run(tf.global_variables_initializer())
    session.run(sync_all_params())
    return session


def make_call(session: Any, feeds: Sequence, fetches: Any) -> Callable:
    """A function of arrays, one for each placeholder in `feeds`, that gives `fetches`.

    It is one `session.run`, prepared once. `fetches` may be tensors in tuples and dicts.
    """
    run = session.make_callable(fetches, list(feeds))
    kinds = [feed.dtype.as_numpy_dtype for feed in feeds]

    def call(*arrays: Any) -> Any:
        return run(*[np.asarray(x, kind) for x, kind in zip(arrays, kinds, strict=True)])

    return call


def step_if(condition: Any, optimizer: Any, grads_and_vars: list) -> Any:
    """An operation that takes a step of the optimizer where `condition` holds; tells whether."""

    def step():
        with tf.control_dependencies([optimizer.apply_gradients(grads_and_vars)]):
            return tf.constant(True)

    return tf.cond(condition, step, lambda: tf.constant(False))


class Variables:
    """All variables of a session, for checkpoints: weights, optimizer slots, random streams."""

    def __init__(self, session: Any):
        self.session = session
        with session.graph.as_default():
            self.variables = {variable.op.name: variable for variable in tf.global_variables()}
            # An operation added later would have TensorFlow prepare the whole graph again.
            self.feeds = {
                name: tf.placeholder(variable.dtype.base_dtype, variable.shape)
                for name, variable in self.variables.items()
            }
            assigned = [tf.assign(v, self.feeds[name]) for name, v in self.variables.items()]
            self.assign_all = tf.group(assigned)

    def state_dict(self) -> dict[str, np.ndarray]:
        found = self.session.run(self.variables)
        return {name: np.asarray(value) for name, value in found.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over saved values; all of them must be there."""
        if missing := sorted(self.variables.keys() - state.keys()):
            raise UserError(f"There is no value for the variable {missing[0]}.")
        feed = {self.feeds[name]: state[name] for name in self.variables}
        self.session.run(self.assign_all, feed)
        operations = self.session.graph.get_operations()
        unsaved = {op.type for op in operations if "/Initializer/" not in op.name} & NOT_SAVED
        if unsaved and proc_id() == 0:
            say(
                f"The networks sample with {sorted(unsaved)[0]} of TensorFlow, which starts its "
                "random numbers again: from here on the run differs from one never stopped. With "
                "standard_normal and uniform of spinup.parts.tf1.layers it would not."
            )

    def named_arrays(self) -> list[tuple[str, np.ndarray]]:
        """The value of each floating-point variable, to see whether it is finite."""
        floats = {name: v for name, v in self.variables.items() if v.dtype.is_floating}
        return list(self.session.run(floats).items())


def minibatches(
    rollout: Rollout, times: int, size: int | None = None
) -> Iterator[tuple[int, Rollout]]:
    """Go through a rollout so many times: whole, or in parts in a new random order each time.

    Yields the number of the pass and a batch.
    """
    rows = len(rollout.ret)
    for i in range(times):
        if size is None:
            yield i, rollout
            continue
        order = np.random.permutation(rows)
        for start in range(0, rows, size):
            indices = order[start : start + size]
            yield i, Rollout(*(column[indices] for column in rollout))


def fit_value(learner: Any, rollout: Rollout, times: int, size: int | None = None) -> dict:
    """A step of the value function on each minibatch; gives the loss and its change."""
    losses = [learner.train_v(*batch)[0] for _, batch in minibatches(rollout, times, size)]
    if not losses:  # no steps: the loss as it is
        losses = [learner.loss_v(*rollout)]
    return dict(LossV=losses[0], DeltaLossV=losses[-1] - losses[0])


class RecentMean:
    """The mean of the last `length` numbers, of which the next may be limited beforehand."""

    def __init__(self, length: int):
        self.length = length
        self.numbers: deque[float] = deque(maxlen=length)

    def largest_next(self, mean: float) -> float:
        """The largest next number with which the mean is not above `mean`."""
        others = list(self.numbers)[1 - self.length :] if self.length > 1 else []
        return mean * (len(others) + 1) - sum(others)

    def add(self, number: float) -> None:
        self.numbers.append(float(number))
