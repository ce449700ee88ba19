"""Lines that ``initialize_cluster`` prints while a cluster starts, and the one at its end.

The documented lines go to standard output, because published programs and notebooks show them;
differences from the request go to standard error, so that the documented output does not change.
A start goes on without the lines if they cannot be written, as after ``| head -1``.

This module prints the lines, and has those that all frameworks share. The lines of Dask, about the
scheduler's pod, the dashboard and the logs, are in ``clusters/dask/dashboard_lines.py``. An engine
without pods replaces the lines about the pod with one line, ``start_line`` in its ``engine.py``.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hyperplane.clusters import registry
from hyperplane.clusters.engine import StartedCluster, SupportsStartLine
from hyperplane.core.printed_text import print_note, print_text
from hyperplane.core.units import plural

if TYPE_CHECKING:
    from hyperplane.spec.plan import ClusterPlan

BRAND = "👉 Hyperplane:"


def print_start_lines(plan: ClusterPlan, closed: Sequence[str] = ()) -> None:
    """Print the lines before a start; ``closed`` names the clusters that it replaces."""
    request = plan.request
    if request.logging == "verbose":
        _print_line(str(plan))
    _print_line(f"{BRAND} selecting worker node pool")
    _print_line(f"{BRAND} selecting scheduler node pool")
    if request.scheduler_deploy_mode == "remote":
        engine = registry.load(plan.engine)
        if isinstance(engine, SupportsStartLine):
            _print_line(f"{BRAND} {engine.start_line(plan)}")
        else:
            for line in registry.load_framework(plan.engine).starting_lines(plan):
                _print_line(line)
    replaced = f"closed {', '.join(closed)} first (replace=True)" if closed else ""
    for line in (replaced, plan.fit_note, *plan.alerts):
        if line:
            _print_note(line)


def print_ready_lines(plan: ClusterPlan, dashboard: str, seconds: float) -> None:
    """Print the lines for a cluster whose workers are connected."""
    for line in registry.load_framework(plan.engine).ready_lines(plan, dashboard):
        _print_line(line)
    if plan.request.logging == "verbose":
        _print_line(f"ready in {seconds:.2f} s: {plural(plan.dask_workers, 'worker process')}")


def print_started(plan: ClusterPlan, began: float, started: StartedCluster) -> None:
    """Print the lines for a cluster that has started; ``began`` is by ``time.monotonic``."""
    dashboard = registry.load_framework(plan.engine).addresses(started).dashboard
    print_ready_lines(plan, dashboard, time.monotonic() - began)


def print_run_summary(summary: str) -> None:
    """Print the summary of a run whose cluster closes."""
    _print_note(summary)


def _print_line(line: str) -> None:
    print_text(f"{line}\n", sys.stdout)


def _print_note(line: str) -> None:
    print_note(f"{BRAND} {line}")
