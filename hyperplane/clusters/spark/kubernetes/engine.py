"""The engine ``spark:kubernetes``, which renders a script for spark-submit and starts nothing."""

from __future__ import annotations

from typing import ClassVar, NoReturn, cast

from hyperplane.clusters.engine import Availability, Feature
from hyperplane.clusters.pod_requests import find_pod_faults
from hyperplane.clusters.spark.kubernetes.render import OWN_PROPERTIES, render_script
from hyperplane.core.errors import EngineUnavailable, Fault
from hyperplane.core.units import format_bytes, parse_bytes
from hyperplane.platforms.kubernetes.kubeconfig import read_server, resolve_kubeconfig
from hyperplane.spec.capacity import MachineCapacity
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.request import ClusterRequest
from hyperplane.spec.settings import EngineSettings, SparkKubernetesSettings
from hyperplane.spec.spark_options import MIN_EXECUTOR

ENGINE = "spark:kubernetes"
_SECTION = "hyperplane.engines.spark_kubernetes"
_IMAGE = "an image with Spark, Python and the packages of the program"
#: Maximum characters of the name of a cluster.
_LONGEST_NAME = 63
_WHY = (
    "a driver outside of Kubernetes cannot be reached by its executors; hyperplane plan --engine "
    f"{ENGINE} --render prints a script that submits a program whose driver is a pod, too"
)


class KubernetesSparkEngine:
    """Renders a script for spark-submit: driver and executors are pods; it starts no cluster."""

    name: ClassVar[str] = ENGINE
    settings: ClassVar[type[EngineSettings]] = SparkKubernetesSettings
    unsupported: ClassVar[frozenset[Feature]] = frozenset({Feature.GPUS})
    ignored: ClassVar[frozenset[str]] = frozenset(
        {
            "worker_spec_yaml",
            "scheduler_ram",
            "scheduler_cpu",
            "memory",
            "tuning",
            "local_fit",
            "idle_timeout",
        }
    )
    uses_pools: ClassVar[bool] = True
    #: Whether no plan of the engine can be started.
    only_renders: ClassVar[bool] = True

    def available(self) -> Availability:
        """Return that no cluster can be started, and what can be done."""
        return Availability(False, _WHY)

    def capacity(self, settings: EngineSettings) -> MachineCapacity | None:
        """Return None: Kubernetes may add nodes as they are needed."""
        del settings
        return None

    def faults(self, request: ClusterRequest, settings: EngineSettings) -> list[Fault]:
        """Return faults of pods, of properties, of the context and of the driver's memory."""
        given = cast(SparkKubernetesSettings, settings)
        faults = find_pod_faults(request, given, _LONGEST_NAME, _IMAGE)
        if parse_bytes(str(given.driver_ram)) < MIN_EXECUTOR:
            allowed = f"at least {format_bytes(MIN_EXECUTOR)}"
            faults.append(Fault(f"{_SECTION}.driver_ram", repr(given.driver_ram), allowed))
        for key in sorted(OWN_PROPERTIES & given.properties.keys()):
            allowed = "a property that the plan and other settings do not set"
            faults.append(Fault(f"{_SECTION}.properties", key, allowed))
        if given.context and resolve_kubeconfig(None, None) and not read_server(given.context):
            allowed = "a context of kubectl's configuration; kubectl config get-contexts lists them"
            faults.append(Fault(f"{_SECTION}.context", repr(given.context), allowed))
        return faults

    def render(self, plan: ClusterPlan) -> str:
        """Return the script; its arguments are the program, a path in the image, and its own."""
        return render_script(plan)

    def start(self, plan: ClusterPlan) -> NoReturn:
        """Raise an EngineUnavailable: the rendered script starts the program."""
        del plan
        raise EngineUnavailable(ENGINE, _WHY)

    def connect(self, name: str, settings: EngineSettings) -> NoReturn:
        """Raise an EngineUnavailable: there is no cluster without its program."""
        del name, settings
        raise EngineUnavailable(ENGINE, _WHY)
