"""The key pair of a cluster as a Secret of Kubernetes, which the cluster owns."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from distributed.security import Security

from hyperplane.clusters.dask.kubernetes.render import TLS_FILES, secret_name
from hyperplane.clusters.dask.remote_process import make_security


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
    owner = {
        "apiVersion": cluster["apiVersion"],
        "kind": cluster["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
    }
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": secret_name(metadata["name"]),
            "labels": {
                **metadata.get("labels", {}),
                "dask.org/cluster-name": metadata["name"],
            },
            "ownerReferences": [owner],
        },
        "data": {
            file: base64.b64encode(tls[field].encode()).decode()
            for field, file in TLS_FILES.items()
        },
    }


def read_secret(secret: Mapping[str, Any]) -> Security:
    """Return the Security object of the key pair in a Secret."""
    data = secret["data"]
    tls = {field: base64.b64decode(data[file]).decode() for field, file in TLS_FILES.items()}
    return make_security(tls)
