"""The head and the worker nodes of one Ray cluster, for ``local_nodes/node_program.py``."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from hyperplane.clusters.local_nodes.worker_group import WorkerGroup, describe_error
from hyperplane.clusters.ray.node_processes import (
    SESSION,
    WAIT_VARIABLE,
    LocalWorkerNode,
    build_parameters,
    end_processes,
    find_processes,
    start_node,
)
from hyperplane.platforms.local.gpus import VARIABLE

LOOPBACK = "127.0.0.1"
#: Failed queries of the idle time in succession after which the owner is warned.
_MAX_FAILED_QUERIES = 3


class RayNodeGroup(WorkerGroup):
    """The nodes of a cluster; their processes are children of this process.

    Parameters
    ----------
    report : callable
        Reports an event by its keywords.
    """

    noun: ClassVar[str] = "worker node"
    head: ClassVar[str] = "the head node"

    def __init__(self, report: Callable[..., None]) -> None:
        super().__init__(report)
        os.environ[WAIT_VARIABLE] = "1"  # Ray reads it when it is imported
        self._head: Any = None
        self._failed_queries = 0
        self._checked_at = 0.0

    def _start_head(self, request: dict[str, Any]) -> None:
        self._start_head_at(request, LOOPBACK)

    def _start_head_at(self, request: dict[str, Any], host: str) -> None:
        self._settings = request
        self._head = start_node(
            host,
            head=True,
            num_cpus=0,
            num_gpus=0,
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

    def _start_worker(self, request: dict[str, Any]) -> None:
        raylets = {node.pid for node in self._workers.values()}
        parameters = build_parameters(request, self._head.gcs_address, self._settings["folder"])
        with _show_gpus(request.get("gpu_names", [])):
            node = start_node(LOOPBACK, others=raylets, **parameters)
        self._register(request["worker"], LocalWorkerNode(node))

    def _is_head_started(self) -> bool:
        return self._head is not None

    def _is_head_running(self) -> bool:
        return {"raylet", "gcs_server"} <= find_processes(self._head).keys()

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
                message = f"{message}: {describe_error(error)}"
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

    def _end_processes(self) -> None:
        """End all processes of all nodes of this machine."""
        end_processes(self._head)


@contextlib.contextmanager
def _show_gpus(names: list[str]) -> Iterator[None]:
    """Let processes that start meanwhile use only these GPUs; without names, change nothing."""
    before = os.environ.get(VARIABLE)
    if names:
        os.environ[VARIABLE] = ",".join(names)
    try:
        yield
    finally:
        if before is not None:
            os.environ[VARIABLE] = before
        elif names:
            del os.environ[VARIABLE]
