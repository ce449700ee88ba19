"""Plans for the tests of ``ray:kubernetes``, and the resource definition of KubeRay."""

from __future__ import annotations

import functools
import lzma
from pathlib import Path
from typing import Any

import yaml

import hyperplane
from hyperplane.clusters.ray.kubernetes.render import build_manifest

IMAGE = "registry.example/ray:1"
DEFINITION = Path(__file__).parent / "kuberay" / "rayclusters-1.7.0.yaml.xz"


def plan(options: dict[str, Any] | None = None, **arguments: Any) -> hyperplane.ClusterPlan:
    """A plan of two worker nodes for Kubernetes."""
    sizes = {"num_workers": 2, "nprocs": 1, "nthreads": 4, "cores_per_worker": 4}
    given: dict[str, Any] = {
        "engine": "ray:kubernetes",
        "name": "flights",
        "ram_gb_per_proc": 8,
        **sizes,
        **arguments,
    }
    return hyperplane.plan_cluster(**given, engine_options={"image": IMAGE, **(options or {})})


def rendered(options: dict[str, Any] | None = None, **arguments: Any) -> dict[str, Any]:
    """The RayCluster of a plan."""
    return build_manifest(plan(options, **arguments))


def definition() -> str:
    """The resource definition, as YAML."""
    return lzma.decompress(DEFINITION.read_bytes()).decode()


@functools.cache
def schema() -> dict[str, Any]:
    """The schema with which an API server validates a RayCluster."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    content = yaml.load(definition(), Loader=loader)
    [found] = [
        version["schema"]["openAPIV3Schema"]
        for version in content["spec"]["versions"]
        if version["name"] == "v1"
    ]
    assert isinstance(found, dict)
    return found
