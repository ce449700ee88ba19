"""From a finished plan to a running cluster of pods."""

from __future__ import annotations

import json
import time
from typing import cast

from distributed import Client
from distributed.security import Security

from hyperplane.engines.base import StartedCluster
from hyperplane.engines.dask_settings import apply_client_settings
from hyperplane.engines.kubernetes.render import manifest
from hyperplane.engines.remote_process import key_pair
from hyperplane.engines.wait_for_workers import connect_client
from hyperplane.optional import need
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.settings import KubernetesSettings

#: How long a running cluster may take to answer the first question.
ANSWER_WITHIN = 60.0


def start(plan: ClusterPlan) -> StartedCluster:
    """Create the cluster; return when every worker is there.

    Raises
    ------
    StartTimeout
        When the pods did not run in time, with what Kubernetes says of them.
    StartFailed
        When something else went wrong. Either way nothing is left.
    """
    need("dask_kubernetes", extra="kubernetes")
    from hyperplane.engines.kubernetes.cluster import HyperplaneKubeCluster

    settings = cast(KubernetesSettings, plan.settings)
    began = time.monotonic()
    tls = key_pair(Security.temporary()) if settings.security == "tls" else {}
    cluster = HyperplaneKubeCluster(
        plan.name,
        manifest(plan),
        namespace=settings.namespace,
        tls=tls,
        deadline=began + plan.request.timeout,
        port_forward=settings.port_forward,
        dashboard_port=plan.dashboard_port or None,
    )
    try:
        client = connect_client(
            cluster, plan, settings, began, lambda: cluster.sync(cluster.resource.explain_pending)
        )
    except BaseException:
        cluster.close()
        raise
    cluster.remember_client(client)
    return StartedCluster(client, cluster)


def connect(name: str, settings: KubernetesSettings) -> StartedCluster:
    """Attach to a running cluster of the namespace.

    Parameters
    ----------
    name : str
        Name of the cluster.
    settings : KubernetesSettings
        Where to look, and how to reach it.

    Raises
    ------
    EngineError
        When there is none of that name, with those that there are; when it does not answer.
    """
    need("dask_kubernetes", extra="kubernetes")
    from hyperplane.engines.kubernetes.cluster import HyperplaneKubeCluster

    cluster = HyperplaneKubeCluster(
        name,
        None,
        namespace=settings.namespace,
        tls={},
        deadline=time.monotonic() + ANSWER_WITHIN,
        port_forward=settings.port_forward,
    )
    try:
        apply_client_settings(cluster.settings_key, json.loads(cluster.client_settings_json))
        client = Client(cluster, timeout=ANSWER_WITHIN)
        cluster.remember_client(client)
        return StartedCluster(client, cluster)
    except BaseException:
        cluster.detach()
        raise
