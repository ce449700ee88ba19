"""From a finished plan to a running cluster of a gateway."""

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

from hyperplane.engines import interrupts, records, versions
from hyperplane.engines.base import StartedCluster
from hyperplane.engines.gateway import options, plugins, server
from hyperplane.engines.gateway.cluster import WatchedGatewayCluster
from hyperplane.engines.guarded_cluster import TIME_TO_LIVE
from hyperplane.engines.launch import new_record, release_cluster
from hyperplane.engines.remote_process import server_settings, worker_variables
from hyperplane.engines.wait_for_workers import connect_client
from hyperplane.errors import EngineError, StartFailed, StartTimeout
from hyperplane.guard.busy import BusyWorkerGuard
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.settings import GatewaySettings
from hyperplane.units import bytes_to_gb, format_bytes, plural

ENGINE = server.ENGINE
#: Seconds between looks at a scheduler that starts.
POLL_INTERVAL = 0.25
#: How far the memory of a worker may be from the plan: servers round.
MEMORY_TOLERANCE = 0.01

logger = logging.getLogger(__name__)


def start(plan: ClusterPlan) -> StartedCluster:
    """Have the gateway start a cluster; return when every worker is there.

    Raises
    ------
    RequestError
        With every option that the gateway does not take; nothing was started.
    StartTimeout
        When the workers were not there in time.
    StartFailed
        When something else went wrong. Either way nothing is left running.
    """
    settings = cast(GatewaySettings, plan.settings)
    began = time.monotonic()
    connection = server.connection_settings(settings)
    try:
        gateway = server.open_gateway(connection)
    except EngineError as error:
        raise _failed(error) from error
    try:
        record = _reserve_record(plan, connection)
    except OSError as error:
        gateway.close()
        raise _failed(error) from error
    release = partial(release_cluster, plan.name, record.scratch)
    pending = _PendingCluster(gateway, plan, settings, release)
    try:
        with server.translate_errors(gateway):
            cluster = pending.start_scheduler(began)
            pending.send_plugins(cluster, began)
            pending.scale()
            client = connect_client(cluster, plan, settings, began, pending.explain_wait)
            cluster.remember_client(client)
            pending.check_sizes(client)
        dashboard = cluster.dashboard_link or ""
        records.write(replace(record, scheduler=cluster.scheduler_address, dashboard=dashboard))
    except BaseException:
        pending.abort()
        raise
    gateway.close()  # the cluster has its own
    return StartedCluster(client, cast(Cluster, cluster))


def _failed(error: Exception) -> StartFailed:
    return StartFailed(ENGINE, str(error).removeprefix(f"engine {ENGINE}: "))


def _reserve_record(plan: ClusterPlan, connection: Mapping[str, Any]) -> records.ClusterRecord:
    """A record under the plan's name; it tells a second handle the way to the gateway."""
    return records.reserve(new_record(plan, client={**plan.tuning.client, **connection}), None)


def _needed_plugins(plan: ClusterPlan, settings: GatewaySettings) -> list[Any]:
    """Plugins for what the gateway has no option for."""
    mapped = set(settings.options_from_plan.values())
    dotted = server_settings(plan, settings)
    found: list[Any] = []
    if "environment" not in mapped:
        found = [
            plugins.SchedulerSettings(dotted),
            plugins.NannySettings(dotted, worker_variables(plan)),
        ]
    if TIME_TO_LIVE in dotted:  # one that the user chose is kept exactly
        found.append(BusyWorkerGuard())
    idle = plan.idle_timeout
    if idle is not None and "idle_timeout" not in mapped:
        found.append(plugins.GatewayIdleGuard(idle, begin_within=plan.request.timeout))
    return found


class _PendingCluster:
    """A start on its way: each step, and how to undo all of them."""

    def __init__(
        self, gateway: Gateway, plan: ClusterPlan, settings: GatewaySettings, release: partial[None]
    ) -> None:
        self.gateway, self.plan, self.settings, self.release = gateway, plan, settings, release
        self.name: str | None = None
        self.cluster: WatchedGatewayCluster | None = None

    def start_scheduler(self, began: float) -> WatchedGatewayCluster:
        """Ask for the cluster, and return when its scheduler runs."""
        asked = server.call(self.gateway, "cluster_options", use_local_defaults=False)
        options.fill_options(asked, self.plan)
        self.name = server.call(self.gateway, "submit", asked)
        with interrupts.allow_interrupts():
            self._wait_for_scheduler(began)
        self.cluster = WatchedGatewayCluster.of(
            self.gateway, self.name, self.release, owner=True, within=self.remaining(began)
        )
        return self.cluster

    def _wait_for_scheduler(self, began: float) -> None:
        timeout = self.plan.request.timeout
        while self.state() != "RUNNING":
            if time.monotonic() - began > timeout:
                raise StartTimeout(
                    ENGINE,
                    f"the gateway has not started the scheduler within {timeout:g} s (timeout); "
                    f"it was told to end cluster {self.name}. {self.explain_wait()}",
                )
            time.sleep(POLL_INTERVAL)

    def remaining(self, began: float) -> float:
        """Seconds that are left for the start."""
        return began + self.plan.request.timeout - time.monotonic()

    def state(self) -> str:
        """What the gateway says of the cluster; an error when it has given it up."""
        state: str = server.call(self.gateway, "cluster_report", self.name).status.name
        if state in {"FAILED", "STOPPED", "STOPPING"}:
            raise StartFailed(
                ENGINE,
                f"the gateway gave cluster {self.name} up ({state.lower()}): its scheduler or its "
                "workers did not start. The log of the gateway's server says why",
            )
        return state

    def explain_wait(self) -> str:
        """What is known of workers that do not come."""
        with server.translate_errors(self.gateway):
            state = self.state().lower()
        return (
            f"The gateway says of cluster {self.name}: {state}. Whether its workers wait for room "
            "or cannot start is in the log of the gateway's server"
        )

    def send_plugins(self, cluster: WatchedGatewayCluster, began: float) -> None:
        """What no option of the gateway says: told to the running scheduler, before any worker."""
        timeout_left = cluster.connect_timeout(self.remaining(began))
        with Client(cluster, set_as_default=False, timeout=timeout_left) as client:
            # First, because what is pickled with its code needs the same Python.
            versions.check(client, ENGINE, self.settings)
            try:
                with plugins.pickled_by_value():
                    for plugin in _needed_plugins(self.plan, self.settings):
                        client.register_plugin(plugin)
            except Exception as error:  # noqa: BLE001 - of the scheduler, so of any kind
                logger.warning(
                    "cluster %s takes no plugins (%s): the gateway's own memory policy and idle "
                    "timeout hold, unless hyperplane.engines.gateway.plan_options has options "
                    "for environment and idle_timeout",
                    self.name,
                    error,
                )

    def scale(self) -> None:
        """Ask for the workers; fewer than asked are none."""
        answer = server.call(
            self.gateway,
            "request",
            "POST",
            f"{self.gateway.address}/api/v1/clusters/{self.name}/scale",
            json={"count": self.plan.dask_workers},
        )
        reply = self.gateway.sync(answer.json)
        if not reply.get("ok", True):
            asked = plural(self.plan.dask_workers, "worker process")
            raise StartFailed(
                ENGINE,
                f"{asked} were asked, which is more than the gateway gives: {reply.get('msg')} "
                "Ask for fewer nodes or processes; the cluster was ended again",
            )

    def check_sizes(self, client: Client) -> None:
        """Compare the workers with the plan: an option may mean another unit, or nothing."""
        worker = self.plan.worker
        for one in client.scheduler_info(n_workers=-1)["workers"].values():
            threads, limit = one["nthreads"], one["memory_limit"]
            off = abs(limit - worker.ram_per_proc) / worker.ram_per_proc
            if threads != worker.nthreads or off > MEMORY_TOLERANCE:
                raise StartFailed(
                    ENGINE,
                    f"the gateway's workers have {plural(threads, 'thread')} and "
                    f"{format_bytes(limit)}; the plan has {plural(worker.nthreads, 'thread')} and "
                    f"{format_bytes(worker.ram_per_proc)}. Say in "
                    "hyperplane.engines.gateway.plan_options which options of the gateway are told "
                    "nthreads and which ram_gib, ram_gb or ram_bytes, or ask for "
                    f"nthreads={threads}, ram_gb_per_proc={bytes_to_gb(limit):g}; "
                    "the cluster was ended again",
                )

    def abort(self) -> None:
        """End the cluster and forget it."""
        try:
            if self.cluster is not None:
                self.cluster.close()
            elif self.name is not None:
                with suppress(*server.FAILURES):  # the first error is the one to tell
                    server.call(self.gateway, "stop_cluster", self.name)
        finally:
            self.gateway.close()
            self.release()
