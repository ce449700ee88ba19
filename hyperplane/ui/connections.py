"""Connections to the page: those of this user only, and each with a request after a limited time.

uvicorn limits the number of connections, and counts those without a request, too. Other users of
the machine could otherwise open so many that this user's requests are refused.
"""

from __future__ import annotations

from asyncio import TimerHandle, Transport
from typing import Any

from hyperplane.core.optional import need
from hyperplane.guard.same_user import is_client_permitted

#: Seconds within which the headers of a request must arrive.
HEADER_SECONDS = 30.0


def make_protocol_class() -> type[Any]:
    """Return a subclass of uvicorn's protocol that parses requests with h11."""
    waiting = need("h11", "ui").IDLE
    base: Any = need("uvicorn.protocols.http.h11_impl", "ui").H11Protocol

    class CheckedProtocol(base):  # type: ignore[misc]
        """Connection that is closed if it is of another user, or has no request in time."""

        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            self._timer: TimerHandle | None = None

        def connection_made(self, transport: Transport) -> None:
            """Check the user before a byte is read, and start the time limit."""
            super().connection_made(transport)
            if is_permitted(self.client, self.server):
                self._start_timer()
            else:
                self.connections.discard(self)
                transport.abort()

        def connection_lost(self, error: Exception | None) -> None:
            """Stop the time limit."""
            self._stop_timer()
            super().connection_lost(error)

        def data_received(self, data: bytes) -> None:
            """Parse data; limit the time of headers that are not complete yet."""
            super().data_received(data)
            if self.conn.their_state is not waiting:
                self._stop_timer()
            elif self.timeout_keep_alive_task is None:
                self._start_timer()

        def _start_timer(self) -> None:
            if self._timer is None:
                self._timer = self.loop.call_later(HEADER_SECONDS, self._end)

        def _stop_timer(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def _end(self) -> None:
            self._timer = None
            if not self.transport.is_closing():
                self.transport.close()

    return CheckedProtocol


def is_permitted(client: Any, server: Any) -> bool:
    """Return whether a connection with these two ends is of this user; unknown ends are not."""
    return bool(client and server) and is_client_permitted(tuple(client), tuple(server))
