"""Clusters of this user that a gateway runs."""

from __future__ import annotations

from typing import Any

from hyperplane.clusters.dask.gateway import server
from hyperplane.clusters.listed_cluster import ListedCluster
from hyperplane.core.errors import EngineError
from hyperplane.spec.settings import GatewaySettings


def list_clusters(settings: GatewaySettings, seconds: float) -> list[ListedCluster]:
    """Return the clusters of this user that the configured server runs."""
    gateway = server.open_gateway(server.connection_settings(settings))
    try:
        with server.translate_errors(gateway, EngineError):
            reports = server.call(gateway, "clusters", within=seconds)
        return [_describe(report, server.describe_address(gateway)) for report in reports]
    finally:
        gateway.close()


def _describe(report: Any, address: str) -> ListedCluster:
    started = report.start_time.isoformat() if report.start_time else ""
    return ListedCluster(
        report.name, server.ENGINE, f"gateway {address}", report.status.name.lower(), started
    )


def stop_listed(cluster: ListedCluster, settings: GatewaySettings) -> None:
    """Make the gateway stop a cluster; raise an EngineError if it refuses."""
    gateway = server.open_gateway(server.connection_settings(settings))
    try:
        with server.translate_errors(gateway, EngineError):
            server.call(gateway, "stop_cluster", cluster.name)
    finally:
        gateway.close()
