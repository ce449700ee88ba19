"""Ids of requests: in the header of the response, and in the log line of a failed request."""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from starlette.requests import Request

HEADER = "x-request-id"
#: Forms of UUIDs, ULIDs, and the trace ids of clouds; no blanks, quotes or line ends.
_ALLOWED = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._:=/+-]{0,127}")
#: Characters of a path in a log line.
_MAX_PATH = 200
_log = logging.getLogger(__name__)

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]


class RequestIds:
    """ASGI application that gives each request an id: that of its header, or a new one."""

    def __init__(self, application: Any) -> None:
        self._application = application

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Pass on a request, and add its id to the response."""
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        request_id = choose_request_id(scope["headers"])
        header = (HEADER.encode(), request_id.encode())

        async def send_with_id(message: Any) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), header]}
            await send(message)

        state = {**scope.get("state", {}), "request_id": request_id}
        await self._application({**scope, "state": state}, receive, send_with_id)


def choose_request_id(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return the id in the headers of a request; a new one if there is none that is well-formed.

    Examples
    --------
    >>> choose_request_id([(b"x-request-id", b"order-7")])
    'order-7'
    >>> len(choose_request_id([(b"x-request-id", b"two words")]))
    32
    """
    given = [value for name, value in headers if name == HEADER.encode()]
    if len(given) == 1 and _ALLOWED.fullmatch(given[0]):
        return given[0].decode()
    return uuid.uuid4().hex


def log_failure(request: Request, code: int, reason: object) -> None:
    """Write a line about a request that the server could not answer."""
    path = _make_printable(request.scope["path"][:_MAX_PATH])
    reason = _make_printable(str(reason))
    _log.warning("request %s: %d for %s: %s", request.state.request_id, code, path, reason)


def _make_printable(text: str) -> str:
    """Return a text without line ends and control characters, which could forge log lines."""
    return "".join(each if each.isprintable() else " " for each in text)
