"""Attaching to a cluster that a gateway runs for this user."""

from __future__ import annotations

import uuid
from functools import partial
from typing import Any, cast

from distributed import Client
from distributed.deploy.cluster import Cluster

from hyperplane.engines import records
from hyperplane.engines.base import Started
from hyperplane.engines.dask_settings import lend, take_back
from hyperplane.engines.gateway import server
from hyperplane.engines.gateway.cluster import WatchedGatewayCluster
from hyperplane.errors import EngineError
from hyperplane.spec.settings import GatewaySettings

ENGINE = server.ENGINE


def connect(name: str, settings: GatewaySettings | None) -> Started:
    """A client and a cluster object for a cluster that the gateway runs.

    Parameters
    ----------
    name : str
        The name in the plan, of a cluster that was started on this machine, or the gateway's own.
    settings : GatewaySettings, optional
        Where the gateway is, for a cluster that was started elsewhere; dask-gateway's own
        configuration by default.

    Raises
    ------
    EngineError
        When the gateway runs no such cluster, with those that it does run; or does not answer.
    """
    try:
        ours = {_own_name(one): one for one in records.read_all() if one.engine == ENGINE}
    except OSError as error:
        raise EngineError(ENGINE, f"the list of clusters cannot be read: {error}") from error
    own = next((own for own, one in ours.items() if name in {own, one.name}), name)
    record = ours.get(own)
    if record is not None:
        how = {key: value for key, value in record.client.items() if key.startswith("gateway.")}
    else:
        how = server.reach(settings) if settings is not None else {}
    try:
        gateway = server.opened(how)
    except EngineError as error:
        here = ", ".join(one.name for one in ours.values()) or "none"
        raise EngineError(
            ENGINE, f"this machine has started no cluster {name!r}; running: {here}. {error}"
        ) from error
    try:
        with server.in_plain_words(gateway, EngineError):
            running = [one.name for one in server.ask(gateway, "clusters", status="running")]
            if own not in running:
                names = sorted(ours[one].name if one in ours else one for one in running)
                raise EngineError(
                    ENGINE,
                    f"{gateway.address} runs no cluster {name!r} of this user; running: "
                    + (", ".join(names) or "none"),
                )
            return _attached(gateway, own, record)
    finally:
        gateway.close()  # the cluster has its own


def _own_name(record: records.Record) -> str:
    """The gateway's name of a cluster, which its scheduler's address ends with."""
    return record.scheduler.rpartition("/")[2]


def _attached(gateway: Any, own: str, record: records.Record | None) -> Started:
    handle = f"{own} {uuid.uuid4()}"  # the owner, and other handles, may be in this process too
    if record is not None:
        settings = record.client.items()
        lend(handle, {key: value for key, value in settings if not key.startswith("gateway.")})
    try:
        cluster = WatchedGatewayCluster.of(gateway, own, partial(take_back, handle), owner=False)
    except BaseException:
        take_back(handle)
        raise
    if record is not None:
        # Its owner notices after seconds; until then it would be listed as if it ran.
        cluster.on_end = partial(records.remove, record.name, record.scratch)
    try:
        client = Client(cast(Cluster, cluster), timeout=cluster.patience())
    except BaseException:
        cluster.close(shutdown=False)
        raise
    cluster.used_by(client)
    cluster.lent_to = handle
    return Started(client, cast(Cluster, cluster))
