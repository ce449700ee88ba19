"""Requests for models, endpoints and their long-running operations, repeated where that is safe."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from hyperplane.platforms.gcp.errors import (
    NOT_FOUND,
    GcpConnectionError,
    GcpError,
    GcpRequestError,
    is_retryable,
    is_unconfirmed,
)
from hyperplane.platforms.gcp.session import GcpSession

#: Seconds between the attempts at a request.
DELAYS = (1.0, 2.0, 4.0, 8.0)
#: Seconds between two readings of a state.
POLL_SECONDS = 5.0
#: Seconds for which a result is searched, or a state read, while there is no answer.
CONFIRM_SECONDS = 300.0
#: google.rpc.Code of an operation whose object does not exist.
_NOT_FOUND_CODE = 5
_API = "aiplatform"
_COLLECTIONS = "projects.locations."

Object = dict[str, Any]
FoundT = TypeVar("FoundT")


class StopRequestedError(GcpError):
    """The wait for an operation was interrupted by a request to stop."""


class VertexRequests:
    """Requests of a session; raises GcpError. Names of operations begin below a location."""

    def __init__(self, session: GcpSession) -> None:
        self.session = session

    def call(self, operation: str, **request: Any) -> Any:
        """Send a request once."""
        return self.session.call(_API, _COLLECTIONS + operation, **request)

    def repeat(self, operation: str, **request: Any) -> Any:
        """Send a request whose repetition changes nothing, until there is an answer."""
        for delay in DELAYS:
            try:
                return self.call(operation, **request)
            except GcpError as error:
                if not is_retryable(error):
                    raise
                time.sleep(delay)
        return self.call(operation, **request)

    def read(self, operation: str, **request: Any) -> Object | None:
        """Return what a request reads; None if Vertex AI does not have it."""
        try:
            found: Object = self.repeat(operation, **request)
        except GcpRequestError as error:
            if error.status != NOT_FOUND:
                raise
            return None
        return found

    def list_all(self, operation: str, key: str, **request: Any) -> list[Object]:
        """Return the objects of all pages of a list."""
        found: list[Object] = []
        token: dict[str, str] = {}
        while True:
            answer = self.repeat(operation, **request, **token)
            found += answer.get(key, [])
            if not answer.get("nextPageToken"):
                return found
            token = {"pageToken": answer["nextPageToken"]}

    def create(
        self, operation: str, find: Callable[[], FoundT | None], **request: Any
    ) -> tuple[Any, FoundT | None]:
        """Send a creation until Vertex AI accepts it; return its answer, or what ``find`` returns.

        It is sent again only if Vertex AI has refused it. If that is unknown, or if the object
        exists, ``find`` searches for the result.

        Raises
        ------
        GcpError
            If it was refused, or if it is unknown whether it was carried out.
        """
        for delay in (*DELAYS, None):
            try:
                return self.call(operation, **request), None
            except GcpError as error:
                if is_unconfirmed(error):
                    return None, _confirm(find, error)
                if not is_retryable(error) or delay is None:
                    raise
                time.sleep(delay)
        raise AssertionError  # the last attempt returns or raises

    def delete(self, operation: str, **request: Any) -> None:
        """Delete an object and wait until it is deleted; nothing happens if there is none."""
        try:
            self.wait(self.repeat(operation, **request))
        except GcpRequestError as error:
            if error.status != NOT_FOUND:
                raise

    def wait(self, operation: Object, stop: threading.Event | None = None) -> Object:
        """Wait for the end of a long-running operation and return its result.

        Raises
        ------
        StopRequestedError
            If ``stop`` is set before.
        GcpError
            If the operation fails, vanishes, or cannot be read for some minutes.
        """
        name, answered = str(operation.get("name", "")), time.monotonic()
        while not operation.get("done"):
            if stop is None:
                time.sleep(POLL_SECONDS)
            elif stop.wait(POLL_SECONDS):
                raise StopRequestedError("the request was interrupted")
            try:
                operation = self.call(f"{_operations(name)}.get", name=name)
                answered = time.monotonic()
            except GcpError as error:
                if not is_retryable(error) or time.monotonic() - answered > CONFIRM_SECONDS:
                    raise
        if "error" in operation:
            code, message = operation["error"].get("code", 0), operation["error"].get("message", "")
            status = NOT_FOUND if code == _NOT_FOUND_CODE else 0
            text = f"Vertex AI failed with code {code}: {message or 'no message'}"
            raise GcpRequestError(text, status)
        result: Object = operation.get("response", {})
        return result

    def cancel(self, operation: Object) -> None:
        """Request the end of an operation and wait for it; one that has ended stays unchanged."""
        name = str(operation["name"])
        with contextlib.suppress(GcpRequestError):  # some operations cannot be cancelled
            self.repeat(f"{_operations(name)}.cancel", name=name)
        self.wait_until_ended(operation)

    def wait_until_ended(self, operation: Object, stop: threading.Event | None = None) -> None:
        """Wait as :meth:`wait` for an operation that may fail or was cancelled."""
        try:
            self.wait(operation, stop)
        except GcpRequestError as error:
            if is_retryable(error):
                raise


def _confirm(find: Callable[[], FoundT | None], error: GcpError) -> FoundT:
    """Return what a search finds after a creation without an answer; raise GcpError if nothing."""
    until = time.monotonic() + CONFIRM_SECONDS
    while True:
        found = find()
        if found is not None:
            return found
        if time.monotonic() > until:
            text = f"{error}; it is unknown whether this was carried out: repeat the command later"
            raise GcpConnectionError(text) from error
        time.sleep(POLL_SECONDS)


def _operations(name: str) -> str:
    """Return the collection of an operation, by its name.

    Examples
    --------
    >>> _operations("projects/1/locations/europe-west4/endpoints/flights/operations/7")
    'endpoints.operations'
    """
    return ".".join(name.split("/")[4::2])
