"""The DaskCluster resource of a cluster, its pods, and the Secret with its key pair."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from distributed.security import Security
from distributed.utils import Log, Logs

from hyperplane.clusters.dask.kubernetes.platform_errors import ENGINE, raise_engine_errors
from hyperplane.clusters.dask.kubernetes.render import (
    API_VERSION,
    SECRET,
    TLS_FILES,
    secret_name,
)
from hyperplane.clusters.dask.remote_process import make_security
from hyperplane.core.errors import EngineError, StartFailed, StartTimeout
from hyperplane.platforms.kubernetes import objects, pod_status
from hyperplane.platforms.kubernetes.api import KubernetesApi
from hyperplane.platforms.kubernetes.errors import KubernetesError, ObjectNotFound, RequestRefused

#: Seconds that the operator may take to react to a new cluster.
OPERATOR_SECONDS = 60.0
#: Lines of a log that are read, and the maximum of them that an error shows.
LOG_LINES, LINES_SHOWN = 500, 40
_PROGRAM_ADVICE = "check that the image has Python, dask and distributed on its PATH"
#: What to do about pods that do not run, by reason.
ADVICE = {
    "CreateContainerError": _PROGRAM_ADVICE,
    "RunContainerError": _PROGRAM_ADVICE,
    pod_status.OUT_OF_MEMORY: "raise ram_gb_per_proc, or use fewer threads",
}

logger = logging.getLogger(__name__)


class DaskClusterResource:
    """The DaskCluster resource of one cluster, for use in one event loop.

    Parameters
    ----------
    name : str
        Name of the cluster.
    namespace : str or None
        None for the namespace of the context or of this pod.
    """

    def __init__(self, name: str, namespace: str | None) -> None:
        self.name = name
        self.api = KubernetesApi(namespace)
        self.content: dict[str, Any] = {}
        self.security = Security()
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

    @raise_engine_errors
    async def create(self, manifest: Mapping[str, Any], tls: Mapping[str, str]) -> None:
        """Create the resource, and the Secret that it owns."""
        self._outcome = "everything was closed again"
        try:
            await self._create_cluster(manifest)
        except ObjectNotFound as error:
            raise StartFailed(
                ENGINE,
                f"namespace {self.api.namespace!r} does not exist, or the operator of "
                f"dask-kubernetes is not installed: {error}. Ask an administrator to install it "
                "(config/kubernetes/operator-values.yaml is an example)",
            ) from error
        if tls:
            # After the cluster, which owns the Secret: Kubernetes deletes both together.
            await self.api.create("secrets", build_key_secret(self.content, tls))
            self.security = make_security(tls)

    async def _create_cluster(self, manifest: Mapping[str, Any]) -> None:
        """Create the resource; a cancellation waits until the API server has answered."""
        creating = asyncio.ensure_future(self.api.create("daskclusters", manifest, API_VERSION))
        try:
            await asyncio.shield(creating)
        finally:
            await asyncio.wait([creating])
            # Without an answer the cluster may exist: closing then deletes it by its name.
            error = None if creating.cancelled() else creating.exception()
            self.may_delete = not isinstance(error, RequestRefused | ObjectNotFound)
        self.content = creating.result()

    @raise_engine_errors
    async def load(self) -> None:
        """Load the existing resource; raise an EngineError that lists others if there is none."""
        namespace = self.api.namespace
        try:
            self.content = await self.api.get("daskclusters", self.name, API_VERSION)
        except ObjectNotFound as error:
            raise EngineError(
                ENGINE,
                f"namespace {namespace!r} has no cluster {self.name!r}; "
                f"running: {await self._other_clusters()}",
            ) from error
        if "deletionTimestamp" in self.content["metadata"]:
            others = await self._other_clusters()
            raise EngineError(ENGINE, f"cluster {self.name!r} is closing; running: {others}")
        if secret := self.annotations.get(SECRET):
            self.security = read_key_secret(await self.api.get("secrets", secret))
        self.may_delete = True

    async def _other_clusters(self) -> str:
        with suppress(KubernetesError):
            clusters = await self.api.list("daskclusters", API_VERSION)
            metadata = [cluster["metadata"] for cluster in clusters]
            names = [fields["name"] for fields in metadata if "deletionTimestamp" not in fields]
            return ", ".join(names) or "none"
        return "unknown"

    @raise_engine_errors
    async def wait_for_scheduler(self, deadline: float) -> None:
        """Return when the scheduler passes its health check.

        The phase of the cluster is not used: the operator derives it from events and can miss one.
        """
        began = time.monotonic()
        while True:
            pods = await self.pods("scheduler")
            if any(pod_status.is_ready(pod) for pod in pods):
                return
            now = time.monotonic()
            if not pods and now - began > OPERATOR_SECONDS and not await self._is_accepted():
                raise StartFailed(
                    ENGINE,
                    f"the operator of dask-kubernetes did not react to the cluster within "
                    f"{OPERATOR_SECONDS:g} s: it does not run, or does not watch namespace "
                    f"{self.api.namespace!r}; {self._outcome}",
                )
            reason = await self.explain_pending()
            if now > deadline:
                waited = f"within {now - began:.0f} s (timeout)"
                message = f"the scheduler did not start {waited}; {self._outcome}"
                raise StartTimeout(ENGINE, f"{message}. {reason}")
            await asyncio.sleep(0.5)

    async def _is_accepted(self) -> bool:
        cluster = await self.api.get("daskclusters", self.name, API_VERSION)
        return bool(cluster.get("status", {}).get("phase"))

    async def pods(self, component: str = "") -> list[dict[str, Any]]:
        """Return the pods of the cluster, or those of one component."""
        labels = f"dask.org/cluster-name={self.name}"
        labels += f",dask.org/component={component}" if component else ""
        return await self.api.list("pods", labels=labels)

    @raise_engine_errors
    async def explain_pending(self) -> str:
        """Return one line on why pods do not run; raise StartFailed if waiting is useless."""
        pods = await self.pods()
        events = pod_status.select_events(await self.api.list_warnings(), self.name)
        if pending := pod_status.find_pending_pod(pods, events, ADVICE):
            log = await self._last_lines(pending.pod, pending.container) if pending.ran else ""
            raise StartFailed(ENGINE, f"{pending.text}; {self._outcome}", log)
        return pod_status.summarize(pods, events)

    async def _last_lines(self, pod: str, container: str) -> str:
        for previous in (True, False):
            with suppress(KubernetesError):
                log = await self.api.read_log(pod, container, previous=previous, lines=LOG_LINES)
                if lines := pod_status.drop_traceback_frames(log.decode(errors="replace")):
                    return "\n".join(lines[-LINES_SHOWN:])
        return ""

    @raise_engine_errors
    async def warn_out_of_memory(self) -> None:
        """Log one warning for each time that a container was killed because of its memory."""
        messages = pod_status.find_out_of_memory(await self.pods(), ADVICE)
        for key, message in messages.items():
            if key not in self._warned:
                self._warned.add(key)
                logger.warning("%s", message)

    @raise_engine_errors
    async def logs(self) -> Logs:
        """Return the logs of all pods by their names, and that of the scheduler as "Scheduler"."""
        logs = Logs()
        for pod in await self.pods():
            name = pod["metadata"]["name"]
            role = pod["metadata"]["labels"].get("dask.org/component", "")
            try:
                text = (await self.api.read_log(name, role)).decode(errors="replace").rstrip("\n")
            except KubernetesError as error:
                text = str(error)
            logs["Scheduler" if role == "scheduler" else name] = Log(text)
        return logs

    @raise_engine_errors
    async def is_gone(self) -> bool:
        """Return whether the resource is deleted or being deleted."""
        try:
            cluster = await self.api.get("daskclusters", self.name, API_VERSION)
        except ObjectNotFound:
            return True
        return "deletionTimestamp" in cluster["metadata"]

    @raise_engine_errors
    async def delete(self, timeout: float) -> None:
        """Delete the resource; return when its pods have ended, or warn after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        with suppress(ObjectNotFound):  # deleted by another program or by the operator
            await self.api.delete("daskclusters", self.name, API_VERSION)
        while timeout and not await self._is_fully_deleted():
            if time.monotonic() > deadline:
                logger.warning(
                    "cluster %s was deleted, but parts of it still exist after %g s: the "
                    "operator or a node does not answer; check with 'kubectl get daskcluster %s' "
                    "and 'kubectl get pods -l dask.org/cluster-name=%s'",
                    self.name,
                    timeout,
                    self.name,
                    self.name,
                )
                return
            await asyncio.sleep(0.25)

    async def _is_fully_deleted(self) -> bool:
        with suppress(ObjectNotFound):
            await self.api.get("daskclusters", self.name, API_VERSION)
            return False
        return all(pod_status.is_deleted(pod) for pod in await self.pods())


def build_key_secret(cluster: Mapping[str, Any], tls: Mapping[str, str]) -> dict[str, Any]:
    """Return the Secret with the key pair of a cluster.

    Parameters
    ----------
    cluster : mapping
        The DaskCluster, from the API server.
    tls : mapping
        The key pair, from :func:`hyperplane.clusters.dask.remote_process.key_pair`.
    """
    metadata = cluster["metadata"]
    labels = {**metadata.get("labels", {}), "dask.org/cluster-name": metadata["name"]}
    contents = {file: tls[field].encode() for field, file in TLS_FILES.items()}
    return objects.build_secret(cluster, secret_name(metadata["name"]), labels, contents)


def read_key_secret(secret: Mapping[str, Any]) -> Security:
    """Return the Security object of the key pair in a Secret."""
    contents = objects.read_secret(secret)
    return make_security({field: contents[file].decode() for field, file in TLS_FILES.items()})
