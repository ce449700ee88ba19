"""Requests to the API server of Kubernetes through kr8s, each with a time limit."""

from __future__ import annotations

import asyncio
import calendar
import json
import os
import ssl
import weakref
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from email.utils import parsedate
from typing import Any, TypeVar

import anyio
import httpx
import kr8s
import kr8s.asyncio

from hyperplane.platforms.kubernetes.errors import (
    FORBIDDEN,
    NOT_FOUND,
    KubeconfigError,
    KubernetesError,
    ObjectNotFound,
    RequestRefused,
    describe_refusal,
)
from hyperplane.platforms.kubernetes.kubeconfig import DEFAULT_KUBECONFIG, read_pod_namespace

#: Seconds within which the API server has to respond; kr8s has no limit.
REQUEST_SECONDS = 300.0
#: Seconds for a login, in which a user may have to use a browser.
LOGIN_SECONDS = 300.0

#: Errors of the connection, including responses that are not JSON, such as those of a proxy, and
#: a connection that another request has closed.
_CONNECTION_ERRORS = (
    *(httpx.HTTPError, kr8s.APITimeoutError, ssl.SSLError, OSError, anyio.EndOfStream),
    *(json.JSONDecodeError, RuntimeError),
)
#: Number of users of each of kr8s' API objects.
_reference_counts: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
T = TypeVar("T")


class KubernetesApi:
    """Requests to one namespace, for use in one event loop only.

    Requests raise :class:`ObjectNotFound`, :class:`RequestRefused`, or another KubernetesError if
    the API server does not respond.

    Parameters
    ----------
    namespace : str or None
        None for the namespace of the context or of this pod.
    kubeconfig, context : str, optional
        Configuration file and context to use instead of those that kubectl would use.
    login_seconds, request_seconds : float
        Time limits for the login and for each request.
    """

    def __init__(
        self,
        namespace: str | None,
        kubeconfig: str | None = None,
        context: str | None = None,
        login_seconds: float = LOGIN_SECONDS,
        request_seconds: float = REQUEST_SECONDS,
    ) -> None:
        self.namespace = namespace or ""
        self._kubeconfig, self._context = kubeconfig, context
        self._login_seconds, self._request_seconds = login_seconds, request_seconds
        #: kr8s' API object, which all users in one event loop share.
        self.kr8s: Any = None
        self._can_list_events = True
        #: Seconds since the epoch of the last response by the server's clock; None if not given.
        self.answered_at: float | None = None

    async def connect(self) -> None:
        """Connect to the API server.

        Raises
        ------
        KubernetesError
            If there is no usable configuration, no server or no access.
        """
        with translate_errors("reach the API server", self.namespace):
            try:
                connecting = kr8s.asyncio.api(kubeconfig=self._kubeconfig, context=self._context)
                self.kr8s = await run_within(self._login_seconds, connecting)
            except (ValueError, KeyError, TypeError) as error:
                raise _configuration_error(error) from error
        _reference_counts[self.kr8s] = _reference_counts.get(self.kr8s, 0) + 1
        if not self.namespace:
            self.namespace = self._own_namespace()

    async def close(self) -> None:
        """Close the connections, unless others in this event loop use them."""
        shared, self.kr8s = self.kr8s, None
        if shared is None:
            return
        _reference_counts[shared] -= 1
        # kr8s has no public method for this; a later request opens a new session.
        if not _reference_counts[shared] and shared._session is not None:
            with suppress(*_CONNECTION_ERRORS):  # they are closed in any case
                await shared._session.aclose()

    def _own_namespace(self) -> str:
        if not self.kr8s.auth.active_context and (namespace := read_pod_namespace()):
            return namespace
        default: str = self.kr8s.namespace
        return default

    async def list_warnings(self) -> list[dict[str, Any]]:
        """Return the warning events of the namespace; none if this user may not list events."""
        if self._can_list_events:
            try:
                return await self.list("events", fields="type=Warning")
            except RequestRefused as error:
                self._can_list_events = error.status != FORBIDDEN
        return []

    async def list(
        self, kind: str, version: str = "v1", *, labels: str = "", fields: str = ""
    ) -> list[dict[str, Any]]:
        """Return the objects of a kind, filtered by label and field selectors."""
        selectors = {"labelSelector": labels, "fieldSelector": fields}
        params = {name: text for name, text in selectors.items() if text}
        listing = await self._call("GET", kind, version, "list", params=params)
        items: list[dict[str, Any]] = listing["items"]
        return items

    async def get(self, kind: str, name: str, version: str = "v1") -> dict[str, Any]:
        """Return one object; raise :class:`ObjectNotFound` if it does not exist."""
        return await self._call("GET", f"{kind}/{name}", version, "get")

    async def create(
        self, kind: str, content: Mapping[str, Any], version: str = "v1"
    ) -> dict[str, Any]:
        """Create an object and return it."""
        return await self._call("POST", kind, version, "create", content=json.dumps(content))

    async def patch(self, kind: str, name: str, operations: str, version: str = "v1") -> None:
        """Change an object by the operations of a JSON patch."""
        headers = {"Content-Type": "application/json-patch+json"}
        await self._call(
            "PATCH", f"{kind}/{name}", version, "patch", content=operations, headers=headers
        )

    async def delete(self, kind: str, name: str, version: str = "v1") -> None:
        """Delete an object and those that it owns; raise ObjectNotFound if it does not exist.

        Pods receive SIGTERM, and SIGKILL after their grace period.
        """
        content = json.dumps({"propagationPolicy": "Background"})
        await self._call("DELETE", f"{kind}/{name}", version, "delete", content=content)

    async def read_log(
        self, pod: str, container: str, *, previous: bool = False, lines: int | None = None
    ) -> bytes:
        """Return the log of a container, or its last lines; ``previous``: before its restart."""
        params: dict[str, Any] = {"container": container}
        params.update({"previous": "true"} if previous else {})
        params.update({"tailLines": lines} if lines else {})

        async def read() -> bytes:
            async with self._open_log(pod, params) as answer:
                content: bytes = answer.content
                return content

        with translate_errors("get pods/log", self.namespace):
            return await run_within(self._request_seconds, read())

    async def follow_log(self, pod: str, container: str) -> AsyncIterator[bytes]:
        """Yield the log of a container from its beginning until it ends, without a time limit."""
        with translate_errors("get pods/log", self.namespace):
            params = {"container": container, "follow": "true"}
            async with self._open_log(pod, params, stream=True) as answer:
                async for part in answer.aiter_bytes():
                    yield part

    def _open_log(self, pod: str, params: Mapping[str, Any], **options: Any) -> Any:
        """Return the context manager of a request for a log."""
        return self.kr8s.call_api(
            "GET",
            version="v1",
            url=f"pods/{pod}/log",
            namespace=self.namespace,
            params=params,
            **options,
        )

    async def _call(
        self, method: str, url: str, version: str, verb: str, **options: Any
    ) -> dict[str, Any]:
        async def request() -> dict[str, Any]:
            async with self.kr8s.call_api(
                method, version=version, url=url, namespace=self.namespace, **options
            ) as answer:
                date = parsedate(answer.headers.get("Date"))
                self.answered_at = None if date is None else float(calendar.timegm(date))
                content: dict[str, Any] = answer.json()
                return content

        with translate_errors(f"{verb} {url.partition('/')[0]}", self.namespace):
            return await run_within(self._request_seconds, request())


@contextmanager
def translate_errors(action: str, namespace: str) -> Iterator[None]:
    """Raise errors of a request in this block as KubernetesErrors with advice."""
    try:
        yield
    except KubernetesError:
        raise
    except kr8s.ServerError as error:
        status = error.response.status_code if error.response is not None else 0
        message = " ".join(str(error).split())
        if status == NOT_FOUND:
            raise ObjectNotFound(message) from error
        described = describe_refusal(status, message, action, namespace)
        raise RequestRefused(described, status) from error
    except _CONNECTION_ERRORS as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise KubernetesError(
            f"the API server of Kubernetes cannot be reached ({action}): {reason}. Check that "
            "'kubectl get pods' works with the same KUBECONFIG and context",
        ) from error


def _configuration_error(error: Exception) -> KubeconfigError:
    where = os.environ.get("KUBECONFIG", DEFAULT_KUBECONFIG)
    return KubeconfigError(
        f"there is no usable configuration of kubectl: {error}. Searched: {where} (KUBECONFIG) and "
        "the service account of a pod. Check that 'kubectl get pods' works",
    )


async def run_within(seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine within a time limit.

    ``asyncio.wait_for`` of Python 3.11 loses a cancellation that coincides with the end.

    Raises
    ------
    TimeoutError
        If the coroutine did not end in time; it was cancelled.
    """
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
    finally:
        task.cancel()
    if not done:
        raise TimeoutError(f"the API server did not respond in {seconds:g} s")
    return task.result()
