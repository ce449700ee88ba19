"""Stop a running cluster that any process of this user has started."""

from __future__ import annotations

import hyperplane
from hyperplane.clusters import cluster_listing, records
from hyperplane.clusters.listed_cluster import ListedCluster
from hyperplane.core.errors import EngineError


def read_records() -> list[records.ClusterRecord]:
    """Return the records of the running clusters of this machine; raise an EngineError if not."""
    try:
        return records.read_all()
    except OSError as error:
        raise EngineError("local", f"the list of clusters cannot be read: {error}") from error


def stop_cluster(cluster: records.ClusterRecord | ListedCluster) -> str:
    """Close a cluster; return the reason if it is still running, otherwise an empty text."""
    reason = "it did not end in time"
    try:
        if isinstance(cluster, ListedCluster):
            cluster_listing.stop_listed(cluster)
            return ""
        client, handle = hyperplane.get_cluster(cluster.name, cluster.engine)
        client.close()
        handle.close()
    except Exception as error:  # noqa: BLE001 - the other clusters are stopped in any case
        reason = str(error) or type(error).__name__
    # Checked after an error, too: the cluster may have ended by itself in the meantime.
    return reason if isinstance(cluster, ListedCluster) or cluster in read_records() else ""
