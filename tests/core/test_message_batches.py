"""Messages are sent in batches, also after the clock of the system was set back."""

from __future__ import annotations

import asyncio
from typing import Any

from distributed import batched
from distributed.batched import BatchedSend

from hyperplane.core.dask_internals import message_batches


class FakeComm:
    def __init__(self) -> None:
        self.written: asyncio.Queue[Any] = asyncio.Queue()

    def closed(self) -> bool:
        return False

    async def close(self) -> None:
        """Nothing is open."""

    async def write(self, messages: Any, **options: Any) -> int:
        await self.written.put(messages)
        return 1


def test_messages_are_sent_after_the_clock_went_back(monkeypatch):
    message_batches.install_message_batches()
    real, hours = message_batches.time, []

    def clock() -> float:
        return real() - 3600 * len(hours)

    # Tornado reads the clock of the system, which stays right.
    monkeypatch.setattr(batched, "time", clock)
    monkeypatch.setattr(message_batches, "time", clock)

    async def send() -> None:
        batches = BatchedSend("5ms")
        comm = FakeComm()
        batches.start(comm)
        for number in range(3):
            batches.send(number)
            assert await asyncio.wait_for(comm.written.get(), 60) == [number]
            hours.append(number)
        await batches.close()

    asyncio.run(send())


def test_messages_within_an_interval_are_one_batch():
    message_batches.install_message_batches()

    async def send() -> None:
        batches = BatchedSend("600ms")
        comm = FakeComm()
        batches.start(comm)
        batches.send(0)
        assert await asyncio.wait_for(comm.written.get(), 60) == [0]
        for number in range(1, 4):
            batches.send(number)
            await asyncio.sleep(0)
        assert await asyncio.wait_for(comm.written.get(), 60) == [1, 2, 3]
        await batches.close()

    asyncio.run(send())
