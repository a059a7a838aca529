"""Trained agents, loaded from their run folders: the network, or a function that acts."""

import os
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from spinup.parts.backend import backend_named
from spinup.parts.errors import UserError
from spinup.parts.imports import allow_import, left_out
from spinup.parts.run_folder import require_run


def load(path: Path | str, itr: int | str = "last", actor_critic: Callable | None = None) -> Any:
    """The network of a trained agent; one of PyTorch's is on the CPU and in evaluation mode.

    `ac.act(obs)` gives actions. Parts of a PyTorch network, such as `ac.pi`, are ordinary modules;
    one of TensorFlow's is a session with the tensors of its inputs and outputs.

    path: the run folder, or a saved model in it, such as pyt_save/model.pt
    itr: which saved model of a run; 'last', or the number of one that was kept
    actor_critic: the class of the network, where it is one of your own
    """
    path = Path(path)
    if path.suffix == ".pt" or os.path.isfile(path):
        if itr != "last":
            raise UserError(f"{path} is one saved model; leave itr={itr!r} out, or name the run.")
        if not os.path.isfile(path):
            raise UserError(f"There is no saved model {path}. Name one, or the folder of a run.")
        return backend_named("pytorch").load_model(path, actor_critic).eval()
    folder = require_run(path, "spinup.load")
    if is_tf_run(folder):
        return load_graph(folder, itr, actor_critic)
    return load_network(folder, itr, actor_critic)


def is_tf_run(folder: Path) -> bool:
    """Whether the agent in a run folder was made with TensorFlow."""
    return any(name.startswith("tf1_save") for name in os.listdir(folder))


def load_network(
    fpath: Path | str, itr: int | str = "last", actor_critic: Callable | None = None
) -> Any:
    """The network of a saved PyTorch agent, as `spinup.load` gives it."""
    load_model = backend_named("pytorch").load_model
    return load_model(_model_file(Path(fpath) / "pyt_save", itr), actor_critic).eval()


def load_pytorch_policy(
    fpath: Path | str,
    itr: int | str = "last",
    deterministic: bool = False,
    actor_critic: Callable | None = None,
) -> Callable:
    """A function that gives the action of a saved PyTorch agent."""
    return policy_of_network(load_network(fpath, itr, actor_critic), deterministic)


def policy_of_network(network: Any, deterministic: bool = False) -> Callable:
    """A function from one observation to a PyTorch network's action."""
    act = backend_named("pytorch").policy_of(network, deterministic)
    return lambda obs: act(np.asarray(obs)[None])[0]


def load_graph(
    fpath: Path | str, itr: int | str = "last", actor_critic: Callable | None = None
) -> Any:
    """The saved graph of a TensorFlow agent; one that could do more than compute is refused."""
    folders = [path for path in Path(fpath).glob("tf1_save*") if path.is_dir()]
    folder = _numbered(folders, Path(fpath) / "tf1_save", itr)
    return backend_named("tf1").load_model(folder, actor_critic)


def load_tf_policy(
    fpath: Path | str, itr: int | str = "last", deterministic: bool = False
) -> Callable:
    """A function that gives the action of a saved TensorFlow agent."""
    act = backend_named("tf1").policy_of(load_graph(fpath, itr), deterministic)
    return lambda obs: act(np.asarray(obs)[None])[0]


def _model_file(folder: Path, itr) -> Path:
    names = os.listdir(folder) if os.path.isdir(folder) else []
    found = [folder / name for name in names if re.fullmatch(r"model\d*\.pt", name)]
    return _numbered(found, folder / "model.pt", itr)


def _numbered(found: list[Path], last: Path, itr) -> Path:
    """The saved model of number `itr`; for 'last', the unnumbered one, else the highest number."""
    numbers = {
        int(n[0]): path for path in found if (n := re.findall(r"(\d+)(?:\.pt)?$", path.name))
    }
    if itr in ("last", "", None, -1):
        path = last if os.path.lexists(last) else numbers.get(max(numbers, default=-1))
    else:
        path = numbers.get(int(itr)) if str(itr).isdigit() else None
    if not numbers and not os.path.lexists(last):
        raise UserError(f"There is no saved model in {last.parent}. Name the folder of a run.")
    if path is None:
        kept = ", ".join(map(str, sorted(numbers))) or "none; --keep_models in training keeps them"
        raise UserError(f"There is no saved model {itr!r} in {last.parent}; numbered ones: {kept}.")
    return path


def named_class(name: str | None) -> Callable | None:
    """The class that the user names on purpose, as `module:Class`."""
    if name is None:
        return None
    module, _, attribute = name.partition(":")
    allow_import(module)
    try:
        return getattr(import_module(module), attribute)
    except Exception as error:  # also of the module itself, which runs when it is imported
        hint = left_out(error) if isinstance(error, ImportError) else ""
        raise UserError(f"--actor_critic {name}: {error}. Write it as module:Class.{hint}")
