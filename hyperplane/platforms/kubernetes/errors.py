"""Errors of requests to the API server of Kubernetes; importing them does not need kr8s."""

from __future__ import annotations

from hyperplane.core.errors import EngineError, StartFailed

#: Name of the platform in errors.
ENGINE = "kubernetes"
UNAUTHORIZED, FORBIDDEN, NOT_FOUND, CONFLICT, INVALID = 401, 403, 404, 409, 422

#: Response codes of an API server that is overloaded or starting.
_BUSY = {429, 500, 502, 503, 504}


class ObjectNotFound(EngineError):
    """Raised when an object of Kubernetes does not exist."""


class RequestRefused(StartFailed):
    """Raised when the API server refuses a request.

    Attributes
    ----------
    status : int
        HTTP status of the response.
    """

    def __init__(self, engine: str, message: str, status: int = 0) -> None:
        super().__init__(engine, message)
        self.status = status

    def is_conflict(self) -> bool:
        """Return whether an object of that name already exists."""
        return self.status == CONFLICT and "already exists" in str(self)

    def is_retryable(self) -> bool:
        """Return whether the refusal may be temporary."""
        if self.status == CONFLICT:
            return not self.is_conflict()  # otherwise a concurrent change of the quota
        exceeded = self.status == FORBIDDEN and "exceeded quota" in str(self)
        return exceeded or self.status in _BUSY


def format_error(error: Exception) -> str:
    """Return the message of an error without the engine's prefix."""
    return str(error).removeprefix(f"engine {getattr(error, 'engine', '')}: ")


def describe_refusal(status: int, message: str, doing: str, namespace: str) -> str:
    """Return what the API server refuses, why, and what to do."""
    where = f"in namespace {namespace!r}" if namespace else "of this context"
    if status == UNAUTHORIZED:
        return f"the API server refuses the login ({doing}): {message}. Log in again as for kubectl"
    if status == FORBIDDEN:
        return (
            f"not allowed to {doing} {where}: {message}. The permissions that hyperplane needs are "
            "in config/kubernetes/rbac.yaml; ask for them, or use another namespace"
        )
    if status == CONFLICT:
        return f"the name is already in use {where}: {message}. Use another name"
    if status == INVALID:
        return f"the API server refuses the manifest ({doing}): {message}"
    return f"the API server answered {status} ({doing}): {message}"
