"""What a running Dask cluster takes, as the record of its run would have it now."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from hyperplane import config
from hyperplane.clusters.records import ClusterRecord
from hyperplane.core.errors import EngineError, RequestError
from hyperplane.history import RunRecord
from hyperplane.history.run_record import new_run_name
from hyperplane.history.timeline import count_process_hours


@dataclass(frozen=True)
class LiveCluster:
    """Figures of a running cluster.

    Parameters
    ----------
    record : RunRecord
        What a record has that ends now.
    currency : str
        The currency of the prices of pools; empty if none is configured.
    price : float or None
        Price of a worker process for an hour; None if it is not known.
    known_limit : int
        Limit of the memory of the connected processes, which may have grown; 0 if unknown.
    """

    record: RunRecord
    currency: str = ""
    price: float | None = None
    known_limit: int = 0

    @property
    def processes(self) -> int:
        """Number of worker processes that are connected."""
        timeline = self.record.timeline
        return timeline.processes[-1] if timeline is not None and timeline.processes else 0

    @property
    def memory(self) -> int:
        """Memory of all worker processes now, in bytes."""
        timeline = self.record.timeline
        return timeline.total[-1] if timeline is not None and timeline.total else 0

    @property
    def limit(self) -> int:
        """Limit of the memory of the connected processes, in bytes; 0 if it is not known."""
        return self.known_limit or self.processes * self.record.plan.ram_per_proc

    @property
    def process_hours(self) -> float:
        """Hours of all worker processes together; of a short time the most that ran in it."""
        timeline = self.record.timeline
        if timeline is None or not timeline.processes:
            return 0.0
        return count_process_hours(timeline.processes, timeline.part_seconds, self.record.seconds)

    @property
    def core_hours(self) -> float:
        """Hours of all threads of the worker processes together."""
        return self.process_hours * self.record.plan.nthreads

    @property
    def cost(self) -> float | None:
        """Price of the worker processes so far; None if the price is not known."""
        return None if self.price is None else self.process_hours * self.price


def read_live(cluster: ClusterRecord) -> LiveCluster:
    """Ask the scheduler of a cluster.

    Raises
    ------
    EngineError
        If it does not answer.
    """
    from hyperplane.clusters.dask.scheduler_requests import read_usage

    usage = read_usage(cluster)
    record, limit = make_record(cluster, usage, time.time()), int(usage.get("limit") or 0)
    pool = config.pools().get(record.plan.pool)
    if pool is None or pool.price_per_hour is None or not record.plan.nprocs:
        return LiveCluster(record, known_limit=limit)
    currency = config.sizing_rules().currency
    return LiveCluster(record, currency, pool.price_per_hour / record.plan.nprocs, limit)


def make_record(cluster: ClusterRecord, usage: dict[str, Any], now: float) -> RunRecord:
    """Return figures of a scheduler as a record; raise EngineError for those of another version."""
    timeline = usage.get("timeline")
    started = float((timeline or {}).get("started") or now)
    try:
        return RunRecord(
            **{
                "name": new_run_name(cluster.name, started),
                "cluster": cluster.name,
                "started": started,
                "ended": max(now, started),
                "plan": usage.get("plan") or {},
                "workers": usage.get("workers", ()),
                "tasks": usage.get("tasks", ()),
                "computations": usage.get("computations", ()),
                "timeline": timeline,
                "job": cluster.job,
            }
        )
    except RequestError as error:
        reason = "its scheduler has figures of another version of hyperplane"
        raise EngineError(cluster.engine, reason) from error
