"""What watches a cluster while it runs: its limits, its record, and its workers' memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from distributed.diagnostics.plugin import SchedulerPlugin

from hyperplane.clusters.dask.budget_meter import new_budget_meter
from hyperplane.clusters.dask.recovery import RecoverySettings
from hyperplane.clusters.dask.worker_layout import layout_of
from hyperplane.guard.budget import BudgetGuard, BudgetMeter
from hyperplane.guard.idle import IDLE, IdleGuard
from hyperplane.guard.memory_advice import WorkerLayout
from hyperplane.guard.memory_growth import FreeMemory
from hyperplane.guard.run_recorder import RunRecorder
from hyperplane.guard.shuffle_sizes import ShuffleSizes
from hyperplane.guard.usage import BUDGET_USED, UsageMonitor
from hyperplane.spec.plan import ClusterPlan


@dataclass(frozen=True)
class ClusterGuards:
    """The guards of one cluster.

    Parameters
    ----------
    recovery : RecoverySettings
        What a scheduler in this process does about stalls and about full memory.
    layout : WorkerLayout
        What the explanation of a failure for memory may advise to change.
    idle_timeout : float or None
        Seconds without use after which the cluster closes itself.
    budget : BudgetMeter or None
        The budget after which the cluster closes itself.
    recorder : RunRecorder or None
        Writes the record of the run when the cluster closes.
    """

    recovery: RecoverySettings
    layout: WorkerLayout
    idle_timeout: float | None = None
    budget: BudgetMeter | None = None
    recorder: RunRecorder | None = None

    @classmethod
    def of(
        cls,
        plan: ClusterPlan,
        *,
        replaces_workers: bool = False,
        lends: bool = False,
        shared_ram: int = 0,
        free_memory: FreeMemory | None = None,
    ) -> ClusterGuards:
        """Return the guards of a plan.

        ``shared_ram`` is that of :func:`layout_of`, the others are those of
        :class:`RecoverySettings`.
        """
        return cls(
            RecoverySettings.of(
                plan, replaces_workers=replaces_workers, lends=lends, free_memory=free_memory
            ),
            layout_of(plan, shared_ram),
            plan.idle_timeout,
            new_budget_meter(plan),
            RunRecorder(plan),
        )

    def plugins(
        self, close: Callable[[str], None], warn: Callable[[str], None]
    ) -> list[SchedulerPlugin]:
        """Return new plugins for the scheduler in this process.

        Parameters
        ----------
        close : callable
            Closes the cluster for a reason.
        warn : callable
            Logs a warning about the cluster.
        """
        plugins = [*self.recovery.plugins(warn), ShuffleSizes(warn)]
        if self.idle_timeout is not None:
            end = partial(close, IDLE)
            plugins.append(IdleGuard(self.idle_timeout, end, starting=True))
        if self.recorder is not None:
            plugins.append(UsageMonitor(self.recorder.spill, warn, self.recorder.plan_fields))
        if self.budget is not None:
            end = partial(close, BUDGET_USED)
            plugins.append(BudgetGuard(self.budget, end, warn))
        return plugins
