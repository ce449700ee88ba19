"""Plugins for the scheduler and the nannies of a gateway's cluster.

They are pickled by value, so that the cluster does not need this package. This module therefore
uses only modules of this package that can be sent with it.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, cast

import dask.config
from dask.utils import parse_timedelta
from distributed.diagnostics.plugin import NannyPlugin, SchedulerPlugin
from distributed.worker_memory import NannyMemoryManager
from tornado.ioloop import PeriodicCallback

from hyperplane.guard import busy, usage
from hyperplane.guard.budget import BudgetGuard, BudgetMeter
from hyperplane.guard.idle import IdleGuard
from hyperplane.guard.lease import LeaseGuard

if TYPE_CHECKING:
    from distributed import Nanny, Scheduler
    from distributed.core import Server


class GatewayIdleGuard(IdleGuard):
    """Idle guard that makes the gateway stop the cluster.

    Parameters
    ----------
    timeout : float
        Idle timeout in seconds.
    begin_within : float
        Seconds after which a cluster without any worker counts as idle; the program that started
        it has probably ended.
    """

    def __init__(self, timeout: float, begin_within: float) -> None:
        super().__init__(timeout, self.end)
        self.begin_within = begin_within

    async def start(self, scheduler: Scheduler) -> None:
        """Start the periodic checks."""
        self.began = time.monotonic()
        await super().start(scheduler)

    def check_idle(self) -> None:
        """Check, and also stop a cluster that never had a worker."""
        if self.used_at is None and time.monotonic() - self.began > self.begin_within:
            self.used_at = self.began
        super().check_idle()

    def end(self) -> None:
        """Make the gateway stop the cluster; only the gateway can end all its processes."""
        self.ending = asyncio.ensure_future(_stop_cluster(self.scheduler))


class GatewayBudgetGuard(BudgetGuard):
    """Budget guard that makes the gateway stop the cluster.

    Parameters
    ----------
    meter : BudgetMeter
        The budget.
    """

    def __init__(self, meter: BudgetMeter) -> None:
        super().__init__(meter, self.end)

    def end(self) -> None:
        """Make the gateway stop the cluster; only the gateway can end all its processes."""
        self.ending = asyncio.ensure_future(_stop_cluster(self.scheduler))


class GatewayLeaseGuard(LeaseGuard):
    """Lease guard that makes the gateway stop the cluster."""

    def end(self) -> None:
        """Make the gateway stop the cluster; only the gateway can end all its processes."""
        self.ending = asyncio.ensure_future(_stop_cluster(self.scheduler))


async def _stop_cluster(scheduler: Scheduler) -> None:
    try:
        await scheduler.services["gateway"].gateway.shutdown()
    except Exception:  # noqa: BLE001 - the cluster must end after any error of the client
        # The gateway checks periodically whether the scheduler has ended.
        await scheduler.close()


class SchedulerSettings(SchedulerPlugin):
    """Scheduler plugin that applies dotted Dask settings to a running scheduler."""

    name = "hyperplane-settings"

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = dict(settings)

    async def start(self, scheduler: Scheduler) -> None:
        """Apply the settings, also to attributes that were derived from them at the start."""
        dask.config.set(self.settings)
        get = dask.config.get
        scheduler.no_workers_timeout = parse_timedelta(
            get("distributed.scheduler.no-workers-timeout")
        )
        scheduler.worker_ttl = parse_timedelta(get("distributed.scheduler.worker-ttl"))
        _stop_callback(scheduler, "worker-ttl")
        if scheduler.worker_ttl:
            watch = PeriodicCallback(scheduler.check_worker_ttl, scheduler.worker_ttl * 1000)
            scheduler.periodic_callbacks["worker-ttl"] = watch
        scheduler.start_periodic_callbacks()


class NannySettings(NannyPlugin):
    """Nanny plugin that applies Dask settings and environment variables before a worker starts.

    Parameters
    ----------
    settings : mapping
        Dotted Dask settings of the nanny and of every worker that it starts.
    variables : mapping
        Environment variables of the worker process.
    """

    name = "hyperplane-settings"

    def __init__(self, settings: Mapping[str, Any], variables: Mapping[str, str]) -> None:
        self.settings, self.variables = dict(settings), dict(variables)

    def setup(self, nanny: Nanny) -> None:
        """Apply the settings and variables."""
        dask.config.set(self.settings)
        dask.config.set(self.settings, config=nanny.config)
        nanny.pre_spawn_env.update(self.variables)
        nanny.env.update(self.variables)
        # The memory manager has already read its threshold; a new one reads it again.
        _stop_callback(nanny, "memory_monitor")
        limit = nanny.memory_manager.memory_limit
        nanny.memory_manager = NannyMemoryManager(nanny, memory_limit=cast(float, limit))
        nanny.start_periodic_callbacks()


def _stop_callback(server: Server, callback: str) -> None:
    """Stop and remove a periodic callback of a server, if it exists."""
    removed = server.periodic_callbacks.pop(callback, None)
    if removed is not None:
        removed.stop()


def pickled_by_value() -> AbstractContextManager[None]:
    """Pickle all classes that a gateway's cluster needs by value during the block."""
    from hyperplane.core import by_value

    modules = by_value.find_own_imports(sys.modules[__name__], busy, usage)
    return by_value.pickled_by_value(*modules)
