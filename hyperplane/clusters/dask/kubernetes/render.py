"""Render a plan as a DaskCluster resource for the operator of dask-kubernetes."""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Mapping
from importlib import resources
from typing import Any, cast

import yaml

from hyperplane.clusters.dask.kubernetes.template import (
    merge_template,
    parse_selector,
    read_template,
)
from hyperplane.core.units import parse_bytes
from hyperplane.platforms.kubernetes.pods import container_of, pairs, pod_of, verbatim
from hyperplane.spec.dask_options import DaskOptions
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.settings import KubernetesSettings
from hyperplane.spec.settings.kubernetes import millicores

#: Annotations of the resource that other handles of the cluster read.
SECRET = "hyperplane.dev/tls-secret"  # noqa: S105 - the name of an annotation
CLIENT = "hyperplane.dev/client"
#: Folder in which pods have the key pair of their cluster.
TLS_FOLDER = "/etc/hyperplane-tls"
TLS_FILES = {"ca_file": "ca.pem", "cert": "cert.pem", "key": "key.pem"}
_PAGE = 4096
_GPU = "nvidia.com/gpu"
#: HTTP route with which the operator asks which worker to close; without it, it uses Dask's comms.
_API = "distributed.http.scheduler.api"
#: Texts that every YAML parser reads as text; some read y as true and 1e3 as a number.
_PLAIN = re.compile("[A-Za-z][A-Za-z0-9./-]+")


def render(plan: ClusterPlan) -> str:
    """Return the resource as YAML; it contains no secrets."""
    found: str = yaml.dump(
        manifest(plan),
        Dumper=_DaskClusterDumper,
        sort_keys=False,
        allow_unicode=True,
        width=float("inf"),
    )
    return found


def manifest(plan: ClusterPlan) -> dict[str, Any]:
    """Return the DaskCluster resource of a plan.

    Each worker process has a separate pod, because the operator scales by pods and closes a pod by
    the name of its only worker process.
    """
    settings = cast(KubernetesSettings, plan.settings)
    labels = {"app.kubernetes.io/managed-by": "hyperplane", **pairs(settings.labels)}
    if plan.pool is not None:
        labels["hyperplane.dev/pool"] = plan.pool.name
    annotations = {
        **pairs(settings.annotations),
        CLIENT: json.dumps(DaskOptions.of(plan.options).tuning.client, sort_keys=True),
    }
    if settings.security == "tls":
        annotations[SECRET] = secret_name(plan.name)
    metadata: dict[str, Any] = {"name": plan.name}
    if settings.namespace:
        metadata["namespace"] = settings.namespace
    return {
        "apiVersion": "kubernetes.dask.org/v1",
        "kind": "DaskCluster",
        "metadata": {**metadata, "labels": labels, "annotations": annotations},
        "spec": {
            "idleTimeout": math.ceil(plan.idle_timeout or 0),
            "scheduler": {"spec": _scheduler(plan, settings), "service": _service(plan.name)},
            "worker": _worker(plan, settings),
        },
    }


def secret_name(cluster: str) -> str:
    """Return the name of the Secret with the key pair of a cluster."""
    return f"{cluster}-tls"


def _scheduler(plan: ClusterPlan, settings: KubernetesSettings) -> dict[str, Any]:
    request = plan.request
    cpu = millicores(request.scheduler_cpu or settings.scheduler_cpu)
    ram = parse_bytes(str(request.scheduler_ram or settings.scheduler_ram))
    args = ["dask", "scheduler", "--protocol", "tls" if settings.security == "tls" else "tcp"]
    args += ["--port", "8786", "--dashboard-address", ":8787"]
    health = {"httpGet": {"port": "http-dashboard", "path": "/health"}}
    args += ["--preload", _module_source("hyperplane.engines.kubernetes", "idle.py")]
    if _uses_our_worker_ttl(plan, settings):
        args += ["--preload", _module_source("hyperplane.guard", "busy.py")]
    container = {
        **_container("scheduler", args, settings),
        "env": _environ(plan, settings, {}),
        "resources": _resources({"cpu": f"{cpu}m", "memory": str(ram)}, cpu, 1.0),
        "ports": [_port("tcp-comm", 8786), _port("http-dashboard", 8787)],
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
    return _pod(container, pairs(settings.scheduler_node_selector), plan, settings)


def _worker(plan: ClusterPlan, settings: KubernetesSettings) -> dict[str, Any]:
    layout = plan.worker
    cpu = max(1, math.floor(layout.cores_per_worker * 1000 / layout.nprocs))
    ram = layout.ram_per_proc + parse_bytes(str(settings.memory_overhead))
    # Whole pages: the kernel rounds down, and Dask would then see less memory than requested.
    amounts = {"cpu": f"{cpu}m", "memory": str(-(-ram // _PAGE) * _PAGE)}
    if layout.ngpus:
        amounts[_GPU] = str(layout.ngpus // layout.nprocs)
    # dask-cuda starts one process per GPU; a pod has one GPU.
    args = ["dask", "cuda", "worker"] if layout.ngpus else ["dask", "worker"]
    args += ["--name", "$(DASK_WORKER_NAME)", *([] if layout.ngpus else ["--nworkers", "1"])]
    args += ["--nthreads", str(layout.nthreads), "--memory-limit", str(layout.ram_per_proc)]
    args += ["--dashboard-address", ":8788"]
    own = worker_variables(plan)
    if settings.security == "tls":
        # The operator would set a tcp:// address.
        own["DASK_SCHEDULER_ADDRESS"] = f"tls://{plan.name}-scheduler:8786"
    container = {
        **_container("worker", args, settings),
        "env": _environ(plan, settings, own),
        "resources": _resources(amounts, cpu, settings.cpu_reserved),
        "ports": [_port("http-dashboard", 8788)],
    }
    pod = _pod(container, _node_selector(plan, settings), plan, settings)
    found: dict[str, Any] = {"replicas": plan.dask_workers, "spec": pod}
    if plan.request.worker_spec_yaml:
        template = read_template(plan.request.worker_spec_yaml)
        found["spec"] = merge_template(pod, template["spec"])
        given = {key: template["metadata"].get(key) for key in ("labels", "annotations")}
        if metadata := {key: value for key, value in given.items() if value}:
            found["metadata"] = metadata
    return found


def worker_variables(plan: ClusterPlan) -> dict[str, str]:
    """Return the variables of worker processes; the import is deferred because it is slow."""
    from hyperplane.clusters.dask.remote_process import worker_variables as found

    return found(plan)


def _container(name: str, args: list[str], settings: KubernetesSettings) -> dict[str, Any]:
    found = container_of(name, settings)
    # "args" and not "command", so that the entry point of the image is kept.
    found["args"] = [one if one == "$(DASK_WORKER_NAME)" else verbatim(one) for one in args]
    if settings.security == "tls":
        mount = {"name": "tls", "mountPath": TLS_FOLDER, "readOnly": True}
        found["volumeMounts"] = [mount]
    return found


def _pod(
    container: dict[str, Any],
    nodes: dict[str, str],
    plan: ClusterPlan,
    settings: KubernetesSettings,
) -> dict[str, Any]:
    found = pod_of(container, nodes, settings)
    if settings.security == "tls":
        secret = {"secretName": secret_name(plan.name), "defaultMode": 0o444}
        found["volumes"] = [{"name": "tls", "secret": secret}]
    return found


def _node_selector(plan: ClusterPlan, settings: KubernetesSettings) -> dict[str, str]:
    """Return the node selector of the request, else that of the settings for the plan's pool."""
    if plan.request.node_selector is not None:
        return parse_selector(plan.request.node_selector)
    name, alias = (plan.pool.name, plan.pool.alias) if plan.pool else ("", "")
    return {
        key: value.replace("{pool}", name).replace("{alias}", alias)
        for key, value in pairs(settings.node_selector).items()
    }


def _environ(
    plan: ClusterPlan, settings: KubernetesSettings, own: Mapping[str, str]
) -> list[dict[str, str]]:
    from hyperplane.clusters.dask.remote_process import as_settings, as_variables, server_settings

    dask_settings = server_settings(plan, settings)
    routes = _scheduler_routes()
    dask_settings["distributed.scheduler.http.routes"] = routes
    if settings.security == "tls":
        files = {field: f"{TLS_FOLDER}/{file}" for field, file in TLS_FILES.items()}
        dask_settings.update(as_settings(files))
    variables = {**as_variables(dask_settings), **own, **pairs(settings.environ)}
    return [{"name": name, "value": verbatim(value)} for name, value in sorted(variables.items())]


def _uses_our_worker_ttl(plan: ClusterPlan, settings: KubernetesSettings) -> bool:
    """Return whether our ``worker_ttl`` applies, and not one that the user has set in Dask."""
    from hyperplane.clusters.dask.guarded_cluster import TIME_TO_LIVE
    from hyperplane.clusters.dask.remote_process import server_settings

    return TIME_TO_LIVE in server_settings(plan, settings)


def _scheduler_routes() -> list[str]:
    import dask.config
    import distributed  # noqa: F401 - sets the defaults of the routes

    routes = list(dask.config.get("distributed.scheduler.http.routes"))
    return [*routes, _API] if _API not in routes else routes


def _resources(amounts: dict[str, str], cpu: int, reserved: float) -> dict[str, Any]:
    requests = {**amounts, "cpu": f"{max(1, math.floor(cpu * reserved))}m"}
    return {"requests": requests, "limits": dict(amounts)}


def _port(name: str, number: int) -> dict[str, Any]:
    return {"name": name, "containerPort": number, "protocol": "TCP"}


def _service(cluster: str) -> dict[str, Any]:
    ports = (("tcp-comm", 8786), ("http-dashboard", 8787))
    return {
        "type": "ClusterIP",
        "selector": {"dask.org/cluster-name": cluster, "dask.org/component": "scheduler"},
        "ports": [
            {"name": name, "protocol": "TCP", "port": port, "targetPort": name}
            for name, port in ports
        ],
    }


@functools.cache
def _module_source(package: str, module: str) -> str:
    """Return the source of a module, for schedulers whose image may not have this package."""
    return (resources.files(package) / module).read_text(encoding="utf-8")


class _DaskClusterDumper(yaml.SafeDumper):
    """YAML dumper that quotes ambiguous texts and writes no anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None if _PLAIN.fullmatch(text) else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)


_DaskClusterDumper.add_representer(str, _represent_text)
