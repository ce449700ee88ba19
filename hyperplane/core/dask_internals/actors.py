"""Calls of actors that end when the worker of the actor is lost."""

from __future__ import annotations

import time
from typing import Any

from distributed import get_worker

from hyperplane.core.dask_internals.clients import is_task_wanted

#: Seconds between two looks at the state of an actor.
_INTERVAL = 0.5


class ActorLost(OSError):
    """The worker of an actor has ended."""


def get_actor_address(actor: Any) -> str:
    """Return the address of the worker with an actor."""
    address: str = actor._address
    return address


def call_actor(actor: Any, method: str, *args: Any, timeout: float) -> Any:
    """Call a method of an actor and return its result; raise ActorLost if its worker ends.

    The result of distributed's ``ActorFuture`` is never set if the worker ends during the call.
    """
    deadline = time.monotonic() + timeout
    try:
        future = getattr(actor, method)(*args)
    except RuntimeError as error:
        raise ActorLost(str(error)) from error
    while True:
        try:
            return future.result(timeout=_INTERVAL)
        except TimeoutError as error:
            if future.done():  # it ended after this wait, or the method itself raised the error
                return future.result(timeout=timeout)
            # Not the state of actor._future: in a task it is "pending" forever, and so is a call.
            if get_actor_address(actor) not in actor._client.nthreads():
                raise ActorLost("the worker of the actor was lost") from None
            if _is_cancelled():
                raise ActorLost("the task that calls the actor was cancelled") from None
            if time.monotonic() > deadline:
                raise ActorLost(f"no answer within {timeout:g} s") from error
        except OSError as error:
            raise ActorLost(str(error)) from error


def _is_cancelled() -> bool:
    """Return whether the task of this thread, if there is one, is not wanted any more."""
    try:
        worker = get_worker()
        key = worker.get_current_task()
    except (ValueError, AttributeError, KeyError):  # not in a task
        return False
    return not is_task_wanted(worker, key)
