"""Lines that ``initialize_cluster`` prints while a cluster starts.

The documented lines go to standard output, because published programs and notebooks show them.
Engines without pods replace the two lines about the scheduler's pod by one line of their choice.
Differences from the request go to standard error, which keeps the documented output unchanged.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hyperplane.clusters import registry
from hyperplane.clusters.engine import SupportsStartLine
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
            _print_line("Creating scheduler pod on cluster. This may take some time.")
            _print_line(
                f"{BRAND} spinning up a dask cluster with a scheduler as a standalone container."
            )
    replaced = f"closed {', '.join(closed)} first (replace=True)" if closed else ""
    for line in (replaced, plan.fit_note, *plan.alerts):
        if line:
            print(f"{BRAND} {line}", file=sys.stderr, flush=True)


def print_ready_lines(plan: ClusterPlan, dashboard: str, seconds: float) -> None:
    """Print the lines for a cluster whose workers are connected."""
    address, remote = dashboard, plan.request.scheduler_deploy_mode == "remote"
    if remote:
        address = documented_address(dashboard, plan.name)
    if remote and not isinstance(registry.load(plan.engine), SupportsStartLine):
        _print_line(f"{BRAND} In a few minutes you'll be able to access the dashboard at {address}")
    else:
        _print_line(f"{BRAND} you can access your dask dashboard at {address}")
    _print_line(f"{BRAND} to get logs from all workers, do `cluster.get_logs()`")
    if plan.request.logging == "verbose":
        _print_line(f"ready in {seconds:.2f} s: {plural(plan.dask_workers, 'worker process')}")


def documented_address(dashboard: str, name: str) -> str:
    """Dashboard address in the documented form ``.../<cluster name>/status``.

    Examples
    --------
    >>> documented_address("http://127.0.0.1:8787/status", "dask-cluster-1")
    'http://127.0.0.1:8787/dask-cluster-1/status'
    >>> documented_address("http://127.0.0.1:8000/clusters/1f2e/status", "dask-cluster-1")
    'http://127.0.0.1:8000/clusters/1f2e/status'
    """
    # Other addresses belong to a proxy or gateway, which does not serve this path.
    if not re.fullmatch(r"http://127\.0\.0\.1:\d+/status", dashboard):
        return dashboard
    return dashboard.removesuffix("/status") + f"/{name}/status"


def _print_line(line: str) -> None:
    print(line, flush=True)
