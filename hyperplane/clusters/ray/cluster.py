"""Cluster objects of the engines of Ray: of this process, and of another one."""

from __future__ import annotations

import os
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from hyperplane.clusters import records
from hyperplane.clusters.gpu_requests import count_gpus
from hyperplane.clusters.interrupts import allow_interrupts
from hyperplane.clusters.local_nodes.cluster import AttachedNodeCluster, LocalNodeCluster
from hyperplane.clusters.local_nodes.program_process import NodeProgram
from hyperplane.clusters.ray import driver_environment
from hyperplane.clusters.spark import on_ray
from hyperplane.core.errors import EngineError
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.ray_options import MIN_OBJECT_STORE, RayOptions

#: Ray's own limits of 30 to 60 s end a start on a loaded machine. The limit is that of the request.
_LONG_TIMEOUTS = {
    "RAY_DASHBOARD_STARTUP_TIMEOUT_S": "1200",
    "RAY_DASHBOARD_SUBPROCESS_MODULE_WAIT_READY_TIMEOUT": "1200",
    "RAY_agent_register_timeout_ms": "1200000",
}


class OwnedRayCluster(LocalNodeCluster):
    """A Ray cluster whose head is on this machine, and which this process owns.

    Parameters
    ----------
    plan : ClusterPlan
        The plan; each worker process of it is a worker node of Ray.
    record : ClusterRecord
        The reserved record of the cluster.
    folder : Path
        Folder of Ray's session; short, because paths of sockets contain it.
    tls : bool
        Whether its connections are encrypted.
    request : dict
        What the class of the nodes gets in addition to the folder.
    at_end : callable, optional
        Called at the end of the cluster and of this process, before the nodes end.
    """

    framework: ClassVar[str] = "Ray"
    head: ClassVar[str] = "head node"
    noun: ClassVar[str] = "worker node"
    #: Module and name of the class that starts the nodes.
    node_group: ClassVar[str]
    #: Whether all nodes are at the loopback address.
    loopback: ClassVar[bool]
    #: Variables that all nodes have unless the user has set them.
    node_variables: ClassVar[Mapping[str, str]] = {}

    def __init__(
        self,
        plan: ClusterPlan,
        record: records.ClusterRecord,
        folder: Path,
        tls: bool,
        request: dict[str, Any],
        at_end: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(plan, record)
        RayOptions.of(plan.options)  # raises an error before anything is started
        self._tls_folder = str(folder) if tls else ""
        # The dashboard leaves temporary folders when it is killed.
        environment = {**self.build_environment(), "TMPDIR": str(folder)}
        self.start_program(
            NodeProgram(record, folder, self.node_group, environment, at_end or (lambda: None)),
            folder=str(folder),
            object_store=MIN_OBJECT_STORE,
            dashboard_port=plan.dashboard_port or None,
            **request,
        )

    @property
    def variables(self) -> dict[str, str | None]:
        """Environment variables of processes that use the cluster."""
        token = self.record.security["token"]
        return driver_environment.build_variables(token, self.loopback, self._tls_folder)

    def build_environment(self) -> dict[str, str]:
        """Return the environment variables of the program with the nodes, and of all nodes."""
        variables = {**os.environ, **self.variables}
        return {
            **_LONG_TIMEOUTS,
            **self.node_variables,
            **{name: value for name, value in variables.items() if value is not None},
            "RAY_USAGE_STATS_ENABLED": "0",
        }

    def place_worker(self, name: str) -> dict[str, Any]:
        """Return where a new worker node runs, for the program that starts it."""
        del name
        return {}

    def describe_worker(self, name: str) -> dict[str, Any]:
        """Return the size and the place of a new worker node."""
        options = RayOptions.of(self.plan.options)
        return {
            "cpus": self.plan.worker.nthreads,
            "gpus": count_gpus(self.plan.worker),
            "memory": options.memory,
            "object_store": options.object_store,
            **self.place_worker(name),
        }

    @abstractmethod
    def check_room(self, count: int) -> None:
        """Raise a RequestError if there is no room for more worker nodes."""

    def add_workers(self, count: int, announce: Callable[[str], None]) -> None:
        """Start more worker nodes; raise a RequestError if there is no room for them."""
        self.check_room(count)
        with allow_interrupts():
            self.start_workers(count, time.monotonic() + self.plan.request.timeout, announce)
        self.write_record()

    def connect_programs(self) -> None:
        """Make ``ray.init()`` connect to the cluster."""
        driver_environment.set_variables(self.address, self.variables)

    def disconnect(self) -> None:
        """Disconnect this process, which can connect again."""
        driver_environment.disconnect(self.address)

    def disconnect_programs(self) -> None:
        """Disconnect this process from the cluster, and restore the variables before it."""
        driver_environment.restore_variables(self.address)

    def describe_connection(self) -> dict[str, Any]:
        """Return the folder of the certificates, and the addresses of the worker nodes."""
        return {**super().describe_connection(), "tls_folder": self._tls_folder}


class RemoteRayCluster(OwnedRayCluster):
    """A Ray cluster whose head is on this machine and whose worker nodes are on others."""

    loopback: ClassVar[bool] = False
    #: No pages of metrics, which any machine could read without a certificate or token.
    node_variables: ClassVar[Mapping[str, str]] = {
        "RAY_enable_metrics_collection": "0",
        "DASHBOARD_METRIC_PORT": "-1",
    }
    starts_together: ClassVar[bool] = True


class AttachedRayCluster(AttachedNodeCluster):
    """A cluster with its head on this machine that another process owns."""

    def add_workers(self, count: int, announce: Callable[[str], None]) -> None:
        """Raise an EngineError: only the owner of a cluster can add worker nodes."""
        del announce
        raise EngineError(
            self.record.engine,
            f"extra_workers={count}: only the process that started {self.name} can add worker "
            f"nodes, which is process {self.record.pid}",
        )

    def disconnect_programs(self) -> None:
        """Disconnect this process from the cluster, and restore the variables before it."""
        try:
            if conf := self.record.client.get("spark_conf"):
                on_ray.disconnect(Path(conf))
        finally:
            driver_environment.restore_variables(self.address)
