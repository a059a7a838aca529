"""A trained policy as one ONNX file, which acts without spinup and without PyTorch."""

import argparse
import inspect
import io
import json
import logging
import os
import warnings
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from importlib import import_module
from pathlib import Path

import gymnasium as gym
import numpy as np
import torch
from gymnasium.spaces import Dict, Discrete, flatdim
from torch import nn

import spinup
from spinup.parts.envs import within_space
from spinup.parts.plain_text import say
from spinup.parts.pytorch import fast
from spinup.parts.pytorch.layers import RunningNormalizer
from spinup.parts.pytorch.models import architecture_of, space_from_json
from spinup.parts.run_folder import read_config, require_run
from spinup.utils.errors import UserError
from spinup.utils.serialization_utils import write_whole
from spinup.utils.test_policy import load_network, make_run_env, named_class, network_action

BATCHES = (1, 7, 64)  # how many observations at once the file is tried with
TOLERANCE = 1e-4  # how far off an action may be, as a share of the largest one
EQUAL_SCORES = 0.02  # as a share, how many of n choices may differ: rounding can part equal scores
USE = """To use it:
    import numpy as np, onnxruntime
    policy = onnxruntime.InferenceSession({path!r})
    act = policy.run(["act"], {{"obs": np.asarray(obs, np.{dtype})[None]}})[0][0]"""


class DeterministicPolicy(nn.Module):
    """From a batch of observations to what a network deems best, as its environment takes it."""

    def __init__(self, network):
        super().__init__()
        self.network = network
        self.space = space = space_from_json(architecture_of(network)["action_space"])
        if not isinstance(space, Discrete):
            for name in ("low", "high"):
                bounds = torch.as_tensor(getattr(space, name).astype(np.float32))
                self.register_buffer(name, bounds, persistent=False)

    def forward(self, obs):
        best = best_output(self.network, obs.float())
        if isinstance(self.space, Discrete):
            chosen = best.argmax(-1) if best.is_floating_point() else best
            return chosen + int(self.space.start)
        act = best.reshape(-1, *self.space.shape)
        if np.issubdtype(self.space.dtype, np.integer):
            act = act.round()  # as training does
        act = torch.minimum(torch.maximum(act, self.low), self.high)
        return act.to(getattr(torch, self.space.dtype.name))


def best_output(network, obs):
    """The best actions at `obs`, or the score of each, computed by PyTorch's operations alone.

    network: one of ours, or any with the attributes of a documented actor_critic
    """
    pi = getattr(network, "pi", None)
    if pi is None:
        values = network.q
        # Where the worth of the state is counted apart, only the rest tells actions apart.
        return values.a(values.features(obs)) if hasattr(values, "advantages") else values(obs)
    if hasattr(pi, "mode"):
        return pi.mode(obs)
    if hasattr(pi, "_distribution"):
        chances = pi._distribution(obs)
        return chances.logits if hasattr(chances, "logits") else chances.mean
    if "deterministic" in inspect.signature(pi.forward).parameters:
        return pi(obs, deterministic=True, with_logprob=False)[0]
    return pi(obs)


def random_observations(network, count: int, rng: np.random.Generator) -> np.ndarray:
    """Observations of about the size that the network has seen, within the bounds of its space."""
    space = space_from_json(architecture_of(network)["observation_space"])
    if space.dtype == np.uint8:
        return rng.integers(space.low, space.high, (count, *space.shape), np.uint8, endpoint=True)
    obs = rng.normal(scale=2.0, size=(count, *space.shape))
    for seen in (m for m in network.modules() if isinstance(m, RunningNormalizer)):
        mean, var = (x.cpu().numpy().reshape(space.shape) for x in (seen.mean, seen.var))
        obs = mean + np.sqrt(var) * obs
        break  # policy and value share it
    return np.clip(obs, space.low, space.high).astype(np.float32)


def to_onnx(network, about: dict | None = None) -> bytes:
    """The content of an ONNX file that holds the deterministic policy of a network.

    about: texts to be kept in the file, where any tool for ONNX shows them
    """
    import onnx

    example = torch.as_tensor(random_observations(network, 2, np.random.default_rng(0)))
    try:
        # Plain layers are PyTorch's own, which the exporter knows.
        with _quiet(), torch.no_grad(), fast.plain():
            program = torch.onnx.export(
                DeterministicPolicy(network).eval(), (example,), dynamo=True, verbose=False,
                input_names=["obs"], output_names=["act"],
                dynamic_shapes=({0: torch.export.Dim("batch")},),
            )  # fmt: skip
    except Exception as error:  # a network of the user's own may do anything
        raise UserError(
            f"The policy of {architecture_of(network)['network']} cannot be written as ONNX "
            f"({_first_line(error)}). Its pi should be made of PyTorch's operations alone."
        )
    model = program.model_proto
    for node in model.graph.node:
        del node.metadata_props[:]  # the exporter notes which lines of which file it has read
    model.producer_name, model.producer_version = "spinup", spinup.__version__
    onnx.helper.set_model_props(model, about or {})
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString()


def _first_line(error) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


@contextmanager
def _quiet():
    """Keep from the user what the exporter has to say to those who build it."""
    before, nowhere = logging.root.manager.disable, io.StringIO()
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stdout(nowhere), redirect_stderr(nowhere):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def largest_difference(network, content: bytes) -> float:
    """How far apart the file and the network act on random observations, singly and in batches.

    Of numbers out of n it is the share that differs. More than rounding can explain raises.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors only
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    space, act = space_from_json(architecture_of(network)["action_space"]), _reference(network)
    rng, pairs = np.random.default_rng(0), []
    for count in BATCHES:
        obs = random_observations(network, count, rng)
        (found,), expected = session.run(["act"], {"obs": obs}), act(obs)
        if found.shape != expected.shape:
            raise UserError(f"The exported policy gives {found.shape}, not {expected.shape}.")
        pairs.append((found, expected))
    found, expected = (np.concatenate(actions) for actions in zip(*pairs))
    if isinstance(space, Discrete):
        apart, allowed = np.mean(found != expected), EQUAL_SCORES
    else:
        apart, allowed = np.abs(found - expected).max(), TOLERANCE * max(1, np.abs(expected).max())
    if not apart <= allowed:
        raise UserError(
            f"The exported policy acts otherwise than the network (by {apart:.2g}), so it was not "
            "written. A network of your own may have an act that is not the best of its pi."
        )
    return float(apart)


def _reference(network):
    """How the network acts by itself: its own `act`, if that can be deterministic."""
    if "deterministic" in inspect.signature(network.act).parameters:
        space, act = (
            space_from_json(architecture_of(network)["action_space"]),
            network_action(network, deterministic=True),
        )
        return lambda obs: within_space(space, act(obs))
    policy = torch.no_grad()(DeterministicPolicy(network))
    return lambda obs: policy(torch.as_tensor(obs)).numpy()


def describe(folder: Path, network) -> dict[str, str]:
    """What an exported file says about itself."""
    config = read_config(folder) if os.path.lexists(folder / "config.json") else {}
    environment = config.get("environment") or {}
    obs = space_from_json(architecture_of(network)["observation_space"])
    act = space_from_json(architecture_of(network)["action_space"])
    about = dict(
        env_id=environment.get("id") or environment.get("made_by"),
        env_kwargs=json.dumps(environment.get("kwargs") or {}),
        algorithm=config.get("algorithm"),
        network=architecture_of(network)["network"],
        spinup_version=spinup.__version__,
        obs=f"a batch of {obs}, as the environment gives them",
        act=f"a batch of {act}: the best actions, as the environment takes them",
    )
    wrappers = [str(wrapper.get("name")) for wrapper in environment.get("wrappers") or []]
    if any("FlattenObservation" in name for name in wrappers):
        about |= _layout(folder)
    return {key: str(text) for key, text in about.items() if text is not None}


def _layout(folder) -> dict:
    """Where each part of an observation that was no array lies in `obs`."""
    about = dict(obs="a batch of observations made one vector by gymnasium.spaces.flatten")
    try:
        env = make_run_env(folder)
    except UserError:  # its package may not be here; the policy does not need it
        return about
    while not isinstance(env, gym.wrappers.FlattenObservation):
        env = env.env
    space = env.env.observation_space
    env.close()
    about["obs_space"] = str(space)
    if isinstance(space, Dict):
        ends = np.cumsum([flatdim(part) for part in space.values()]).tolist()
        about["obs_layout"] = json.dumps(dict(zip(space, zip([0, *ends], ends))))
    return about


def export(folder, output, itr="last", actor_critic=None) -> tuple[float, str]:
    """Write the deterministic policy of a run to an ONNX file, once it has been seen to act alike.

    Gives the largest difference that was seen, and the kind of number its observations are made of.

    itr: which saved model; 'last', or the number of one that was kept
    actor_critic: the class of the networks, where it is one of your own
    """
    folder, output = Path(folder), Path(output)
    if output.suffix != ".onnx":
        raise UserError(f"-o wants a file that ends in .onnx, not {output}.")
    require_run(folder, "spinup export")
    if not os.path.isdir(output.parent):
        raise UserError(f"There is no folder {output.parent} to write to.")
    if list(folder.glob("tf1_save*")):
        raise UserError(
            f"{folder} was trained with TensorFlow; only PyTorch's agents are exported."
        )
    for name in ("onnx", "onnxscript", "onnxruntime"):
        try:
            import_module(name)
        except ImportError:
            how = "pip install 'spinup[onnx]'"
            raise UserError(f"Exporting needs {name}, which is not installed: {how}")
    network = load_network(folder, itr, actor_critic)
    content = to_onnx(network, describe(folder, network) | dict(itr=str(itr)))
    difference = largest_difference(network, content)
    try:
        write_whole(output, content)
    except OSError as error:
        raise UserError(f"Cannot write to {output} ({error.strerror}).")
    return difference, random_observations(network, 1, np.random.default_rng(0)).dtype.name


def main(argv=None):
    """The command `spinup export`."""
    parser = argparse.ArgumentParser(
        "spinup export", description="Write a trained policy as an ONNX file."
    )
    parser.add_argument("run", help="the run's folder")
    parser.add_argument(
        "--output", "-o", metavar="FILE.onnx", help="policy.onnx in the run's folder"
    )
    parser.add_argument("--itr", "-i", type=int, default=-1, help="number of a saved model")
    parser.add_argument("--actor_critic", metavar="MODULE:CLASS", help="networks of your own")
    args = parser.parse_args(argv)
    output = Path(args.output or Path(args.run) / "policy.onnx")
    itr = args.itr if args.itr >= 0 else "last"
    difference, dtype = export(args.run, output, itr, named_class(args.actor_critic))
    size = output.stat().st_size / 1000
    say(
        f"Wrote {output}, {size:.0f} kB. On {sum(BATCHES)} random observations its largest "
        f"difference from the network is {difference:.1g}."
    )
    say(USE.format(path=str(output), dtype=dtype))
