"""Plugins that are sent to the scheduler and the nannies of a gateway's cluster.

They are pickled by value: this package need not be installed there. So nothing here may use
another module of it but those that :data:`SENT` names.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import cloudpickle
import dask.config
from dask.utils import parse_timedelta
from distributed.diagnostics.plugin import NannyPlugin, SchedulerPlugin
from distributed.worker_memory import NannyMemoryManager
from tornado.ioloop import PeriodicCallback

from hyperplane.guard import busy, idle
from hyperplane.guard.idle import IdleGuard

if TYPE_CHECKING:
    from distributed import Nanny, Scheduler
    from distributed.core import Server

#: The modules whose classes are sent.
SENT = (__name__, idle.__name__, busy.__name__)


class GatewayIdleGuard(IdleGuard):
    """An idle guard that lives in the scheduler and asks the gateway to end the cluster.

    Parameters
    ----------
    timeout : float
        Seconds without use.
    begin_within : float
        Seconds in which a first worker has to come; whoever wanted them is gone otherwise.
    """

    def __init__(self, timeout: float, begin_within: float) -> None:
        super().__init__(timeout, self.end)
        self.begin_within = begin_within

    async def start(self, scheduler: Scheduler) -> None:
        """Begin to look."""
        self.began = time.monotonic()
        await super().start(scheduler)

    def look(self) -> None:
        """Look, and end a cluster too that never had a worker."""
        if self.used_at is None and time.monotonic() - self.began > self.begin_within:
            self.used_at = self.began
        super().look()

    def end(self) -> None:
        """Have the gateway end the cluster; only it ends the processes."""
        self.ending = asyncio.ensure_future(self._end())

    async def _end(self) -> None:
        try:
            await self.scheduler.services["gateway"].gateway.shutdown()
        except Exception:  # noqa: BLE001 - whatever its client raises, the cluster shall end
            # The gateway sees a scheduler that is gone as it looks next.
            await self.scheduler.close()


class SchedulerSettings(SchedulerPlugin):
    """Dotted settings of Dask for a scheduler that runs already."""

    name = "hyperplane-settings"

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = dict(settings)

    async def start(self, scheduler: Scheduler) -> None:
        """Put them in force, in the attributes too that were made of them at its start."""
        dask.config.set(self.settings)
        get = dask.config.get
        scheduler.no_workers_timeout = parse_timedelta(
            get("distributed.scheduler.no-workers-timeout")
        )
        scheduler.worker_ttl = parse_timedelta(get("distributed.scheduler.worker-ttl"))
        _stop(scheduler, "worker-ttl")
        if scheduler.worker_ttl:
            watch = PeriodicCallback(scheduler.check_worker_ttl, scheduler.worker_ttl * 1000)
            scheduler.periodic_callbacks["worker-ttl"] = watch
        scheduler.start_periodic_callbacks()


class NannySettings(NannyPlugin):
    """Dotted settings of Dask and variables for each nanny, before it starts its worker.

    Parameters
    ----------
    settings : mapping
        For the nanny and, at every start, for its worker.
    variables : mapping
        For the worker's process.
    """

    name = "hyperplane-settings"

    def __init__(self, settings: Mapping[str, Any], variables: Mapping[str, str]) -> None:
        self.settings, self.variables = dict(settings), dict(variables)

    def setup(self, nanny: Nanny) -> None:
        """Put them in force."""
        dask.config.set(self.settings)
        dask.config.set(self.settings, config=nanny.config)
        nanny.pre_spawn_env.update(self.variables)
        nanny.env.update(self.variables)
        # It has read its threshold already; a new one reads it again.
        _stop(nanny, "memory_monitor")
        limit = nanny.memory_manager.memory_limit
        nanny.memory_manager = NannyMemoryManager(nanny, memory_limit=cast(float, limit))
        nanny.start_periodic_callbacks()


def _stop(server: Server, callback: str) -> None:
    """Take a periodic callback out of a server, if it has it."""
    found = server.periodic_callbacks.pop(callback, None)
    if found is not None:
        found.stop()


@contextmanager
def pickled_by_value() -> Iterator[None]:
    """Within this block the plugins above are pickled with their code."""
    modules = [sys.modules[name] for name in SENT]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)
