"""Show what the start of a cluster waits for: workers, jobs in a queue, pods.

Engines report what they know, from any thread; without a display that is ignored.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from hyperplane.core.wait_display import WaitDisplay, WaitStatus, show_wait

if TYPE_CHECKING:
    from hyperplane.spec.plan import ClusterPlan

#: Displays of the starts that are shown, by the names of their clusters.
_displays: dict[str, WaitDisplay] = {}


@contextmanager
def show_start(plan: ClusterPlan, delay: float | None, log_lines: bool = True) -> Iterator[None]:
    """Show what the start of a plan waits for in the block.

    ``delay`` is the setting ``hyperplane.progress.delay`` in seconds, None for no progress, and
    ``log_lines`` the one of this name.
    """
    status = WaitStatus(f"start ({plan.engine})", "workers", 0, plan.dask_workers)
    with show_wait(status, delay, log_lines) as display:
        if display is None:
            yield
            return
        display.outcome = ""  # the lines about the ready cluster follow
        _displays[plan.name] = display
        try:
            yield
        finally:
            _displays.pop(plan.name, None)


def report_start(cluster: str, connected: int | None = None, detail: str | None = None) -> None:
    """Report how many workers of a starting cluster are connected, and what others wait for.

    Of ``detail`` the first sentence is shown; None leaves what was reported before.
    """
    display = _displays.get(cluster)
    if display is None:
        return
    status = display.status
    if connected is not None:
        status = replace(status, done=connected)
    if detail is not None:
        status = replace(status, detail=_first_sentence(detail))
    display.status = status


def _first_sentence(text: str) -> str:
    """Return the first sentence of a message, without its advice.

    Examples
    --------
    >>> _first_sentence("squeue reports: 2 pending (Resources). Raise timeout to wait longer")
    'squeue reports: 2 pending (Resources)'
    """
    line = text.partition("\n")[0]
    return line.partition(". ")[0].rstrip(".")
