"""Cluster objects of the engine ``ray:local``: of this process, and of another one."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from hyperplane.clusters import records
from hyperplane.clusters.interrupts import allow_interrupts
from hyperplane.clusters.local_nodes.cluster import AttachedNodeCluster, LocalNodeCluster
from hyperplane.clusters.local_nodes.program_process import NodeGroupClass, NodeProgram
from hyperplane.clusters.machine_capacity import read_capacity
from hyperplane.clusters.ray import driver_environment
from hyperplane.core.errors import EngineError, Fault, StartFailed, check
from hyperplane.core.units import format_bytes, plural
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.ray_options import MIN_OBJECT_STORE, RayOptions
from hyperplane.spec.settings import RayLocalSettings

ENGINE = "ray:local"
_NODE_GROUP = NodeGroupClass(Path(__file__).with_name("node_group.py"), "RayNodeGroup")
#: Ray's own limits of 30 to 60 s end a start on a loaded machine. The limit is that of the request.
_LONG_TIMEOUTS = {
    "RAY_DASHBOARD_STARTUP_TIMEOUT_S": "1200",
    "RAY_DASHBOARD_SUBPROCESS_MODULE_WAIT_READY_TIMEOUT": "1200",
    "RAY_agent_register_timeout_ms": "1200000",
}


class LocalRayCluster(LocalNodeCluster):
    """A head and worker nodes of Ray on this machine, which this process owns.

    Parameters
    ----------
    plan : ClusterPlan
        The plan; each worker process of it is a worker node of Ray.
    record : ClusterRecord
        The reserved record of the cluster.
    folder : Path
        Folder of Ray's session; short, because paths of sockets contain it.
    """

    engine: ClassVar[str] = ENGINE
    framework: ClassVar[str] = "Ray"
    head: ClassVar[str] = "head node"

    def __init__(self, plan: ClusterPlan, record: records.ClusterRecord, folder: Path) -> None:
        super().__init__(plan, record)
        RayOptions.of(plan.options)  # raises an error before anything is started
        settings = plan.settings
        assert isinstance(settings, RayLocalSettings)  # noqa: S101 - of this engine
        #: Requested worker nodes that a running cluster could not add, and why.
        self._not_added: dict[str, str] = {}
        token = record.security["token"]
        variables = {**os.environ, **driver_environment.build_token_variables(token)}
        environment = {name: value for name, value in variables.items() if value is not None}
        environment = {**_LONG_TIMEOUTS, **environment, "RAY_USAGE_STATS_ENABLED": "0"}
        # The dashboard leaves temporary folders when it is killed.
        environment["TMPDIR"] = str(folder)
        self.start_program(
            NodeProgram(record, folder, _NODE_GROUP, environment),
            folder=str(folder),
            object_store=MIN_OBJECT_STORE,
            dashboard=settings.dashboard,
            dashboard_port=plan.dashboard_port or None,
        )

    def start_workers(
        self, count: int, deadline: float, announce: Callable[[str], None] = lambda name: None
    ) -> None:
        """Start worker nodes one after the other, and call a function with the name of each."""
        options = RayOptions.of(self.plan.options)
        for started in range(count):
            name = f"ray-worker-{uuid.uuid4()}"
            self._program.send(
                worker=name,
                cpus=self.plan.worker.nthreads,
                memory=options.memory,
                object_store=options.object_store,
            )
            announce(name)
            message = f"{started} of {plural(count, 'worker node')} have started"
            self._wait_until(
                lambda name=name: name in self.workers or name in self._not_added,  # type: ignore[misc]
                deadline,
                message,
            )
            if reason := self._not_added.pop(name, ""):
                raise StartFailed(ENGINE, f"{message}: {reason}", self._program.log)

    def add_workers(self, count: int, announce: Callable[[str], None]) -> None:
        """Start more worker nodes; raise a RequestError if this machine is too small for them."""
        machine = read_capacity(self.plan.settings.reserve_fraction)  # type: ignore[attr-defined]
        cores = (len(self.workers) + count) * self.plan.worker.nthreads
        ram = count * self.plan.worker.ram_per_proc
        if cores > machine.cores or ram > machine.ram:
            size = f"{plural(cores, 'core')} in all and {format_bytes(ram)} more memory"
            allowed = (
                f"worker nodes for which this machine has room: it has "
                f"{plural(machine.cores, 'core')} and {format_bytes(max(0, machine.ram))} of memory"
            )
            check([Fault("extra_workers", f"{count} ({size})", allowed)])
        with allow_interrupts():
            self.start_workers(count, time.monotonic() + self.plan.request.timeout, announce)
        self.write_record()

    def connect_programs(self) -> None:
        """Make ``ray.init()`` connect to the cluster."""
        driver_environment.set_variables(self.address, self.record.security["token"])

    def disconnect_programs(self) -> None:
        """Disconnect this process from the cluster, and restore the variables before it."""
        driver_environment.restore_variables(self.address)

    def handle(self, event: dict[str, Any]) -> None:
        """Update the cluster after an event that the program reports."""
        if event["event"] == "not_added":
            with self._changed:
                self._not_added[event["name"]] = event["message"]
                self._changed.notify_all()
        else:
            super().handle(event)


class AttachedRayCluster(AttachedNodeCluster):
    """A cluster on this machine that another process owns."""

    def add_workers(self, count: int, announce: Callable[[str], None]) -> None:
        """Raise an EngineError: only the owner of a cluster can add worker nodes."""
        del announce
        raise EngineError(
            ENGINE,
            f"extra_workers={count}: only the process that started {self.name} can add worker "
            f"nodes, which is process {self.record.pid}",
        )

    def disconnect_programs(self) -> None:
        """Disconnect this process from the cluster, and restore the variables before it."""
        driver_environment.restore_variables(self.address)
