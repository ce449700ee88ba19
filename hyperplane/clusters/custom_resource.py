"""The custom resource of a cluster, for which an operator of Kubernetes starts pods."""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, ClassVar, Concatenate, ParamSpec, TypeVar

from hyperplane.clusters.running_clusters import ClusterNotFound
from hyperplane.clusters.start_progress import report_start
from hyperplane.core.errors import EngineError, StartFailed, StartTimeout
from hyperplane.platforms.kubernetes import pod_status
from hyperplane.platforms.kubernetes.api import KubernetesApi
from hyperplane.platforms.kubernetes.errors import (
    KubeconfigError,
    KubernetesError,
    ObjectNotFound,
    PortForwardError,
    RequestRefused,
)

#: Lines of a log that are read, and the maximum of them that an error shows.
LOG_LINES, LINES_SHOWN = 500, 40

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")
Resource = TypeVar("Resource", bound="ClusterResource")


@contextmanager
def engine_errors(engine: str) -> Iterator[None]:
    """Raise an error of Kubernetes in this block as one of an engine.

    A refused request, a missing configuration or a port that cannot be forwarded is a
    ``StartFailed``. Any other error is a plain ``EngineError``, because an API server that does not
    answer now may answer later.
    """
    try:
        yield
    except (RequestRefused, KubeconfigError, PortForwardError) as error:
        raise StartFailed(engine, str(error)) from error
    except KubernetesError as error:
        raise EngineError(engine, str(error)) from error


def translates_errors(
    method: Callable[Concatenate[Resource, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Resource, P], Coroutine[Any, Any, T]]:
    """Decorate a coroutine method so that it raises KubernetesErrors as errors of its engine."""

    async def wrapper(self: Resource, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with engine_errors(self.engine):
            return await method(self, *args, **kwargs)

    functools.update_wrapper(wrapper, method)
    return wrapper


class ClusterResource(ABC):
    """The custom resource of one cluster and its pods, for use in one event loop.

    Parameters
    ----------
    name : str
        Name of the cluster.
    namespace : str or None
        None for the namespace of the context or of this pod.
    """

    #: Name of the engine, and of the operator in messages.
    engine: ClassVar[str]
    operator: ClassVar[str]
    #: How the operator is installed, for messages.
    install: ClassVar[str]
    #: Name of the resource in commands and in requests, and its version.
    kind: ClassVar[str]
    plural: ClassVar[str]
    version: ClassVar[str]
    #: Labels of pods with the name of the cluster, and with their role.
    cluster_label: ClassVar[str]
    role_label: ClassVar[str]
    #: The role of the pod that clients connect to, and what it is called in messages.
    head_role: ClassVar[str]
    head_name: ClassVar[str]
    #: What to do about pods that do not run, by reason.
    advice: Mapping[str, str]
    #: Seconds that the operator may take to react to a new cluster.
    operator_seconds: ClassVar[float] = 60.0

    def __init__(self, name: str, namespace: str | None) -> None:
        self.name = name
        self.api = KubernetesApi(namespace)
        self.content: dict[str, Any] = {}
        #: Whether closing deletes the resource: this object may have created it, or has loaded it.
        self.may_delete = False
        #: What happens to the cluster if it cannot be used, for messages; a new one is closed.
        self._outcome = "the cluster was not closed"
        self._warned: set[str] = set()

    @property
    def annotations(self) -> dict[str, str]:
        """Annotations of the resource."""
        annotations: dict[str, str] = self.content.get("metadata", {}).get("annotations") or {}
        return annotations

    async def create_resource(self, manifest: Mapping[str, Any]) -> None:
        """Create the resource; raise a StartFailed if the operator is not installed."""
        self._outcome = "everything was closed again"
        try:
            await self._create_shielded(manifest)
        except ObjectNotFound as error:
            raise StartFailed(
                self.engine,
                f"namespace {self.api.namespace!r} does not exist, or the operator of "
                f"{self.operator} is not installed: {error}. {self.install}",
            ) from error

    async def _create_shielded(self, manifest: Mapping[str, Any]) -> None:
        """Create the resource; a cancellation waits until the API server has answered."""
        creating = asyncio.ensure_future(self.api.create(self.plural, manifest, self.version))
        try:
            await asyncio.shield(creating)
        finally:
            await asyncio.wait([creating])
            # Without an answer the cluster may exist: closing then deletes it by its name.
            error = None if creating.cancelled() else creating.exception()
            self.may_delete = not isinstance(error, RequestRefused | ObjectNotFound)
        self.content = creating.result()

    @translates_errors
    async def load(self) -> None:
        """Load the existing resource; raise a ClusterNotFound that lists others without it."""
        namespace = self.api.namespace
        try:
            self.content = await self.api.get(self.plural, self.name, self.version)
        except ObjectNotFound as error:
            raise ClusterNotFound(
                self.engine,
                f"namespace {namespace!r} has no cluster {self.name!r}; "
                f"running: {await self._other_clusters()}",
            ) from error
        if "deletionTimestamp" in self.content["metadata"]:
            others = await self._other_clusters()
            message = f"cluster {self.name!r} is closing; running: {others}"
            raise ClusterNotFound(self.engine, message)
        await self.load_access()
        self.may_delete = True

    @abstractmethod
    async def load_access(self) -> None:
        """Load what clients need to connect."""

    async def _other_clusters(self) -> str:
        with suppress(KubernetesError):
            clusters = await self.api.list(self.plural, self.version)
            metadata = [cluster["metadata"] for cluster in clusters]
            names = [fields["name"] for fields in metadata if "deletionTimestamp" not in fields]
            return ", ".join(names) or "none"
        return "unknown"

    @translates_errors
    async def wait_for_head(self, deadline: float) -> None:
        """Return when the pod that clients connect to passes its health check.

        The state of the resource is not used: an operator derives it from events and can miss one.
        """
        began = time.monotonic()
        while True:
            pods = await self.pods(self.head_role)
            if any(pod_status.is_ready(pod) for pod in pods):
                return
            now = time.monotonic()
            reason = await self.explain_pending()
            report_start(self.name, detail=f"{self.head_name}: {reason}")
            late = not pods and now - began > self.operator_seconds
            if late and not await self._is_accepted():
                raise StartFailed(
                    self.engine,
                    f"the operator of {self.operator} did not react to the cluster within "
                    f"{self.operator_seconds:g} s: it does not run, or does not watch namespace "
                    f"{self.api.namespace!r}, or refuses the resource; {self._outcome}. {reason}",
                )
            if now > deadline:
                waited = f"within {now - began:.0f} s (timeout)"
                message = f"the {self.head_name} did not start {waited}; {self._outcome}"
                raise StartTimeout(self.engine, f"{message}. {reason}")
            await asyncio.sleep(0.5)

    async def _is_accepted(self) -> bool:
        """Return whether the operator has written a status."""
        cluster = await self.api.get(self.plural, self.name, self.version)
        return any(cluster.get("status", {}).values())

    async def pods(self, role: str = "") -> list[dict[str, Any]]:
        """Return the pods of the cluster, or those with one role."""
        labels = f"{self.cluster_label}={self.name}"
        labels += f",{self.role_label}={role}" if role else ""
        return await self.api.list("pods", labels=labels)

    @translates_errors
    async def explain_pending(self) -> str:
        """Return one line on why pods do not run; raise StartFailed if waiting is useless."""
        pods = await self.pods()
        events = pod_status.select_events(await self.api.list_warnings(), self.name)
        if pending := pod_status.find_pending_pod(pods, events, self.advice):
            log = await self._last_lines(pending.pod, pending.container) if pending.ran else ""
            raise StartFailed(self.engine, f"{pending.text}; {self._outcome}", log)
        return pod_status.summarize(pods, events)

    async def _last_lines(self, pod: str, container: str) -> str:
        for previous in (True, False):
            with suppress(KubernetesError):
                log = await self.api.read_log(pod, container, previous=previous, lines=LOG_LINES)
                if lines := pod_status.drop_traceback_frames(log.decode(errors="replace")):
                    return "\n".join(lines[-LINES_SHOWN:])
        return ""

    @translates_errors
    async def warn_out_of_memory(self) -> None:
        """Log one warning for each time that a container was killed because of its memory."""
        messages = pod_status.find_out_of_memory(await self.pods(), self.advice)
        for key, message in messages.items():
            if key not in self._warned:
                self._warned.add(key)
                logger.warning("%s", message)

    @translates_errors
    async def is_gone(self) -> bool:
        """Return whether the resource is deleted or being deleted."""
        try:
            cluster = await self.api.get(self.plural, self.name, self.version)
        except ObjectNotFound:
            return True
        return "deletionTimestamp" in cluster["metadata"]

    async def delete_objects(self) -> None:
        """Delete the resource, unless another program or the operator has deleted it."""
        with suppress(ObjectNotFound):
            await self.api.delete(self.plural, self.name, self.version)

    @translates_errors
    async def delete(self, timeout: float) -> None:
        """Delete the resource; return when its pods have ended, or warn after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        await self.delete_objects()
        while timeout and not await self._is_fully_deleted():
            if time.monotonic() > deadline:
                logger.warning(
                    "cluster %s was deleted, but parts of it still exist after %g s: the "
                    "operator or a node does not answer; check with 'kubectl get %s %s' "
                    "and 'kubectl get pods -l %s=%s'",
                    self.name,
                    timeout,
                    self.kind,
                    self.name,
                    self.cluster_label,
                    self.name,
                )
                return
            await asyncio.sleep(0.25)

    async def _is_fully_deleted(self) -> bool:
        with suppress(ObjectNotFound):
            await self.api.get(self.plural, self.name, self.version)
            return False
        return all(pod_status.is_deleted(pod) for pod in await self.pods())
