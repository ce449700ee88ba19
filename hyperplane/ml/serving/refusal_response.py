"""Response to a request whose body was not read, after which the connection is closed."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hyperplane.ml.serving.request_ids import Receive, Send

if TYPE_CHECKING:
    from starlette.responses import Response

#: Seconds in which the rest of a body is read.
DISCARD_SECONDS = 10.0


class RefusalResponse:
    """Send a response, then read and discard the rest of the body until the client has sent it.

    If data arrive on a connection that the server has closed, the system of the client discards
    the response that it has received, and the client reports a broken connection.

    Parameters
    ----------
    response : starlette.responses.Response
        The response, with the header ``connection: close``.
    """

    def __init__(self, response: Response) -> None:
        self._response = response

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Send the whole response; end it, which closes the connection, after the body."""

        async def send_unfinished(message: Any) -> None:
            is_body = message["type"] == "http.response.body"
            await send({**message, "more_body": True} if is_body else message)

        await self._response(scope, receive, send_unfinished)
        # Cancelled: the time limit of the shutdown is exceeded.
        with suppress(TimeoutError, asyncio.CancelledError):
            async with asyncio.timeout(DISCARD_SECONDS):
                while (await receive()).get("more_body", False):
                    pass
        await send({"type": "http.response.body", "body": b"", "more_body": False})
