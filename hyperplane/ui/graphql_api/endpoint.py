"""The ASGI application that answers GraphQL queries."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from graphql import GraphQLError
from graphql.language import Lexer, Source, TokenKind
from starlette.requests import Request
from strawberry.asgi import GraphQL, HTTPException  # type: ignore[attr-defined]
from strawberry.http import GraphQLHTTPResponse
from strawberry.types import ExecutionResult

from hyperplane.ui.access import Receive, Send
from hyperplane.ui.graphql_api.access import send_error
from hyperplane.ui.graphql_api.context import RequestContext
from hyperplane.ui.graphql_api.errors import mask_error
from hyperplane.ui.graphql_api.schema import MOST_TOKENS, create_schema

#: Most queries that are answered at the same time; the page keeps the other connections.
MOST_REQUESTS = 100
#: Longest reason of a request that is refused; some repeat names in the request.
_MOST_REASON = 200
#: Largest body of a request. The parameters of a job have at most 120,000 bytes.
_MAX_BODY_BYTES = 1 << 20
#: Deepest nesting of variables, and of brackets of a query. Parsing is recursive, and graphql-core
#: 3.3.0 took minutes for an argument of 2,000 levels.
_MAX_NESTING = 30
#: Most fragments that a query uses. Those that use others twice are expanded exponentially by the
#: limits of depth and aliases: 22 levels took minutes. Introspection of the schema uses 8.
_MOST_SPREADS = 20
#: Change of the nesting by a token.
_CHANGES = {
    TokenKind.BRACE_L: 1, TokenKind.BRACKET_L: 1, TokenKind.PAREN_L: 1,
    TokenKind.BRACE_R: -1, TokenKind.BRACKET_R: -1, TokenKind.PAREN_R: -1,
}  # fmt: skip


class GraphqlEndpoint(GraphQL[RequestContext, None]):
    """Answers queries in JSON with the method POST; no subscriptions, no page to write queries.

    Parameters
    ----------
    folder : Path
        Folder that paths of pipelines are relative to.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(
            create_schema(),
            graphql_ide=None,
            allow_queries_via_get=False,
            subscription_protocols=(),
            multipart_uploads_enabled=False,
        )
        self._folder, self._running = folder, 0

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Answer a request."""
        try:
            body = await _read_body(receive)
            _check_document(body)
        except _BodyError as error:
            await send_error(error.code, str(error), send)
            return
        if self._running >= MOST_REQUESTS:
            text = f"The server answers {MOST_REQUESTS} other queries; send this one again."
            await send_error(503, text, send)
            return
        self._running += 1
        try:
            await self._answer(Request(scope, _repeat_body(body, receive)), send)
        finally:
            self._running -= 1

    async def _answer(self, request: Request, send: Send) -> None:
        try:
            response = await self.run(request)
        except HTTPException as error:  # the library would send its reason as plain text
            await send_error(error.status_code, error.reason[:_MOST_REASON], send)
            return
        await response(request.scope, request.receive, send)

    async def get_context(self, request: Any, response: Any) -> RequestContext:
        """Return the context of the resolvers of a request."""
        del request, response
        return RequestContext(self._folder)

    async def process_result(
        self, request: Request, result: ExecutionResult
    ) -> GraphQLHTTPResponse:
        """Return the document of a response, without the texts of unexpected errors."""
        if result.errors:
            result.errors = [mask_error(error) for error in result.errors]
        return await super().process_result(request, result)


class _BodyError(Exception):
    """The body of a request is not what a GraphQL client sends."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


async def _read_body(receive: Receive) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message["type"] == "http.request" and message.get("more_body", False)
        if len(body) > _MAX_BODY_BYTES:
            raise _BodyError(413, f"The request has more than {_MAX_BODY_BYTES} bytes.")
    return body


def _check_document(body: bytes) -> None:
    """Raise an error for a body that the library would answer with an internal error."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        raise _BodyError(400, "The body of the request is not JSON.") from None
    if not isinstance(document, dict):
        raise _BodyError(400, "The body of the request is not an object with the key query.")
    for name, kind, allowed in (
        ("query", str, "text"), ("operationName", str, "text"), ("variables", dict, "an object"),
        ("extensions", dict, "an object"),
    ):  # fmt: skip
        if document.get(name) is not None and not isinstance(document[name], kind):
            raise _BodyError(400, f"{name} of the request is not {allowed}.")
    if not document.get("query"):
        raise _BodyError(400, "The body of the request has no query.")
    depth, spreads = _measure_query(document["query"])
    if max(depth, _measure_values(document)) > _MAX_NESTING:
        raise _BodyError(400, f"The request is nested more than {_MAX_NESTING} levels.")
    if spreads > _MOST_SPREADS:
        raise _BodyError(400, f"The query uses more than {_MOST_SPREADS} fragments.")


def _measure_values(document: dict[str, Any]) -> int:
    """Return how deep the values of a document are nested; at most one more than the limit."""
    values: list[Any] = [document]
    depth = 0
    while values and depth <= _MAX_NESTING:
        depth += 1
        nested = [each.values() if isinstance(each, dict) else each for each in values]
        values = [each for inner in nested for each in inner if isinstance(each, (dict, list))]
    return depth


def _measure_query(query: str) -> tuple[int, int]:
    """Return how deep the brackets of a query are nested, and how many fragments it uses.

    Both up to the first syntax error, and at most one more than their limits.
    """
    if sum(map(query.count, "{[(")) <= _MAX_NESTING and query.count("...") <= _MOST_SPREADS:
        return 0, 0
    lexer, depth, deepest, spreads = Lexer(Source(query)), 0, 0, 0
    with contextlib.suppress(GraphQLError):
        for _ in range(MOST_TOKENS + 1):  # the parser refuses longer queries
            kind = lexer.advance().kind
            if kind is TokenKind.EOF or deepest > _MAX_NESTING or spreads > _MOST_SPREADS:
                break
            depth += _CHANGES.get(kind, 0)
            deepest, spreads = max(deepest, depth), spreads + (kind is TokenKind.SPREAD)
    return deepest, spreads


def _repeat_body(body: bytes, receive: Receive) -> Receive:
    """Return a function that receives a body that was read already."""
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Any:
        return messages.pop() if messages else await receive()

    return receive_again
