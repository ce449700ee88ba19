"""Errors in responses: messages for the user, and none of unexpected errors."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from graphql import GraphQLError
from starlette.concurrency import run_in_threadpool

from hyperplane.core.errors import HyperplaneError

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_UNEXPECTED = "The server has failed; the terminal of hyperplane ui shows the error."
_log = logging.getLogger(__name__)


async def run_in_thread(
    function: Callable[Parameters, Result], *args: Parameters.args, **named: Parameters.kwargs
) -> Result:
    """Call a function that reads files and databases; its errors have their facts as extensions."""
    try:
        return await run_in_threadpool(function, *args, **named)
    except HyperplaneError as error:
        raise GraphQLError(str(error), extensions=_describe(error)) from error


def _describe(error: HyperplaneError) -> dict[str, Any]:
    faults = [
        {"argument": fault.where, "given": fault.asked, "expected": fault.allowed,
         "advice": fault.advice}
        for fault in getattr(error, "faults", ())
    ]  # fmt: skip
    described: dict[str, Any] = {"error": type(error).__name__}
    return {**described, "faults": faults} if faults else described


def is_unexpected(error: GraphQLError) -> bool:
    """Return whether an error is none of the query, and none whose message is for the user."""
    cause = error.original_error
    while isinstance(cause, GraphQLError):
        cause = cause.original_error
    return cause is not None


def mask_error(error: GraphQLError) -> GraphQLError:
    """Return the error that the response has."""
    if not is_unexpected(error):
        return error
    return GraphQLError(_UNEXPECTED, nodes=error.nodes, path=error.path)


def log_unexpected(error: GraphQLError) -> None:
    """Write an unexpected error to the log; the query, which may have secrets, is left out."""
    if is_unexpected(error):
        cause: BaseException | None = error.original_error
        _log.error("a GraphQL query failed: %s", type(cause).__name__, exc_info=cause)
