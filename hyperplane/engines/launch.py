"""What every cluster has before it runs, and gives up when it is over or does not start."""

from __future__ import annotations

import os
from typing import Any

from hyperplane.engines import records
from hyperplane.engines.dask_settings import take_back
from hyperplane.spec.plan import ClusterPlan
from hyperplane.units import bytes_to_gb


def record_of(plan: ClusterPlan, **others: Any) -> records.Record:
    """The record of a cluster that this process is about to start.

    Parameters
    ----------
    plan : ClusterPlan
        What is started.
    **others
        Fields of the record that are not as the plan has them.
    """
    fields: dict[str, Any] = {
        "name": plan.name,
        "engine": plan.engine,
        "scheduler": "",
        "dashboard": "",
        "pid": os.getpid(),
        "started": records.own_start(),
        "workers": plan.dask_workers,
        "threads": plan.total_threads,
        "ram_gb": bytes_to_gb(plan.total_ram),
        "client": plan.tuning.client,
    }
    return records.Record(**{**fields, **others})


def give_up(name: str, scratch: str) -> None:
    """Give up the settings that a cluster has lent, its record and its scratch folder."""
    take_back(name)
    records.remove(name, scratch)
