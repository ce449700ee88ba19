"""Private names of distributed's nanny: steps before it ends, and after the end of, its worker.

Nannies without this package receive this module by value, so it imports no other module of it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from distributed import Nanny
from distributed.core import Status
from tornado.ioloop import PeriodicCallback

logger = logging.getLogger("distributed.nanny.memory")

#: Name of Dask's periodic check of the memory of a worker process, and of the one without it.
_MONITOR, _OWN_MONITOR = "memory_monitor", "hyperplane-memory"
#: Attribute of a function with the function of Dask instead of which it is called. A plugin that is
#: registered again is set up again, without a teardown, and may have another copy of this module.
_ORIGINAL = "hyperplane_original"
#: Milliseconds between checks if Dask has none, because a worker has no limit.
_INTERVAL = 200.0


def precede_memory_check(
    nanny: Any, watch: Callable[[Callable[[], object]], Awaitable[None]]
) -> PeriodicCallback:
    """Call `watch` with Dask's check of a worker's memory instead of the check; return the timer.

    The check happens even if `watch` fails before it calls it. Tornado waits for a call before it
    makes the next one. A second call replaces the first one.
    """
    timer: PeriodicCallback | None = nanny.periodic_callbacks.get(_MONITOR)
    if timer is None:
        remove_memory_check(nanny)
        timer = PeriodicCallback(_watch_and_check(watch, lambda: None), _INTERVAL)
        nanny.periodic_callbacks[_OWN_MONITOR] = timer
        nanny.start_periodic_callbacks()
        return timer
    timer.callback = _watch_and_check(watch, _find_original(timer.callback))
    return timer


def _watch_and_check(
    watch: Callable[[Callable[[], object]], Awaitable[None]], check: Callable[[], object]
) -> Callable[[], Awaitable[None]]:
    async def watch_and_check() -> None:
        is_checked = False

        def check_once() -> None:
            nonlocal is_checked
            is_checked = True
            check()

        try:
            await watch(check_once)
        except Exception:
            logger.exception("the memory of the worker process could not be watched")
            if not is_checked:
                check()

    setattr(watch_and_check, _ORIGINAL, check)
    return watch_and_check


def remove_memory_check(nanny: Any) -> None:
    """Undo :func:`precede_memory_check`."""
    timer = nanny.periodic_callbacks.get(_MONITOR)
    if timer is not None:
        timer.callback = _find_original(timer.callback)
    own = nanny.periodic_callbacks.pop(_OWN_MONITOR, None)
    if own is not None:
        own.stop()


def precede_worker_exit(nanny: Any, report: Callable[[int], Awaitable[None]]) -> None:
    """Call `report` with the exit code of a worker process before the nanny starts another.

    The nanny goes on if `report` fails. A second call replaces the first one.
    """
    handle_exit = _find_original(nanny._on_worker_exit)

    async def report_and_handle(exit_code: int) -> None:
        try:
            await report(exit_code)
        except Exception:
            logger.exception("the end of the worker process could not be reported")
        finally:
            await handle_exit(exit_code)

    setattr(report_and_handle, _ORIGINAL, handle_exit)
    nanny._on_worker_exit = report_and_handle


def remove_worker_exit(nanny: Any) -> None:
    """Undo :func:`precede_worker_exit`."""
    nanny._on_worker_exit = _find_original(nanny._on_worker_exit)


def _find_original(function: Any) -> Any:
    """Return the function of Dask that a function of this module, or of a copy of it, calls."""
    return getattr(function, _ORIGINAL, function)


def find_nanny(address: str | None) -> Any:
    """Return the nanny in this process with an address; None if there is none."""
    for nanny in list(Nanny._instances):
        if nanny.status == Status.running and nanny.address == address:
            return nanny
    return None


def get_process(nanny: Any) -> tuple[int, str, str, bool] | None:
    """Return process ID, address, folder of the worker, and whether the nanny is ending it.

    The address is empty while the process starts. None if no worker process runs.
    """
    worker = nanny.process
    if worker is None or worker.process is None or worker.process.pid is None:
        return None
    ending = worker.status == Status.stopping or nanny.status != Status.running
    # While it starts, it is that of the process before.
    address = "" if worker.status == Status.starting else worker.worker_address
    return worker.process.pid, address or "", worker.worker_dir or "", ending


def get_latest_address(nanny: Any) -> str:
    """Return the address of the latest worker process that has started, which may have ended."""
    return (nanny.process and nanny.process.worker_address) or ""


def exceeds_terminate(nanny: Any, memory: int) -> bool:
    """Return whether Dask's check of this memory in bytes would end the worker process."""
    manager = nanny.memory_manager
    share = manager.memory_terminate_fraction
    return bool(manager.memory_limit and share and memory > share * manager.memory_limit)
