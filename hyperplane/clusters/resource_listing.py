"""Clusters of this user in a namespace of Kubernetes, by the labels of their resources."""

from __future__ import annotations

import asyncio

from hyperplane.clusters.custom_resource import ClusterResource, engine_errors
from hyperplane.clusters.listed_cluster import ListedCluster
from hyperplane.platforms.kubernetes.api import KubernetesApi
from hyperplane.platforms.kubernetes.errors import ObjectNotFound
from hyperplane.platforms.kubernetes.objects import (
    MANAGED_BY,
    OWNER,
    find_owner,
    is_shared_owner,
    parse_pairs,
)
from hyperplane.spec.settings import ClusterPodSettings

#: Seconds to wait until the pods of a deleted cluster have ended.
_DELETE_SECONDS = 90.0


def list_resources(
    resource: type[ClusterResource], settings: ClusterPodSettings, seconds: float
) -> list[ListedCluster]:
    """Return the clusters of this user in the namespace of the settings."""
    return asyncio.run(_list(resource, settings, seconds))


async def _list(
    resource: type[ClusterResource], settings: ClusterPodSettings, seconds: float
) -> list[ListedCluster]:
    api = KubernetesApi(settings.namespace, login_seconds=seconds, request_seconds=seconds)
    owner = find_owner(settings.labels)
    # A name in the settings is one that the user has chosen.
    is_shared = OWNER not in parse_pairs(settings.labels) and is_shared_owner(owner)
    labels = {**MANAGED_BY, OWNER: owner}
    selector = ",".join(f"{key}={value}" for key, value in labels.items())
    with engine_errors(resource.engine):
        try:
            await api.connect()
            found = await api.list(resource.plural, resource.version, labels=selector)
        except ObjectNotFound:  # the operator, or the namespace, does not exist
            return []
        finally:
            await api.close()
    return [
        ListedCluster(
            metadata["name"],
            resource.engine,
            f"namespace {api.namespace}",
            "closing" if "deletionTimestamp" in metadata else "running",
            metadata.get("creationTimestamp", ""),
            shared_owner=owner if is_shared else "",
        )
        for metadata in (content["metadata"] for content in found)
    ]


def delete_listed(
    resource: type[ClusterResource], cluster: ListedCluster, settings: ClusterPodSettings
) -> None:
    """Delete the resource of a cluster; return when its pods have ended."""
    asyncio.run(_delete(resource(cluster.name, settings.namespace)))


async def _delete(resource: ClusterResource) -> None:
    try:
        with engine_errors(resource.engine):
            await resource.api.connect()
            await resource.load()
        await resource.delete(_DELETE_SECONDS)
    finally:
        await resource.api.close()
