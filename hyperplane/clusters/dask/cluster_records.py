"""The record of a Dask cluster: reserve it, complete it with addresses, and remove it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from distributed import Client

from hyperplane.clusters import records
from hyperplane.clusters.dask.adaptive import begin_adapting
from hyperplane.clusters.dask.guarded_cluster import GuardedCluster
from hyperplane.clusters.dask.settings import restore_client_settings
from hyperplane.clusters.engine import StartedCluster
from hyperplane.core.errors import StartFailed
from hyperplane.spec.dask_options import DaskOptions
from hyperplane.spec.plan import ClusterPlan


def reserve_record(plan: ClusterPlan, parent: str | None, **others: Any) -> records.ClusterRecord:
    """Reserve the name and a scratch folder of a cluster that is about to start.

    The scratch folder is created in ``parent``, or in the temporary directory if that is None.
    ``others`` are fields of the record in addition to those of the plan, or in place of them.
    Raises a StartFailed if a cluster of that name runs or a folder cannot be created.
    """
    client = DaskOptions.of(plan.options).tuning.client
    record = records.ClusterRecord.from_plan(plan, **{"client": client, **others})
    try:
        return records.reserve(record, parent)
    except OSError as error:
        raise StartFailed(plan.engine, str(error)) from error


def finish_start(
    cluster: GuardedCluster, client: Client, record: records.ClusterRecord, plan: ClusterPlan
) -> StartedCluster:
    """Complete a start: store the addresses, let an adaptive cluster adapt, begin the timeout."""
    cluster.remember_client(client)
    scheduler, dashboard = cluster.scheduler_address, cluster.dashboard_link
    records.write(replace(record, scheduler=scheduler, dashboard=dashboard))
    begin_adapting(cluster, plan)
    cluster.begin_idle_timeout()
    return StartedCluster(client, cluster)


def release_cluster(name: str, scratch: str) -> None:
    """Restore the client settings of a cluster, and remove its record and its scratch folder."""
    restore_client_settings(name)
    records.remove(name, scratch)
