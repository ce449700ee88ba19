"""Errors of requests to Google Cloud; importing them does not need its client."""

from __future__ import annotations

import json
from typing import Any

from hyperplane.core.errors.platforms import PlatformError

#: Name of the platform in errors.
PLATFORM = "gcp"
_UNAUTHENTICATED, DENIED, NOT_FOUND, CONFLICT, _TOO_MANY = 401, 403, 404, 409, 429
#: Reasons of an answer with status 403 that concern the number of requests. Cloud Storage and
#: older services have the first two, in place of status 429.
_THROTTLING_REASONS = {"rateLimitExceeded", "userRateLimitExceeded", "RATE_LIMIT_EXCEEDED"}
#: Reason of an answer of a service that the project does not use.
DISABLED_REASON = "SERVICE_DISABLED"


class GcpError(PlatformError):
    """A request to Google Cloud failed; base of the errors below."""

    def __init__(self, message: str) -> None:
        super().__init__(PLATFORM, message)


class GcpConnectionError(GcpError):
    """A service did not answer; it is unknown whether it carried out the request."""


class GcpCredentialsError(GcpError):
    """There are no credentials, or they are wrong or expired."""


class GcpRequestError(GcpError):
    """A service answered with an error.

    Attributes
    ----------
    status : int
        HTTP status of the answer; 0 for a request that was not sent.
    reason : str
        Reason in the details of the answer, such as ``"SERVICE_DISABLED"``; may be empty.
    """

    def __init__(self, message: str, status: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.status, self.reason = status, reason


def is_retryable(error: GcpError) -> bool:
    """Return whether the same request may succeed later."""
    if isinstance(error, GcpRequestError):
        return _is_throttled(error) or is_unconfirmed(error)
    return isinstance(error, GcpConnectionError)


def is_invalid(error: GcpError) -> bool:
    """Return whether the service refuses the request itself, not for a permission or its load.

    Examples
    --------
    >>> is_invalid(GcpRequestError("no such job", 404))
    True
    >>> is_invalid(GcpRequestError("permission denied", 403))
    False
    """
    return isinstance(error, GcpRequestError) and error.status != DENIED and not is_retryable(error)


def is_unconfirmed(error: GcpError) -> bool:
    """Return whether the service may have carried out the request in spite of the error.

    A conflict is such an answer: an earlier request may have been carried out.

    Examples
    --------
    >>> is_unconfirmed(GcpConnectionError("no answer")), is_unconfirmed(GcpRequestError("", 503))
    (True, True)
    >>> is_unconfirmed(GcpRequestError("too many requests", 429))
    False
    """
    if isinstance(error, GcpRequestError):
        return error.status >= 500 or error.status == CONFLICT
    return isinstance(error, GcpConnectionError)


def _is_throttled(error: GcpRequestError) -> bool:
    return error.status == _TOO_MANY or error.reason in _THROTTLING_REASONS


def answer_error(status: int, body: bytes, action: str) -> GcpError:
    """Return the error of an answer.

    Parameters
    ----------
    status : int
        HTTP status of the answer.
    body : bytes
        Its body, which may be any text.
    action : str
        Name of the request, such as ``"aiplatform customJobs.create"``.
    """
    message, reason = _read_error(body)
    if status == _UNAUTHENTICATED:
        return credentials_error(action, message or "the token was refused")
    text = f"Google answered {status} ({action}): {message or 'no message'}"
    return GcpRequestError(text, status, reason)


def unreadable_answer(action: str, reason: object) -> GcpConnectionError:
    """Return the error of an answer that is not what the service documents, as of a proxy."""
    return GcpConnectionError(f"the answer of Google cannot be read ({action}): {reason}")


def credentials_error(action: str, reason: str) -> GcpCredentialsError:
    """Return the error of credentials that cannot be used."""
    advice = (
        "Log in again with 'gcloud auth application-default login', or set "
        "GOOGLE_APPLICATION_CREDENTIALS"
    )
    text = f"the credentials for Google Cloud cannot be used ({action}): {reason}. {advice}"
    return GcpCredentialsError(text)


def _read_error(body: bytes) -> tuple[str, str]:
    """Return message and reason of an answer in one of Google's two forms of errors."""
    try:
        error: Any = json.loads(body)["error"]
        details = [each for each in error.get("details", []) if "reason" in each]
        reasons = [each["reason"] for each in [*details, *error.get("errors", [])]]
        return str(error.get("message", "")).strip(), str(next(iter(reasons), ""))
    except (ValueError, KeyError, TypeError, AttributeError):
        return "", ""
