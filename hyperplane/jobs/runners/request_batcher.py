"""What many ask for at about the same time, done once for all of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Generic, TypeVar

#: Seconds in which nobody else asks, until it is done.
IDLE_SECONDS = 0.05
#: Seconds until it is done although others still ask.
MAX_DELAY_SECONDS = 1.0

RequestT = TypeVar("RequestT")
AnswerT = TypeVar("AnswerT")


class RequestBatcher(Generic[RequestT, AnswerT]):
    """Requests that come within a moment, answered together.

    Parameters
    ----------
    answer : callable
        Takes what was asked, and returns as many answers in the same order.
    uncancellable : bool, optional
        Whether one who is cancelled while he waits must wait on once it is being done, because what
        is done may have to be undone. Before that he has not asked.
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

    async def request(self, one: RequestT, kind: Hashable = None) -> AnswerT:
        """The answer to one request, together with others of its kind."""
        requests = self._open.get(kind)
        if requests is None:
            requests = self._open[kind] = []
            task = asyncio.ensure_future(self._collect_and_answer(kind, requests))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        answer: asyncio.Future[AnswerT] = asyncio.get_running_loop().create_future()
        request = (one, answer)
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
        seen, deadline = -1, time.monotonic() + MAX_DELAY_SECONDS
        while len(requests) != seen and time.monotonic() < deadline:
            seen = len(requests)
            await asyncio.sleep(IDLE_SECONDS)
        del self._open[kind]
        try:
            told = await self._answer([one for one, _ in requests]) if requests else ()
            for (_, answer), found in zip(requests, told, strict=True):
                answer.set_result(found)
        except Exception as error:  # noqa: BLE001 - it is for those who asked
            for _, answer in requests:
                answer.set_exception(error)
        finally:
            for _, answer in requests:
                answer.cancel()
