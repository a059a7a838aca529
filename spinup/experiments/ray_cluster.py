"""Connect to a Ray cluster, or start one of our own on this machine."""

import contextlib
import os
import shutil
import socket
import tempfile
import uuid
from collections.abc import Iterator
from functools import cache
from typing import Any

from spinup.experiments.processes import cores
from spinup.parts.errors import UserError
from spinup.parts.imports import OutsideCurrentFolder


def import_ray() -> Any:
    """Ray, without its usage report and its notices."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Ray's notices, such as those of nodes that die, would be printed into the table.
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")
    try:
        import ray
    except ImportError:
        raise UserError("Running on a cluster needs Ray: pip install 'spinup[ray]'")
    return ray


@contextlib.contextmanager
def connected(address: str) -> Iterator[Any]:
    """Ray, connected to a cluster; or to one of our own, which ends with this process.

    A connection that a script already has is used, and stays open.

    address: HOST:PORT of the cluster; 'local' for one of our own on this machine
    """
    ray = import_ray()
    if ray.is_initialized():
        yield ray
        return
    with contextlib.ExitStack() as stack:
        settings: dict[str, Any] = dict(log_to_driver=False, logging_level="ERROR")
        if address == "local":
            settings |= stack.enter_context(_cluster_of_our_own())
        stack.callback(ray.shutdown)
        try:
            if address != "local":
                _check_port(address)  # Ray itself would try for minutes
            with OutsideCurrentFolder():  # Ray's processes have the current folder on their path
                ray.init(address=address, **settings)
        except (OSError, RuntimeError, ValueError) as error:
            reason = str(error).strip().split("\n")[0]
            raise UserError(
                f"There is no Ray cluster at {address} that this machine is part of ({reason}). "
                f"Let it join with: ray start --address={address}"
            )
        yield ray


@contextlib.contextmanager
def _cluster_of_our_own():
    """The arguments that start a Ray which leaves no file behind.

    Ray needs a token for access, and would write one into the user's home folder.
    """
    names = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN")
    before = {name: os.environ[name] for name in names if name in os.environ}
    os.environ.setdefault("RAY_AUTH_TOKEN", _own_token())
    folder = tempfile.mkdtemp(prefix="ray-")
    try:
        yield dict(num_cpus=cores(), include_dashboard=False, _temp_dir=folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        for name in names:
            os.environ.pop(name, None)
        os.environ.update(before)


@cache
def _own_token() -> str:
    return uuid.uuid4().hex + uuid.uuid4().hex


def _check_port(address):
    """Raise unless something listens at HOST:PORT."""
    host, _, port = address.rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
