"""Check that an argument is a cluster of one of the engines of Ray."""

from __future__ import annotations

from hyperplane.clusters.ray.cluster import AttachedRayCluster, OwnedRayCluster
from hyperplane.clusters.ray.kubernetes.cluster import KubernetesRayCluster
from hyperplane.core.errors import Fault


def find_type_faults(where: str, value: object) -> list[Fault]:
    """Return a fault if an argument is no cluster of Ray."""
    if isinstance(value, OwnedRayCluster | AttachedRayCluster | KubernetesRayCluster):
        return []
    allowed = "a cluster that initialize_ray_cluster or get_ray_cluster returned"
    return [Fault(where, f"<{type(value).__name__}>", allowed)]
