"""Scheduler preload that decides when a cluster counts as idle.

The operator asks the scheduler since when it is idle, and deletes the cluster after its idle
timeout. Dask's answer does not count held results as use, so they would be lost, and it counts the
time in which the workers are still starting. A cluster whose lease has expired, see
``guard/lease.py``, or whose budget is used up, counts as idle since 1970. The scheduler reads this
module as text, because its image may not have this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distributed import Scheduler

#: Answer for an expired lease or a used budget, which is earlier than any idle timeout; 0 would
#: count as unknown.
_LONG_AGO = 1.0
_LEASE, _BUDGET = "hyperplane-lease", "hyperplane-budget-guard"


def dask_setup(scheduler: Scheduler) -> None:
    """Replace the scheduler's ``check_idle``."""
    dask_check_idle = scheduler.check_idle
    had_workers = False

    def check_idle() -> float | None:
        nonlocal had_workers
        plugins = scheduler.plugins
        if getattr(plugins.get(_LEASE), "expired", False) or getattr(
            plugins.get(_BUDGET), "is_over", False
        ):
            return _LONG_AGO
        had_workers = had_workers or bool(scheduler.workers)
        since = dask_check_idle()
        if since is None:
            return None
        starting = not had_workers and bool(scheduler.client_comms)
        if starting or any(task.who_wants for task in scheduler.tasks.values()):
            scheduler.idle_since = None
            return None
        return since

    scheduler.check_idle = check_idle  # type: ignore[method-assign]
    scheduler.handlers["check_idle"] = check_idle
