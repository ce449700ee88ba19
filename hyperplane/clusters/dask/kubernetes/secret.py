"""The key pair of a cluster as a Secret of Kubernetes, which the cluster owns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from distributed.security import Security

from hyperplane.clusters.dask.kubernetes.render import TLS_FILES, secret_name
from hyperplane.clusters.dask.remote_process import make_security
from hyperplane.platforms.kubernetes import objects


def build_secret(cluster: Mapping[str, Any], tls: Mapping[str, str]) -> dict[str, Any]:
    """Return the Secret of a cluster.

    Parameters
    ----------
    cluster : mapping
        The DaskCluster, from the API server.
    tls : mapping
        The key pair, from :func:`hyperplane.clusters.dask.remote_process.key_pair`.
    """
    metadata = cluster["metadata"]
    labels = {**metadata.get("labels", {}), "dask.org/cluster-name": metadata["name"]}
    contents = {file: tls[field].encode() for field, file in TLS_FILES.items()}
    return objects.build_secret(cluster, secret_name(metadata["name"]), labels, contents)


def read_secret(secret: Mapping[str, Any]) -> Security:
    """Return the Security object of the key pair in a Secret."""
    contents = objects.read_secret(secret)
    return make_security({field: contents[file].decode() for field, file in TLS_FILES.items()})
