"""The cluster object of the engine ``ray:local``."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, ClassVar

from hyperplane.clusters import records
from hyperplane.clusters.gpu_requests import count_gpus
from hyperplane.clusters.machine_capacity import read_capacity
from hyperplane.clusters.ray.cluster import OwnedRayCluster
from hyperplane.clusters.ray.gpus import find_free_gpus
from hyperplane.clusters.spark import on_ray
from hyperplane.core.errors import Fault, StartFailed, check
from hyperplane.core.units import format_bytes, plural
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.settings import RayLocalSettings

ENGINE = "ray:local"


class LocalRayCluster(OwnedRayCluster):
    """A head and worker nodes of Ray on this machine, which this process owns.

    Parameters
    ----------
    plan, record, folder
        As those of OwnedRayCluster.
    """

    engine: ClassVar[str] = ENGINE
    node_group: ClassVar[str] = "hyperplane.clusters.ray.node_group:RayNodeGroup"
    loopback: ClassVar[bool] = True
    starts_together: ClassVar[bool] = False  # they share the cores of this machine

    def __init__(self, plan: ClusterPlan, record: records.ClusterRecord, folder: Path) -> None:
        #: GPUs of each worker node, named as in CUDA_VISIBLE_DEVICES.
        self._gpus: dict[str, list[str]] = {}
        settings = plan.settings
        assert isinstance(settings, RayLocalSettings)  # noqa: S101 - of this engine
        #: Configuration of Spark for programs that use RayDP; None if it cannot be used.
        self._spark_conf: Path | None = None
        request, at_end = {"dashboard": settings.dashboard}, None
        if not on_ray.find_problem():
            self._spark_conf = on_ray.create_configuration(folder)
            at_end = functools.partial(on_ray.disconnect, self._spark_conf)
        super().__init__(plan, record, folder, False, request, at_end)

    def build_environment(self) -> dict[str, str]:
        """Return also what JVMs of Spark need."""
        environment = super().build_environment()
        if self._spark_conf is not None:
            return on_ray.build_node_environment(self._spark_conf, environment)
        return environment

    def connect_programs(self) -> None:
        """Make ``ray.init()`` and ``raydp.init_spark()`` use the cluster."""
        super().connect_programs()
        if self._spark_conf is not None:
            on_ray.set_variables(self._spark_conf)

    def disconnect_programs(self) -> None:
        """Disconnect this process from the cluster, and restore the variables before it."""
        try:
            if self._spark_conf is not None:
                on_ray.disconnect(self._spark_conf)
        finally:
            super().disconnect_programs()

    def disconnect(self) -> None:
        """Disconnect this process, which can connect again."""
        try:
            if self._spark_conf is not None:
                on_ray.end_session()
        finally:
            super().disconnect()

    def describe_connection(self) -> dict[str, Any]:
        """Return also the configuration of Spark, and the GPUs in use."""
        gpus = [gpu for names in self._gpus.values() for gpu in names]
        conf = str(self._spark_conf or "")
        return {**super().describe_connection(), "spark_conf": conf, "gpus": gpus}

    def place_worker(self, name: str) -> dict[str, Any]:
        """Return the names of the GPUs of a new worker node."""
        count = count_gpus(self.plan.worker)
        if not count:
            return {}
        with self._changed:
            free = self._find_free_gpus()
            if len(free) < count:
                others = f"clusters of Ray on this machine leave {len(free)}"
                raise StartFailed(ENGINE, f"a worker node needs {plural(count, 'GPU')}; {others}")
            self._gpus[name] = free[:count]
        return {"gpu_names": free[:count]}

    def _find_free_gpus(self) -> list[str]:
        """Return the GPUs of this machine that no cluster of Ray of this user has."""
        with self._changed:
            used = {gpu for names in self._gpus.values() for gpu in names}
        for record in records.read_all():
            if record.engine == ENGINE and record.name != self.name:
                used.update(record.client.get("gpus", []))
        return find_free_gpus(used)

    def handle(self, event: dict[str, Any]) -> None:
        """Update the cluster after an event that the program reports."""
        if event["event"] in {"not_added", "abandoned", "withdrawn"}:
            with self._changed:
                self._gpus.pop(event["name"], None)
        super().handle(event)

    def check_room(self, count: int) -> None:
        """Raise a RequestError if this machine is too small for more worker nodes."""
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
        if (gpus := count * count_gpus(self.plan.worker)) and gpus > len(self._find_free_gpus()):
            allowed = (
                f"worker nodes for the {plural(len(self._find_free_gpus()), 'GPU')} not in use"
            )
            check([Fault("extra_workers", f"{count} ({plural(gpus, 'more GPU')})", allowed)])
