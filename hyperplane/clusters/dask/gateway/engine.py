"""The gateway engine: clusters that a dask-gateway server starts."""

from __future__ import annotations

from typing import ClassVar, cast

import dask.config
import yaml

from hyperplane.clusters.dask.gpu_layout import one_process_per_gpu
from hyperplane.clusters.engine import Availability, Feature, StartedCluster, SupportedDeployMode
from hyperplane.clusters.listed_cluster import ListedCluster
from hyperplane.core.errors import Fault
from hyperplane.core.optional import is_installed
from hyperplane.guard.preflight.request import PreflightRequest
from hyperplane.guard.preflight.run_checks import Check
from hyperplane.spec.capacity import MachineCapacity
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.request import ClusterRequest
from hyperplane.spec.settings import EngineSettings, GatewaySettings
from hyperplane.spec.worker import WorkerSpec

_SECTION = "hyperplane.engines.gateway"


class GatewayEngine:
    """Starts clusters through a dask-gateway server."""

    name: ClassVar[str] = "gateway"
    unsupported: ClassVar[frozenset[Feature]] = frozenset()
    supported: ClassVar[frozenset[Feature]] = frozenset({Feature.ADAPTIVE, Feature.BUDGET})
    ignored: ClassVar[frozenset[str]] = frozenset(
        {"worker_spec_yaml", "node_selector", "dashboard_port", "local_fit"}
    )
    settings: ClassVar[type[EngineSettings]] = GatewaySettings
    uses_pools: ClassVar[bool] = False
    supported_deploy_mode: ClassVar[SupportedDeployMode] = SupportedDeployMode(
        "remote", "the gateway starts the scheduler beside the workers"
    )

    def available(self) -> Availability:
        """Return whether dask-gateway is installed; its server is not contacted."""
        if not is_installed("dask_gateway"):
            return Availability(False, "it needs dask-gateway: pip install 'hyperplane[gateway]'")
        address = f"the server is {_SECTION}.address or gateway.address"
        contact = "it is contacted when a cluster starts"
        return Availability(True, f"dask-gateway is installed; {address}; {contact}")

    def capacity(self, settings: EngineSettings) -> MachineCapacity | None:
        """Return None: only the server knows its limits."""
        del settings
        return None

    def layout(self, asked: WorkerSpec) -> tuple[WorkerSpec, str]:
        """Return the layout with one worker process on each GPU, if GPUs are requested."""
        return one_process_per_gpu(asked)

    def faults(self, request: ClusterRequest, settings: EngineSettings) -> list[Fault]:
        """Return faults for missing or contradictory settings and for sizes without an option."""
        gateway = cast(GatewaySettings, settings)
        faults = _find_unmapped_quantities(request, gateway)
        if _has_no_address(gateway):
            advice = (
                'set it, or give engine_options={"address": "https://..."} '
                "(on the command line --engine-options address=https://...)"
            )
            allowed = "the address of a dask-gateway server"
            faults.append(Fault(f"{_SECTION}.address", "nothing", allowed, advice))
        for name, kinds in (
            ("username", {"basic"}),
            ("password_variable", {"basic", "jupyterhub"}),
        ):
            value = getattr(gateway, name)
            if value is not None and gateway.auth not in kinds:
                allowed = f"null, because {_SECTION}.auth is {gateway.auth or 'null'}"
                advice = f"set {_SECTION}.auth to {' or '.join(sorted(kinds))}"
                faults.append(Fault(f"{_SECTION}.{name}", repr(value), allowed, advice))
        return faults

    def render(self, plan: ClusterPlan) -> str:
        """Return as YAML the request to the server, without the password."""
        from hyperplane.clusters.dask.gateway.options import describe

        return yaml.safe_dump(describe(plan), sort_keys=False, width=100)

    def preflight_checks(self, plan: ClusterPlan, request: PreflightRequest) -> list[Check]:
        """Return the checks of the connection and of local modules."""
        from hyperplane.clusters.dask.gateway.preflight import list_checks

        return list_checks(plan, request)

    def start(self, plan: ClusterPlan) -> StartedCluster:
        """Start the cluster through the server; return when all workers have connected."""
        from hyperplane.clusters.dask.gateway.start import start

        return start(plan)

    def connect(self, name: str, settings: EngineSettings) -> StartedCluster:
        """Attach to a cluster of this user, by the name in its plan or the gateway's name."""
        from hyperplane.clusters.dask.gateway.connect import connect

        return connect(name, cast(GatewaySettings, settings))

    def list_clusters(self, settings: EngineSettings, seconds: float) -> list[ListedCluster]:
        """Return the clusters of this user that the gateway runs."""
        given = cast(GatewaySettings, settings)
        if _has_no_address(given) or not is_installed("dask_gateway"):
            return []
        from hyperplane.clusters.dask.gateway.listing import list_clusters

        return list_clusters(given, seconds)

    def stop_listed(self, cluster: ListedCluster, settings: EngineSettings) -> None:
        """Make the gateway stop a cluster."""
        from hyperplane.clusters.dask.gateway.listing import stop_listed

        stop_listed(cluster, cast(GatewaySettings, settings))


def _has_no_address(settings: GatewaySettings) -> bool:
    return settings.address is None and dask.config.get("gateway.address", default=None) is None


def _find_unmapped_quantities(request: ClusterRequest, settings: GatewaySettings) -> list[Fault]:
    """Return a fault for each requested quantity that ``plan_options`` maps to no option."""
    asked = {
        "scheduler_cpu": (request.scheduler_cpu, "scheduler_cpu"),
        "scheduler_ram": (request.scheduler_ram, "scheduler_ram_gib"),
        "ngpus": (request.ngpus or None, "ngpus"),
    }
    return [
        Fault(
            name,
            repr(value),
            "no value, because no option of the gateway receives it",
            f"add the option to {_SECTION}.plan_options, as OPTION: {quantity}",
        )
        for name, (value, quantity) in asked.items()
        if value is not None
        and not any(mapped.startswith(name) for mapped in settings.options_from_plan.values())
    ]
