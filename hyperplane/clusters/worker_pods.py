"""Pods of the workers of any framework: their sizes, their template, and sources of programs."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from importlib import resources
from typing import Any

from hyperplane.clusters.gpu_requests import count_gpus
from hyperplane.core.units import parse_bytes
from hyperplane.platforms.kubernetes.objects import MANAGED_BY, OWNER, find_owner, parse_pairs
from hyperplane.platforms.kubernetes.pod_template import merge_template, read_template
from hyperplane.platforms.kubernetes.pods import build_resources, format_quantities
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.settings.kubernetes import ClusterPodSettings

_PAGE = 4096


def build_labels(plan: ClusterPlan, settings: ClusterPodSettings) -> dict[str, str]:
    """Return the labels of a cluster: its owner, those of the settings, and its pool."""
    owner = {OWNER: find_owner(settings.labels)}
    labels = {**MANAGED_BY, **owner, **parse_pairs(settings.labels)}
    if plan.pool is not None:
        labels["hyperplane.dev/pool"] = plan.pool.name
    return labels


def build_worker_resources(plan: ClusterPlan, settings: ClusterPodSettings) -> dict[str, Any]:
    """Return the requests and limits of a worker's pod, its share of the cores of a node."""
    layout = plan.worker
    cpu = max(1, math.floor(layout.cores_per_worker * 1000 / layout.nprocs))
    ram = layout.ram_per_proc + parse_bytes(str(settings.memory_overhead))
    # Whole pages: the kernel rounds down, and a worker would then see less than was requested.
    memory = -(-ram // _PAGE) * _PAGE
    amounts = format_quantities(millicores=cpu, memory=memory, gpus=count_gpus(layout))
    return build_resources(amounts, cpu, settings.cpu_reserved)


def merge_worker_template(
    plan: ClusterPlan, pod: dict[str, Any], metadata: Mapping[str, Any]
) -> dict[str, Any]:
    """Return ``spec`` and ``metadata`` of worker pods with those of ``worker_spec_yaml``.

    Without any metadata, only ``spec``.
    """
    merged = dict(metadata)
    if plan.request.worker_spec_yaml:
        template = read_template(plan.request.worker_spec_yaml)
        pod = merge_template(pod, template["spec"])
        for key in ("labels", "annotations"):
            if fields := template["metadata"].get(key):
                merged[key] = {**merged.get(key, {}), **fields}
    return {"spec": pod, **({"metadata": merged} if merged else {})}


@functools.cache
def read_source(package: str, module: str) -> str:
    """Return the source of a module, for pods whose image may not have this package."""
    return (resources.files(package) / module).read_text(encoding="utf-8")
