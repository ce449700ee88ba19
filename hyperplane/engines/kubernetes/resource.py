"""One DaskCluster and its pods, as the API server has them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from distributed.security import Security
from distributed.utils import Log, Logs

from hyperplane.engines.kubernetes import pod_status
from hyperplane.engines.kubernetes.api import DASK, ENGINE, KubernetesApi, ObjectNotFound
from hyperplane.engines.kubernetes.render import SECRET
from hyperplane.engines.kubernetes.secret import build_secret, read_secret
from hyperplane.engines.remote_process import make_security
from hyperplane.errors import EngineError, StartFailed, StartTimeout

#: How long the operator may take to make anything at all of a new cluster.
OPERATOR_WITHIN = 60.0
#: Lines of a log that are read, and of those lines that are told.
LOG_LINES, LINES_TOLD = 500, 40

logger = logging.getLogger(__name__)


class DaskClusterResource:
    """The resource of one cluster, to be used in one event loop.

    Parameters
    ----------
    name : str
        Name of the cluster.
    namespace : str or None
        As for :class:`Api`.
    """

    def __init__(self, name: str, namespace: str | None) -> None:
        self.name = name
        self.api = KubernetesApi(namespace)
        self.content: dict[str, Any] = {}
        self.security = Security()
        #: Whether it is there by our doing, or was found and may be deleted.
        self.ours = False
        self._warned: set[str] = set()

    @property
    def annotations(self) -> dict[str, str]:
        """What was written on it for other handles."""
        found: dict[str, str] = self.content.get("metadata", {}).get("annotations") or {}
        return found

    async def create(self, manifest: Mapping[str, Any], tls: Mapping[str, str]) -> None:
        """Make the resource, and the Secret that it owns."""
        try:
            await self._create_cluster(manifest)
        except EngineError as error:
            if not isinstance(error, ObjectNotFound):
                raise
            raise StartFailed(
                ENGINE,
                f"namespace {self.api.namespace!r} does not exist, or this Kubernetes has no "
                f"operator of dask-kubernetes: {error}. Ask for the operator to be installed "
                "(config/kubernetes/operator-values.yaml is an example)",
            ) from error
        if tls:
            # After the cluster, which owns it: whatever ends the cluster ends the secret.
            await self.api.create("secrets", build_secret(self.content, tls))
            self.security = make_security(tls)

    async def _create_cluster(self, manifest: Mapping[str, Any]) -> None:
        """Make the resource; an interrupt waits until it is known whether it is there."""
        creating = asyncio.ensure_future(self.api.create("daskclusters", manifest, DASK))
        try:
            await asyncio.shield(creating)
        finally:
            await asyncio.wait([creating])
            self.ours = creating.exception() is None
        self.content = creating.result()

    async def load(self) -> None:
        """Read the resource that is there; an EngineError with those that are, when it is not."""
        namespace = self.api.namespace
        try:
            self.content = await self.api.get("daskclusters", self.name, DASK)
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
            self.security = read_secret(await self.api.get("secrets", secret))
        self.ours = True

    async def _other_clusters(self) -> str:
        with suppress(EngineError):
            found = [one["metadata"] for one in await self.api.list("daskclusters", DASK)]
            names = [one["name"] for one in found if "deletionTimestamp" not in one]
            return ", ".join(names) or "none"
        return "unknown"

    async def wait_for_scheduler(self, deadline: float) -> None:
        """Return when the scheduler answers its health check, whatever the phase of the cluster.

        The phase is what the operator has made of events, and it can miss one.
        """
        began = time.monotonic()
        while True:
            pods = await self.pods("scheduler")
            if any(pod_status.is_ready(pod) for pod in pods):
                return
            now = time.monotonic()
            if not pods and now - began > OPERATOR_WITHIN and not await self._is_accepted():
                raise StartFailed(
                    ENGINE,
                    f"the operator of dask-kubernetes made nothing of the cluster in "
                    f"{OPERATOR_WITHIN:g} s: it does not run, or does not watch namespace "
                    f"{self.api.namespace!r}; everything was closed again",
                )
            reason = await self.explain_pending()
            if now > deadline:
                message = "the scheduler did not run in time (timeout); everything was closed again"
                raise StartTimeout(ENGINE, f"{message}. {reason}")
            await asyncio.sleep(0.5)

    async def _is_accepted(self) -> bool:
        found = await self.api.get("daskclusters", self.name, DASK)
        return bool(found.get("status", {}).get("phase"))

    async def pods(self, component: str = "") -> list[dict[str, Any]]:
        """The pods of the cluster, or those of one component."""
        labels = f"dask.org/cluster-name={self.name}"
        labels += f",dask.org/component={component}" if component else ""
        return await self.api.list("pods", labels=labels)

    async def explain_pending(self) -> str:
        """Why pods do not run, in one line; StartFailed when waiting longer is of no use."""
        pods = await self.pods()
        events: list[dict[str, Any]] = []
        with suppress(StartFailed):  # not everybody may see them
            events = await self.api.list("events", fields="type=Warning")
        ours = [e for e in events if e["involvedObject"].get("name", "").startswith(self.name)]
        if found := pod_status.find_pending_pod(pods, ours):
            log = await self._last_lines(found.pod, found.container) if found.ran else ""
            raise StartFailed(ENGINE, f"{found.text}; everything was closed again", log)
        return pod_status.summary(pods, ours)

    async def _last_lines(self, pod: str, container: str) -> str:
        for previous in (True, False):
            with suppress(EngineError):
                found = await self.api.logs(pod, container, previous=previous, lines=LOG_LINES)
                if kept := pod_status.drop_traceback_frames(found):
                    return "\n".join(kept[-LINES_TOLD:])
        return ""

    async def warn_out_of_memory(self) -> None:
        """Warn of containers that the kernel ended for memory, once of each time."""
        for key, words in pod_status.find_out_of_memory(await self.pods()).items():
            if key not in self._warned:
                self._warned.add(key)
                logger.warning("%s", words)

    async def logs(self) -> Logs:
        """Logs of all pods by their names, and that of the scheduler as "Scheduler"."""
        logs = Logs()
        for pod in await self.pods():
            name = pod["metadata"]["name"]
            role = pod["metadata"]["labels"].get("dask.org/component", "")
            try:
                text = await self.api.logs(name, role, previous=False, lines=None)
            except EngineError as error:
                text = str(error)
            logs["Scheduler" if role == "scheduler" else name] = Log(text)
        return logs

    async def is_gone(self) -> bool:
        """Whether it is deleted, or about to be."""
        try:
            found = await self.api.get("daskclusters", self.name, DASK)
        except ObjectNotFound:
            return True
        return "deletionTimestamp" in found["metadata"]

    async def delete(self, timeout: float) -> None:
        """Delete it and return when nothing of it runs any more, or warn of what does."""
        deadline = time.monotonic() + timeout
        with suppress(
            ObjectNotFound
        ):  # somebody else, or the operator after its idle timeout, was first
            await self.api.delete("daskclusters", self.name, DASK)
        while timeout and not await self._is_fully_deleted():
            if time.monotonic() > deadline:
                logger.warning(
                    "cluster %s is deleted, and parts of it are still there after %g s: the "
                    "operator or a node does not answer; look with 'kubectl get "
                    "daskclusters,pods -l dask.org/cluster-name=%s'",
                    self.name,
                    timeout,
                    self.name,
                )
                return
            await asyncio.sleep(0.25)

    async def _is_fully_deleted(self) -> bool:
        with suppress(ObjectNotFound):
            await self.api.get("daskclusters", self.name, DASK)
            return False
        return all(pod_status.has_ended(pod) for pod in await self.pods())
