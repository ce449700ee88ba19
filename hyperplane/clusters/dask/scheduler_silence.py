"""Watch the scheduler of a cluster from the clients that this package connects."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from distributed import Client, Scheduler

from hyperplane.core.units import parse_seconds
from hyperplane.guard.scheduler_watch import SchedulerWatch
from hyperplane.spec.settings import EngineSettings, StartupSettings


def stall_seconds(settings: EngineSettings | None) -> float | None:
    """Return the setting ``stall_timeout`` in seconds; None for no limit."""
    chosen = settings.stall_timeout if isinstance(settings, StartupSettings) else None
    return (parse_seconds(chosen) or None) if chosen else None


def watch_scheduler(client: Client, cluster: Any, name: str, timeout: float | None) -> None:
    """Let calls of a client end if its scheduler, in another process, does not answer."""
    if isinstance(getattr(cluster, "scheduler", None), Scheduler):
        return  # it is in this process
    read = getattr(cluster, "read_scheduler_process", None)
    SchedulerWatch(client, name, timeout, None if read is None else partial(_read, cluster))


async def _read(cluster: Any) -> str:
    """Read the state of the process in the event loop of the cluster."""
    reading = asyncio.run_coroutine_threadsafe(
        cluster.read_scheduler_process(), cluster.loop.asyncio_loop
    )
    text: str = await asyncio.wrap_future(reading)
    return text
