"""Start the cluster of a plan through a gateway."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, cast

from dask_gateway import Gateway
from distributed import Client
from distributed.deploy.cluster import Cluster

from hyperplane.clusters import interrupts, records
from hyperplane.clusters.dask import versions
from hyperplane.clusters.dask.adaptive import begin_remote_adapting
from hyperplane.clusters.dask.budget_meter import new_budget_meter
from hyperplane.clusters.dask.cluster_records import release_cluster, reserve_record
from hyperplane.clusters.dask.gateway import options, plugins, server
from hyperplane.clusters.dask.gateway.cluster import WatchedGatewayCluster
from hyperplane.clusters.dask.guarded_cluster import TIME_TO_LIVE
from hyperplane.clusters.dask.open_client import open_client
from hyperplane.clusters.dask.remote_process import server_settings, worker_variables
from hyperplane.clusters.dask.scheduler_silence import watch_scheduler
from hyperplane.clusters.dask.start_errors import remaining
from hyperplane.clusters.dask.wait_for_workers import connect_client
from hyperplane.clusters.engine import StartedCluster
from hyperplane.clusters.start_progress import report_start
from hyperplane.core.errors import EngineError, StartFailed, StartTimeout
from hyperplane.core.units import bytes_to_gb, format_bytes, plural
from hyperplane.guard.busy import BusyWorkerGuard
from hyperplane.guard.run_recorder import RunRecorder, summarize_plan
from hyperplane.guard.scheduler_unreachable import SchedulerUnreachable
from hyperplane.guard.usage import UsageMonitor
from hyperplane.spec.dask_options import DaskOptions
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.settings import GatewaySettings

ENGINE = server.ENGINE
#: Seconds between checks of a scheduler that starts.
POLL_INTERVAL = 0.25
#: Relative deviation of a worker's memory from the plan that is accepted, because servers round.
MEMORY_TOLERANCE = 0.01

logger = logging.getLogger(__name__)


def start(plan: ClusterPlan) -> StartedCluster:
    """Start a cluster through the gateway; return when all workers have connected.

    Raises
    ------
    RequestError
        With every option that the gateway refuses; nothing was started.
    StartTimeout
        If the workers did not connect in time.
    StartFailed
        If the start failed otherwise. In both cases nothing is left running.
    """
    settings = cast(GatewaySettings, plan.settings)
    began = time.monotonic()
    connection = server.connection_settings(settings)
    try:
        gateway = server.open_gateway(connection)
    except EngineError as error:
        raise StartFailed(ENGINE, error.message) from error
    try:
        record = _reserve_record(plan, connection)
    except StartFailed:
        gateway.close()
        raise
    release = partial(release_cluster, plan.name, record.scratch)
    pending = _PendingCluster(gateway, plan, settings, release)
    try:
        with server.translate_errors(gateway):
            cluster = pending.start_scheduler(began)
            pending.send_plugins(cluster, began)
            pending.scale()
            client = connect_client(cluster, plan, settings, began, pending.explain_wait)
            cluster.remember_client(client)
            cluster.begin_record(RunRecorder(plan))
            pending.check_sizes(client)
            begin_remote_adapting(cluster, plan)
        dashboard = cluster.dashboard_link or ""
        records.write(replace(record, scheduler=cluster.scheduler_address, dashboard=dashboard))
    except BaseException:
        pending.abort()
        raise
    gateway.close()  # the cluster object has another one
    return StartedCluster(client, cast(Cluster, cluster))


def _reserve_record(plan: ClusterPlan, connection: Mapping[str, Any]) -> records.ClusterRecord:
    """Reserve and return a record; its client settings include how to reach the gateway."""
    client = {**DaskOptions.of(plan.options).tuning.client, **connection}
    return reserve_record(plan, None, client=client)


def _needed_plugins(plan: ClusterPlan, settings: GatewaySettings) -> list[Any]:
    """Return the guards, and plugins for the settings that no option of the gateway receives."""
    mapped = set(settings.options_from_plan.values())
    dotted = server_settings(plan, settings)
    needed: list[Any] = []
    if "environment" not in mapped:
        needed = [
            plugins.SchedulerSettings(dotted),
            plugins.NannySettings(dotted, worker_variables(plan)),
        ]
    if TIME_TO_LIVE in dotted:  # not if the user has set the time-to-live
        needed.append(BusyWorkerGuard())
    idle = plan.idle_timeout
    if idle is not None and "idle_timeout" not in mapped:
        needed.append(plugins.GatewayIdleGuard(idle, begin_within=plan.request.timeout))
    if settings.lease_seconds:
        needed.append(plugins.GatewayLeaseGuard(settings.lease_seconds, plan.request.timeout))
    spill = DaskOptions.of(plan.options).memory.spill
    needed.append(UsageMonitor(spill, plan=summarize_plan(plan).model_dump()))
    meter = new_budget_meter(plan)
    if meter is not None:
        needed.append(plugins.GatewayBudgetGuard(meter))
    return needed


class _PendingCluster:
    """A cluster that is being started: the steps of the start, and their cleanup."""

    def __init__(
        self, gateway: Gateway, plan: ClusterPlan, settings: GatewaySettings, release: partial[None]
    ) -> None:
        self.gateway, self.plan, self.settings, self.release = gateway, plan, settings, release
        self.name: str | None = None
        self.cluster: WatchedGatewayCluster | None = None

    def start_scheduler(self, began: float) -> WatchedGatewayCluster:
        """Request the cluster, and return it when its scheduler runs."""
        cluster_options = server.call(self.gateway, "cluster_options", use_local_defaults=False)
        options.fill_options(cluster_options, self.plan)
        self.name = server.call(self.gateway, "submit", cluster_options)
        with interrupts.allow_interrupts():
            self._wait_for_scheduler(began)
        self.cluster = WatchedGatewayCluster.create(
            self.gateway, self.name, self.release, owner=True, within=self.remaining(began)
        )
        return self.cluster

    def _wait_for_scheduler(self, began: float) -> None:
        timeout = self.plan.request.timeout
        while self.state() != "RUNNING":
            if time.monotonic() - began > timeout:
                raise StartTimeout(
                    ENGINE,
                    f"the gateway did not start the scheduler within {timeout:g} s (timeout); "
                    f"cluster {self.name} was stopped again. {self.explain_wait()}",
                )
            report_start(self.plan.name, detail="the gateway starts the scheduler")
            time.sleep(POLL_INTERVAL)

    def remaining(self, began: float) -> float:
        """Return the seconds that remain for the start."""
        return began + self.plan.request.timeout - time.monotonic()

    def state(self) -> str:
        """Return the gateway's status of the cluster; raise StartFailed if it was ended."""
        state: str = server.call(self.gateway, "cluster_report", self.name).status.name
        if state in {"FAILED", "STOPPED", "STOPPING"}:
            raise StartFailed(
                ENGINE,
                f"the gateway ended cluster {self.name} ({state.lower()}): its scheduler or its "
                "workers did not start. See the log of the gateway server",
            )
        return state

    def explain_wait(self) -> str:
        """Return the gateway's status of a cluster with missing workers, for messages."""
        with server.translate_errors(self.gateway):
            state = self.state().lower()
        return (
            f"The gateway reports for cluster {self.name}: {state}. See the log of the gateway "
            "server for why its workers wait or cannot start"
        )

    def send_plugins(self, cluster: WatchedGatewayCluster, began: float) -> None:
        """Register plugins for settings without an option, before any worker starts."""
        timeout_left = cluster.connect_timeout(self.remaining(began))
        with open_client(
            lambda: Client(cluster, set_as_default=False, timeout=timeout_left),
            cluster,
            remaining(self.plan, began),
        ) as client:
            # First, because classes that are pickled by value need the same Python version.
            versions.check(client, ENGINE, self.settings, remaining(self.plan, began))
            watch_scheduler(client, cluster, self.plan.name, self.plan.stall_timeout)
            try:
                with plugins.pickled_by_value():
                    for plugin in _needed_plugins(self.plan, self.settings):
                        client.register_plugin(plugin)
                if self.settings.lease_seconds:
                    cluster.begin_lease(self.settings.lease_seconds)
            except SchedulerUnreachable as error:
                raise StartFailed(ENGINE, f"{error}; cluster {self.name} was stopped") from error
            except Exception as error:
                if self.plan.request.budget is not None:
                    raise StartFailed(
                        ENGINE,
                        f"cluster {self.name} accepts no plugins ({error}), so that it cannot be "
                        "closed when its budget is used up; start it without budget",
                    ) from error
                logger.warning(
                    "cluster %s accepts no plugins (%s): the gateway's own memory policy and idle "
                    "timeout apply, unless hyperplane.engines.gateway.plan_options has options "
                    "for environment and idle_timeout; the cluster has no lease",
                    self.name,
                    error,
                )

    def scale(self) -> None:
        """Request the workers; raise StartFailed if the gateway permits fewer."""
        answer = server.call(
            self.gateway,
            "request",
            "POST",
            f"{self.gateway.address}/api/v1/clusters/{self.name}/scale",
            json={"count": self.plan.dask_workers},
        )
        reply = self.gateway.sync(answer.json)
        if not reply.get("ok", True):
            processes = plural(self.plan.dask_workers, "worker process")
            raise StartFailed(
                ENGINE,
                f"{processes} are more than the gateway permits: {reply.get('msg')} "
                "Request fewer nodes or processes; the cluster was stopped again",
            )

    def check_sizes(self, client: Client) -> None:
        """Compare the workers with the plan; an option may use another unit or be ignored."""
        worker = self.plan.worker
        for process in client.scheduler_info(n_workers=-1)["workers"].values():
            threads, limit = process["nthreads"], process["memory_limit"]
            deviation = abs(limit - worker.ram_per_proc) / worker.ram_per_proc
            if threads != worker.nthreads or deviation > MEMORY_TOLERANCE:
                raise StartFailed(
                    ENGINE,
                    f"the gateway's workers have {plural(threads, 'thread')} and "
                    f"{format_bytes(limit)}; the plan has {plural(worker.nthreads, 'thread')} and "
                    f"{format_bytes(worker.ram_per_proc)}. Set in "
                    "hyperplane.engines.gateway.plan_options which options of the gateway receive "
                    "nthreads and which ram_gib, ram_gb or ram_bytes, or request "
                    f"nthreads={threads}, ram_gb_per_proc={bytes_to_gb(limit):g}; "
                    "the cluster was stopped again",
                )

    def abort(self) -> None:
        """Stop the cluster, and remove its record, scratch folder and client settings."""
        try:
            if self.cluster is not None:
                self.cluster.close()
            elif self.name is not None:
                with suppress(*server.FAILURES):  # the caller needs the first error
                    server.call(self.gateway, "stop_cluster", self.name)
        finally:
            self.gateway.close()
            self.release()
