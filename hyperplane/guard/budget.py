"""Close a cluster when its budget is used up, with a warning before.

Schedulers without this package receive this module as source text or pickled by value, so it
imports no other module of the package.
"""

from __future__ import annotations

import logging
import pickle
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from distributed.diagnostics.plugin import SchedulerPlugin
from tornado.ioloop import PeriodicCallback

if TYPE_CHECKING:
    from distributed import Scheduler

logger = logging.getLogger(__name__)

#: Seconds between two checks, and the longest time that one check counts: a machine that was
#: suspended, or a scheduler that was stopped, cannot tell whether its workers ran.
INTERVAL, LONGEST = 1.0, 60.0
#: Fraction of the budget at which there is a warning.
WARN_AT = 0.8
#: Limit, unit and price in a scheduler that loads this module as a preload; the engine appends
#: other values.
BUDGET: tuple[float, str, float | None] | None = None
#: Seconds between the notice that the budget is used up and the end of the cluster.
NOTICE_SECONDS = 10.0


class BudgetMeter:
    """What a cluster has taken of its budget.

    Parameters
    ----------
    limit : float
        The budget: core-hours, or an amount of money.
    unit : str
        ``"core-hours"``, or a currency.
    price : float or None
        Price of a worker process for an hour; None for core-hours, which count its threads.
    """

    def __init__(self, limit: float, unit: str, price: float | None) -> None:
        self.limit, self.unit, self.price = limit, unit, price
        self.used = 0.0
        self.warned = self.noticed = False

    def count(self, workers: int, threads: int, seconds: float) -> str:
        """Add a time with some workers; return the message that is due now, or an empty text."""
        rate = threads if self.price is None else workers * self.price
        self.used += rate * seconds / 3600
        if self.used >= self.limit and not self.noticed:
            self.noticed = self.warned = True
            return (
                f"the budget of {self.limit:g} {self.unit} is used up: the cluster closes in "
                f"{NOTICE_SECONDS:.0f} s"
            )
        if self.used >= WARN_AT * self.limit and not self.warned:
            self.warned = True
            left = (self.limit - self.used) / rate * 60 if rate else 0.0
            when = f", in {left:.0f} minutes with the present workers" if left >= 1 else ""
            return (
                f"{self.used / self.limit:.0%} of the budget of {self.limit:g} {self.unit} is "
                f"used; the cluster closes at 100 %{when}"
            )
        return ""


class BudgetGuard(SchedulerPlugin):
    """Scheduler plugin that closes a cluster when its budget is used up.

    Parameters
    ----------
    meter : BudgetMeter
        The budget.
    close : callable
        Closes the cluster; called on the scheduler's event loop.
    warn : callable, optional
        Receives each message; by default all clients of the cluster issue it as a warning.
    """

    name = "hyperplane-budget-guard"

    def __init__(
        self,
        meter: BudgetMeter,
        close: Callable[[], None],
        warn: Callable[[str], None] | None = None,
    ) -> None:
        self.meter, self.close_cluster, self.warn = meter, close, warn
        self.closes_at: float | None = None
        #: Whether the cluster must end; a platform may ask for it.
        self.is_over = False
        self._watch: PeriodicCallback | None = None

    async def start(self, scheduler: Scheduler) -> None:
        """Start to count."""
        if self._watch is not None:  # a scheduler also starts the plugins that its preloads added
            return
        self.scheduler = scheduler
        self._counted = time.monotonic()
        self._watch = PeriodicCallback(self.check_budget, INTERVAL * 1000)
        self._watch.start()

    async def close(self) -> None:
        """Stop to count."""
        if self._watch is not None:
            self._watch.stop()

    def check_budget(self) -> None:
        """Count the time since the last check; warn, or close the cluster."""
        now = time.monotonic()
        passed, self._counted = min(now - self._counted, LONGEST), now
        workers: Any = self.scheduler.workers.values()
        threads = sum(worker.nthreads for worker in workers)
        if message := self.meter.count(len(workers), threads, passed):
            self._issue(message)
        if self.meter.noticed and self.closes_at is None:
            self.closes_at = now + NOTICE_SECONDS
        if self.closes_at is not None and now >= self.closes_at:
            self.closes_at = float("inf")  # once
            self.is_over = True
            if self._watch is not None:
                self._watch.stop()
            self.close_cluster()

    def _issue(self, message: str) -> None:
        if self.warn is not None:
            self.warn(message)
        else:
            logger.warning("%s", message)
            # Clients subscribe to this topic and issue its messages as warnings.
            self.scheduler.log_event("warn", {"message": pickle.dumps(message)})


def _do_nothing() -> None:
    """Do nothing: the platform asks whether the budget is used up."""


async def dask_setup(scheduler: Scheduler) -> None:
    """Add the guard to a scheduler that loads this module as a preload."""
    if BUDGET is not None:
        guard = BudgetGuard(BudgetMeter(*BUDGET), _do_nothing)
        scheduler.add_plugin(guard)
        await guard.start(scheduler)
