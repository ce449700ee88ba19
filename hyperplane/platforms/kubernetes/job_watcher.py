"""Create and delete Jobs, and list all that have the same labels to watch them.

The state is polled, because the example rbac.yaml does not grant the permission to watch.
"""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hyperplane.platforms.kubernetes.batch_job import BATCH
from hyperplane.platforms.kubernetes.errors import (
    FORBIDDEN,
    NOT_FOUND,
    KubeconfigError,
    KubernetesError,
    ObjectNotFound,
    RequestRefused,
)

if TYPE_CHECKING:
    from hyperplane.platforms.kubernetes.api import KubernetesApi

#: Seconds for which a snapshot is reused, and additional seconds per Job.
CACHE_SECONDS, CACHE_SECONDS_PER_JOB = 1.0, 0.01
#: Seconds for which the warnings of a namespace, possibly many, are reused.
EVENTS_CACHE_SECONDS = 10.0
#: Seconds for which the creation of objects is retried after temporary failures.
CREATE_SECONDS = 300.0
#: Maximum seconds between two attempts to create them.
CREATE_PAUSE_SECONDS = 30.0
#: Maximum concurrent requests.
MAX_CONCURRENT_REQUESTS = 8

Object = dict[str, Any]


@dataclass(frozen=True)
class JobSnapshot:
    """Jobs with the same labels at one time.

    Parameters
    ----------
    jobs : dict of str to dict
        Jobs by name.
    pods : dict of str to list
        The pods of each Job, oldest first.
    events : list
        Warning events of the namespace; refreshed only while a pod is pending or a Job has none.
    """

    jobs: dict[str, Object] = field(default_factory=dict)
    pods: dict[str, list[Object]] = field(default_factory=dict)
    events: list[Object] = field(default_factory=list)


class JobWatcher:
    """Client for Jobs that have the same labels; for use in one event loop only.

    Parameters
    ----------
    api : KubernetesApi
        Requests to the namespace; the first use connects it.
    container : str
        Name of the container whose log is read.
    """

    def __init__(self, api: KubernetesApi, container: str) -> None:
        self._unconnected, self._container = api, container
        self._connected: KubernetesApi | None = None
        self._connect_lock, self._lock = asyncio.Lock(), asyncio.Lock()
        self._request_slots = asyncio.Semaphore(MAX_CONCURRENT_REQUESTS)
        self._snapshot: JobSnapshot | None = None
        self._snapshot_at = self._events_at = float("-inf")
        self._events: list[Object] = []
        #: Why the last poll failed; empty if it succeeded.
        self.last_error = ""

    async def get_snapshot(self, labels: str, since: float = float("-inf")) -> JobSnapshot | None:
        """Return the Jobs of a label selector, the same one in every call, and their pods.

        The snapshot is newer than ``since``; None if the API server fails.
        """
        async with self._lock:
            job_count = len(self._snapshot.jobs) if self._snapshot else 0
            max_age = CACHE_SECONDS + CACHE_SECONDS_PER_JOB * job_count
            if self._snapshot_at < max(since, time.monotonic() - max_age):
                started_at = time.monotonic()
                try:
                    self._snapshot = await self._list_objects(labels)
                    self.last_error = ""
                except KubernetesError as error:
                    self._snapshot, self.last_error = None, str(error)
                self._snapshot_at = started_at
            return self._snapshot

    async def _list_objects(self, labels: str) -> JobSnapshot:
        api = await self._api()
        # Jobs are listed first, so that a pod without a Job in the list belongs to a new Job.
        jobs = {
            job["metadata"]["name"]: job for job in await api.list("jobs", BATCH, labels=labels)
        }
        pods: dict[str, list[Object]] = {}
        for pod in sorted(await api.list("pods", labels=labels), key=_creation_time):
            pods.setdefault(pod["metadata"]["labels"].get("job-name", ""), []).append(pod)
        is_pending = any(
            pod["status"].get("phase") == "Pending"
            for pods_of_job in pods.values()
            for pod in pods_of_job
        )
        if is_pending or jobs.keys() - pods.keys():
            await self._refresh_events(api)
        return JobSnapshot(jobs, pods, self._events)

    async def _refresh_events(self, api: KubernetesApi) -> None:
        if time.monotonic() - self._events_at > EVENTS_CACHE_SECONDS:
            self._events_at = time.monotonic()
            self._events = await api.list_warnings()

    async def create(
        self,
        job: Mapping[str, Any],
        secret_of: Callable[[Object], Object | None],
        service_of: Callable[[Object], Object] | None = None,
        *,
        waits_for_secret: bool = True,
    ) -> None:
        """Create a Job and the objects that it owns; retry for up to :data:`CREATE_SECONDS`.

        Parameters
        ----------
        job : mapping
            The Job.
        secret_of : callable
            Returns the Secret, if any, for the created Job.
        service_of : callable, optional
            Returns the Service for the created Job.
        waits_for_secret : bool
            Whether a quota that has no room for the Secret is waited for.

        Raises
        ------
        OSError
            With the message of the API server; EAGAIN if it did not respond, or refused
            temporarily.
        """
        until, pause = time.monotonic() + CREATE_SECONDS, 1.0
        while True:
            try:
                # One slot for all: the Secret does not wait while other Jobs are created.
                async with self._request_slots:
                    created = await self._create_object("jobs", job, BATCH)
                    _check_indexed(job, created)
                    kind = {key: job[key] for key in ("apiVersion", "kind")}
                    # Before the Secret: without that no pod starts.
                    if service_of is not None:
                        service = service_of({**kind, **created})
                        await self._create_object("services", service, "v1")
                    if (secret := secret_of({**kind, **created})) is not None:
                        await self._create_secret(secret, waits_for_secret)
                    return
            except KubernetesError as error:
                if _is_final(error):
                    raise OSError(errno.EPERM, str(error), "Kubernetes") from error
                if time.monotonic() > until:
                    raise OSError(errno.EAGAIN, str(error), "Kubernetes") from error
            await asyncio.sleep(pause)
            pause = min(2 * pause, CREATE_PAUSE_SECONDS)

    async def _create_secret(self, secret: Object, waits: bool) -> None:
        try:
            await self._create_object("secrets", secret, "v1")
        except RequestRefused as error:
            if waits or error.status != FORBIDDEN:
                raise
            raise OSError(errno.EPERM, str(error), "Kubernetes") from error

    async def _create_object(self, kind: str, content: Mapping[str, Any], version: str) -> Object:
        api, name = await self._api(), str(content["metadata"]["name"])
        try:
            return await api.create(kind, content, version)
        except ObjectNotFound as error:
            raise RequestRefused(str(error), NOT_FOUND) from error  # no such namespace
        except RequestRefused as error:
            # The name is unique, so this process created the object, and the response was lost.
            if not error.name_exists():
                raise
            return await api.get(kind, name, version)

    async def delete(self, name: str) -> bool:
        """Delete a Job and its pods; return whether it is deleted or being deleted."""
        try:
            async with self._request_slots:
                await (await self._api()).delete("jobs", name, BATCH)
        except ObjectNotFound:
            return True
        except KubernetesError:
            return False
        return True

    async def has_secret(self, name: str) -> bool | None:
        """Return whether a Secret exists; None if the API server fails."""
        try:
            async with self._request_slots:
                await (await self._api()).get("secrets", name)
        except ObjectNotFound:
            return False
        except KubernetesError:
            return None
        return True

    async def read_log(self, pod: str) -> bytes | None:
        """Return the whole log of a pod; None if it is unavailable."""
        try:
            async with self._request_slots:
                return await (await self._api()).read_log(pod, self._container)
        except KubernetesError:
            return None

    async def follow_log(self, pod: str) -> AsyncIterator[bytes]:
        """Yield the log of a pod from its beginning, as it is written."""
        api = await self._api()
        async for part in api.follow_log(pod, self._container):
            yield part

    async def close(self) -> None:
        """Close the connection; a later request opens another one."""
        async with self._connect_lock:
            connected, self._connected = self._connected, None
            if connected is not None:
                await connected.close()

    async def _api(self) -> KubernetesApi:
        async with self._connect_lock:
            if self._connected is None:
                await self._unconnected.connect()
                self._connected = self._unconnected
            return self._connected


def _check_indexed(job: Mapping[str, Any], created: Mapping[str, Any]) -> None:
    """Raise RequestRefused if an older API server has dropped the indexes of a Job's pods."""
    wanted, found = job.get("spec", {}), created.get("spec", {})
    if "completionMode" in wanted and "completionMode" not in found:
        raise RequestRefused(
            "this version of Kubernetes has no Indexed Jobs, which n processes that start together "
            "need. Use Kubernetes 1.24 or later, or another runner"
        )


def _is_final(error: KubernetesError) -> bool:
    """Return whether a repeated request would fail, too."""
    if isinstance(error, RequestRefused):
        return not error.is_retryable()
    return isinstance(error, KubeconfigError)


def _creation_time(pod: Object) -> str:
    return str(pod["metadata"].get("creationTimestamp", ""))
