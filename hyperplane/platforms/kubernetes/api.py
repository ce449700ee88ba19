"""Requests to the API server of Kubernetes through kr8s, and explanations of its errors."""

from __future__ import annotations

import json
import os
import ssl
import weakref
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import kr8s
import kr8s.asyncio

from hyperplane.core.errors import EngineError, StartFailed

ENGINE = "kubernetes"
DASK = "kubernetes.dask.org/v1"
#: Folder in which Kubernetes gives a pod its service account.
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

#: Errors of the connection, including answers that are not JSON (a proxy's, for example), and a
#: connection that another request has closed.
_CONNECTION_ERRORS = (
    *(httpx.HTTPError, kr8s.APITimeoutError, ssl.SSLError, OSError, anyio.EndOfStream),
    *(json.JSONDecodeError, RuntimeError),
)

#: Number of users of each of kr8s' API objects.
_reference_counts: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()


def is_in_pod() -> bool:
    """Return whether this process runs in a pod, and so in the network of a Kubernetes cluster."""
    return "KUBERNETES_SERVICE_HOST" in os.environ and SERVICE_ACCOUNT.is_dir()


class ObjectNotFound(EngineError):
    """Raised when an object of Kubernetes does not exist."""


class KubernetesApi:
    """Requests to one namespace, for use in one event loop only.

    Parameters
    ----------
    namespace : str or None
        None for the namespace of the context or of this pod.
    """

    def __init__(self, namespace: str | None) -> None:
        self.namespace = namespace or ""
        #: kr8s' API object, which all users in one event loop share.
        self.kr8s: Any = None

    async def connect(self, kubeconfig: str | None = None, context: str | None = None) -> None:
        """Connect to the API server.

        Parameters
        ----------
        kubeconfig, context : str, optional
            Configuration file and context to use instead of those that kubectl would use.

        Raises
        ------
        StartFailed
            When there is no usable configuration, no server or no access.
        """
        with translate_errors("reach the API server", self.namespace):
            try:
                self.kr8s = await kr8s.asyncio.api(kubeconfig=kubeconfig, context=context)
            except (ValueError, KeyError, TypeError) as error:
                where = os.environ.get("KUBECONFIG", "~/.kube/config")
                raise StartFailed(
                    ENGINE,
                    f"there is no usable configuration of kubectl: {error}. Searched: {where} "
                    "(KUBECONFIG) and the service account of a pod. Check that 'kubectl get pods' "
                    "works",
                ) from error
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
            await shared._session.aclose()

    def _own_namespace(self) -> str:
        file = SERVICE_ACCOUNT / "namespace"
        if not self.kr8s.auth.active_context and file.is_file():
            return file.read_text(encoding="utf-8").strip()
        found: str = self.kr8s.namespace
        return found

    async def list(
        self, kind: str, version: str = "v1", *, labels: str = "", fields: str = ""
    ) -> list[dict[str, Any]]:
        """Return the objects of a kind, filtered by label and field selectors."""
        asked = {"labelSelector": labels, "fieldSelector": fields}
        params = {name: text for name, text in asked.items() if text}
        found = await self._call("GET", kind, version, "list", params=params)
        items: list[dict[str, Any]] = found["items"]
        return items

    async def get(self, kind: str, name: str, version: str = "v1") -> dict[str, Any]:
        """Return one object; raise :class:`ObjectNotFound` if it does not exist."""
        return await self._call("GET", f"{kind}/{name}", version, "get")

    async def create(
        self, kind: str, content: Mapping[str, Any], version: str = "v1"
    ) -> dict[str, Any]:
        """Create an object and return it."""
        return await self._call("POST", kind, version, "create", content=json.dumps(content))

    async def delete(self, kind: str, name: str, version: str = "v1") -> None:
        """Delete an object; raise :class:`ObjectNotFound` if it does not exist."""
        content = json.dumps({"propagationPolicy": "Background"})
        await self._call("DELETE", f"{kind}/{name}", version, "delete", content=content)

    async def logs(self, pod: str, container: str, *, previous: bool, lines: int | None) -> str:
        """Return the last log lines of a container, or those before its last restart."""
        params: dict[str, Any] = {"container": container}
        params.update({"previous": "true"} if previous else {})
        params.update({"tailLines": lines} if lines else {})
        with translate_errors("get pods/log", self.namespace):
            async with self.kr8s.call_api(
                "GET", version="v1", url=f"pods/{pod}/log", namespace=self.namespace, params=params
            ) as answer:
                text: str = answer.text
                return text.rstrip("\n")

    async def log_parts(self, pod: str, container: str, *, follow: bool) -> AsyncIterator[bytes]:
        """Yield the log of a container from its beginning; with `follow`, until it ends."""
        params = {"container": container, "follow": "true" if follow else "false"}
        where = {"version": "v1", "url": f"pods/{pod}/log", "namespace": self.namespace}
        with translate_errors("get pods/log", self.namespace):
            async with self.kr8s.call_api("GET", **where, params=params, stream=True) as answer:
                async for part in answer.aiter_bytes():
                    yield part

    async def _call(
        self, method: str, url: str, version: str, verb: str, **more: Any
    ) -> dict[str, Any]:
        with translate_errors(f"{verb} {url.partition('/')[0]}", self.namespace):
            async with self.kr8s.call_api(
                method, version=version, url=url, namespace=self.namespace, **more
            ) as answer:
                found: dict[str, Any] = answer.json()
                return found


@contextmanager
def translate_errors(doing: str, namespace: str) -> Iterator[None]:
    """Convert errors of a request to EngineErrors that say what to do."""
    try:
        yield
    except EngineError:
        raise
    except kr8s.ServerError as error:
        status = error.response.status_code if error.response is not None else 0
        message = " ".join(str(error).split())
        if status == 404:
            raise ObjectNotFound(ENGINE, message) from error
        raise StartFailed(ENGINE, _describe_refusal(status, message, doing, namespace)) from error
    except _CONNECTION_ERRORS as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise EngineError(
            ENGINE,
            f"the API server of Kubernetes cannot be reached ({doing}): {reason}. Check that "
            "'kubectl get pods' works with the same KUBECONFIG and context",
        ) from error


def _describe_refusal(status: int, message: str, doing: str, namespace: str) -> str:
    where = f"in namespace {namespace!r}" if namespace else "of this context"
    if status == 401:
        return f"the API server refuses the login ({doing}): {message}. Log in again as for kubectl"
    if status == 403:
        return (
            f"not allowed to {doing} {where}: {message}. The permissions that hyperplane needs are "
            "in config/kubernetes/rbac.yaml; ask for them, or use another namespace"
        )
    if status == 409:
        return f"the name is already in use {where}: {message}. Use another name"
    if status == 422:
        return f"the API server refuses the manifest ({doing}): {message}"
    return f"the API server answered {status} ({doing}): {message}"
