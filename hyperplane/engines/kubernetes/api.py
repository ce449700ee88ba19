"""The API of a Kubernetes through kr8s, and what it refuses in plain words."""

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

from hyperplane.errors import EngineError, StartFailed

ENGINE = "kubernetes"
DASK = "kubernetes.dask.org/v1"
#: Where Kubernetes tells a pod what it is.
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

#: What goes wrong on the way: also answers that are none of the API server's, and a connection
#: that another request has closed.
_CONNECTION_ERRORS = (
    *(httpx.HTTPError, kr8s.APITimeoutError, ssl.SSLError, OSError, anyio.EndOfStream),
    *(json.JSONDecodeError, RuntimeError),
)

#: How many use each of kr8s' objects.
_reference_counts: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()


def is_in_pod() -> bool:
    """Whether this process runs in a pod, and so in the network of a Kubernetes."""
    return "KUBERNETES_SERVICE_HOST" in os.environ and SERVICE_ACCOUNT.is_dir()


class ObjectNotFound(EngineError):
    """There is no such object."""


class KubernetesApi:
    """Some requests to one namespace; to be used in one event loop only.

    Parameters
    ----------
    namespace : str or None
        That of the context or of this pod if None.
    """

    def __init__(self, namespace: str | None) -> None:
        self.namespace = namespace or ""
        #: kr8s' own, which all of one event loop share.
        self.kr8s: Any = None

    async def connect(self, kubeconfig: str | None = None, context: str | None = None) -> None:
        """Find the way to the API server and ask it who it is.

        Parameters
        ----------
        kubeconfig, context : str, optional
            Another file than the one that kubectl would take here, and another of its contexts.

        Raises
        ------
        StartFailed
            When there is no configuration, no server or no access.
        """
        with translate_errors("reach the API server", self.namespace):
            try:
                self.kr8s = await kr8s.asyncio.api(kubeconfig=kubeconfig, context=context)
            except (ValueError, KeyError, TypeError) as error:
                where = os.environ.get("KUBECONFIG", "~/.kube/config")
                raise StartFailed(
                    ENGINE,
                    f"there is no usable configuration of kubectl: {error}. Looked at: {where} "
                    "(KUBECONFIG) and the service account of a pod. If 'kubectl get pods' works, "
                    "this does",
                ) from error
        _reference_counts[self.kr8s] = _reference_counts.get(self.kr8s, 0) + 1
        if not self.namespace:
            self.namespace = self._own_namespace()

    async def close(self) -> None:
        """Close the connections, if nobody else in this event loop uses them."""
        shared, self.kr8s = self.kr8s, None
        if shared is None:
            return
        _reference_counts[shared] -= 1
        # kr8s has no way to close it; a request after this one opens another.
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
        """All objects of a kind that have some labels."""
        asked = {"labelSelector": labels, "fieldSelector": fields}
        params = {name: text for name, text in asked.items() if text}
        found = await self._call("GET", kind, version, "list", params=params)
        items: list[dict[str, Any]] = found["items"]
        return items

    async def get(self, kind: str, name: str, version: str = "v1") -> dict[str, Any]:
        """One object; :class:`Missing` when there is none."""
        return await self._call("GET", f"{kind}/{name}", version, "get")

    async def create(
        self, kind: str, content: Mapping[str, Any], version: str = "v1"
    ) -> dict[str, Any]:
        """Make an object."""
        return await self._call("POST", kind, version, "create", content=json.dumps(content))

    async def delete(self, kind: str, name: str, version: str = "v1") -> None:
        """Delete an object; :class:`Missing` when there is none."""
        content = json.dumps({"propagationPolicy": "Background"})
        await self._call("DELETE", f"{kind}/{name}", version, "delete", content=content)

    async def logs(self, pod: str, container: str, *, previous: bool, lines: int | None) -> str:
        """The last lines that a container wrote; before its last restart, if asked for."""
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
        """What a container has written, from its beginning; and what it writes, if asked for."""
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
    """Say what went wrong with a request in words of this package."""
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
        return f"the API server does not know you ({doing}): {message}. Log in again as for kubectl"
    if status == 403:
        return (
            f"not allowed to {doing} {where}: {message}. What hyperplane needs is in "
            "config/kubernetes/rbac.yaml; ask for it, or name another namespace"
        )
    if status == 409:
        return f"there is one of that name already {where}: {message}. Use another name"
    if status == 422:
        return f"the API server refuses the manifest ({doing}): {message}"
    return f"the API server answers {status} ({doing}): {message}"
