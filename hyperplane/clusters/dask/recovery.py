"""Scheduler plugins that keep a cluster of Dask from waiting forever, by the plan's settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from distributed import Client
from distributed.diagnostics.plugin import SchedulerPlugin

from hyperplane.core.by_value import find_own_imports, pickled_by_value
from hyperplane.guard import (
    admission,
    compute_progress,
    memory_plugins,
    oom_retry,
    shuffle_restarts,
    shuffle_sizes,
    stalls,
)
from hyperplane.guard.admission import RootTaskAdmission
from hyperplane.guard.compute_progress import ComputeProgress
from hyperplane.guard.memory_growth import FreeMemory
from hyperplane.guard.oom_retry import OomRetry
from hyperplane.guard.shuffle_restarts import ShuffleRestartLimit
from hyperplane.guard.shuffle_sizes import ShuffleSizes
from hyperplane.guard.stalls import StallGuard
from hyperplane.spec.plan import ClusterPlan

#: Modules whose classes are pickled by value, besides those of ``memory_plugins``.
MODULES = find_own_imports(
    admission, compute_progress, oom_retry, shuffle_restarts, shuffle_sizes, stalls
)


@dataclass(frozen=True)
class RecoverySettings:
    """What the scheduler of a cluster does about stalls and about full memory.

    Parameters
    ----------
    stall_timeout : float or None
        See :class:`StallGuard`; None for no guard.
    oom : str
        ``"retry"`` or ``"raise"``.
    replaces_workers : bool
        Whether the engine may replace lost workers by new jobs or pods.
    lends : bool
        Whether workers with the same host can lend memory to each other.
    free_memory : FreeMemory or None
        Memory of this machine that workers may use beyond their limits; None for none.
    """

    stall_timeout: float | None
    oom: str
    replaces_workers: bool = False
    lends: bool = False
    free_memory: FreeMemory | None = None

    @classmethod
    def of(
        cls,
        plan: ClusterPlan,
        *,
        replaces_workers: bool = False,
        lends: bool = False,
        free_memory: FreeMemory | None = None,
    ) -> RecoverySettings:
        """Return the settings of a plan."""
        return cls(plan.stall_timeout, plan.oom, replaces_workers, lends, free_memory)

    def plugins(self, warn: Callable[[str], None] | None = None) -> list[SchedulerPlugin]:
        """Return new plugins for one scheduler; ``warn`` receives their warnings."""
        plugins: list[SchedulerPlugin] = [
            ShuffleRestartLimit(),
            RootTaskAdmission(),
            ComputeProgress(),
        ]
        if self.stall_timeout is not None:
            plugins.append(
                StallGuard(
                    self.stall_timeout,
                    replaces_workers=self.replaces_workers,
                    restarts=self.oom == "retry",
                )
            )
        if self.oom == "retry":
            plugins.append(OomRetry(self.lends, self.free_memory, warn))
        return plugins


def is_suspended(scheduler: Any, nanny: str | None) -> bool:
    """Return whether a nanny has lent the memory of its worker, and starts it again later."""
    plugin = getattr(scheduler, "plugins", {}).get(OomRetry.name)
    return plugin is not None and nanny in plugin.suspended


def register(client: Client, settings: RecoverySettings) -> None:
    """Add the plugins to the scheduler of a client, which may be without this package."""
    with pickled_by_value(*MODULES, *memory_plugins.MODULES):
        for plugin in (*settings.plugins(), ShuffleSizes()):
            client.register_plugin(plugin)
