"""Cost of a cluster: the price of its nodes for the time in which their processes ran."""

from __future__ import annotations

from hyperplane import config
from hyperplane.history.timeline import RunTimeline
from hyperplane.spec.plan import ClusterPlan


def estimate_cost(
    plan: ClusterPlan, pool: str, timeline: RunTimeline | None
) -> tuple[float | None, str]:
    """Return the cost of a run and its currency; None if a price or the times are not known.

    Each connected process counts the share of its node's price, as for a budget: time in which a
    node starts is not counted.

    Parameters
    ----------
    plan : ClusterPlan
        The plan.
    pool : str
        Name of the pool in the record; empty if the cluster has none, as on one machine.
    timeline : RunTimeline or None
        How many processes were connected when.
    """
    price = None if plan.pool is None or not pool else plan.pool.price_per_hour
    if price is None or timeline is None or not plan.worker.nprocs:
        return None, ""
    hours = sum(timeline.processes) * timeline.part_seconds / 3600
    return hours * price / plan.worker.nprocs, config.sizing_rules().currency
