"""Plans for the tests, and the resource definition that dask-kubernetes ships."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path
from typing import Any

import yaml

import hyperplane
from hyperplane.clusters.dask.kubernetes.render import build_manifest

IMAGE = "registry.example/flights:1"


def plan(options: dict[str, Any] | None = None, **arguments: Any) -> hyperplane.ClusterPlan:
    """A plan for Kubernetes."""
    given: dict[str, Any] = {"engine": "kubernetes", "name": "flights", **arguments}
    return hyperplane.plan_cluster(**given, engine_options={"image": IMAGE, **(options or {})})


def rendered(options: dict[str, Any] | None = None, **arguments: Any) -> dict[str, Any]:
    """The resource of a plan."""
    return build_manifest(plan(options, **arguments))


def worker(options: dict[str, Any] | None = None, **arguments: Any) -> dict[str, Any]:
    """The pod of a worker of a plan."""
    found: dict[str, Any] = rendered(options, **arguments)["spec"]["worker"]["spec"]
    return found


@functools.cache
def schema() -> dict[str, Any]:
    """The schema with which an API server validates a DaskCluster."""
    spec = importlib.util.find_spec("dask_kubernetes")
    assert spec is not None
    assert spec.submodule_search_locations
    chart = "operator/deployment/helm/dask-kubernetes-operator/crds/daskcluster.yaml"
    file = Path(spec.submodule_search_locations[0]) / chart
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    definition = yaml.load(file.read_text(encoding="utf-8"), Loader=loader)
    [version] = definition["spec"]["versions"]
    found: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return found


def pruned(value: Any, judge: dict[str, Any], path: str = "") -> list[str]:
    """Fields that an API server drops silently because the schema does not have them."""
    if judge.get("x-kubernetes-preserve-unknown-fields"):
        return []
    if isinstance(value, list):
        found = [pruned(one, judge.get("items", {}), f"{path}[]") for one in value]
        return [each for part in found for each in part]
    if not isinstance(value, dict):
        return []
    missing = []
    known, rest = judge.get("properties", {}), judge.get("additionalProperties")
    for key, one in value.items():
        if key in known:
            missing += pruned(one, known[key], f"{path}.{key}")
        elif not rest and path:  # every object has apiVersion, kind and metadata
            missing.append(f"{path}.{key}")
    return missing
