"""The deterministic policy of a PyTorch network as ONNX, an exchange format for networks."""

import inspect
import io
import logging
import warnings
from collections.abc import Callable
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Discrete
from torch import nn

import spinup
from spinup.parts.errors import UserError
from spinup.parts.pytorch import fast
from spinup.parts.pytorch.architecture import architecture_of, space_from_json
from spinup.parts.pytorch.layers import RunningNormalizer
from spinup.parts.pytorch.models import policy_of
from spinup.parts.spaces import clip_to_space


class DeterministicPolicy(nn.Module):
    """From a batch of observations to a network's greedy actions, as its environment takes them."""

    low: torch.Tensor
    high: torch.Tensor

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.space = space = space_from_json(architecture_of(network)["action_space"])
        if not isinstance(space, Discrete):
            for name in ("low", "high"):
                bounds = torch.as_tensor(getattr(space, name).astype(np.float32))
                self.register_buffer(name, bounds, persistent=False)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        best = best_output(self.network, obs.float())
        if isinstance(self.space, Discrete):
            chosen = best.argmax(-1) if best.is_floating_point() else best
            return chosen + int(self.space.start)
        act = best.reshape(-1, *self.space.shape)
        if np.issubdtype(self.space.dtype, np.integer):
            act = act.round()  # as training does
        act = torch.minimum(torch.maximum(act, self.low), self.high)
        return act.to(getattr(torch, self.space.dtype.name))


def best_output(network: Any, obs: torch.Tensor) -> torch.Tensor:
    """The best actions at `obs`, or the score of each, computed by PyTorch's operations alone.

    network: one of ours, or any with the attributes of a documented actor_critic
    """
    pi = getattr(network, "pi", None)
    if pi is None:
        values = network.q
        # Dueling networks: the advantages alone decide.
        return values.a(values.features(obs)) if hasattr(values, "advantages") else values(obs)
    if hasattr(pi, "mode"):
        return pi.mode(obs)
    if hasattr(pi, "_distribution"):
        distribution = pi._distribution(obs)
        return distribution.logits if hasattr(distribution, "logits") else distribution.mean
    if "deterministic" in inspect.signature(pi.forward).parameters:
        return pi(obs, deterministic=True, with_logprob=False)[0]
    return pi(obs)


def random_observations(network: nn.Module, count: int, rng: np.random.Generator) -> np.ndarray:
    """Observations of about the size that the network has seen, within the bounds of its space."""
    space: Any = space_from_json(architecture_of(network)["observation_space"])
    if space.dtype == np.uint8:
        return rng.integers(space.low, space.high, (count, *space.shape), np.uint8, endpoint=True)
    obs: Any = rng.normal(scale=2.0, size=(count, *space.shape))
    seen: Any
    for seen in (m for m in network.modules() if isinstance(m, RunningNormalizer)):
        mean, var = (x.cpu().numpy().reshape(space.shape) for x in (seen.mean, seen.var))
        obs = mean + np.sqrt(var) * obs
        break  # policy and value share it
    return np.clip(obs, space.low, space.high).astype(np.float32)


def to_onnx(network: nn.Module, about: dict | None = None) -> bytes:
    """The content of an ONNX file that holds the deterministic policy of a network.

    about: strings to be kept in the file, where any tool for ONNX shows them
    """
    import onnx

    example = torch.as_tensor(random_observations(network, 2, np.random.default_rng(0)))
    try:
        # Plain layers are PyTorch's own, which the exporter knows.
        with _quiet(), torch.no_grad(), fast.plain():
            program: Any = torch.onnx.export(
                DeterministicPolicy(network).eval(),
                (example,),
                dynamo=True,
                verbose=False,
                input_names=["obs"],
                output_names=["act"],
                dynamic_shapes=({0: torch.export.Dim("batch")},),
            )
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


def _first_line(error: Exception) -> str:
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


def reference_policy(network: Any) -> Callable:
    """How the network acts by itself: its own `act`, if that can be deterministic."""
    if "deterministic" in inspect.signature(network.act).parameters:
        space = space_from_json(architecture_of(network)["action_space"])
        act = policy_of(network, deterministic=True)
        return lambda obs: clip_to_space(space, act(obs))
    policy = torch.no_grad()(DeterministicPolicy(network))
    return lambda obs: policy(torch.as_tensor(obs)).numpy()
