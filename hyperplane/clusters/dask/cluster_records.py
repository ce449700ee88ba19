"""Create the record of a cluster before it starts, and release its resources after it ends."""

from __future__ import annotations

import os
from typing import Any

from hyperplane.clusters import records
from hyperplane.clusters.dask.settings import restore_client_settings
from hyperplane.core.units import bytes_to_gb
from hyperplane.spec.dask_options import DaskOptions
from hyperplane.spec.plan import ClusterPlan


def new_record(plan: ClusterPlan, **others: Any) -> records.ClusterRecord:
    """Return a record for a cluster that this process is about to start.

    Parameters
    ----------
    plan : ClusterPlan
        The plan of the cluster.
    **others
        Fields that replace those taken from the plan.
    """
    fields: dict[str, Any] = {
        "name": plan.name,
        "engine": plan.engine,
        "scheduler": "",
        "dashboard": "",
        "pid": os.getpid(),
        "started": records.own_start_time(),
        "workers": plan.dask_workers,
        "threads": plan.total_threads,
        "ram_gb": bytes_to_gb(plan.total_ram),
        "client": DaskOptions.of(plan.options).tuning.client,
    }
    return records.ClusterRecord(**{**fields, **others})


def release_cluster(name: str, scratch: str) -> None:
    """Restore the client settings of a cluster, and remove its record and its scratch folder."""
    restore_client_settings(name)
    records.remove(name, scratch)
