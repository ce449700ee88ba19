"""A TCP proxy in user space through which workers open all their connections.

A worker writes one line first: its name, and the host and port to connect to; see
``chaos_worker.py``. The proxy drops, delays, slows or cuts the connections of one worker.
"""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

_CHUNK = 64 * 1024


@dataclass
class LinkState:
    """How the connections of one worker behave."""

    delay: float = 0.0
    bytes_per_second: float = 0.0
    is_cut: bool = False
    writers: set[asyncio.StreamWriter] = field(default_factory=set)


class WorkerProxy:
    """Test handle of a running proxy."""

    def __init__(self, host: str) -> None:
        self.host, self.port = host, 0
        self._links: dict[str, LinkState] = defaultdict(LinkState)
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._stop = asyncio.Event()

    def drop(self, worker: str) -> None:
        """Reset all connections that a worker has open."""
        self._loop.call_soon_threadsafe(self._drop, worker)

    def set_link(self, worker: str, **state: Any) -> None:
        """Change fields of the state of a worker's connections, present and future ones."""
        for name, value in state.items():
            setattr(self._links[worker], name, value)

    def heal(self, worker: str) -> None:
        """Let a worker's connections work as usual."""
        self.set_link(worker, delay=0.0, bytes_per_second=0.0, is_cut=False)

    def _drop(self, worker: str) -> None:
        for writer in list(self._links[worker].writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                name, host, port = (await reader.readline()).decode().split()
                await self._connect(self._links[name], reader, writer, host, int(port))
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _connect(
        self,
        link: LinkState,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        host: str,
        port: int,
    ) -> None:
        far_reader, far_writer = await asyncio.open_connection(host, port)
        link.writers |= {writer, far_writer}
        try:
            ways = (self._pump(link, reader, far_writer), self._pump(link, far_reader, writer))
            await asyncio.gather(*ways)
        finally:
            link.writers -= {writer, far_writer}
            far_writer.transport.abort()

    async def _pump(
        self, link: LinkState, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while chunk := await reader.read(_CHUNK):
            while link.is_cut:
                await asyncio.sleep(0.05)
            pause = link.delay
            if link.bytes_per_second:
                pause += len(chunk) / link.bytes_per_second
            if pause:
                await asyncio.sleep(pause)
            writer.write(chunk)
            await writer.drain()
        writer.write_eof()

    async def _run(self, started: threading.Event) -> None:
        server = await asyncio.start_server(self._serve, self.host, self.port)
        self.port = server.sockets[0].getsockname()[1]
        started.set()
        await self._stop.wait()
        server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @contextmanager
    def running(self) -> Iterator[WorkerProxy]:
        """Run the proxy in a thread during the block."""
        started = threading.Event()
        thread = threading.Thread(
            target=lambda: self._loop.run_until_complete(self._run(started)),
            name="chaos-proxy",
            daemon=True,
        )
        thread.start()
        started.wait()
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._stop.set)
            thread.join()
            self._loop.close()
