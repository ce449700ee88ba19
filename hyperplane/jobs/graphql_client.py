"""Send GraphQL queries to the server of ``hyperplane ui``, or to another one."""

from __future__ import annotations

import http.client
import json
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from email.message import Message
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

import tenacity

from hyperplane.core.argument_checks import describe_value
from hyperplane.core.errors import Fault, QueryFailed, RequestError, check
from hyperplane.jobs import call_site
from hyperplane.jobs.graphql_server import (
    NOT_EXECUTED,
    TOKEN_VARIABLE,
    URL_VARIABLE,
    find_server,
)
from hyperplane.jobs.json_posts import NoRedirectHandler

#: Seconds: a submission may start the supervisor, which takes up to a minute on a busy machine.
_TIMEOUT = 150.0
#: Seconds for which a query is sent again that a busy server has refused.
_BUSY_SECONDS = 10.0
#: Longest reason of a response that is shown.
_MOST_REASON = 200
_LOCAL = {"127.0.0.1", "localhost", "::1"}


class _Address(NamedTuple):
    """Address without user and password, and the token; empty for a server without one."""

    url: str
    token: str


def run_queries(queries: str | Sequence[str]) -> list[dict[str, Any]]:
    """Send queries one after another, and return the data of each response.

    Parameters
    ----------
    queries : str or sequence of str
        The queries and mutations.

    Raises
    ------
    RequestError
        If they are not text, or no server runs; nothing was sent.
    QueryFailed
        If the server cannot be reached, or a response has errors. Queries after that one are not
        sent.
    """
    texts = _check_queries(queries)
    address = _find_address()
    results: list[dict[str, Any]] = []
    for number, text in enumerate(texts, 1):
        place = f"query {number} of {len(texts)}" if len(texts) > 1 else "the query"
        try:
            results.append(_retrying(_send, address, text))
        except _QueryError as error:
            done = f"; the {len(results)} before it were answered" if results else ""
            raise QueryFailed(f"{place}: {error}{done}", error.errors, results) from error.__cause__
    return results


class _QueryError(Exception):
    """A query was not answered with data alone."""

    def __init__(self, text: str, errors: Sequence[Any] = ()) -> None:
        super().__init__(text)
        self.errors = list(errors)


class _BusyError(_QueryError):
    """A query that the server did not execute, because it has too many connections."""


def _check_queries(queries: Any) -> list[str]:
    texts = [queries] if isinstance(queries, str) else queries
    allowed = "a GraphQL query as text, or a list of them"
    if not isinstance(texts, (list, tuple)):
        check([Fault("gql_queries", describe_value(queries), allowed)])
    check(
        Fault("gql_queries", describe_value(each), allowed)
        for each in texts
        if not isinstance(each, str) or not each.strip()
    )
    return list(texts)


def _find_address() -> _Address:
    """Return the address in the environment, or that of the running server of this user."""
    given = os.environ.get(URL_VARIABLE)
    if given:
        return _parse_address(given)
    server = find_server()
    if server is None:
        advice = (
            "start 'hyperplane ui' on this machine; submit_pipeline_job, checkjobs and "
            "cancel_pipeline_job need no server"
        )
        allowed = "the address of a GraphQL server, and no hyperplane ui runs for this user"
        raise RequestError([Fault(URL_VARIABLE, "nothing", allowed, advice)])
    return _parse_address(server.url)


def _parse_address(text: str) -> _Address:
    allowed = "an address such as http://127.0.0.1:8790/graphql"
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        parts, port = SplitResult("", "", "", "", ""), None
    if parts.scheme not in ("http", "https") or not parts.hostname or not text.isprintable():
        # The text may have a password.
        raise RequestError([Fault(URL_VARIABLE, "a text that is none", allowed)])
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    place = host if port is None else f"{host}:{port}"
    # The variable of the token is for this machine, unless the connection is encrypted.
    may_send = parts.scheme == "https" or parts.hostname in _LOCAL
    token = unquote(parts.password or "") or (
        os.environ.get(TOKEN_VARIABLE, "") if may_send else ""
    )
    return _Address(parts._replace(netloc=place).geturl(), token)


def _send(address: _Address, query: str) -> dict[str, Any]:
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    if address.token:
        headers["Authorization"] = f"Bearer {address.token}"
    body = json.dumps({"query": query}).encode()
    request = urllib.request.Request(address.url, body, headers)  # noqa: S310 - checked above
    handlers: list[urllib.request.BaseHandler] = [NoRedirectHandler()]
    if urlsplit(address.url).hostname in _LOCAL:
        handlers.append(urllib.request.ProxyHandler({}))  # a proxy would get the token
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=_TIMEOUT) as response:
            code, text, received = 200, response.read(), response.headers
    except urllib.error.HTTPError as error:
        code, text, received = error.code, error.read(), error.headers
        error.close()
    except (OSError, http.client.HTTPException, ValueError) as error:
        cause = getattr(error, "reason", error)
        raise _QueryError(f"{address.url} cannot be reached ({cause})") from error
    if code == HTTPStatus.SERVICE_UNAVAILABLE and _is_not_executed(address, text, received):
        raise _BusyError(f"{address.url} has too many connections, and did not execute it")
    if code != HTTPStatus.OK and _is_plain(received):
        reason = text.decode(errors="replace").strip().partition("\n")[0][:_MOST_REASON]
        raise _QueryError(f"{address.url} answered {code}: {reason or 'nothing'}")
    return _read_response(address, code, text)


def _retrying(send: Callable[[_Address, str], Any], address: _Address, query: str) -> Any:
    """Send a query, again if a busy server has refused it."""
    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(_BusyError),
        wait=tenacity.wait_random_exponential(multiplier=0.2, max=1),
        stop=tenacity.stop_after_delay(_BUSY_SECONDS),
        reraise=True,
    )
    return retrying(send, address, query)


def _is_not_executed(address: _Address, text: bytes, received: Message) -> bool:
    """Return whether a refused query can be sent again without a second job."""
    # uvicorn's limit of connections; other servers and their proxies may have executed it.
    is_limit = text == b"Service Unavailable" and _is_plain(received)
    is_local = urlsplit(address.url).hostname in _LOCAL
    return (is_local and is_limit) or NOT_EXECUTED in received


def _is_plain(received: Message) -> bool:
    return received.get("content-type", "").startswith("text/plain")


def _read_response(address: _Address, code: int, text: bytes) -> dict[str, Any]:
    try:
        document = json.loads(text)
        errors, data = document.get("errors") or [], document.get("data")
        messages = [str(each.get("message")) for each in errors]
        notes = (document.get("extensions") or {}).get("warnings") or []
    except (ValueError, AttributeError, TypeError, RecursionError):
        start = text[:200].decode(errors="replace")
        raise _QueryError(
            f"{address.url} answered {code} with no JSON of GraphQL: {start!r}"
        ) from None
    for note in notes:
        call_site.warn(str(note))
    if messages:
        raise _QueryError("\n".join(messages), errors)
    if code != HTTPStatus.OK or not isinstance(data, dict):
        raise _QueryError(f"{address.url} answered {code} without data")
    return data
