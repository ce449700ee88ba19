"""Coalesce concurrent requests into one call."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Generic, TypeVar

#: Seconds without a further request after which the call is made.
IDLE_SECONDS = 0.05
#: Maximum seconds until the call is made.
MAX_DELAY_SECONDS = 1.0

RequestT = TypeVar("RequestT")
AnswerT = TypeVar("AnswerT")


class RequestBatcher(Generic[RequestT, AnswerT]):
    """Answers requests with one call for all that arrive within a short time.

    Parameters
    ----------
    answer : callable
        Takes the requests, and returns as many answers in the same order.
    uncancellable : bool, optional
        Whether a request that is cancelled after the call has begun waits for the end of the call,
        because its effect may have to be undone. A request that is cancelled earlier is withdrawn.
    """

    def __init__(
        self,
        answer: Callable[[list[RequestT]], Awaitable[Sequence[AnswerT]]],
        *,
        uncancellable: bool = False,
    ) -> None:
        self._answer, self._uncancellable = answer, uncancellable
        self._open: dict[Hashable, list[tuple[RequestT, asyncio.Future[AnswerT]]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def request(self, item: RequestT, kind: Hashable = None) -> AnswerT:
        """Return the answer to a request, which is sent with others of its kind."""
        requests = self._open.get(kind)
        if requests is None:
            requests = self._open[kind] = []
            task = asyncio.ensure_future(self._collect_and_answer(kind, requests))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        answer: asyncio.Future[AnswerT] = asyncio.get_running_loop().create_future()
        request = (item, answer)
        requests.append(request)
        try:
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            if self._open.get(kind) is requests:
                requests.remove(request)
            elif self._uncancellable:
                await asyncio.wait({answer})
            raise

    async def _collect_and_answer(
        self, kind: Hashable, requests: list[tuple[RequestT, asyncio.Future[AnswerT]]]
    ) -> None:
        count, deadline = -1, time.monotonic() + MAX_DELAY_SECONDS
        while len(requests) != count and time.monotonic() < deadline:
            count = len(requests)
            await asyncio.sleep(IDLE_SECONDS)
        del self._open[kind]
        try:
            answers = await self._answer([item for item, _ in requests]) if requests else ()
            for (_, future), answer in zip(requests, answers, strict=True):
                future.set_result(answer)
        except Exception as error:  # noqa: BLE001 - raised by the requests
            for _, future in requests:
                future.set_exception(error)
        finally:
            for _, future in requests:
                future.cancel()
