"""Requests to the owner of a cluster whose scheduler is on a host.

Such a scheduler cannot call the owner: the owner waits in a request for the next one, carries it
out and sends the result. The names of the requests are those of a scheduler in the owner's process,
see :mod:`hyperplane.clusters.dask.owner_requests`, so that a client need not know where it is.
"""

from __future__ import annotations

import asyncio
import itertools
import weakref
from typing import Any

from distributed import Scheduler
from distributed.core import Status

from hyperplane.clusters.dask.owner_requests import (
    ADAPT_OWNER,
    READ_LIMITS,
    SCALE_OWNER,
    OwnerPlugin,
)
from hyperplane.core.errors import EngineError

#: Requests of the owner: wait for the next one, and send the result of one.
TAKE_REQUEST = "hyperplane_take_request"
RETURN_RESULT = "hyperplane_return_result"
#: Seconds that the owner may take for a request; less than clients wait.
ANSWER_SECONDS = 20.0
#: Seconds after which the owner, which waits for a request, asks again.
WAIT_SECONDS = 20.0
#: Seconds until the owner asks again after the connection has failed.
RETRY_SECONDS = 1.0


class OwnerRelay:
    """Handlers of a scheduler that pass requests on to the owner of its cluster.

    Parameters
    ----------
    scheduler : Scheduler
        The scheduler, to which the handlers are added.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._waiting: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._results: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._numbers = itertools.count(1)
        scheduler.handlers[SCALE_OWNER] = self.scale_owner
        scheduler.handlers[ADAPT_OWNER] = self.adapt_owner
        scheduler.handlers[READ_LIMITS] = self.read_limits
        scheduler.handlers[TAKE_REQUEST] = self.take_request
        scheduler.handlers[RETURN_RESULT] = self.return_result

    async def scale_owner(self, n: int) -> Any:
        """Let the owner scale the cluster to a number of worker processes."""
        return await self._pass_on(method="scale_cluster", arguments={"n": n})

    async def adapt_owner(self, minimum: int, maximum: float) -> Any:
        """Let the owner adapt the cluster between two numbers of worker processes."""
        limits = {"minimum": minimum, "maximum": maximum}
        return await self._pass_on(method="adapt_cluster", arguments=limits)

    async def read_limits(self) -> Any:
        """Return between which numbers of processes the cluster adapts; None if it does not."""
        return await self._pass_on(method="read_limits", arguments={})

    async def _pass_on(self, **request: Any) -> Any:
        """Return the result of the owner; raise its error, or one if it does not answer."""
        number = next(self._numbers)
        result = self._results[number] = asyncio.get_running_loop().create_future()
        self._waiting.put_nowait({"number": number, **request})
        try:
            answer = await asyncio.wait_for(result, ANSWER_SECONDS)
        except TimeoutError:
            raise EngineError(
                "ssh",
                f"the process that started the cluster did not answer within {ANSWER_SECONDS:g} s",
            ) from None
        finally:
            del self._results[number]
        if "error" in answer:
            raise EngineError("ssh", answer["error"])
        return answer["value"]

    async def take_request(self) -> dict[str, Any]:
        """Return the next request; an empty dictionary if there was none for some time."""
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                while True:
                    request = await self._waiting.get()
                    if request["number"] in self._results:  # its client still waits
                        return request
        except TimeoutError:
            return {}

    def return_result(self, number: int, answer: dict[str, Any]) -> bool:
        """Pass the result of a request to its client, if that still waits."""
        result = self._results.get(number)
        if result is not None and not result.done():
            result.set_result(answer)
        return True


async def carry_out_requests(cluster: Any) -> None:
    """Carry out what clients request of a cluster object, until it closes.

    Its scheduler has the handlers of :class:`OwnerRelay`. The object can be garbage-collected
    while this coroutine waits.

    Parameters
    ----------
    cluster : GuardedCluster
        The owner, whose event loop runs this coroutine.
    """
    plugin, scheduler = OwnerPlugin(cluster), cluster.scheduler_comm
    reference = weakref.ref(cluster)
    del cluster
    while (owner := reference()) is not None and owner.status == Status.running:
        del owner
        try:
            request = await getattr(scheduler, TAKE_REQUEST)()
            if request is None:
                return  # a scheduler of another version, without these handlers
            if request:
                answer = _call(plugin, request["method"], request["arguments"])
                await getattr(scheduler, RETURN_RESULT)(number=request["number"], answer=answer)
        except OSError:  # the scheduler ends, or the next connection succeeds
            await asyncio.sleep(RETRY_SECONDS)


def _call(plugin: OwnerPlugin, method: str, arguments: dict[str, Any]) -> dict[str, Any]:
    methods = {
        each.__name__: each
        for each in (plugin.scale_cluster, plugin.adapt_cluster, plugin.read_limits)
    }
    try:
        return {"value": methods[method](**arguments)}
    except EngineError as error:
        return {"error": error.message}
    except Exception as error:  # noqa: BLE001 - the client, not this process, gets the error
        return {"error": f"{type(error).__name__}: {error}"}
