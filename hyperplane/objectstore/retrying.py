"""Retry transient errors of stores, and raise others with advice."""

from __future__ import annotations

import errno
import random
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import tenacity

from hyperplane.core.errors import HyperplaneError, StorageError
from hyperplane.objectstore.locations import Store
from hyperplane.objectstore.reachability import (
    STARTUP_SECONDS,
    StoreUnreachable,
    has_answered,
    monitor_request,
)
from hyperplane.objectstore.redaction import describe_error, redact_url

T = TypeVar("T")
#: Seconds after which no further attempt is made.
RETRY_SECONDS = 300.0
#: The same, for refused connections to a store that has never answered this process.
FIRST_CONTACT_SECONDS = STARTUP_SECONDS
#: Seconds before the second attempt, and the longest wait between attempts.
FIRST_WAIT, MAX_WAIT = 0.25, 30.0

_TRANSIENT_STATUSES = {408, 429, 500, 502, 503, 504}
_TRANSIENT_CODES = {
    "SlowDown", "ServiceUnavailable", "InternalError", "RequestTimeout", "Throttling",
    "ThrottlingException", "RequestLimitExceeded", "TooManyRequests", "OperationAborted",
    "ConditionalRequestConflict",
}  # fmt: skip
_TRANSIENT_ERRNO = {
    errno.ECONNRESET, errno.ECONNABORTED, errno.ECONNREFUSED, errno.EPIPE, errno.ETIMEDOUT,
    errno.EAGAIN, errno.EBUSY, errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.ESTALE,
    errno.EINTR,
}  # fmt: skip
#: Exception classes of client libraries for broken connections; some are not OSErrors.
_CONNECTION_ERRORS = {
    "ClientConnectionError", "ClientConnectorError", "ClientOSError", "ClientPayloadError",
    "ConnectionClosedError", "ConnectTimeoutError", "EndpointConnectionError", "ProxyError",
    "ProxyConnectionError", "ReadTimeoutError", "ServerDisconnectedError", "ServerTimeoutError",
    "HTTPClientError", "ResponseStreamingError", "IncompleteReadError",
}  # fmt: skip
#: Transient errors by the text of an OSError without further attributes.
_TRANSIENT_TEXT = re.compile(
    r"too many requests|slow ?down|service ?unavailable|timed? ?out|connection (reset|aborted)|"
    r"internal (server )?error|temporarily unavailable|rate ?limit|reduce your request rate",
    re.IGNORECASE,
)
#: Exception classes of client libraries that have found no credentials, or none that are valid.
_NO_CREDENTIALS_ERRORS = {
    "NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "ProfileNotFound",
    "SSOTokenLoadError", "UnauthorizedSSOTokenError", "TokenRetrievalError",
    "DefaultCredentialsError", "RefreshError", "ClientAuthenticationError",
}  # fmt: skip
_FORBIDDEN = re.compile(r"\b(forbidden|access ?denied|unauthorized)\b", re.IGNORECASE)
_ADVICE = {
    errno.ENOSPC: "no space left; free some space, or save elsewhere",
    errno.EDQUOT: "the quota is exceeded; free some space, or save elsewhere",
    errno.EFBIG: "the file exceeds the size limit of the disk or of this process",
    errno.EACCES: "permission denied; check the permissions of the folder, or the credentials",
    errno.EPERM: "permission denied; check the permissions of the folder, or the credentials",
    errno.EROFS: "the disk is read-only; save elsewhere",
    errno.ENOENT: "the bucket, folder or file does not exist; create it, or check its name",
    errno.ENOTDIR: "a parent of the path is a file; save elsewhere",
    errno.ENAMETOOLONG: "the name is too long; choose a shorter one",
}


NO_CONNECTION = "no connection; check the endpoint, and that its server runs and can be reached"
#: Exception classes for connections that could not be opened.
_NO_CONNECTION_ERRORS = {
    "ClientConnectorError",
    "ClientConnectorDNSError",
    "EndpointConnectionError",
}


def _is_connection_refused(error: BaseException) -> bool:
    """Return whether nothing listens at the server's address, or its host name is unknown."""
    kinds = (ConnectionRefusedError, socket.gaierror)
    return any(
        isinstance(cause, kinds) or type(cause).__name__ in _NO_CONNECTION_ERRORS
        for cause in _iterate_causes(error)
    )


def is_transient(error: BaseException) -> bool:
    """Return whether a repeated request may succeed after an error."""
    chain = list(_iterate_causes(error))
    # First the response of the store, which libraries wrap in less specific exceptions.
    for cause in chain:
        code = _http_status(cause)
        if code in _TRANSIENT_STATUSES or _error_code(cause) in _TRANSIENT_CODES:
            return True
        if code is not None and 400 <= code < 500:
            return False
    for cause in chain:
        if (
            isinstance(cause, (TimeoutError, ConnectionError))
            or type(cause).__name__ in _CONNECTION_ERRORS
        ):
            return True
        if isinstance(cause, OSError) and cause.errno is not None:
            return cause.errno in _TRANSIENT_ERRNO
    return isinstance(error, OSError) and bool(_TRANSIENT_TEXT.search(str(error)))


def parse_retry_after(error: BaseException) -> float:
    """Return the seconds of the store's ``Retry-After`` header; 0 if it sent none."""
    for cause in _iterate_causes(error):
        response = getattr(cause, "response", None)
        headers: Any = getattr(cause, "headers", None)
        if isinstance(response, dict):
            headers = response.get("ResponseMetadata", {}).get("HTTPHeaders", headers)
        elif response is not None:
            headers = getattr(response, "headers", headers)
        with _ignore_lookup_errors():
            lowered = {str(key).lower(): value for key, value in dict(headers or {}).items()}
            return max(0.0, float(lowered["retry-after"]))
    return 0.0


def call_with_retries(
    work: Callable[[], T],
    url: str,
    *,
    store: Store,
    before_retry: Callable[[], None] = lambda: None,
) -> T:
    """Call a function that uses a store, and repeat it while its errors are transient.

    ``before_retry`` is called before each repetition.

    Raises
    ------
    StorageError
        If an error is not transient or lasts too long; with advice.
    """

    def wait(state: tenacity.RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        longest: float = min(MAX_WAIT, FIRST_WAIT * 2.0 ** (state.attempt_number - 1))
        # Jitter, so that processes that failed together do not retry together.
        jittered = longest * random.uniform(0.5, 1.0)  # noqa: S311
        return max(jittered, parse_retry_after(error) if error else 0.0)

    def before_sleep(state: tenacity.RetryCallState) -> None:
        before_retry()

    began = time.monotonic()

    def stop(state: tenacity.RetryCallState) -> bool:
        error = state.outcome.exception() if state.outcome else None
        if isinstance(error, StoreUnreachable):  # the probe has already retried
            return True
        # A store that never answered this process probably has a wrong address.
        refused = error is not None and _is_connection_refused(error)
        limit = RETRY_SECONDS
        if refused and not has_answered(store, url):
            limit = FIRST_CONTACT_SECONDS
        return time.monotonic() - began > limit

    def call_store() -> T:
        with monitor_request(store, url):
            return work()

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception(is_transient),
        wait=wait,
        stop=stop,
        before_sleep=before_sleep,
        reraise=True,
    )
    with translate_errors(url, store.options):
        return retrying(call_store)


@contextmanager
def translate_errors(url: str, options: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Raise errors of a store in this block as a StorageError with the redacted URL and advice.

    FileExistsError, errors of hyperplane, and errors that no store raises stay unchanged. The
    original error is the ``__cause__`` of the StorageError.
    """
    try:
        yield
    except (HyperplaneError, FileExistsError):
        raise
    except Exception as error:
        advice = _advice(error)
        if advice is None:
            raise
        message = f"{advice} ({describe_error(error, options, url)})"
        raise StorageError(redact_url(url), message) from error


def is_full(error: StorageError) -> bool:
    """Return whether an error is that of a full disk, by its text."""
    # Its cause is lost on the way from a worker.
    return any(_ADVICE[number] in str(error) for number in (errno.ENOSPC, errno.EDQUOT))


def _advice(error: BaseException) -> str | None:
    """Return the reason of a store's error and advice; None for other errors."""
    if _is_connection_refused(error):
        return NO_CONNECTION
    if is_transient(error):
        return "the store kept failing in all attempts; try again later"
    for cause in _iterate_causes(error):
        if type(cause).__name__ in _NO_CREDENTIALS_ERRORS:
            return (
                "no valid credentials; set those of the store in its variables or files, such as "
                "AWS_PROFILE, or pass them as storage_options"
            )
        code, name = _http_status(cause), _error_code(cause)
        if code in (401, 403) or name in ("AccessDenied", "Forbidden", "InvalidAccessKeyId"):
            return "permission denied; check the credentials and their permissions on the bucket"
        if code == 404 or name in ("NoSuchBucket", "NoSuchKey"):
            return _ADVICE[errno.ENOENT]
        if type(cause) is OSError and cause.errno is None and _FORBIDDEN.search(str(cause)):
            return _ADVICE[errno.EACCES]
        if isinstance(cause, FileNotFoundError):
            return _ADVICE[errno.ENOENT]
        if isinstance(cause, PermissionError):
            return _ADVICE[errno.EACCES]
        if isinstance(cause, OSError):
            return _ADVICE.get(cause.errno or 0, "the operation failed")
    return None


def _iterate_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes or contexts."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or cause.__context__


def _http_status(error: BaseException) -> int | None:
    """Return the HTTP status of an error, from the attributes of the various libraries."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        return int(status) if status is not None else None
    for holder, name in ((error, "status"), (error, "code"), (response, "status_code")):
        with _ignore_lookup_errors():
            return int(getattr(holder, name))
    return None


def _error_code(error: BaseException) -> str:
    """Return the S3 error code of an error; empty if it has none."""
    response = getattr(error, "response", None)
    return str(response.get("Error", {}).get("Code", "")) if isinstance(response, dict) else ""


@contextmanager
def _ignore_lookup_errors() -> Iterator[None]:
    """Ignore errors of missing or malformed attributes in this block."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError):
        return
