"""Post JSON documents with retries; errors contain neither the URL nor the headers."""

from __future__ import annotations

import http.client
import json
import re
import socket
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import tenacity

from hyperplane.core.errors import Fault
from hyperplane.core.units import plural
from hyperplane.jobs.connection_deadline import ConnectionDeadline

#: Seconds that the server may take for each part of its response, and all attempts together.
TIMEOUT, TOTAL_TIMEOUT = 10.0, 120.0
#: Maximum delay before a retry, in seconds.
MAX_WAIT = 30.0
#: Maximum number of attempts to send a message.
MAX_ATTEMPTS = 4
#: Hosts to which secrets may be sent without encryption.
LOCAL_HOSTS = {"localhost", "127.0.0.1", "::1"}


class PostError(Exception):
    """A document was not delivered; the message has the host and the reason."""


class _RetryableError(Exception):
    """The server may accept the message later; ``after`` is the requested delay in seconds."""

    def __init__(self, why: str, after: float | None = None) -> None:
        super().__init__(why)
        self.after = after


class _PermanentError(Exception):
    """The server will not accept the message later either."""


class NoRedirectHandler(urllib.request.HTTPRedirectHandler):
    """Refuse redirects: they would send secrets to another host."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Return None, so that the redirect is an error."""
        return


class _DeadlineHandler(urllib.request.HTTPSHandler, urllib.request.HTTPHandler):
    """Open connections that end at a deadline."""

    def __init__(self, deadline: ConnectionDeadline) -> None:
        super().__init__()
        self._deadline = deadline

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        """Send a request without encryption."""
        return self._send(http.client.HTTPConnection, req)

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        """Send a request with encryption."""
        return self._send(http.client.HTTPSConnection, req)

    def _send(
        self, kind: type[http.client.HTTPConnection], request: urllib.request.Request
    ) -> http.client.HTTPResponse:
        def connect(*arguments: Any) -> socket.socket:
            opened: socket.socket = socket.create_connection(*arguments)
            self._deadline.watch(opened)
            return opened

        def make(host: str, /, **options: Any) -> http.client.HTTPConnection:
            connection = kind(host, **options)
            # http.client has no other place before the answer of a proxy and the handshake of TLS.
            connection._create_connection = connect  # type: ignore[attr-defined]
            return connection

        return self.do_open(make, request)


def find_url_faults(where: str, url: str, *, shown: bool) -> list[Fault]:
    """Return faults of a URL; secrets require encryption or a local server."""
    shown_url = repr(url) if shown else describe_secret(url)
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
        is_protected = parts.scheme == "https" or (parts.scheme == "http" and host in LOCAL_HOSTS)
        has_extras = "@" in parts.netloc or re.search(r"[^\x21-\x7e]", url)
    except ValueError:
        host, is_protected, has_extras = None, False, None
    if host and is_protected and not has_extras:
        return []
    return [Fault(where, shown_url, "a URL that begins with https://")]


def describe_secret(secret: str) -> str:
    """Return what a message shows in place of a secret."""
    return "a value not shown" if secret else "nothing"


def post(url: str, document: Mapping[str, Any], headers: Mapping[str, str]) -> bytes:
    """Post a document with retries, and return the response.

    All attempts together take at most :data:`TOTAL_TIMEOUT` seconds.

    Raises
    ------
    PostError
        If the server does not accept it.
    """
    request = urllib.request.Request(  # noqa: S310 - the caller checks the URL
        url,
        data=json.dumps(document).encode(),
        headers={"Content-Type": "application/json; charset=utf-8", **headers},
    )
    host = urlsplit(url).hostname
    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(_RetryableError),
        wait=_retry_seconds,
        stop=tenacity.stop_after_attempt(MAX_ATTEMPTS) | tenacity.stop_before_delay(TOTAL_TIMEOUT),
        reraise=True,
    )
    try:
        with ConnectionDeadline(TOTAL_TIMEOUT) as deadline:
            return retrying(_post_once, request, deadline)
    except _RetryableError as error:
        tries = plural(retrying.statistics["attempt_number"], "attempt")
        raise PostError(f"{host} did not accept the message in {tries}: {error}") from None
    except _PermanentError as error:
        raise PostError(f"{host} did not accept the message: {error}") from None


def _retry_seconds(state: tenacity.RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome is not None else None
    if isinstance(error, _RetryableError) and error.after is not None:
        return min(error.after, MAX_WAIT)
    doubled = tenacity.wait_exponential(multiplier=0.5, max=MAX_WAIT / 2)
    return (doubled + tenacity.wait_random(0, 1))(state)


def _post_once(request: urllib.request.Request, deadline: ConnectionDeadline) -> bytes:
    try:
        response = _request(request, deadline)
    except _RetryableError:
        if not deadline.is_over:
            raise
    else:
        if not deadline.is_over:
            return response
    # Not retried, as after a timeout.
    raise _PermanentError(
        f"no complete response in {TOTAL_TIMEOUT:g} s; the message may have arrived"
    ) from None


def _request(request: urllib.request.Request, deadline: ConnectionDeadline) -> bytes:
    # Errors of urllib contain the URL, which may be a secret: none is chained.
    opener = urllib.request.build_opener(NoRedirectHandler, _DeadlineHandler(deadline))
    try:
        with opener.open(request, timeout=TIMEOUT) as response:
            return bytes(response.read(1 << 20))
    except urllib.error.HTTPError as error:
        code, after = error.code, error.headers.get("Retry-After", "")
        error.close()
        if code == 429 or code >= 500:
            raise _RetryableError(
                f"HTTP {code}", float(after) if after.isdecimal() else None
            ) from None
        advice = ", and redirects are not followed" if 300 <= code < 400 else ""
        raise _PermanentError(f"HTTP {code}{advice}") from None
    except TimeoutError:
        # Not retried: the message may have arrived, and would be sent twice.
        raise _PermanentError(
            f"no response in {TIMEOUT:g} s; the message may have arrived"
        ) from None
    except urllib.error.URLError as error:
        if isinstance(error.reason, TimeoutError):
            raise _RetryableError(f"no connection in {TIMEOUT:g} s") from None
        raise _RetryableError(f"no connection ({type(error.reason).__name__})") from None
    except (OSError, http.client.HTTPException) as error:
        raise _RetryableError(f"the connection broke ({type(error).__name__})") from None
