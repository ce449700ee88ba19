"""Lines that a start of Dask prints: the scheduler's pod, the dashboard, the logs.

``clusters/start_lines.py`` prints them, and has the lines that all frameworks share.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hyperplane.clusters import registry
from hyperplane.clusters.engine import SupportsStartLine
from hyperplane.clusters.start_lines import BRAND

if TYPE_CHECKING:
    from hyperplane.spec.plan import ClusterPlan

#: Documented lines about a start by an engine with pods.
SCHEDULER_POD = (
    "Creating scheduler pod on cluster. This may take some time.",
    f"{BRAND} spinning up a dask cluster with a scheduler as a standalone container.",
)


def describe_dashboard(plan: ClusterPlan, dashboard: str) -> list[str]:
    """Return the documented lines about the dashboard and the logs of a running cluster."""
    address, remote = dashboard, plan.request.scheduler_deploy_mode == "remote"
    if remote:
        address = documented_address(dashboard, plan.name)
    if remote and not isinstance(registry.load(plan.engine), SupportsStartLine):
        line = f"{BRAND} In a few minutes you'll be able to access the dashboard at {address}"
    else:
        line = f"{BRAND} you can access your dask dashboard at {address}"
    return [line, f"{BRAND} to get logs from all workers, do `cluster.get_logs()`"]


def documented_address(dashboard: str, name: str) -> str:
    """Return a dashboard's address in the documented form ``.../<cluster name>/status``.

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
