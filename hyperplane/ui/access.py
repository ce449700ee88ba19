"""Which requests the page answers: those of this user's browser, on pages of this server.

A browser sends requests of any page to the loopback address, so the address is no protection. A
request needs the token of the server, or the cookie that the first one receives; its Host header
must be a name of the loopback address, which the domain of another site that resolves to it is not;
and it must not come from a page of another origin. Ports do not separate cookies, so that a server
of another user of this machine could receive the cookie; the user of each connection is therefore
compared, too, in :mod:`hyperplane.ui.connections`.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from hyperplane.core.html_output import escape

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]

#: Names of the loopback address, with which the port of a forwarded connection may differ.
_HOST = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:[0-9]{1,5})?", re.IGNORECASE)
#: Argument of the first address.
TOKEN = "token"  # noqa: S105 - a name
#: Browsers load nothing from other servers, and run only the script of this one. Styles of single
#: elements are permitted: bars have a width.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; "
    "img-src 'self' data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": _POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    # Not no-referrer, with which browsers send "Origin: null" with forms.
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
_NO_ACCESS = (
    "This page needs the token of its server: open the address that hyperplane ui has printed."
)


class AccessRefusal(Exception):
    """A response without content of the user."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code, self.text = code, text


class AccessCheck:
    """ASGI application that passes on the requests that are permitted.

    Parameters
    ----------
    application : ASGI application
        Answers the requests.
    token : str
        The token.
    """

    def __init__(self, application: Any, token: str) -> None:
        self._application, self._token = application, token
        #: Value of the cookie: another one, so that the cookie does not disclose the token.
        self._session = secrets.token_urlsafe(32)

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return

        send_safely = add_headers(send)
        request = RequestHead(scope)
        try:
            request.check_origin()
            if TOKEN in request.query and request.is_safe:
                if not is_same(request.query[TOKEN], self._token):
                    raise AccessRefusal(403, f"The token is not that of this server. {_NO_ACCESS}")
                await _open(request, self._session, send_safely)
                return
            if not any(is_same(each, self._session) for each in request.read_cookies()):
                raise AccessRefusal(401, _NO_ACCESS)
        except AccessRefusal as error:
            await _refuse(error, send_safely)
            return
        await self._application(scope, receive, send_safely)


def is_same(given: str, expected: str) -> bool:
    """Return whether two secrets are the same, in a time that does not depend on them."""
    return hmac.compare_digest(given.encode(), expected.encode())


def add_headers(send: Send) -> Send:
    """Return a function that sends responses with the headers of all responses of the server."""

    async def send_safely(message: Any) -> None:
        if message["type"] == "http.response.start":
            own = {name for name, _ in message.get("headers", ())}
            added = [
                (name.encode(), value.encode())
                for name, value in _HEADERS.items()
                if name.encode() not in own
            ]
            message = {**message, "headers": [*message.get("headers", ()), *added]}
        await send(message)

    return send_safely


class RequestHead:
    """Headers and address of a request."""

    def __init__(self, scope: Any) -> None:
        self.method, self.path = scope["method"], scope["path"]
        self.port = scope["server"][1]
        self._headers: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            self._headers.setdefault(name.decode("latin-1"), []).append(value.decode("latin-1"))
        text = scope["query_string"].decode("latin-1")
        self._arguments = parse_qsl(text, keep_blank_values=True)
        self.query = dict(self._arguments)

    @property
    def is_safe(self) -> bool:
        """Whether the method of the request changes nothing."""
        return self.method in ("GET", "HEAD")

    def find(self, name: str) -> str:
        """Return the value of a header; empty if there is none."""
        return ", ".join(self._headers.get(name, ()))

    def check_host(self) -> str:
        """Return the host; raise a refusal for a name of another site."""
        host = self.find("host")
        if not _HOST.fullmatch(host):
            text = "This server is used as 127.0.0.1 or localhost, not by another name of the host."
            raise AccessRefusal(403, text)
        return host

    def check_origin(self) -> None:
        """Raise a refusal for another host, and for a page of another origin."""
        host = self.check_host()
        origin, site = self.find("origin"), self.find("sec-fetch-site")
        is_other = bool(origin) and origin != f"http://{host}"
        if self.is_safe and self.find("sec-fetch-mode") != "navigate":
            is_other |= site in ("cross-site", "same-site")
        elif not self.is_safe:
            is_other |= not origin and site != "same-origin"
        if is_other:
            raise AccessRefusal(403, "This request comes from a page of another origin.")

    def read_cookies(self) -> list[str]:
        """Return the values of the cookie; servers on other ports may have set others.

        Not with ``http.cookies``, which reads no cookies after one of another server that has
        characters that it does not permit.
        """
        pairs = [part.strip().partition("=") for part in self.find("cookie").split(";")]
        return [value for name, _, value in pairs if name == self.cookie_name]

    @property
    def cookie_name(self) -> str:
        """Name of the cookie: servers on other ports of this machine have other ones."""
        return f"hyperplane_ui_{self.port}"

    @property
    def address_without_token(self) -> str:
        """Path and query without the token; one slash, so that it is no other host."""
        query = urlencode([(name, value) for name, value in self._arguments if name != TOKEN])
        path = quote("/" + self.path.lstrip("/"))
        return f"{path}?{query}" if query else path

    @property
    def is_from_other_page(self) -> bool:
        """Whether a page of another site has the link that was followed."""
        return self.find("sec-fetch-site") in ("cross-site", "same-site")


async def _open(request: RequestHead, session: str, send: Send) -> None:
    """Set the cookie, and continue at the address without the token."""
    cookie = f"{request.cookie_name}={session}; HttpOnly; SameSite=Strict; Path=/"
    address = request.address_without_token
    headers = {"set-cookie": cookie}
    if not request.is_from_other_page:
        await _respond(303, "", {**headers, "location": address}, send)
        return
    # After a redirect of a link of another site, such as that of a terminal in a notebook server,
    # the browser would not send the cookie. It does from a page of this site.
    refresh = f'<meta http-equiv="refresh" content="0; url={escape(address)}"/>'
    await _respond(200, _make_page("Opening hyperplane", refresh, ""), headers, send)


async def _refuse(error: AccessRefusal, send: Send) -> None:
    headers = {"connection": "close"}  # a body is not read
    if error.code == 401:
        headers["www-authenticate"] = "Cookie"
    title = "No access" if error.code == 401 else "Refused"
    await _respond(error.code, _make_page(title, "", error.text), headers, send)


def _make_page(title: str, head: str, text: str) -> str:
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/>{head}'
        f"<title>{escape(title)}</title><style>:root{{color-scheme:light dark}}"
        "body{font:16px system-ui,sans-serif;margin:2rem}</style></head>"
        f"<body><main><h1>{escape(title)}</h1><p>{escape(text)}</p></main></body></html>\n"
    )


async def _respond(code: int, content: str, headers: dict[str, str], send: Send) -> None:
    body = content.encode()
    every = {
        "content-type": "text/html; charset=utf-8",
        "content-length": str(len(body)),
        **headers,
    }
    start = [(name.encode(), value.encode("latin-1")) for name, value in every.items()]
    await send({"type": "http.response.start", "status": code, "headers": start})
    await send({"type": "http.response.body", "body": body})
