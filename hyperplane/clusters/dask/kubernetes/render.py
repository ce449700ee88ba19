"""Render a plan as a DaskCluster resource for the operator of dask-kubernetes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, cast

from hyperplane.clusters.pod_requests import select_worker_nodes
from hyperplane.clusters.worker_pods import (
    build_labels,
    build_worker_resources,
    merge_worker_template,
    read_source,
)
from hyperplane.core.units import parse_bytes
from hyperplane.platforms.kubernetes.manifest_yaml import dump_yaml
from hyperplane.platforms.kubernetes.objects import escape_variables, parse_pairs
from hyperplane.platforms.kubernetes.pods import (
    build_configured_pod,
    build_container,
    build_resources,
    build_secret_volume,
    build_variables,
    format_quantities,
)
from hyperplane.spec.dask_options import DaskOptions
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.settings import KubernetesSettings
from hyperplane.spec.settings.base import MAX_SECONDS
from hyperplane.spec.settings.kubernetes import millicores

#: Name of the engine.
ENGINE = "kubernetes"
API_VERSION = "kubernetes.dask.org/v1"
#: Annotations of the resource that other handles of the cluster read.
SECRET = "hyperplane.dev/tls-secret"  # noqa: S105 - the name of an annotation
CLIENT = "hyperplane.dev/client"
#: Ports of the scheduler, and the port of a worker's dashboard.
COMM_PORT, DASHBOARD_PORT, WORKER_DASHBOARD_PORT = 8786, 8787, 8788
#: Folder in which pods have the key pair of their cluster.
TLS_FOLDER = "/etc/hyperplane-tls"
TLS_FILES = {"ca_file": "ca.pem", "cert": "cert.pem", "key": "key.pem"}
#: Mode of its files: all users of the pod read them.
_KEY_MODE = 0o444
#: HTTP routes with which the operator closes workers; without them it uses Dask's own protocol.
_API = "distributed.http.scheduler.api"


def render(plan: ClusterPlan) -> str:
    """Return the resource as YAML; it contains no secrets."""
    return dump_yaml(build_manifest(plan), blocks=True)


def build_manifest(plan: ClusterPlan) -> dict[str, Any]:
    """Return the DaskCluster resource of a plan.

    Each worker process has a separate pod, because the operator scales by pods and closes a pod by
    the name of its only worker process.
    """
    settings = cast(KubernetesSettings, plan.settings)
    annotations = {
        **parse_pairs(settings.annotations),
        CLIENT: json.dumps(DaskOptions.of(plan.options).tuning.client, sort_keys=True),
    }
    if settings.security == "tls":
        annotations[SECRET] = secret_name(plan.name)
    metadata: dict[str, Any] = {"name": plan.name}
    if settings.namespace:
        metadata["namespace"] = settings.namespace
    return {
        "apiVersion": API_VERSION,
        "kind": "DaskCluster",
        "metadata": {
            **metadata,
            "labels": build_labels(plan, settings),
            "annotations": annotations,
        },
        "spec": {
            "idleTimeout": _find_idle_timeout(plan, settings),
            "scheduler": {
                "spec": _build_scheduler(plan, settings),
                "service": _build_service(plan.name),
            },
            "worker": _build_worker(plan, settings),
        },
    }


def _find_idle_timeout(plan: ClusterPlan, settings: KubernetesSettings) -> int:
    """Return the seconds after which the operator deletes an idle cluster; 0 for never.

    The operator also ends clusters whose lease has expired or whose budget is used up, but only if
    there is a timeout.
    """
    longest = MAX_SECONDS if settings.lease_seconds or plan.request.budget else 0
    return math.ceil(plan.idle_timeout or longest)


def secret_name(cluster: str) -> str:
    """Return the name of the Secret with the key pair of a cluster."""
    return f"{cluster}-tls"


def _build_scheduler(plan: ClusterPlan, settings: KubernetesSettings) -> dict[str, Any]:
    request = plan.request
    cpu = millicores(request.scheduler_cpu or settings.scheduler_cpu)
    ram = parse_bytes(str(request.scheduler_ram or settings.scheduler_ram))
    args = ["dask", "scheduler", "--protocol", "tls" if settings.security == "tls" else "tcp"]
    args += ["--port", str(COMM_PORT), "--dashboard-address", f":{DASHBOARD_PORT}"]
    health = {"httpGet": {"port": "http-dashboard", "path": "/health"}}
    args += ["--preload", read_source("hyperplane.clusters.dask.kubernetes", "idle.py")]
    if settings.lease_seconds:
        args += ["--preload", _lease_source(settings.lease_seconds, request.timeout)]
    if plan.request.budget is not None:
        args += ["--preload", _budget_source(plan)]
    if _uses_our_worker_ttl(plan, settings):
        args += ["--preload", read_source("hyperplane.guard", "busy.py")]
    container = {
        **_build_container("scheduler", args, settings),
        "env": _build_variables(plan, settings, {}),
        "resources": build_resources(format_quantities(millicores=cpu, memory=ram), cpu, 1.0),
        "ports": [
            _build_port("tcp-comm", COMM_PORT),
            _build_port("http-dashboard", DASHBOARD_PORT),
        ],
        "readinessProbe": {**health, "periodSeconds": 1, "timeoutSeconds": 10},
        # A scheduler that is busy for minutes answers late but must not be restarted.
        "livenessProbe": {
            **health,
            "initialDelaySeconds": 30,
            "periodSeconds": 20,
            "timeoutSeconds": 30,
            "failureThreshold": 10,
        },
    }
    return _build_pod(container, parse_pairs(settings.scheduler_node_selector), plan, settings)


def _lease_source(seconds: float, start_seconds: float) -> str:
    """Return the source of the preload that holds the lease, with its values."""
    source = read_source("hyperplane.guard", "lease.py")
    return f"{source}\n\nLEASE_SECONDS, START_SECONDS = {seconds!r}, {start_seconds!r}\n"


def _budget_source(plan: ClusterPlan) -> str:
    """Return the source of the preload that counts the budget, with its values."""
    from hyperplane.clusters.dask.budget_meter import new_budget_meter  # slow to import

    meter = cast(Any, new_budget_meter(plan))
    values = meter.limit, meter.unit, meter.price
    return f"{read_source('hyperplane.guard', 'budget.py')}\n\nBUDGET = {values!r}\n"


def _build_worker(plan: ClusterPlan, settings: KubernetesSettings) -> dict[str, Any]:
    from hyperplane.clusters.dask.remote_process import worker_variables  # slow to import

    layout = plan.worker
    # dask-cuda starts one process per GPU; a pod has one GPU.
    args = ["dask", "cuda", "worker"] if layout.ngpus else ["dask", "worker"]
    args += ["--name", "$(DASK_WORKER_NAME)", *([] if layout.ngpus else ["--nworkers", "1"])]
    args += ["--nthreads", str(layout.nthreads), "--memory-limit", str(layout.ram_per_proc)]
    args += ["--dashboard-address", f":{WORKER_DASHBOARD_PORT}"]
    variables = worker_variables(plan)
    if settings.security == "tls":
        # The operator would set a tcp:// address.
        variables["DASK_SCHEDULER_ADDRESS"] = f"tls://{plan.name}-scheduler:{COMM_PORT}"
    container = {
        **_build_container("worker", args, settings),
        "env": _build_variables(plan, settings, variables),
        "resources": build_worker_resources(plan, settings),
        "ports": [_build_port("http-dashboard", WORKER_DASHBOARD_PORT)],
    }
    pod = _build_pod(container, select_worker_nodes(plan, settings), plan, settings)
    return {"replicas": plan.dask_workers, **merge_worker_template(plan, pod, {})}


def _build_container(name: str, args: list[str], settings: KubernetesSettings) -> dict[str, Any]:
    container = build_container(name, settings.image, pull_policy=settings.image_pull_policy)
    # "args" and not "command", so that the entry point of the image is kept.
    container["args"] = [
        word if word == "$(DASK_WORKER_NAME)" else escape_variables(word) for word in args
    ]
    if settings.security == "tls":
        mount = {"name": "tls", "mountPath": TLS_FOLDER, "readOnly": True}
        container["volumeMounts"] = [mount]
    return container


def _build_pod(
    container: dict[str, Any],
    nodes: dict[str, str],
    plan: ClusterPlan,
    settings: KubernetesSettings,
) -> dict[str, Any]:
    pod = {**build_configured_pod(settings, nodes), "containers": [container]}
    if settings.security == "tls":
        pod["volumes"] = [build_secret_volume("tls", secret_name(plan.name), _KEY_MODE)]
    return pod


def _build_variables(
    plan: ClusterPlan, settings: KubernetesSettings, more: Mapping[str, str]
) -> list[dict[str, Any]]:
    from hyperplane.clusters.dask.remote_process import as_settings, as_variables, server_settings

    dask_settings = server_settings(plan, settings)
    routes = _list_routes()
    dask_settings["distributed.scheduler.http.routes"] = routes
    if settings.security == "tls":
        files = {field: f"{TLS_FOLDER}/{file}" for field, file in TLS_FILES.items()}
        dask_settings.update(as_settings(files))
    variables = {**as_variables(dask_settings), **more, **parse_pairs(settings.environ)}
    return build_variables(dict(sorted(variables.items())))


def _uses_our_worker_ttl(plan: ClusterPlan, settings: KubernetesSettings) -> bool:
    """Return whether our ``worker_ttl`` applies, and not one that the user has set in Dask."""
    from hyperplane.clusters.dask.guarded_cluster import TIME_TO_LIVE
    from hyperplane.clusters.dask.remote_process import server_settings

    return TIME_TO_LIVE in server_settings(plan, settings)


def _list_routes() -> list[str]:
    import dask.config
    import distributed  # noqa: F401 - sets the defaults of the routes

    routes = list(dask.config.get("distributed.scheduler.http.routes"))
    return [*routes, _API] if _API not in routes else routes


def _build_port(name: str, number: int) -> dict[str, Any]:
    return {"name": name, "containerPort": number, "protocol": "TCP"}


def _build_service(cluster: str) -> dict[str, Any]:
    ports = (("tcp-comm", COMM_PORT), ("http-dashboard", DASHBOARD_PORT))
    return {
        "type": "ClusterIP",
        "selector": {"dask.org/cluster-name": cluster, "dask.org/component": "scheduler"},
        "ports": [
            {"name": name, "protocol": "TCP", "port": port, "targetPort": name}
            for name, port in ports
        ],
    }
