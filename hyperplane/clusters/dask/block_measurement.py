"""Begin and end the measurement of a block of code on the scheduler of its client."""

from __future__ import annotations

import logging
import os
import platform
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hyperplane.core.by_value import find_own_imports, pickled_by_value
from hyperplane.core.public_calls import warn_caller

if TYPE_CHECKING:
    from distributed import Client, Scheduler

    from hyperplane.guard.block_usage import BlockMonitor

logger = logging.getLogger(__name__)

#: Seconds that a scheduler may take to begin and to end a measurement.
_ANSWER_SECONDS = 10.0


class _Calls:
    """Calls of a client to its scheduler, which has a limited time for all of them together."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._deadline = time.monotonic() + _ANSWER_SECONDS

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function in the event loop, where methods of a client are coroutines.

        Raises
        ------
        TimeoutError
            If the time is over.
        """
        seconds = max(0.0, self._deadline - time.monotonic())
        try:
            return self._client.sync(function, *args, callback_timeout=seconds, **kwargs)
        except TimeoutError as error:
            message = f"the scheduler did not answer within {_ANSWER_SECONDS:g} s"
            raise TimeoutError(message) from error


def start_measurement(client: Client, name: str) -> BlockMonitor | None:
    """Let the scheduler measure; return None with a warning if it does not."""
    # They load distributed, which a client has loaded already.
    from hyperplane.guard import block_usage
    from hyperplane.guard.block_usage import BlockMonitor

    monitor = BlockMonitor(uuid.uuid4().hex, client.id)
    scheduler, calls = _find_scheduler(client), _Calls(client)
    try:
        _measure_processes(client, calls)
        if scheduler is not None:
            calls.call(_add, scheduler, monitor)
        else:
            # Not by value in this process: cloudpickle would replace the methods of the classes.
            modules = () if _is_here(client, calls) else find_own_imports(block_usage)
            with pickled_by_value(*modules):
                calls.call(client.register_plugin, monitor)
    except Exception as error:  # noqa: BLE001 - the scheduler can raise any exception
        _cancel(client, monitor)
        warn(f"the record of {name!r} will have no figures: {describe_error(error)}")
        return None
    except BaseException:  # such as KeyboardInterrupt: what was called goes on in another thread
        _cancel(client, monitor)
        raise
    return monitor


def _cancel(client: Any, monitor: BlockMonitor) -> None:
    """End a measurement without its figures; on another machine it ends with the client."""
    with suppress(Exception):  # a client that is closed has no event loop
        client.loop.add_callback(monitor.cancel)


def _find_scheduler(client: Client) -> Scheduler | None:
    """Return the scheduler of a client if its event loop is that of this process."""
    from distributed import Scheduler

    scheduler = getattr(client.cluster, "scheduler", None)
    return scheduler if isinstance(scheduler, Scheduler) else None


def _is_here(client: Client, calls: _Calls) -> bool:
    """Return whether the scheduler of a client is in this process."""
    # In a container the ID of both may be 1.
    found = [calls.call(client.run_on_scheduler, each) for each in (os.getpid, platform.node)]
    return found == [os.getpid(), platform.node()]


async def _add(scheduler: Scheduler, monitor: BlockMonitor) -> None:
    await monitor.start(scheduler)
    if not monitor.is_cancelled:
        scheduler.add_plugin(monitor)


def _measure_processes(client: Client, calls: _Calls) -> None:
    """Let worker processes of a cluster that this package has not started tell what they take."""
    from hyperplane.guard import process_usage
    from hyperplane.guard.process_usage import ProcessUsage

    if getattr(client.cluster, "cluster_plan", None) is not None:
        return
    scheduler: Any = client.scheduler
    workers = calls.call(scheduler.identity, n_workers=1)["workers"]
    # Workers that are threads of this process would each tell the usage of all of it.
    if not any(address.startswith("inproc://") for address in workers):
        with pickled_by_value(process_usage):
            calls.call(client.register_plugin, ProcessUsage())


def end_measurement(client: Client, monitor: BlockMonitor | None, name: str) -> dict[str, Any]:
    """Return the figures of a block; none with a warning if the scheduler does not answer."""
    if monitor is None:
        return {}
    try:
        if client.status != "running":
            # A client that is closed keeps its connection; one that reconnects has none.
            lost = client.scheduler_comm is None
            raise OSError(
                "the client has lost the connection to its scheduler, which may have ended"
                if lost
                else "the client was closed in it"
            )
        return dict(_Calls(client).call(getattr(client.scheduler, monitor.handler)))
    except Exception as error:  # noqa: BLE001 - the scheduler may have ended
        _cancel(client, monitor)
        warn(f"the record of {name!r} has no figures: {describe_error(error)}")
        return {}
    except BaseException:
        _cancel(client, monitor)
        raise


def warn(text: str) -> None:
    """Warn; log it where warnings are errors, which would replace the result of the block."""
    try:
        warn_caller(text)
    except Warning:
        logger.warning(text)


def describe_error(error: Exception) -> str:
    """Return the message of an error; its type if it has none."""
    return str(error) or type(error).__name__
