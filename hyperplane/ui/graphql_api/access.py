"""Which requests the GraphQL address answers: those of programs with its token.

Programs send the token as a bearer token, or as the password of the address, which libraries such
as requests send by themselves: published programs then need no change but that of the address. The
cookie of the page is of no use here, and neither is the token in a browser: browsers state the
origin of a page with each POST, and no page has reason to use this address.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

from hyperplane.jobs.graphql_server import NOT_EXECUTED
from hyperplane.ui.access import AccessRefusal, Receive, RequestHead, Send, add_headers, is_same

_ADVICE = (
    "send the token of the server as 'Authorization: Bearer ...', or use the whole address in "
    "HYPERPLANE_GRAPHQL_URL; hyperplane ui prints the file that has both"
)
#: Headers that browsers add and that programs do not need.
_BROWSER_HEADERS = ("origin", "sec-fetch-site")


class GraphqlAccessCheck:
    """ASGI application that passes on the requests with the token.

    Parameters
    ----------
    application : ASGI application
        Answers the requests.
    token : str
        The token.
    """

    def __init__(self, application: Any, token: str) -> None:
        self._application, self._token = application, token

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        send_safely = add_headers(send)
        try:
            self._check(RequestHead(scope))
        except AccessRefusal as error:
            await send_error(error.code, error.text, send_safely)
            return
        await self._application(scope, receive, send_safely)

    def _check(self, request: RequestHead) -> None:
        request.check_host()
        if any(request.find(name) for name in _BROWSER_HEADERS):
            raise AccessRefusal(403, "This address is for programs, not for pages of a browser.")
        given = _read_token(request.find("authorization"))
        if given is None:
            raise AccessRefusal(401, f"This request has no token: {_ADVICE}.")
        if not is_same(given, self._token):
            text = "The token is not that of this server, which has a new one after each start"
            raise AccessRefusal(403, f"{text}: {_ADVICE}.")
        if request.method != "POST":
            raise AccessRefusal(405, "Queries are sent with the method POST, as JSON.")


def _read_token(header: str) -> str | None:
    """Return the token of a header, or the password of one for basic authentication."""
    scheme, _, value = header.partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    if scheme.lower() != "basic":
        return None
    try:
        text = base64.b64decode(value.strip(), validate=True).decode("latin-1")
    except (binascii.Error, ValueError):
        return None
    return text.partition(":")[2]


async def send_error(code: int, text: str, send: Send) -> None:
    """Send a response with one error, in the form of GraphQL."""
    body = json.dumps({"errors": [{"message": text}]}).encode()
    headers = {"content-type": "application/json", "content-length": str(len(body))}
    headers |= {
        401: {"www-authenticate": "Bearer"}, 405: {"allow": "POST"},
        503: {NOT_EXECUTED: "1", "retry-after": "1", "connection": "close"},
    }.get(code, {})  # fmt: skip
    start = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": code, "headers": start})
    await send({"type": "http.response.body", "body": body})
