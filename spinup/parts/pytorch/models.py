"""Saved networks: tensors, and a JSON string that says how to build the network they belong to.

Loading one runs no code of the file's: PyTorch reads tensors only (`weights_only`), and a class is
built only if it is one of spinup's own or the user hands it over.
"""

import inspect
import io
import json
import zipfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Space
from torch import nn

import spinup
from spinup.parts.errors import UserError
from spinup.parts.jsonio import regular_file, write_whole
from spinup.parts.pytorch.architecture import (
    SPACES,
    architecture_of,
    dotted_name,
    record_architecture,
    space_from_json,
)
from spinup.parts.pytorch.earlier import only_known
from spinup.parts.pytorch.layers import KNOWN_ACTIVATIONS, activation_by_name
from spinup.parts.pytorch.mpi import sync_params
from spinup.parts.pytorch.tensors import to_tensor
from spinup.parts.settings import layer_sizes

HOW_TO_LOAD = (
    "spinup.load('RUN') gives the network, with ac.act and ac.pi; torch.load only gives this dict "
    "of its tensors and how it was built"
)


def build_network(
    actor_critic: Callable,
    observation_space: Space,
    action_space: Space,
    ac_kwargs: dict | None = None,
    device: str | torch.device = "cpu",
) -> nn.Module:
    """Make the network of a run, which notes how it was built, for its saved file."""
    ac_kwargs = check_ac_kwargs(actor_critic, ac_kwargs)
    network = actor_critic(observation_space, action_space, **ac_kwargs).to(device_by_name(device))
    sync_params(network)  # every process starts from the same weights
    # A class of ours has noted all its arguments, also those that a partial one had before.
    noted = set(SPACES) <= architecture_of(network).keys()
    if not noted or type(network) is not getattr(actor_critic, "func", actor_critic):
        record_architecture(network, actor_critic, observation_space, action_space, ac_kwargs)
    return network


def check_ac_kwargs(actor_critic: Callable, ac_kwargs: dict | None) -> dict:
    """Settings of a network as it takes them: those it has, with the activation that is named."""
    ac_kwargs = dict(ac_kwargs or {})
    known = inspect.signature(actor_critic).parameters
    if not any(p.kind is p.VAR_KEYWORD for p in known.values()):
        for key in ac_kwargs:
            if key not in known:
                raise UserError(
                    f"{dotted_name(actor_critic)} has no setting {key!r}; ac_kwargs may hold "
                    f"{', '.join(list(known)[2:])}."
                )
            if isinstance(known[key].default, bool) and not isinstance(ac_kwargs[key], bool):
                raise UserError(
                    f"{key} in ac_kwargs must be True or False, not {ac_kwargs[key]!r}."
                )
    if "activation" in ac_kwargs:
        ac_kwargs["activation"] = activation_by_name(ac_kwargs["activation"])
    if "hidden_sizes" in ac_kwargs:
        ac_kwargs["hidden_sizes"] = layer_sizes(ac_kwargs["hidden_sizes"])
    return ac_kwargs


def device_by_name(name: str | torch.device) -> torch.device:
    """PyTorch's device of this name, if this machine has it."""
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).cpu()  # 'meta' has a device, but no numbers
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"There is no device {name!r} here ({reason}). device='cpu' always works.")
    return device


def save_model(path: Path, network: nn.Module) -> None:
    """Write a network as tensors and the description of its architecture."""
    architecture = json.dumps(architecture_of(network))
    content = dict(how_to_load=HOW_TO_LOAD, architecture=architecture, weights=network.state_dict())
    save_tensors(path, content)


def save_tensors(path: Path, content: dict) -> None:
    buffer = io.BytesIO()
    torch.save(content, buffer)
    write_whole(Path(path), buffer.getvalue())


def load_tensors(path: Path) -> dict:
    """Read tensors and plain values; a file that holds anything else is refused unread."""
    try:
        with zipfile.ZipFile(regular_file(path)) as parts:  # torch.load ignores their checksums
            if parts.testzip() is not None:
                raise zipfile.BadZipFile
        content = torch.load(path, map_location="cpu", weights_only=True)
    except UserError:
        raise
    except Exception:  # whatever damage leads to in a ZIP file, in a pickle or in PyTorch
        raise UserError(
            f"{path} is not a model saved by spinup {spinup.__version__}, or is damaged. Nothing "
            "in it was run. (Models of the original library are pickles, which could run code.)"
        )
    if not isinstance(content, dict):
        raise UserError(f"{path} holds no model.")
    return content


def load_model(path: Path, actor_critic: Callable | None = None) -> nn.Module:
    """Build a saved network and give it its weights.

    actor_critic: the class of the network, where it is not one of spinup's own
    """
    content = load_tensors(path)
    try:
        architecture = json.loads(content["architecture"])
        weights = content["weights"]
        network_class = _network_class(path, architecture, actor_critic)
        spaces = [space_from_json(architecture[name]) for name in SPACES]
        ac_kwargs = architecture["ac_kwargs"]
        if actor_critic is not None and ac_kwargs.get("activation") not in KNOWN_ACTIVATIONS:
            ac_kwargs.pop("activation", None)  # the user's own, which a file cannot name
        network = build_network(network_class, spaces[0], spaces[1], ac_kwargs)
        network.load_state_dict(only_known(weights, network.state_dict()))
    except UserError:
        raise
    except Exception as error:  # whatever a wrong description or wrong weights lead to
        raise UserError(f"{path} describes no network that can be built ({error}).")
    return network


def _network_class(path: Path, architecture: dict, actor_critic: Callable | None) -> Callable:
    """The class to build a saved network with: one of ours, or the user's, if it can be built."""
    name = architecture["network"]
    network_class = actor_critic or _own_class(name)
    if network_class is None:
        raise UserError(
            f"{path} was saved by a class of your own, {name}. Pass that class: --actor_critic "
            "MODULE:CLASS, in a script spinup.load(..., actor_critic=YourClass)."
        )
    if "ac_kwargs" not in architecture:  # its constructor is the user's, and notes nothing
        raise UserError(
            f"{path} does not say how its network, {name}, was built. Build it yourself, and give "
            f"it the weights: network.load_state_dict(torch.load({str(path)!r})['weights'])."
        )
    return network_class


def _own_class(name: str) -> type[nn.Module] | None:
    """One of our own networks by its dotted name; None for any other."""
    module, _, attribute = name.rpartition(".")
    cores = [f"spinup.algos.pytorch.{name}.core" for name in spinup.ALGORITHMS["pytorch"]]
    if module not in ("spinup.parts.networks", "spinup.parts.pytorch.networks", *cores):
        return None
    module = module.replace("spinup.parts.networks", "spinup.parts.pytorch.networks")
    found = getattr(import_module(module), attribute, None)
    return found if isinstance(found, type) and issubclass(found, nn.Module) else None


def save_variables(folder: Path, variables: dict | None, itr: int | None = None) -> list[str]:
    """Save what a script hands to `save_state` besides its model, if it can be read back safely.

    Gives the names of what is left out, such as an environment, with their types.
    """
    kept: dict[str, Any] = {}
    left_out: list[str] = []
    for key, value in (variables or {}).items():
        if isinstance(value, np.ndarray) and value.dtype != object:
            kept[key] = torch.from_numpy(value.copy())
        elif isinstance(value, (bool, int, float, str, torch.Tensor)) or value is None:
            kept[key] = value
        elif isinstance(value, (nn.Module, torch.optim.Optimizer)):
            kept[key] = value.state_dict()
        else:
            left_out.append(f"{key!r} ({type(value).__name__})")
    if kept:
        save_tensors(folder / f"vars{'' if itr is None else itr}.pt", kept)
    return left_out


def policy_of(network: Any, deterministic: bool = False) -> Callable:
    """A function that gives a network's action for each of a batch of observations."""
    chooses = "deterministic" in inspect.signature(network.act).parameters
    if deterministic and not chooses:
        raise UserError(f"{type(network).__name__}.act has no 'deterministic'; watch without it.")
    options = dict(deterministic=deterministic) if chooses else {}

    @torch.no_grad()
    def act(obs):
        return np.asarray(network.act(to_tensor(obs).float(), **options))

    return act
