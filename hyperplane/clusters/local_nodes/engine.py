"""Base of engines whose clusters have a node program on this machine."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar, cast

from hyperplane.clusters import records
from hyperplane.clusters.engine import (
    Availability,
    Feature,
    StartedCluster,
    SupportsClose,
)
from hyperplane.clusters.interrupts import allow_interrupts
from hyperplane.clusters.local_nodes.cluster import LocalNodeCluster
from hyperplane.clusters.machine_capacity import read_capacity
from hyperplane.clusters.running_clusters import describe_running, read_running
from hyperplane.core.errors import EngineError, Fault, StartFailed
from hyperplane.platforms.local import temporary_folders
from hyperplane.spec.capacity import MachineCapacity
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.request import ClusterRequest
from hyperplane.spec.settings import EngineSettings
from hyperplane.spec.settings.local import MachineSettings

OwnClient = TypeVar("OwnClient", bound=SupportsClose)
OwnCluster = TypeVar("OwnCluster", bound=LocalNodeCluster)


class LocalNodeEngine(ABC, Generic[OwnClient, OwnCluster]):
    """Base of engines that start a head on this machine, and workers there or on others."""

    name: ClassVar[str]
    settings: ClassVar[type[EngineSettings]]
    unsupported: ClassVar[frozenset[Feature]] = frozenset({Feature.GPUS})
    ignored: ClassVar[frozenset[str]] = frozenset(
        {"worker_spec_yaml", "node_selector", "scheduler_ram", "scheduler_cpu", "memory", "tuning"}
    )
    uses_pools: ClassVar[bool] = False

    def capacity(self, settings: EngineSettings) -> MachineCapacity:
        """Return the usable cores, and the memory that one more cluster may reserve."""
        return read_capacity(cast(MachineSettings, settings).reserve_fraction)

    def faults(self, request: ClusterRequest, settings: EngineSettings) -> list[Fault]:
        """Return no faults: the planner reduces a larger request, or notes that it is too large."""
        del request, settings
        return []

    @abstractmethod
    def available(self) -> Availability:
        """Return whether the packages that the engine needs are installed."""

    @abstractmethod
    def start_line(self, plan: ClusterPlan) -> str:
        """Return the line about what a start begins with."""

    @abstractmethod
    def create_record(self, plan: ClusterPlan) -> records.ClusterRecord:
        """Return the record of a new cluster, with the secret that other processes need."""

    @abstractmethod
    def create_cluster(
        self, plan: ClusterPlan, record: records.ClusterRecord, folder: Path
    ) -> OwnCluster:
        """Return the object of a new cluster, whose program has been started."""

    @abstractmethod
    def create_client(self, cluster: OwnCluster) -> OwnClient:
        """Return the client of a cluster of this process."""

    @abstractmethod
    def attach(self, record: records.ClusterRecord) -> StartedCluster[OwnClient, Any]:
        """Connect programs of this process to a running cluster; return its client and object."""

    def start(self, plan: ClusterPlan) -> StartedCluster[OwnClient, OwnCluster]:
        """Start all processes; return when all workers are registered."""
        return self.start_with_lines(plan, lambda kind, text: None)

    def start_with_lines(
        self, plan: ClusterPlan, announce: Callable[[str, str], None]
    ) -> StartedCluster[OwnClient, OwnCluster]:
        """Start all processes, and report the address of the dashboard and the names of workers.

        ``announce`` is called with ``dashboard`` or ``worker``, and the address or name.
        """
        deadline = time.monotonic() + plan.request.timeout
        cluster = self._create(plan)
        try:
            with allow_interrupts():
                cluster.wait_for_head(deadline)
                announce("dashboard", cluster.dashboard)
                cluster.start_workers(
                    plan.dask_workers, deadline, lambda name: announce("worker", name)
                )
            cluster.complete_start()
            return StartedCluster(self.create_client(cluster), cluster)
        except BaseException:
            cluster.close()
            raise

    def scratch_parent(self, plan: ClusterPlan) -> str | None:
        """Return the parent of the record's scratch folder; None for the temporary directory."""
        del plan
        return None

    def _create(self, plan: ClusterPlan) -> OwnCluster:
        """Return the object of a new cluster; a failure leaves no record and no folder."""
        try:
            record = records.reserve(self.create_record(plan), self.scratch_parent(plan))
        except OSError as error:
            raise StartFailed(self.name, str(error)) from error
        folder = None
        try:
            folder = temporary_folders.create_temporary_folder()
            return self.create_cluster(plan, record, folder)
        except BaseException as error:
            records.remove(record.name, record.scratch)
            if folder is not None:
                temporary_folders.remove_temporary_folder(folder)
            if isinstance(error, OSError) and not isinstance(error, EngineError):
                raise StartFailed(self.name, str(error)) from error
            raise

    def connect(self, name: str, settings: EngineSettings) -> StartedCluster[OwnClient, Any]:
        """Attach to a cluster that a process of this user runs on this machine."""
        del settings
        running = read_running(self.name)
        for record in running:
            if (record.name, record.engine) == (name, self.name):
                return self.attach(record)
        raise EngineError(
            self.name, f"this machine runs no cluster {name!r}; {describe_running(running)}"
        )
