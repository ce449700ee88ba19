"""Start the processes of a node of Ray, with private names of Ray.

``ray start`` replaces a loopback address by that of a network interface; the class ``Node`` does
not. The versions with which these names are tested are in ``pyproject.toml``.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import socket
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

#: Name of the folder of the session, which is short because paths of sockets contain it.
SESSION = "s"
#: Maximum bytes of the path of a folder with which the paths of Ray's sockets are valid.
LONGEST_FOLDER = 75
#: Variable with the seconds that one query for a node waits, 30 in Ray. It is shorter here, because
#: the end of a raylet is only seen between queries. Raylets and their workers keep the default.
WAIT_VARIABLE = "RAY_raylet_start_wait_time_s"
#: Variable with the ID of a node in the environment of its raylet and of the raylet's children.
_NODE_VARIABLE = "RAY_OVERRIDE_NODE_ID_FOR_TESTING"
#: Ports of the agents of a node: parameters of Ray, and constants with the names of their files.
_PORTS = {
    "metrics_agent_port": "METRICS_AGENT_PORT_NAME",
    "metrics_export_port": "METRICS_EXPORT_PORT_NAME",
    "dashboard_agent_listen_port": "DASHBOARD_AGENT_LISTEN_PORT_NAME",
    "runtime_env_agent_port": "RUNTIME_ENV_AGENT_PORT_NAME",
}
_AGENT_PORTS = range(10_000, 32_768)
_END_SECONDS = 2.0
#: Seconds to wait for killed processes; closing a cluster waits a minute for its program.
_KILL_SECONDS = 20.0
#: Seconds to wait until a started node is registered.
_REGISTER_SECONDS = 120.0


class LocalWorkerNode:
    """A worker node whose processes are children of this process.

    Parameters
    ----------
    node : ray._private.node.Node
        Result of :func:`start_node`.
    """

    def __init__(self, node: Any) -> None:
        self._node = node
        self.host, self.pid = node.node_ip_address, find_processes(node)["raylet"]

    def is_running(self) -> bool:
        """Return whether its raylet runs."""
        return "raylet" in find_processes(self._node)

    def end(self) -> None:
        """End its processes."""
        self._node.kill_all_processes(check_alive=False, allow_graceful=False, wait=True)


def build_parameters(
    request: dict[str, Any], head: str, folder: str, log_monitor: bool = False
) -> dict[str, Any]:
    """Return the parameters of a requested worker node: its size, and the address of the head.

    A node whose folder is not that of the head needs a ``log_monitor``, which sends the output of
    tasks to programs.
    """
    return {
        "gcs_address": head,
        "redis_address": head,
        "num_cpus": request["cpus"],
        "num_gpus": request["gpus"],
        "memory": request["memory"],
        "object_store_memory": request["object_store"],
        "node_name": request["worker"],
        "temp_dir": folder,
        "include_log_monitor": log_monitor,
    }


def start_node(
    host: str, head: bool = False, others: Collection[int] = (), **parameters: Any
) -> Any:
    """Start the processes of one node and return it when it is registered.

    ``host`` is the address of this machine to use, and ``others`` are the process IDs of the
    raylets of other worker nodes.
    """
    from ray._private.node import Node
    from ray._private.parameter import RayParams
    from ray._raylet import NodeID

    ports = dict(zip(_PORTS, _find_free_ports(host, len(_PORTS)), strict=True))
    node_id = NodeID.from_random().hex()
    _write_ports(Path(parameters["temp_dir"], SESSION), node_id, ports)
    every = RayParams(
        node_ip_address=host,
        min_worker_port=0,
        max_worker_port=0,
        env_vars={_NODE_VARIABLE: node_id, WAIT_VARIABLE: "30"},
        **ports,
        **parameters,
    )
    try:
        with _extend_registration(others):
            # The kernel ends the processes with this one (spawn_reaper).
            return Node(every, head=head, shutdown_at_exit=False, spawn_reaper=True)
    except Exception:
        _kill_node(node_id)
        raise


def _kill_node(node_id: str) -> None:
    """Kill the processes of a node that has failed to start, and wait until they have ended."""
    killed = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error, OSError):
            if process.environ().get(_NODE_VARIABLE) == node_id:
                process.kill()
                killed.append(process)
    psutil.wait_procs(killed, _END_SECONDS)


def _write_ports(session: Path, node_id: str, ports: dict[str, int]) -> None:
    """Write the files with the ports of a node's agents before its raylet starts.

    A raylet aborts if its agents have not written them after 15 s, which is too short on a loaded
    machine.
    """
    from ray import _raylet

    session.mkdir(exist_ok=True)
    for name, constant in _PORTS.items():
        _raylet.persist_port(str(session), node_id, getattr(_raylet, constant), ports[name])


def _find_free_ports(host: str, count: int) -> list[int]:
    """Return ports of an address of this machine that no process uses now.

    They are below those that Linux chooses for others: agents of a node open theirs seconds later.
    """
    ports: list[int] = []
    with contextlib.ExitStack() as stack:
        while len(ports) < count:
            opened = stack.enter_context(socket.socket())
            try:
                opened.bind((host, random.choice(_AGENT_PORTS)))  # noqa: S311 - no secret
                ports.append(opened.getsockname()[1])
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
    return ports


@contextlib.contextmanager
def _extend_registration(others: Collection[int]) -> Iterator[None]:
    """Let Ray wait for a node longer than its 30 s, unless its raylet or the parent has ended.

    The end of other worker nodes does not matter; that of the head does.
    """
    from ray._private import services

    get_node, parent = services.get_node, os.getppid()
    deadline, ended = time.monotonic() + _REGISTER_SECONDS, {*_ended_raylets(), *others}

    def get_node_until_deadline(*args: Any, **kwargs: Any) -> Any:
        while True:
            try:
                return get_node(*args, **kwargs)
            except RuntimeError:
                if time.monotonic() > deadline or os.getppid() != parent:
                    raise
            if not ended.issuperset(_ended_raylets()):
                raise SystemError("its raylet has ended")
            time.sleep(0.1)

    services.get_node = get_node_until_deadline
    try:
        yield
    finally:
        services.get_node = get_node


def _ended_raylets() -> list[int]:
    """Return the process IDs of raylets that have ended and are not reaped."""
    found = []
    for process in psutil.Process().children():
        with suppress(psutil.Error):
            if process.status() == psutil.STATUS_ZOMBIE and process.name() == "raylet":
                found.append(process.pid)
    return found


def end_processes(head: Any = None) -> None:
    """End all processes of all nodes that this process has started, and its head."""
    every = set(psutil.Process().children(recursive=True))
    for process in every:
        with suppress(psutil.Error):
            if process.name() == "raylet":
                process.terminate()  # it ends the processes of its tasks
    psutil.wait_procs([process for process in every if _is_raylet(process)], _END_SECONDS)
    if head is not None:
        with suppress(Exception):
            head.kill_all_processes(check_alive=False, allow_graceful=False, wait=False)
    kill_descendants()


def kill_descendants() -> None:
    """Kill all processes below this one, also those that they start meanwhile, and wait for them.

    On a loaded machine a killed process may take seconds to end.
    """
    deadline = time.monotonic() + _KILL_SECONDS
    while (every := psutil.Process().children(recursive=True)) and time.monotonic() < deadline:
        for process in every:
            with suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(every, _END_SECONDS)


def find_processes(node: Any) -> dict[str, int]:
    """Return the process IDs of the running processes of a node by their type."""
    return {kind: process.pid for kind, process in node.live_processes()}


def _is_raylet(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return process.name() == "raylet"
    return False
