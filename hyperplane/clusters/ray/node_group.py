"""The head and the worker nodes of one Ray cluster, for ``local_nodes/node_program.py``.

Its events are ``head``, ``worker``, ``lost``, ``abandoned``, ``not_added``, ``warning``, ``idle``
and ``failed``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, Protocol

from hyperplane.clusters.ray.node_processes import (
    SESSION,
    WAIT_VARIABLE,
    LocalWorkerNode,
    build_parameters,
    end_processes,
    find_processes,
    start_node,
)

LOOPBACK = "127.0.0.1"
#: Maximum starts of a worker node, and maximum failed ones in succession; after that it is not
#: replaced. The pause before the next one doubles with each.
_MAX_STARTS, _MAX_FAILURES, _RETRY_SECONDS = 10, 3, 1.0
#: Seconds after which the starts of a worker node that has run are counted from one again.
_STABLE_SECONDS = 600.0
#: Failed queries of the idle time in succession after which the owner is warned.
_MAX_FAILED_QUERIES = 3


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
        self._registered_at: dict[str, float] = {}
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
        elif "withdraw" in request:
            self._withdraw(request["withdraw"])
        else:
            self._ready_at = time.monotonic()

    def _start_head(self, request: dict[str, Any]) -> None:
        self._start_head_at(request, LOOPBACK)

    def _start_head_at(self, request: dict[str, Any], host: str) -> None:
        self._settings = request
        self._head = start_node(
            host,
            head=True,
            num_cpus=0,
            memory=0,
            object_store_memory=request["object_store"],
            node_name="head",
            temp_dir=request["folder"],
            session_name=SESSION,
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

    def _withdraw(self, names: list[str]) -> None:
        """Forget requested worker nodes that have not started; those that have remain."""
        for name in names:
            if name not in self._requests or name in self._workers:
                continue
            if name in self._starting:
                if not self._starting[name].cancel():
                    continue  # it has just started, or failed
                del self._starting[name]
            for known in (self._requests, self._starts, self._failures, self._due):
                known.pop(name, None)
            self._report(event="withdrawn", name=name)

    def _start_worker(self, request: dict[str, Any]) -> None:
        raylets = {node.pid for node in self._workers.values()}
        parameters = build_parameters(request, self._head.gcs_address, self._settings["folder"])
        node = start_node(LOOPBACK, others=raylets, **parameters)
        self._register(request["worker"], LocalWorkerNode(node))

    def _register(self, name: str, node: WorkerNode) -> None:
        """Keep and report a worker node that has started."""
        self._workers[name], self._failures[name] = node, 0
        self._registered_at[name] = time.monotonic()
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
        self._due[name] = time.monotonic() + self._retry_pause() * 2 ** (failures - 1)
        message = f"worker node {name} failed to start, which is repeated: {_describe(error)}"
        self._report(event="warning", message=message)

    def check(self) -> bool:
        """Replace ended worker nodes; return False if the head has ended or the timeout passed."""
        if self._head is None:
            return True
        if not {"raylet", "gcs_server"} <= find_processes(self._head).keys():
            self._report(event="failed", message="the head node has ended")
            return False
        for name, node in list(self._workers.items()):
            if node.is_running():
                continue
            node.end()
            del self._workers[name]
            self._report(event="lost", name=name)
            if time.monotonic() - self._registered_at[name] > _STABLE_SECONDS:
                self._starts[name] = 1
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
        if self._is_starting() or self._due:
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
        demands = status.resource_demands
        if demands.ray_task_actor_demand or demands.placement_group_demand:
            return False  # tasks wait for worker nodes
        nodes = [*status.active_nodes, *status.idle_nodes]
        idle = [node.resource_usage.idle_time_ms for node in nodes if node.resource_usage]
        if not idle or len(idle) < len(nodes) or min(idle) < timeout * 1000:
            return False
        self._report(event="idle", seconds=min(idle) / 1000)
        return True

    def _retry_pause(self) -> float:
        """Return the seconds after the first of several failed starts."""
        return _RETRY_SECONDS

    def _is_starting(self) -> bool:
        """Return whether a worker node is about to start."""
        return bool(self._starting)

    def end(self) -> None:
        """End all processes of all nodes."""
        end_processes(self._head)


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
