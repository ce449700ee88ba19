"""Start the cluster of a plan on Kubernetes, or attach to a running one."""

from __future__ import annotations

import json
import logging
import time
from typing import cast

from distributed import Client
from distributed.security import Security

from hyperplane.clusters.dask.adaptive import begin_remote_adapting
from hyperplane.clusters.dask.kubernetes.render import build_manifest
from hyperplane.clusters.dask.remote_process import key_pair
from hyperplane.clusters.dask.scheduler_silence import stall_seconds, watch_scheduler
from hyperplane.clusters.dask.settings import apply_client_settings
from hyperplane.clusters.dask.wait_for_workers import connect_client
from hyperplane.clusters.engine import StartedCluster
from hyperplane.core.by_value import find_own_imports, pickled_by_value
from hyperplane.core.optional import need
from hyperplane.guard import usage
from hyperplane.guard.run_recorder import RunRecorder
from hyperplane.guard.scheduler_unreachable import SchedulerUnreachable
from hyperplane.guard.usage import UsageMonitor
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.settings import KubernetesSettings

logger = logging.getLogger(__name__)

#: Seconds that a running cluster may take to answer the first request.
CONNECT_SECONDS = 60.0


def start(plan: ClusterPlan) -> StartedCluster:
    """Create the cluster; return when all workers have connected.

    Raises
    ------
    StartTimeout
        If the workers did not connect in time, with the state of their pods.
    StartFailed
        If the start failed otherwise. In both cases nothing is left running.
    """
    need("dask_kubernetes", extra="kubernetes")
    from hyperplane.clusters.dask.kubernetes.cluster import HyperplaneKubeCluster

    settings = cast(KubernetesSettings, plan.settings)
    recorder = RunRecorder(plan)
    began = time.monotonic()
    tls = key_pair(Security.temporary()) if settings.security == "tls" else {}
    cluster = HyperplaneKubeCluster(
        plan.name,
        build_manifest(plan),
        namespace=settings.namespace,
        tls=tls,
        deadline=began + plan.request.timeout,
        port_forward=settings.port_forward,
        dashboard_port=plan.dashboard_port or None,
        lease=settings.lease_seconds,
    )
    try:
        client = connect_client(
            cluster, plan, settings, began, lambda: cluster.sync(cluster.resource.explain_pending)
        )
        _measure_usage(client, recorder)
        cluster.begin_record(recorder)
        begin_remote_adapting(cluster, plan)
    except BaseException:
        cluster.close()
        raise
    cluster.remember_client(client)
    return StartedCluster(client, cluster)


def _measure_usage(client: Client, recorder: RunRecorder) -> None:
    """Let the scheduler, which may be without this package, measure what the cluster takes."""
    try:
        with pickled_by_value(*find_own_imports(usage)):
            client.register_plugin(UsageMonitor(recorder.spill, plan=recorder.plan_fields))
    except SchedulerUnreachable:
        raise
    except Exception as error:  # noqa: BLE001 - the scheduler can raise any exception
        logger.warning("the record of this run will have no figures: %s", error)


def connect(name: str, settings: KubernetesSettings) -> StartedCluster:
    """Attach to a running cluster of the namespace.

    Raises
    ------
    EngineError
        If no cluster of that name runs (the message lists those that do), or if it does not
        answer.
    """
    need("dask_kubernetes", extra="kubernetes")
    from hyperplane.clusters.dask.kubernetes.cluster import HyperplaneKubeCluster

    cluster = HyperplaneKubeCluster(
        name,
        None,
        namespace=settings.namespace,
        tls={},
        deadline=time.monotonic() + CONNECT_SECONDS,
        port_forward=settings.port_forward,
    )
    try:
        apply_client_settings(cluster.settings_key, json.loads(cluster.client_settings_json))
        client = Client(cluster, timeout=CONNECT_SECONDS)
        watch_scheduler(client, cluster, name, stall_seconds(settings))
        cluster.remember_client(client)
        return StartedCluster(client, cluster)
    except BaseException:
        cluster.detach()
        raise
