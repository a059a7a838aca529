"""A trained policy as one ONNX file, which acts without spinup and without PyTorch."""

import json
import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Dict, Discrete, flatdim

import spinup
from spinup.parts.errors import UserError
from spinup.parts.jsonio import write_whole
from spinup.parts.pytorch.architecture import architecture_of, space_from_json
from spinup.parts.pytorch.onnx_export import random_observations, reference_policy, to_onnx
from spinup.parts.run_folder import read_config, require_run
from spinup.results.agents import load_network
from spinup.results.playback import make_run_env

BATCHES = (1, 7, 64)  # how many observations at once the file is tried with
TOLERANCE = 1e-4  # how far off an action may be, as a share of the largest one
EQUAL_SCORES = 0.02  # as a share, how many of n choices may differ: rounding can part equal scores
USE = """To use it:
    import numpy as np, onnxruntime
    policy = onnxruntime.InferenceSession({path!r})
    act = policy.run(["act"], {{"obs": np.asarray(obs, np.{dtype})[None]}})[0][0]"""


def largest_difference(network: Any, content: bytes) -> float:
    """How far apart the file and the network act on random observations, singly and in batches.

    Of numbers out of n it is the share that differs. More than rounding can explain raises.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors only
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    space, act = (
        space_from_json(architecture_of(network)["action_space"]),
        reference_policy(network),
    )
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


def describe(folder: Path, network: Any) -> dict[str, str]:
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


def _layout(folder: Path) -> dict:
    """Where each part of an observation that was no array lies in `obs`."""
    about = dict(obs="a batch of observations made one vector by gymnasium.spaces.flatten")
    try:
        env: Any = make_run_env(folder)
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


def export(
    folder: Path | str,
    output: Path | str,
    itr: int | str = "last",
    actor_critic: Callable | None = None,
) -> tuple[float, str]:
    """Write the deterministic policy of a run to an ONNX file, once it has been seen to act alike.

    Gives the largest difference that was seen, and the kind of number its observations are made of.

    itr: which saved model; 'last', or the number of one that was kept
    actor_critic: the class of the networks, where it is one of your own
    """
    folder, output = Path(folder), Path(output)
    if output.suffix != ".onnx":
        raise UserError(f"-o must be a file that ends in .onnx, not {output}.")
    require_run(folder, "spinup export")
    if not os.path.isdir(output.parent):
        raise UserError(f"There is no folder {output.parent} to write to.")
    if list(folder.glob("tf1_save*")):
        raise UserError(
            f"{folder} was trained with TensorFlow; only PyTorch's agents are exported to ONNX. "
            "Its folder tf1_save is a SavedModel, which TensorFlow and TensorFlow Serving read; "
            "for an ONNX file train with --backend pytorch."
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
