"""Connections of a model server, with limits that uvicorn does not have."""

from __future__ import annotations

import json
from asyncio import TimerHandle, Transport
from http import HTTPStatus
from typing import Any

from hyperplane.core.optional import need

#: Seconds within which the headers of a request must arrive, and a response must be read.
HEADER_SECONDS, READ_SECONDS = 30.0, 60.0
#: Maximum bytes of the request line and the headers of a request together.
MAX_HEADER_BYTES = 32 * 1024


def make_protocol_class() -> type[Any]:
    """Return a subclass of uvicorn's protocol that parses requests with httptools."""
    base: Any = need("uvicorn.protocols.http.httptools_impl", "serve").HttpToolsProtocol

    class LimitedProtocol(base):  # type: ignore[misc]
        """Connection with limits for headers, unread responses and half-closed sockets."""

        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            self._timer: TimerHandle | None = None
            self._header_bytes = 0
            self._in_headers = self._in_body = False
            self._refusal: tuple[int, str] | None = None
            self._cycles: list[Any] = []

        def connection_made(self, transport: Transport) -> None:
            """Start the time limit of the first request."""
            super().connection_made(transport)
            self._start_timer()

        def connection_lost(self, error: Exception | None) -> None:
            """Stop the time limit, and do not send the responses to earlier requests."""
            self._stop_timer()
            for cycle in self._cycles:  # uvicorn ends the last one only
                if not cycle.response_complete:
                    cycle.disconnected = True
                    cycle.message_event.set()
            super().connection_lost(error)

        def data_received(self, data: bytes) -> None:
            """Parse data; start the time limit of data that are not a request yet."""
            began_before = self._in_headers
            super().data_received(data)
            if self.parser is None or self.transport.is_closing():
                return
            if self._is_waiting() and self.timeout_keep_alive_task is None:
                self._start_timer()
            if self._in_headers and began_before:
                # The parser passes on a header when it is complete.
                self._header_bytes += len(data)
                if self._header_bytes > MAX_HEADER_BYTES:
                    self._refuse_size()
                    self.send_400_response("")

        def eof_received(self) -> bool | None:
            """Answer a complete request of a client that has closed its side for writing."""
            pending = not self._is_waiting() and not self.cycle.more_body
            if not pending or self.transport.get_extra_info("sslcontext") is not None:
                return super().eof_received()  # type: ignore[no-any-return]
            self.cycle.keep_alive = False
            return True

        def on_message_begin(self) -> None:
            """Start the limits of the request line and the headers."""
            super().on_message_begin()
            self._header_bytes, self._in_headers = 0, True
            self._stop_timer()
            self._start_timer()

        def on_url(self, url: bytes) -> None:
            """Count the bytes of the request line."""
            self._count(len(url))
            super().on_url(url)

        def on_header(self, name: bytes, value: bytes) -> None:
            """Count the bytes of a header, or of a trailer."""
            self._count(len(name) + len(value) + 4)
            super().on_header(name, value)

        def on_headers_complete(self) -> None:
            """Stop the time limit; that of the body begins when it is read."""
            self._stop_timer()
            self._in_headers, self._in_body = False, True
            super().on_headers_complete()
            pending = [each for each in self._cycles if not each.response_complete]
            self._cycles = [*pending, self.cycle]

        def on_message_complete(self) -> None:
            """Record the end of the body."""
            self._in_body = False
            super().on_message_complete()

        def on_response_complete(self) -> None:
            """Limit the time in which the client reads the response."""
            super().on_response_complete()
            if self.transport.get_write_buffer_size():
                self.loop.call_later(READ_SECONDS, self._abort_unread)

        def send_400_response(self, msg: str) -> None:
            """Refuse a request that is not HTTP, or exceeds a limit, and close the connection."""
            del msg
            code, text = self._refusal or (400, "the request is not HTTP/1.1")
            content = json.dumps({"error": text}).encode()
            head = (
                f"HTTP/1.1 {code} {HTTPStatus(code).phrase}\r\ncontent-type: application/json\r\n"
                f"content-length: {len(content)}\r\nconnection: close\r\n\r\n"
            )
            self._stop_timer()
            self.transport.write(head.encode() + content)
            self.transport.close()

        def _is_waiting(self) -> bool:
            """Return whether the client has to send the next request."""
            return self.cycle is None or (self.cycle.response_complete and not self.pipeline)

        def _start_timer(self) -> None:
            if self._timer is None:
                self._timer = self.loop.call_later(HEADER_SECONDS, self._refuse_time)

        def _stop_timer(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def _count(self, size: int) -> None:
            self._header_bytes += size
            if self._header_bytes > MAX_HEADER_BYTES:
                self._refuse_size()
                raise ValueError  # data_received calls send_400_response

        def _refuse_size(self) -> None:
            text = f"expected at most {MAX_HEADER_BYTES:,} bytes of headers"
            self._refusal = (431, text)

        def _refuse_time(self) -> None:
            self._timer = None
            if self.transport.is_closing():
                return
            if not self._is_waiting():  # the next request, before the response to this one
                self._start_timer()
            elif self._in_body:  # of an answered request
                self.transport.close()
            else:
                text = f"the headers did not arrive within {HEADER_SECONDS:g} seconds"
                self._refusal = (408, text)
                self.send_400_response("")

        def _abort_unread(self) -> None:
            if self.transport.get_write_buffer_size():
                self.transport.abort()

    return LimitedProtocol
