"""Render a plan as a RayCluster resource for KubeRay, and the Job that ends an idle cluster."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Any, cast

from hyperplane.clusters.gpu_requests import count_gpus
from hyperplane.clusters.pod_requests import select_worker_nodes
from hyperplane.clusters.ray import driver_environment
from hyperplane.clusters.ray.framework import OBJECT_STORE_FRACTION
from hyperplane.clusters.worker_pods import (
    build_labels,
    build_worker_resources,
    merge_worker_template,
    read_source,
)
from hyperplane.core.units import parse_bytes
from hyperplane.platforms.kubernetes.batch_job import build_job, build_job_pod
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
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.ray_options import MIN_OBJECT_STORE, RayOptions
from hyperplane.spec.settings import RayKubernetesSettings
from hyperplane.spec.settings.base import MAX_SECONDS
from hyperplane.spec.settings.kubernetes import millicores

#: Name of the engine.
ENGINE = "ray:kubernetes"
API_VERSION = "ray.io/v1"
#: Annotation of the resource with the name of the Secret.
SECRET = "hyperplane.dev/ray-secret"  # noqa: S105 - the name of an annotation
#: Label of the Job and its pod, which KubeRay must not count as pods of the cluster.
CLUSTER_LABEL = "hyperplane.dev/cluster"
#: Label that KubeRay gives the pods of a cluster.
KUBERAY_LABEL = "ray.io/cluster"
#: Ports of the head: of its state, of the dashboard and of Ray Client.
GCS_PORT, DASHBOARD_PORT, CLIENT_PORT = 6379, 8265, 10001
#: Name of the only group of workers.
GROUP = "workers"
#: Keys of the Secret; that of the token is KubeRay's.
TOKEN_KEY = "auth_token"  # noqa: S105 - a key
#: Folders in which pods have the token, the authority, and their certificate.
TOKEN_FOLDER, AUTHORITY_FOLDER = "/etc/hyperplane/token", "/etc/hyperplane/authority"
TLS_FOLDER = "/etc/hyperplane/tls"
#: Name of the init container that issues the certificate of a pod.
CERTIFICATE_CONTAINER = "certificate"
#: Variables of all pods unless the user has set them: no pages of metrics, which everything that
#: reaches a pod could read without the token, and time for nodes that start slowly.
_VARIABLES = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_enable_metrics_collection": "0",
    "DASHBOARD_METRIC_PORT": "-1",
    "RAY_raylet_start_wait_time_s": "120",
    "RAY_agent_register_timeout_ms": "300000",
}
#: Variable with a token, in place of the file with it.
_TOKEN = "RAY_AUTH_TOKEN"  # noqa: S105 - a name
#: Mode of the files of a Secret: all users of the pod read them.
_MODE = 0o444
#: Restarts of the program in the Job, which are only those of a failed node or image.
_JOB_RESTARTS = 100_000


def render(plan: ClusterPlan) -> str:
    """Return the resource, and the Job if there is an idle timeout, as YAML without secrets."""
    manifests = [build_manifest(plan)]
    if job := build_idle_job(plan):
        manifests.append(job)
    return "---\n".join(dump_yaml(manifest, blocks=True) for manifest in manifests)


def secret_name(cluster: str) -> str:
    """Return the name of the Secret with the token and the certificates of a cluster."""
    return f"{cluster}-access"


def job_name(cluster: str) -> str:
    """Return the name of the Job that ends an idle cluster."""
    return f"{cluster}-idle"


def service_names(cluster: str, namespace: str) -> list[str]:
    """Return the host names of the head, the shortest first."""
    name = f"{cluster}-head-svc"
    return [name, f"{name}.{namespace}", f"{name}.{namespace}.svc"]


def build_manifest(plan: ClusterPlan) -> dict[str, Any]:
    """Return the RayCluster resource of a plan; each worker node has a separate pod."""
    settings = cast(RayKubernetesSettings, plan.settings)
    spec: dict[str, Any] = {
        "headGroupSpec": _build_head(plan, settings),
        "workerGroupSpecs": [_build_workers(plan, settings)],
    }
    with suppress(PackageNotFoundError):
        # KubeRay selects the health checks of the pods by it.
        spec = {"rayVersion": version("ray"), **spec}
    return {
        "apiVersion": API_VERSION,
        "kind": "RayCluster",
        "metadata": _build_metadata(plan, settings),
        "spec": spec,
    }


def _build_metadata(plan: ClusterPlan, settings: RayKubernetesSettings) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": plan.name}
    if settings.namespace:
        metadata["namespace"] = settings.namespace
    annotations = {**parse_pairs(settings.annotations), SECRET: secret_name(plan.name)}
    return {**metadata, "labels": build_labels(plan, settings), "annotations": annotations}


def _build_pod_metadata(plan: ClusterPlan, settings: RayKubernetesSettings) -> dict[str, Any]:
    """Return labels and annotations of pods: KubeRay copies those of the resource to none."""
    metadata: dict[str, Any] = {"labels": build_labels(plan, settings)}
    if annotations := parse_pairs(settings.annotations):
        metadata["annotations"] = annotations
    return metadata


def _build_head(plan: ClusterPlan, settings: RayKubernetesSettings) -> dict[str, Any]:
    request = plan.request
    cpu = millicores(request.scheduler_cpu or settings.scheduler_cpu)
    ram = parse_bytes(str(request.scheduler_ram or settings.scheduler_ram))
    store = max(MIN_OBJECT_STORE, int(ram * OBJECT_STORE_FRACTION))
    ports = {"gcs-server": GCS_PORT, "dashboard": DASHBOARD_PORT, "client": CLIENT_PORT}
    container = {
        **_build_container("ray-head", settings),
        "env": _build_variables(settings),
        "resources": build_resources(format_quantities(millicores=cpu, memory=ram), cpu, 1.0),
        "ports": [
            {"name": name, "containerPort": port, "protocol": "TCP"} for name, port in ports.items()
        ],
    }
    nodes = parse_pairs(settings.scheduler_node_selector)
    return {
        # No tasks run on the head.
        "rayStartParams": {
            "dashboard-host": "0.0.0.0",  # noqa: S104 - of a pod, with the token
            "memory": "0",
            # The process that would start nodes: its page of metrics has no token.
            "no-monitor": "true",
            "num-cpus": "0",
            "num-gpus": "0",
            "object-store-memory": str(store),
        },
        "template": {
            "metadata": _build_pod_metadata(plan, settings),
            "spec": _build_pod(container, nodes, plan, settings),
        },
    }


def _build_workers(plan: ClusterPlan, settings: RayKubernetesSettings) -> dict[str, Any]:
    layout, options = plan.worker, RayOptions.of(plan.options)
    container = {
        **_build_container("ray-worker", settings),
        "env": _build_variables(settings),
        "resources": build_worker_resources(plan, settings),
    }
    pod = _build_pod(container, select_worker_nodes(plan, settings), plan, settings)
    template = merge_worker_template(plan, pod, _build_pod_metadata(plan, settings))
    _restore_variables(template["spec"]["containers"][0], settings)
    count = plan.dask_workers
    return {
        "groupName": GROUP,
        "replicas": count,
        "minReplicas": 0,
        "maxReplicas": max(count, 1_000_000),
        "rayStartParams": {
            "memory": str(options.memory),
            "num-cpus": str(layout.nthreads),
            "num-gpus": str(count_gpus(layout)),
            "object-store-memory": str(options.object_store),
        },
        "template": template,
    }


def _build_container(name: str, settings: RayKubernetesSettings) -> dict[str, Any]:
    container = build_container(name, settings.image, pull_policy=settings.image_pull_policy)
    container["volumeMounts"] = [_mount("token", TOKEN_FOLDER)]
    if settings.security == "tls":
        container["volumeMounts"].append(_mount("tls", TLS_FOLDER))
    return container


def _build_pod(
    container: dict[str, Any],
    nodes: Mapping[str, str],
    plan: ClusterPlan,
    settings: RayKubernetesSettings,
) -> dict[str, Any]:
    """Return a pod; with TLS, an init container issues the certificate for its address."""
    secret = secret_name(plan.name)
    pod: dict[str, Any] = {
        **build_configured_pod(settings, nodes),
        "containers": [container],
        "volumes": [build_secret_volume("token", secret, _MODE, [TOKEN_KEY])],
    }
    if settings.security == "none":
        return pod
    policy = settings.image_pull_policy
    initial = build_container(CERTIFICATE_CONTAINER, settings.image, pull_policy=policy)
    # KubeRay sets FQ_RAY_IP to the full host name of the head.
    names = [*service_names(plan.name, "$(POD_NAMESPACE)"), "localhost", "$(FQ_RAY_IP)"]
    words = [AUTHORITY_FOLDER, TLS_FOLDER, "$(POD_IP)", *names]
    source = escape_variables(read_source("hyperplane.clusters.remote_nodes", "certificates.py"))
    initial |= {
        "command": ["python3", "-c", source, *words],
        "env": [
            {"name": name, "valueFrom": {"fieldRef": {"fieldPath": field}}}
            for name, field in (
                ("POD_IP", "status.podIP"),
                ("POD_NAMESPACE", "metadata.namespace"),
            )
        ],
        "resources": build_resources(
            format_quantities(millicores=200, memory=256 * 2**20), 200, settings.cpu_reserved
        ),
        "volumeMounts": [
            _mount("authority", AUTHORITY_FOLDER),
            {"name": "tls", "mountPath": TLS_FOLDER},
        ],
    }
    pod["initContainers"] = [initial]
    # Only the init container sees the private key of the certificate authority.
    pod["volumes"] += [
        build_secret_volume("authority", secret, _MODE, ["ca.crt", "ca.key"]),
        {"name": "tls", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
    ]
    return pod


def _mount(volume: str, folder: str) -> dict[str, Any]:
    return {"name": volume, "mountPath": folder, "readOnly": True}


def _build_variables(settings: RayKubernetesSettings) -> list[dict[str, Any]]:
    variables = {**_VARIABLES, **parse_pairs(settings.environ), **_fix_variables(settings)}
    variables.pop(_TOKEN, None)
    return build_variables(dict(sorted(variables.items())))


def _fix_variables(settings: RayKubernetesSettings) -> dict[str, str]:
    """Return the variables that select the token and certificates, which no setting changes."""
    tls = TLS_FOLDER if settings.security == "tls" else ""
    selected = driver_environment.build_variables("", loopback=False, tls_folder=tls)
    del selected[_TOKEN]
    selected["RAY_AUTH_TOKEN_PATH"] = f"{TOKEN_FOLDER}/{TOKEN_KEY}"
    return {name: text for name, text in selected.items() if text is not None}


def _restore_variables(container: dict[str, Any], settings: RayKubernetesSettings) -> None:
    """Set the fixed variables again, in place of those of a template."""
    fixed = _fix_variables(settings)
    others = [each for each in container["env"] if each.get("name") not in {*fixed, _TOKEN}]
    container["env"] = [*others, *build_variables(fixed)]


def build_idle_job(plan: ClusterPlan) -> dict[str, Any] | None:
    """Return the Job that owns the cluster and ends when it has been idle, or without a program.

    None without a timeout and without a lease. Kubernetes deletes the Job when it has ended, and
    then the cluster, which it owns. So the pods need no permissions.
    """
    settings = cast(RayKubernetesSettings, plan.settings)
    idle_timeout = plan.idle_timeout
    if idle_timeout is None:
        if settings.lease_seconds is None:
            return None
        idle_timeout = MAX_SECONDS
    labels = {**build_labels(plan, settings), CLUSTER_LABEL: plan.name}
    annotations = parse_pairs(settings.annotations)
    container = build_container("idle", settings.image, pull_policy=settings.image_pull_policy)
    source = escape_variables(read_source("hyperplane.clusters.ray.kubernetes", "idle.py"))
    address = f"{service_names(plan.name, '')[0]}:{GCS_PORT}"
    seconds = [str(math.ceil(idle_timeout)), str(math.ceil(plan.request.timeout))]
    container |= {
        "command": ["python3", "-u", "-c", source, address, *seconds],
        "env": _build_variables(settings),
        "resources": build_resources(
            format_quantities(millicores=200, memory=512 * 2**20), 200, 0.25
        ),
        "volumeMounts": [_mount("token", TOKEN_FOLDER)],
    }
    keys = [TOKEN_KEY]
    if settings.security == "tls":
        keys += ["authority.pem", "certificate.pem", "key.pem"]
        container["volumeMounts"].append(_mount("token", TLS_FOLDER))
    volume = build_secret_volume("token", secret_name(plan.name), _MODE, keys)
    # If this process is killed before it creates the Secret, the Job ends nevertheless.
    volume["secret"]["optional"] = True
    nodes = parse_pairs(settings.scheduler_node_selector)
    fields = {**build_configured_pod(settings, nodes), "restartPolicy": "OnFailure"}
    pod = build_job_pod(container, fields, grace=5, volumes=[volume])
    retry = {"backoffLimit": _JOB_RESTARTS, "completions": 1, "parallelism": 1}
    job = build_job(
        job_name(plan.name),
        labels,
        annotations,
        pod,
        retry=retry,
        pod_annotations=annotations or None,
    )
    job["spec"]["ttlSecondsAfterFinished"] = 0
    if settings.namespace:
        job["metadata"]["namespace"] = settings.namespace
    return job
