"""Attach to a cluster that a gateway runs for this user."""

from __future__ import annotations

import uuid
from functools import partial
from typing import Any, cast

from distributed import Client
from distributed.deploy.cluster import Cluster

from hyperplane.clusters import records
from hyperplane.clusters.dask.gateway import server
from hyperplane.clusters.dask.gateway.cluster import WatchedGatewayCluster
from hyperplane.clusters.dask.scheduler_silence import stall_seconds, watch_scheduler
from hyperplane.clusters.dask.settings import apply_client_settings, restore_client_settings
from hyperplane.clusters.engine import StartedCluster
from hyperplane.core.errors import EngineError
from hyperplane.spec.settings import GatewaySettings

ENGINE = server.ENGINE


def connect(name: str, settings: GatewaySettings | None) -> StartedCluster:
    """Return a client and a cluster object for a cluster that the gateway runs.

    Parameters
    ----------
    name : str
        Name in the plan, for a cluster that this machine started; or the gateway's name of any
        cluster.
    settings : GatewaySettings, optional
        Address of the gateway, for a cluster that another machine started; dask-gateway's
        configuration by default.

    Raises
    ------
    EngineError
        If the gateway runs no such cluster (the message lists those that run), or does not
        answer.
    """
    try:
        recorded = {
            _gateway_name(item): item for item in records.read_all() if item.engine == ENGINE
        }
    except OSError as error:
        raise EngineError(ENGINE, f"the list of clusters cannot be read: {error}") from error
    gateway_name = next(
        (
            gateway_name
            for gateway_name, item in recorded.items()
            if name in {gateway_name, item.name}
        ),
        name,
    )
    record = recorded.get(gateway_name)
    if record is not None:
        connection = {
            key: value for key, value in record.client.items() if key.startswith("gateway.")
        }
    else:
        connection = server.connection_settings(settings) if settings is not None else {}
    try:
        gateway = server.open_gateway(connection)
    except EngineError as error:
        if record is not None:  # for example, the variable with the password is not set here
            raise
        started = ", ".join(item.name for item in recorded.values()) or "none"
        raise EngineError(
            ENGINE,
            f"this machine has started no cluster {name!r}; running: {started}. {error.message}",
        ) from error
    try:
        with server.translate_errors(gateway, EngineError):
            running = [item.name for item in server.call(gateway, "clusters", status="running")]
            if gateway_name not in running:
                names = sorted(
                    recorded[item].name if item in recorded else item for item in running
                )
                raise EngineError(
                    ENGINE,
                    f"{server.describe_address(gateway)} runs no cluster {name!r} of this user; "
                    "running: " + (", ".join(names) or "none"),
                )
            return _attach(gateway, gateway_name, record, stall_seconds(settings))
    finally:
        gateway.close()  # the cluster has its own


def _gateway_name(record: records.ClusterRecord) -> str:
    """Return the gateway's name of a cluster, which is the end of its scheduler's address."""
    return record.scheduler.rpartition("/")[2]


def _attach(
    gateway: Any,
    gateway_name: str,
    record: records.ClusterRecord | None,
    stall_timeout: float | None,
) -> StartedCluster:
    # Unique: the owner and other handles may be in this process too.
    settings_key = f"{gateway_name} {uuid.uuid4()}"
    if record is not None:
        settings = record.client.items()
        apply_client_settings(
            settings_key, {key: value for key, value in settings if not key.startswith("gateway.")}
        )
    try:
        cluster = WatchedGatewayCluster.create(
            gateway, gateway_name, partial(restore_client_settings, settings_key), owner=False
        )
    except BaseException:
        restore_client_settings(settings_key)
        raise
    if record is not None:
        # The owner removes the record only seconds later; until then it would still be listed.
        cluster.on_end = partial(records.remove, record.name, record.scratch)
    try:
        client = Client(cast(Cluster, cluster), timeout=cluster.connect_timeout())
        watch_scheduler(client, cluster, gateway_name, stall_timeout)
    except BaseException:
        cluster.close(shutdown=False)
        raise
    cluster.remember_client(client)
    cluster.settings_key = settings_key
    return StartedCluster(client, cast(Cluster, cluster))
