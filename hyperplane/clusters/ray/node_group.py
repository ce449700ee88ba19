"""The head and the worker nodes of one Ray cluster, for ``local_nodes/node_program.py``.

It imports nothing of this package. It starts nodes with private names of Ray, because ``ray start``
replaces a loopback address by that of a network interface. Its events are ``head``, ``worker``,
``lost``, ``abandoned``, ``not_added``, ``warning``, ``idle`` and ``failed``.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import socket
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import psutil

LOOPBACK = "127.0.0.1"
#: Name of the folder of the session, which is short because paths of sockets contain it.
_SESSION = "s"
#: Maximum starts of a worker node, and maximum failed ones in succession; after that it is not
#: replaced. The pause before the next one doubles with each.
_MAX_STARTS, _MAX_FAILURES, _RETRY_SECONDS = 10, 3, 1.0
#: Failed queries of the idle time in succession after which the owner is warned.
_MAX_FAILED_QUERIES = 3
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
#: Seconds to wait until a started node is registered.
_REGISTER_SECONDS = 120.0


class WorkerNode(Protocol):
    """A worker node that is registered."""

    #: Address of its machine.
    host: str
    #: Process ID of its raylet.
    pid: int

    def is_running(self) -> bool:
        """Return whether its raylet runs."""
        ...

    def end(self) -> None:
        """End its processes."""


class RayNodeGroup:
    """The nodes of a cluster; their processes are children of this process.

    Parameters
    ----------
    report : callable
        Reports an event by its keywords.
    """

    def __init__(self, report: Callable[..., None]) -> None:
        os.environ[WAIT_VARIABLE] = "1"  # Ray reads it when it is imported
        self._report = report
        self._settings: dict[str, Any] = {}
        self._head: Any = None
        self._workers: dict[str, WorkerNode] = {}
        #: Worker nodes whose start has not ended when :meth:`handle` returns: none of this machine.
        self._starting: dict[str, Any] = {}
        self._requests: dict[str, dict[str, Any]] = {}
        self._starts: dict[str, int] = {}
        self._failures: dict[str, int] = {}
        #: Worker nodes to replace, and when.
        self._due: dict[str, float] = {}
        self._failed_queries, self._abandoned = 0, ""
        self._ready_at: float | None = None
        self._checked_at = 0.0

    def handle(self, request: dict[str, Any]) -> None:
        """Start the head or a worker node and report it, or start the clock of the idle timeout."""
        if "folder" in request:
            self._start_head(request)
        elif "worker" in request:
            self._requests[request["worker"]] = request
            self._add_worker(request)
        else:
            self._ready_at = time.monotonic()

    def _start_head(self, request: dict[str, Any], host: str = LOOPBACK) -> None:
        self._settings = request
        self._head = start_node(
            host,
            head=True,
            num_cpus=0,
            memory=0,
            object_store_memory=request["object_store"],
            node_name="head",
            temp_dir=request["folder"],
            session_name=_SESSION,
            include_dashboard=request["dashboard"],
            dashboard_host=LOOPBACK,
            dashboard_port=request["dashboard_port"],
            no_monitor=True,
        )
        dashboard = f"http://{self._head.webui_url}" if request["dashboard"] else ""
        self._report(event="head", address=self._head.gcs_address, dashboard=dashboard)

    def _add_worker(self, request: dict[str, Any]) -> None:
        """Start a worker node, for the first time or again."""
        name = request["worker"]
        self._starts[name] = self._starts.get(name, 0) + 1
        try:
            self._start_worker(request)
        except Exception as error:  # noqa: BLE001 - Ray raises any; the reason is reported
            self._handle_failure(name, error)

    def _start_worker(self, request: dict[str, Any]) -> None:
        raylets = {node.pid for node in self._workers.values()}
        parameters = build_parameters(request, self._head.gcs_address, self._settings["folder"])
        node = start_node(LOOPBACK, others=raylets, **parameters)
        self._register(request["worker"], LocalWorkerNode(node))

    def _register(self, name: str, node: WorkerNode) -> None:
        """Keep and report a worker node that has started."""
        self._workers[name], self._failures[name] = node, 0
        self._report(event="worker", name=name, pid=node.pid, host=node.host)

    def _handle_failure(self, name: str, error: Exception) -> None:
        """Report that a worker node has failed to start; try again if it has run before."""
        if self._starts[name] == 1:
            if self._ready_at is None:
                raise error  # the start of the cluster has failed
            # A running cluster continues without it.
            self._report(event="not_added", name=name, message=_describe(error))
            return
        self._failures[name] = failures = self._failures.get(name, 0) + 1
        if failures >= _MAX_FAILURES or self._starts[name] >= _MAX_STARTS:
            self._abandon(name, f"it failed to start {failures} times: {_describe(error)}")
            return
        self._due[name] = time.monotonic() + _RETRY_SECONDS * 2 ** (failures - 1)
        message = f"worker node {name} failed to start, which is repeated: {_describe(error)}"
        self._report(event="warning", message=message)

    def check(self) -> bool:
        """Replace ended worker nodes; return False if the head has ended or the timeout passed."""
        if self._head is None:
            return True
        if not {"raylet", "gcs_server"} <= _pids(self._head).keys():
            self._report(event="failed", message="the head node has ended")
            return False
        for name, node in list(self._workers.items()):
            if node.is_running():
                continue
            node.end()
            del self._workers[name]
            self._report(event="lost", name=name)
            if self._starts[name] < _MAX_STARTS:
                self._due[name] = time.monotonic()
            else:
                self._abandon(name, f"it has ended {_MAX_STARTS} times")
        for name, due in list(self._due.items()):
            if due <= time.monotonic():
                del self._due[name]
                self._add_worker(self._requests[name])
        if self._requests and not (self._workers or self._due or self._starting):
            self._report(event="failed", message=f"no worker node is left: {self._abandoned}")
            return False
        return not self._is_idle()

    def _abandon(self, name: str, reason: str) -> None:
        self._abandoned = f"worker node {name} is not replaced, because {reason}"
        self._report(event="abandoned", name=name, message=self._abandoned)

    def _is_idle(self) -> bool:
        """Return whether no task ran and no object was stored during the idle timeout."""
        timeout, now = self._settings["idle_timeout"], time.monotonic()
        if self._starting or self._due:
            return False
        if timeout is None or self._ready_at is None or now - self._ready_at < timeout:
            return False
        if now - self._checked_at < min(1.0, timeout / 4):
            return False
        self._checked_at = now
        from ray.autoscaler.v2.sdk import get_cluster_status

        try:
            status = get_cluster_status(self._head.gcs_address)
        except Exception as error:  # noqa: BLE001 - the cluster is busy, or its head has ended
            self._failed_queries += 1
            if self._failed_queries == _MAX_FAILED_QUERIES:
                message = "the idle timeout has no effect: Ray does not report the idle time"
                message = f"{message}: {_describe(error)}"
                self._report(event="warning", message=message)
            return False
        self._failed_queries = 0
        nodes = [*status.active_nodes, *status.idle_nodes]
        idle = [node.resource_usage.idle_time_ms for node in nodes if node.resource_usage]
        if not idle or len(idle) < len(nodes) or min(idle) < timeout * 1000:
            return False
        self._report(event="idle", seconds=min(idle) / 1000)
        return True

    def end(self) -> None:
        """End all processes of all nodes."""
        every = set(psutil.Process().children(recursive=True))
        for process in every:
            with suppress(psutil.Error):
                if process.name() == "raylet":
                    process.terminate()  # it ends the processes of its tasks
        psutil.wait_procs([process for process in every if _is_raylet(process)], _END_SECONDS)
        if self._head is not None:
            with suppress(Exception):
                self._head.kill_all_processes(check_alive=False, allow_graceful=False, wait=False)
        every |= set(psutil.Process().children(recursive=True))
        for process in every:
            with suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(every, _END_SECONDS)


class LocalWorkerNode:
    """A worker node whose processes are children of this process.

    Parameters
    ----------
    node : ray._private.node.Node
        Result of :func:`start_node`.
    """

    def __init__(self, node: Any) -> None:
        self._node = node
        self.host, self.pid = node.node_ip_address, _pids(node)["raylet"]

    def is_running(self) -> bool:
        """Return whether its raylet runs."""
        return "raylet" in _pids(self._node)

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
    _write_ports(Path(parameters["temp_dir"], _SESSION), node_id, ports)
    every = RayParams(
        num_gpus=0,
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


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


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


def _pids(node: Any) -> dict[str, int]:
    """Return the process IDs of the running processes of a node by their type."""
    return {kind: process.pid for kind, process in node.live_processes()}


def _is_raylet(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return process.name() == "raylet"
    return False
