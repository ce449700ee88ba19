"""The processes of the nodes of one local Ray cluster, for ``local_nodes/node_program.py``.

It imports nothing of this package. It starts nodes with private names of Ray, because ``ray start``
replaces a loopback address by that of a network interface. Its events are ``head``, ``worker``,
``lost``, ``not_added``, ``warning``, ``idle`` and ``failed``.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

HOST = "127.0.0.1"
#: Name of the folder of the session, which is short because paths of sockets contain it.
_SESSION = "s"
#: Maximum starts of a worker node, and maximum failed ones in succession; after that it is not
#: replaced. The pause before the next one doubles with each.
_MAX_STARTS, _MAX_FAILURES, _RETRY_SECONDS = 10, 3, 1.0
#: Failed queries of the idle time in succession after which the owner is warned.
_MAX_FAILED_QUERIES = 3
#: Variable with the seconds that one query for a node waits, 30 in Ray. It is shorter here, because
#: the end of a raylet is only seen between queries. Raylets and their workers keep the default.
_WAIT_VARIABLE = "RAY_raylet_start_wait_time_s"
#: Variable with the ID of a node in the environment of its raylet and of the raylet's children.
_NODE_VARIABLE = "RAY_OVERRIDE_NODE_ID_FOR_TESTING"
#: Ports of the agents of a node: parameters of Ray, and constants with the names of their files.
_PORTS = {
    "metrics_agent_port": "METRICS_AGENT_PORT_NAME",
    "metrics_export_port": "METRICS_EXPORT_PORT_NAME",
    "dashboard_agent_listen_port": "DASHBOARD_AGENT_LISTEN_PORT_NAME",
    "runtime_env_agent_port": "RUNTIME_ENV_AGENT_PORT_NAME",
}
_END_SECONDS = 2.0
#: Seconds to wait until a started node is registered.
_REGISTER_SECONDS = 120.0


class RayNodeGroup:
    """The nodes of a cluster; their processes are children of this process.

    Parameters
    ----------
    report : callable
        Reports an event by its keywords.
    """

    def __init__(self, report: Callable[..., None]) -> None:
        os.environ[_WAIT_VARIABLE] = "1"  # Ray reads it when it is imported
        self._report = report
        self._settings: dict[str, Any] = {}
        self._head: Any = None
        self._workers: dict[str, Any] = {}
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

    def _start_head(self, request: dict[str, Any]) -> None:
        self._settings = request
        self._head = _start_node(
            True,
            num_cpus=0,
            memory=0,
            object_store_memory=request["object_store"],
            node_name="head",
            temp_dir=request["folder"],
            session_name=_SESSION,
            include_dashboard=request["dashboard"],
            dashboard_host=HOST,
            dashboard_port=request["dashboard_port"],
            no_monitor=True,
        )
        dashboard = f"http://{self._head.webui_url}" if request["dashboard"] else ""
        self._report(event="head", address=self._head.gcs_address, dashboard=dashboard)

    def _add_worker(self, request: dict[str, Any]) -> None:
        """Start a requested worker node; if that fails, a running cluster continues without it."""
        try:
            self._start_worker(request)
        except Exception as error:
            if self._ready_at is None:
                raise
            self._report(event="not_added", name=request["worker"], message=_describe(error))

    def _start_worker(self, request: dict[str, Any]) -> None:
        name = request["worker"]
        self._starts[name] = self._starts.get(name, 0) + 1
        self._workers[name] = _start_node(
            False,
            others={_pids(node).get("raylet", 0) for node in self._workers.values()},
            gcs_address=self._head.gcs_address,
            redis_address=self._head.gcs_address,
            num_cpus=request["cpus"],
            memory=request["memory"],
            object_store_memory=request["object_store"],
            node_name=name,
            temp_dir=self._settings["folder"],
            include_log_monitor=False,
        )
        self._report(event="worker", name=name, pid=_pids(self._workers[name])["raylet"])

    def check(self) -> bool:
        """Replace ended worker nodes; return False if the head has ended or the timeout passed."""
        if self._head is None:
            return True
        if not {"raylet", "gcs_server"} <= _pids(self._head).keys():
            self._report(event="failed", message="the head node has ended")
            return False
        for name, node in list(self._workers.items()):
            if "raylet" in _pids(node):
                continue
            node.kill_all_processes(check_alive=False, allow_graceful=False, wait=True)
            del self._workers[name]
            self._report(event="lost", name=name)
            if self._starts[name] < _MAX_STARTS:
                self._due[name] = time.monotonic()
            else:
                self._abandon(name, f"it has ended {_MAX_STARTS} times")
        for name, due in list(self._due.items()):
            if due <= time.monotonic():
                self._replace_worker(name)
        if self._requests and not self._workers and not self._due:
            self._report(event="failed", message=f"no worker node is left: {self._abandoned}")
            return False
        return not self._is_idle()

    def _replace_worker(self, name: str) -> None:
        """Start a worker node again; if that fails, later once more, up to a limit."""
        del self._due[name]
        try:
            self._start_worker(self._requests[name])
        except Exception as error:  # noqa: BLE001 - Ray raises any; the reason is reported
            self._failures[name] = failures = self._failures.get(name, 0) + 1
            if failures >= _MAX_FAILURES or self._starts[name] >= _MAX_STARTS:
                self._abandon(name, f"it failed to start {failures} times: {_describe(error)}")
                return
            self._due[name] = time.monotonic() + _RETRY_SECONDS * 2 ** (failures - 1)
            message = f"worker node {name} failed to start, which is repeated: {_describe(error)}"
            self._report(event="warning", message=message)
        else:
            self._failures[name] = 0

    def _abandon(self, name: str, reason: str) -> None:
        self._abandoned = f"worker node {name} is not replaced, because {reason}"
        self._report(event="warning", message=self._abandoned)

    def _is_idle(self) -> bool:
        """Return whether no task ran and no object was stored during the idle timeout."""
        timeout, now = self._settings["idle_timeout"], time.monotonic()
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
        nodes = [node for node in (*self._workers.values(), self._head) if node is not None]
        for process in every:
            with suppress(psutil.Error):
                if process.name() == "raylet":
                    process.terminate()  # it ends the processes of its tasks
        psutil.wait_procs([process for process in every if _is_raylet(process)], _END_SECONDS)
        for node in nodes:
            with suppress(Exception):
                node.kill_all_processes(check_alive=False, allow_graceful=False, wait=False)
        every |= set(psutil.Process().children(recursive=True))
        for process in every:
            with suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(every, _END_SECONDS)


def _start_node(head: bool, others: Collection[int] = (), **parameters: Any) -> Any:
    """Start the processes of one node and return it when it is registered.

    ``others`` are the process IDs of the raylets of other worker nodes.
    """
    from ray._private.node import Node
    from ray._private.parameter import RayParams
    from ray._raylet import NodeID

    ports = dict(zip(_PORTS, _find_free_ports(len(_PORTS)), strict=True))
    node_id = NodeID.from_random().hex()
    _write_ports(Path(parameters["temp_dir"], _SESSION), node_id, ports)
    every = RayParams(
        num_gpus=0,
        node_ip_address=HOST,
        min_worker_port=0,
        max_worker_port=0,
        env_vars={_NODE_VARIABLE: node_id, _WAIT_VARIABLE: "30"},
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


def _find_free_ports(count: int) -> list[int]:
    """Return ports of the loopback interface that no process uses now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((HOST, 0))
        return [each.getsockname()[1] for each in sockets]


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
