"""A Dask cluster as HTML and as text: its plan, workers, memory, cost and limits.

It is drawn twice a second where ``ipywidgets`` is installed, so it asks no other process.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from distributed import Scheduler

from hyperplane.core.html_output import (
    Markup,
    make_bar,
    make_link,
    make_output,
    make_rows,
    to_text,
)
from hyperplane.core.text_tables import as_text
from hyperplane.core.units import format_duration, format_number, plural, round_bytes
from hyperplane.guard.budget import BudgetGuard
from hyperplane.guard.idle import IdleGuard
from hyperplane.guard.run_recorder import find_process_price, summarize_plan
from hyperplane.guard.run_summary import describe_plan
from hyperplane.guard.usage import UsageMonitor
from hyperplane.guard.usage_texts import describe_grown
from hyperplane.history.timeline import count_process_hours
from hyperplane.spec.plan import ClusterPlan

logger = logging.getLogger(__name__)


@dataclass
class ClusterState:
    """What is known of the workers of a cluster, without asking them.

    Parameters
    ----------
    workers, threads, paused : int
        Number of worker processes, of their threads, and of paused processes.
    memory, limit, spilled : int
        Memory of all processes, their limit, and data on disk, in bytes.
    running, waiting : int or None
        Number of tasks that run, and of those that wait for a worker; None if not known.
    process_hours : float or None
        Hours of all worker processes so far; None if not known.
    """

    workers: int = 0
    threads: int = 0
    paused: int = 0
    memory: int = 0
    limit: int = 0
    spilled: int = 0
    running: int | None = None
    waiting: int | None = None
    process_hours: float | None = None

    def add_worker(
        self, status: str, nthreads: int, limit: Any, metrics: Mapping[str, Any]
    ) -> None:
        """Count a worker; ``metrics`` are those of its last heartbeat."""
        self.workers += 1
        self.threads += nthreads
        self.paused += status == "paused"
        self.limit += limit or 0
        self.memory += metrics.get("memory") or 0
        self.spilled += (metrics.get("spilled_bytes") or {}).get("disk", 0)


def read_state(cluster: Any) -> ClusterState:
    """Return what this process knows of the workers of a cluster."""
    scheduler = getattr(cluster, "scheduler", None)
    if isinstance(scheduler, Scheduler):
        return _read_scheduler(scheduler)
    state = ClusterState()
    for worker in dict(cluster.scheduler_info.get("workers", {})).values():
        status, metrics = str(worker.get("status", "")), worker.get("metrics") or {}
        state.add_worker(status, worker["nthreads"], worker.get("memory_limit"), metrics)
    copy = getattr(cluster, "_copy", None)
    timeline = (copy.usage or {}).get("timeline") if copy is not None else None
    if timeline and timeline["total"]:  # newer than what the cluster object has of its workers
        state.memory, state.spilled = timeline["total"][-1], timeline["spilled"][-1]
        state.process_hours = count_process_hours(
            timeline["processes"], timeline["part_seconds"], time.time() - timeline["started"]
        )
    return state


def _read_scheduler(scheduler: Scheduler) -> ClusterState:
    state = ClusterState(running=0, waiting=len(scheduler.queued) + len(scheduler.unrunnable))
    for worker in list(scheduler.workers.values()):
        state.add_worker(
            worker.status.name, worker.nthreads, worker.memory_limit, dict(worker.metrics)
        )
        state.running = (state.running or 0) + len(worker.processing)
    monitor = scheduler.plugins.get(UsageMonitor.name)
    if isinstance(monitor, UsageMonitor):
        state.process_hours = monitor.process_hours
    return state


def list_facts(cluster: Any) -> Iterator[tuple[str, str]]:
    """Yield labels and texts of a cluster, with bars and links."""
    plan: ClusterPlan | None = getattr(cluster, "cluster_plan", None)
    state = read_state(cluster)
    yield "cluster", f"{cluster.name}, {cluster.status.name}"
    if plan is not None:
        yield "plan", f"{plan.engine}: {describe_plan(summarize_plan(plan))}"
    yield "workers", _describe_workers(plan, state)
    if state.limit:
        text = f"{round_bytes(state.memory)} of {round_bytes(state.limit)}"
        if plan is not None:
            planned = state.workers * plan.worker.ram_per_proc
            grown = describe_grown(state.limit, planned)
            text += f", {grown}" if grown else ""
        text += f", {round_bytes(state.spilled)} on disk" if state.spilled else ""
        text += f", {plural(state.paused, 'worker')} paused" if state.paused else ""
        yield "memory", make_bar(state.memory / state.limit, text, _find_style(state))
    if state.running is not None:
        yield "tasks", f"{state.running:,} given to workers, {state.waiting:,} wait for one"
    if state.process_hours is not None and plan is not None:
        yield "so far", _describe_cost(plan, state.process_hours)
    yield from _list_limits(cluster, plan)
    if job := os.environ.get("HYPERPLANE_JOB_ID", ""):
        yield "job", job
    if cluster.dashboard_link:
        yield "dashboard", make_link(cluster.dashboard_link)
    if plan is not None and plan.fit_note:
        yield "note", plan.fit_note


def _describe_workers(plan: ClusterPlan | None, state: ClusterState) -> str:
    threads = plural(state.threads, "thread")
    if plan is None:
        return f"{plural(state.workers, 'worker process')}, {threads}"
    if plan.max_nodes is not None:
        return f"{plural(state.workers, 'worker process')}, {threads}; their number adapts"
    text = f"{state.workers:,} of {plan.dask_workers:,} worker processes, {threads}"
    style = "hp-good" if state.workers >= plan.dask_workers else "hp-warn"
    return make_bar(state.workers / max(1, plan.dask_workers), text, style)


def _find_style(state: ClusterState) -> str:
    return "hp-bad" if state.paused else "hp-warn" if state.spilled else "hp-run"


def _describe_cost(plan: ClusterPlan, process_hours: float) -> str:
    """Return what the cluster has taken: money if its pool has a price, and core-hours."""
    hours = format_number(round(process_hours * plan.worker.nthreads, 2))
    text = f"about {hours} core-hours"
    price = find_process_price(plan)
    if price is None:
        return text
    cost = format_number(round(process_hours * price.amount, 2))
    return f"about {cost} {price.currency}".rstrip() + f", {text}"


def _list_limits(cluster: Any, plan: ClusterPlan | None) -> Iterator[tuple[str, str]]:
    """Yield the budget and the idle timeout, with what is used of them if that is known."""
    scheduler = getattr(cluster, "scheduler", None)
    plugins = scheduler.plugins if isinstance(scheduler, Scheduler) else {}
    budget, idle = plugins.get(BudgetGuard.name), plugins.get(IdleGuard.name)
    if isinstance(budget, BudgetGuard):
        meter = budget.meter
        text = f"{meter.used:.2f} of {meter.limit:g} {meter.unit}"
        style = "hp-bad" if meter.noticed else "hp-warn" if meter.warned else "hp-run"
        yield "budget", make_bar(meter.used / meter.limit, text, style)
    elif plan is not None and plan.request.budget is not None:
        yield "budget", str(plan.request.budget)
    if plan is not None and plan.idle_timeout is not None:
        text = f"closes after {format_duration(plan.idle_timeout)} without use"
        if isinstance(idle, IdleGuard) and idle.used_at is not None:
            unused = time.monotonic() - idle.used_at
            text += f"; unused for {format_duration(unused)}" if unused >= 2 else "; in use"
        yield "idle", text


class ClusterHtml:
    """Mixin for Dask's clusters: their HTML and their text have our facts.

    The HTML has Dask's own in a part to open, and the printed text below Dask's line. It comes
    before Dask's class in the list of base classes.
    """

    def __str__(self) -> str:
        theirs = super().__str__()
        try:
            rows = [(label, to_text(text)) for label, text in list_facts(self)]
        except Exception as failure:  # noqa: BLE001 - a cluster that is closing
            logger.debug("facts of the cluster are not printed: %s", failure)
            return theirs
        return f"{theirs}\n{as_text(rows)}"

    def _repr_html_(self, *args: Any, **kwargs: Any) -> str:
        theirs: str = super()._repr_html_(*args, **kwargs)  # type: ignore[misc]
        try:
            facts = make_output(make_rows(list_facts(self)))
        except Exception as failure:  # noqa: BLE001 - a cluster that is closing; Dask's remains
            logger.debug("facts of the cluster are not shown: %s", failure)
            return theirs
        details = f"<details><summary>Dask's view</summary>{theirs}</details>"
        return Markup(f"{facts}{details}")
