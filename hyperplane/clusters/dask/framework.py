"""The framework Dask: objects, sections of plans and printed lines that its engines share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from hyperplane import config, config_memory
from hyperplane.clusters.dask.dashboard_lines import SCHEDULER_POD, describe_dashboard
from hyperplane.clusters.dask.default_clients import restore_config_after
from hyperplane.clusters.dask.removed_methods import add_removed_methods
from hyperplane.clusters.dask.settings import user_settings
from hyperplane.clusters.engine import StartedCluster
from hyperplane.clusters.framework import ClusterAddresses, OptionsDraft
from hyperplane.spec.dask_options import DaskOptions
from hyperplane.spec.engine_names import DASK
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.request import ClusterRequest
from hyperplane.spec.tuning import Tuning
from hyperplane.spec.worker import WorkerSpec

if TYPE_CHECKING:
    from distributed.deploy.cluster import Cluster


class DaskFramework:
    """Dask's clusters: a ``distributed.Client`` and a ``Cluster`` of ``distributed.deploy``."""

    name: ClassVar[str] = DASK

    def draft_options(self, request: ClusterRequest) -> OptionsDraft:
        """Return the section for Dask: memory policy and tuning, with notes on the policy."""
        requested = request.memory
        with user_settings():
            memory = config.memory_policy() if requested is None else requested
            from_dask = config_memory.note_dask_thresholds() if requested is None else ""
            overridden = config_memory.note_overridden_thresholds(requested)
        name, profile = config.tuning().find(request.tuning)

        def for_layout(worker: WorkerSpec, nodes: int) -> DaskOptions:
            processes = nodes * worker.nprocs
            tuning = Tuning.of(
                name, profile, processes, worker.nthreads, memory=worker.ram_per_proc
            )
            return DaskOptions(memory, tuning)

        return OptionsDraft(
            for_layout,
            notes=(from_dask,) if from_dask else (),
            alerts=(overridden,) if overridden else (),
        )

    def check_process(self) -> None:
        """Raise an EngineError in a child that was forked while a cluster was open.

        Settings that apply when a cluster runs are read, too: they would be refused too late.
        """
        from hyperplane.guard import forks

        forks.check_not_forked()
        config.progress()

    def prepare(self, started: StartedCluster, attached: bool) -> None:
        """Add removed methods, guard against forks, and restore Dask's settings at the end."""
        # Imported here because it loads distributed, which planning does not need.
        from hyperplane.clusters.dask import log_filters
        from hyperplane.clusters.dask.compute_display import show_progress_of
        from hyperplane.clusters.dask.kernel_shutdown import close_with_kernel
        from hyperplane.guard import forks

        log_filters.show_as_notes()
        add_removed_methods(started.client)
        loop: Any = started.client.loop
        log_filters.drop_interrupted_waits(loop.asyncio_loop)
        forks.guard_forks(started.client, started.cluster)
        # Settings of a cluster that this process started apply until that cluster closes.
        key = getattr(started.cluster, "settings_key", "") if attached else ""
        restore_config_after(started.client, key)
        progress = config.progress()
        show_progress_of(started.client, progress.delay_seconds, progress.log_lines)
        if not attached:
            close_with_kernel(started)

    def status(self, cluster: Cluster) -> str:
        """Return the name of Dask's status."""
        return cluster.status.name

    def addresses(self, started: StartedCluster) -> ClusterAddresses:
        """Return the addresses of the scheduler and of its dashboard."""
        cluster = started.cluster
        return ClusterAddresses(cluster.scheduler_address, cluster.dashboard_link or "")

    def starting_lines(self, plan: ClusterPlan) -> list[str]:
        """Return the documented lines about a scheduler in a pod."""
        del plan
        return list(SCHEDULER_POD)

    def ready_lines(self, plan: ClusterPlan, dashboard: str) -> list[str]:
        """Return the documented lines about the dashboard and the logs."""
        return describe_dashboard(plan, dashboard)
