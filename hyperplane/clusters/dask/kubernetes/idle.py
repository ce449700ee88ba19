"""Scheduler preload that decides when a cluster counts as idle.

The operator asks the scheduler since when it is idle, and deletes the cluster after its idle
timeout. Dask's answer does not count held results as use, so they would be lost, and it counts the
time in which the workers are still starting. The scheduler reads this module as text, because its
image may not have this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distributed import Scheduler


def dask_setup(scheduler: Scheduler) -> None:
    """Replace the scheduler's ``check_idle``."""
    dask_check_idle = scheduler.check_idle
    had_workers = False

    def check_idle() -> float | None:
        nonlocal had_workers
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
