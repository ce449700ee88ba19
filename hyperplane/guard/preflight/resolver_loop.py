"""Event loop of checks, which does not wait for a name server that is silent."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any


class DaemonResolverLoop(asyncio.SelectorEventLoop):
    """Event loop that resolves host names in daemon threads.

    asyncio resolves them in a thread pool. The end of the loop and the exit of the program wait for
    its threads, however long the name server is silent, and the results of other hosts with them.
    """

    async def getaddrinfo(
        self,
        host: Any,
        port: Any,
        *,
        family: int = 0,
        type: int = 0,  # noqa: A002 - the name in asyncio
        proto: int = 0,
        flags: int = 0,
    ) -> Any:
        """Return the addresses of a host, as ``socket.getaddrinfo``."""
        future: asyncio.Future[Any] = self.create_future()

        def finish(set_outcome: Callable[[], None]) -> None:
            if not future.done():  # cancelled
                set_outcome()

        def resolve() -> None:
            try:
                found = socket.getaddrinfo(host, port, family, type, proto, flags)
            except Exception as error:  # noqa: BLE001 - raised where the future is awaited
                outcome = partial(future.set_exception, error)
            else:
                outcome = partial(future.set_result, found)
            with suppress(RuntimeError):  # the loop is closed
                self.call_soon_threadsafe(finish, outcome)

        threading.Thread(target=resolve, name="hyperplane-resolver", daemon=True).start()
        return await future
