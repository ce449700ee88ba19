"""The documented lines that ``initialize_cluster`` prints, and the words of a verbose start.

The lines go to standard output, because published programs and notebooks show them: exactly as
documented where the engine has pods; elsewhere one line on what is started takes the place of the
two on the scheduler's pod. What differs from the request goes to standard error, in one line, so
that the documented output stays what it is.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hyperplane.engines import registry
from hyperplane.engines.base import SupportsStartLine
from hyperplane.units import plural

if TYPE_CHECKING:
    from hyperplane.spec.plan import ClusterPlan

BRAND = "👉 Hyperplane:"


def print_start_lines(plan: ClusterPlan, closed: Sequence[str] = ()) -> None:
    """What is printed before anything is started, and after other clusters were closed for it."""
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
    """What is printed when the workers are there."""
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
    """The documented form of a dashboard's address, ``.../<cluster name>/status``, if there is one.

    Examples
    --------
    >>> documented_address("http://127.0.0.1:8787/status", "dask-cluster-1")
    'http://127.0.0.1:8787/dask-cluster-1/status'
    >>> documented_address("http://127.0.0.1:8000/clusters/1f2e/status", "dask-cluster-1")
    'http://127.0.0.1:8000/clusters/1f2e/status'
    """
    # Other links lead through a proxy, of a site or a gateway, which knows no such path.
    if not re.fullmatch(r"http://127\.0\.0\.1:\d+/status", dashboard):
        return dashboard
    return dashboard.removesuffix("/status") + f"/{name}/status"


def _print_line(line: str) -> None:
    print(line, flush=True)
