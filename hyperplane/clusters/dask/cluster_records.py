"""Create the record of a Dask cluster before it starts, and release its resources at its end."""

from __future__ import annotations

from typing import Any

from hyperplane.clusters import records
from hyperplane.clusters.dask.settings import restore_client_settings
from hyperplane.spec.dask_options import DaskOptions
from hyperplane.spec.plan import ClusterPlan


def new_record(plan: ClusterPlan, **others: Any) -> records.ClusterRecord:
    """Return a record with Dask's client settings for a cluster that is about to start.

    Parameters
    ----------
    plan : ClusterPlan
        The plan of the cluster.
    **others
        Fields that replace those taken from the plan.
    """
    client = DaskOptions.of(plan.options).tuning.client
    return records.ClusterRecord.from_plan(plan, **{"client": client, **others})


def release_cluster(name: str, scratch: str) -> None:
    """Restore the client settings of a cluster, and remove its record and its scratch folder."""
    restore_client_settings(name)
    records.remove(name, scratch)
