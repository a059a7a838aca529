"""Saved networks: tensors, and a JSON string that says how to build the network they belong to.

Loading one runs no code of the file's: PyTorch reads tensors only (`weights_only`), and a class is
built only if it is one of spinup's own or the user hands it over.
"""

import inspect
import io
import json
import zipfile
from importlib import import_module
from pathlib import Path

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch import nn

import spinup
from spinup.parts.errors import UserError
from spinup.parts.jsonio import convert_json, regular_file, write_whole
from spinup.parts.pytorch.earlier import only_known
from spinup.parts.pytorch.layers import KNOWN_ACTIVATIONS, activation_by_name
from spinup.parts.pytorch.mpi import sync_params
from spinup.parts.pytorch.tensors import to_tensor
from spinup.parts.settings import as_python


def build_network(actor_critic, observation_space, action_space, ac_kwargs=None, device="cpu"):
    """Make the network of a run, and let it remember how it was made, for its saved file."""
    ac_kwargs = check_ac_kwargs(actor_critic, ac_kwargs)
    network = actor_critic(observation_space, action_space, **ac_kwargs).to(device_by_name(device))
    sync_params(network)  # every process starts from the same weights
    architecture = dict(
        network=_dotted_name(actor_critic),
        observation_space=space_to_json(observation_space),
        action_space=space_to_json(action_space),
        ac_kwargs=convert_json(ac_kwargs),
    )
    network.architecture = json.dumps(architecture)  # one string: an update looks at all it holds
    return network


def architecture_of(network) -> dict:
    """How a network that `build_network` has made was made."""
    return json.loads(network.architecture)


def check_ac_kwargs(actor_critic, ac_kwargs: dict | None) -> dict:
    """Settings of a network as it takes them: those it has, with the activation that is named."""
    ac_kwargs = dict(ac_kwargs or {})
    known = inspect.signature(actor_critic).parameters
    if not any(p.kind is p.VAR_KEYWORD for p in known.values()):
        for key in ac_kwargs:
            if key not in known:
                raise UserError(
                    f"{_dotted_name(actor_critic)} has no setting {key!r}; ac_kwargs may hold "
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


def _dotted_name(actor_critic):
    """Where a class or a function is to be found; a partial one goes by what is inside."""
    named = getattr(actor_critic, "func", actor_critic)
    return f"{named.__module__}.{getattr(named, '__qualname__', type(named).__qualname__)}"


def layer_sizes(sizes):
    """The widths of hidden layers; one number means one layer."""
    sizes = as_python(dict(sizes=sizes))["sizes"]  # of NumPy's arrays and integers
    sizes = [sizes] if isinstance(sizes, int) else sizes
    are_sizes = isinstance(sizes, (list, tuple)) and all(type(s) is int and s > 0 for s in sizes)
    if not are_sizes or not sizes:
        raise UserError(f"hidden_sizes must be integers above 0 like [64,64], not {sizes!r}.")
    return tuple(sizes)


def device_by_name(name) -> torch.device:
    """PyTorch's device of this name, if this machine has it."""
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).cpu()  # 'meta' has a device, but no numbers
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"There is no device {name!r} here ({reason}). device='cpu' always works.")
    return device


def space_to_json(space) -> dict:
    if isinstance(space, Discrete):
        return dict(kind="Discrete", n=int(space.n), start=int(space.start))
    if isinstance(space, Box):
        bounds = {k: getattr(space, k).ravel() for k in ("low", "high")}
        bounds = {k: b[:1] if len(b) and (b == b[0]).all() else b for k, b in bounds.items()}
        shape, dtype = list(space.shape), space.dtype.name
        return dict(
            kind="Box", shape=shape, dtype=dtype, **{k: b.tolist() for k, b in bounds.items()}
        )
    return dict(kind=type(space).__name__)


def space_from_json(saved):
    if saved["kind"] == "Discrete":
        return Discrete(saved["n"], start=saved["start"])
    if saved["kind"] == "Box":
        shape, dtype = tuple(saved["shape"]), np.dtype(saved["dtype"])
        low, high = (np.array(saved[k], dtype) for k in ("low", "high"))
        low, high = (np.full(shape, b[0]) if len(b) == 1 else b.reshape(shape) for b in (low, high))
        return Box(low, high, dtype=dtype)
    raise UserError(f"A saved network cannot be built for a space of kind {saved['kind']!r}.")


def save_model(path: Path, network: nn.Module):
    """Write a network as tensors and the description of its architecture."""
    own = f"{type(network).__module__}.{type(network).__qualname__}"
    architecture = getattr(network, "architecture", json.dumps(dict(network=own)))
    save_tensors(path, dict(architecture=architecture, weights=network.state_dict()))


def save_tensors(path: Path, content: dict):
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


def load_model(path: Path, actor_critic=None) -> nn.Module:
    """Build a saved network and give it its weights.

    actor_critic: the class of the network, where it is not one of spinup's own
    """
    content = load_tensors(path)
    try:
        architecture = json.loads(content["architecture"])
        weights, name = content["weights"], architecture["network"]
        network_class = actor_critic or _own_class(name)
        if network_class is None:
            raise UserError(
                f"{path} was saved by a class of your own, {name}. Pass that class: --actor_critic "
                "MODULE:CLASS, in a script load_policy_and_env(..., actor_critic=YourClass)."
            )
        spaces = [space_from_json(architecture[k]) for k in ("observation_space", "action_space")]
        ac_kwargs = architecture["ac_kwargs"]
        if actor_critic is not None and ac_kwargs.get("activation") not in KNOWN_ACTIVATIONS:
            ac_kwargs.pop("activation", None)  # the user's own, which a file cannot name
        network = build_network(network_class, *spaces, ac_kwargs)
        network.load_state_dict(only_known(weights, network.state_dict()))
    except UserError:
        raise
    except Exception as error:  # whatever a wrong description or wrong weights lead to
        raise UserError(f"{path} describes no network that can be built ({error}).")
    return network


def _own_class(name):
    """One of our own networks by its dotted name; None for any other."""
    module, _, attribute = name.rpartition(".")
    cores = [f"spinup.algos.pytorch.{name}.core" for name in spinup.ALGORITHMS["pytorch"]]
    if module not in ("spinup.parts.networks", "spinup.parts.pytorch.networks", *cores):
        return None
    module = module.replace("spinup.parts.networks", "spinup.parts.pytorch.networks")
    found = getattr(import_module(module), attribute, None)
    return found if isinstance(found, type) and issubclass(found, nn.Module) else None


def save_variables(folder: Path, variables: dict, itr=None):
    """Save what a script hands to `save_state` besides its model, if it can be read back safely.

    Environments are left out: config.json says how to make them.
    """
    kept = {}
    for key, value in (variables or {}).items():
        if isinstance(value, np.ndarray) and value.dtype != object:
            kept[key] = torch.from_numpy(value.copy())
        elif isinstance(value, (bool, int, float, str, torch.Tensor)) or value is None:
            kept[key] = value
        elif isinstance(value, (nn.Module, torch.optim.Optimizer)):
            kept[key] = value.state_dict()
        elif not hasattr(value, "step"):
            print(
                f"save_state leaves out {key!r}: a {type(value).__name__} is no tensor or number."
            )
    if kept:
        save_tensors(folder / f"vars{'' if itr is None else itr}.pt", kept)


def policy_of(network, deterministic=False):
    """A function that gives a network's action for each of a batch of observations."""
    chooses = "deterministic" in inspect.signature(network.act).parameters
    if deterministic and not chooses:
        raise UserError(f"{type(network).__name__}.act has no 'deterministic'; watch without it.")
    options = dict(deterministic=deterministic) if chooses else {}

    @torch.no_grad()
    def act(obs):
        return np.asarray(network.act(to_tensor(obs).float(), **options))

    return act
