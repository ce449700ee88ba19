"""Watch the Jobs and pods of one job on Kubernetes, with shared requests for all attempts."""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from hyperplane.core.errors import EngineError, StartFailed
from hyperplane.jobs.runners.kubernetes.attempt import CONTAINER, JOB_LABEL
from hyperplane.platforms.kubernetes.api import KubernetesApi, ObjectNotFound
from hyperplane.spec.settings import KubernetesJobSettings

BATCH = "batch/v1"
#: Seconds for which a snapshot is reused, and additional seconds per Job.
CACHE_SECONDS, CACHE_SECONDS_PER_JOB = 1.0, 0.01
#: Seconds for which the warnings of a namespace, possibly many, are reused.
EVENTS_CACHE_SECONDS = 10.0
#: Timeout of a request to the API server in seconds.
REQUEST_SECONDS = 30.0
#: Seconds for which the creation of objects is retried while the API server does not respond.
CREATE_SECONDS = 300.0
#: Maximum concurrent requests.
MAX_CONCURRENT_REQUESTS = 8

HTTP_FORBIDDEN, HTTP_CONFLICT = 403, 409
#: Response codes of an API server that is overloaded or starting.
_BUSY = {429, 500, 502, 503, 504}
_EXISTS = "already exists"

Object = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True)
class JobSnapshot:
    """Objects of a job at one time.

    Parameters
    ----------
    jobs : dict of str to dict
        Jobs by name.
    pods : dict of str to list
        The pods of each Job, oldest first.
    events : list
        Warning events of the namespace.
    """

    jobs: dict[str, Object] = field(default_factory=dict)
    pods: dict[str, list[Object]] = field(default_factory=dict)
    events: list[Object] = field(default_factory=list)


class JobWatcher:
    """Client for the Kubernetes objects of a job; to be used in one event loop."""

    def __init__(self, settings: KubernetesJobSettings) -> None:
        self._settings = settings
        self._connected: KubernetesApi | None = None
        self._lock, self._request_slots = asyncio.Lock(), asyncio.Semaphore(MAX_CONCURRENT_REQUESTS)
        self._snapshot: JobSnapshot | None = None
        self._snapshot_at = self._events_at = float("-inf")
        self._events: list[Object] = []
        self._can_list_events = True
        #: Why the last poll failed; empty if it succeeded.
        self.last_error = ""

    async def get_snapshot(self, job_id: str, since: float = float("-inf")) -> JobSnapshot | None:
        """Return the job's objects, as of after ``since``; None if the API server fails."""
        async with self._lock:
            fresh = CACHE_SECONDS + CACHE_SECONDS_PER_JOB * (
                len(self._snapshot.jobs) if self._snapshot else 0
            )
            if self._snapshot_at < max(since, time.monotonic() - fresh):
                started_at = time.monotonic()
                try:
                    self._snapshot = await run_within(REQUEST_SECONDS, self._list_objects(job_id))
                    self.last_error = ""
                except (TimeoutError, EngineError) as error:
                    self._snapshot, self.last_error = None, error_text(error)
                self._snapshot_at = started_at
            return self._snapshot

    async def _list_objects(self, job_id: str) -> JobSnapshot:
        api, labels = await self._api(), f"{JOB_LABEL}={job_id}"
        # Jobs first: a pod without a Job in the list then belongs to a new Job.
        jobs = {
            one["metadata"]["name"]: one for one in await api.list("jobs", BATCH, labels=labels)
        }
        pods: dict[str, list[Object]] = {}
        for pod in sorted(await api.list("pods", labels=labels), key=_creation_time):
            pods.setdefault(pod["metadata"]["labels"].get("job-name", ""), []).append(pod)
        waiting = any(
            pod["status"].get("phase") == "Pending" for many in pods.values() for pod in many
        )
        if waiting or jobs.keys() - pods.keys():
            await self._refresh_events(api)
        return JobSnapshot(jobs, pods, self._events)

    async def _refresh_events(self, api: KubernetesApi) -> None:
        if self._can_list_events and time.monotonic() - self._events_at > EVENTS_CACHE_SECONDS:
            self._events_at = time.monotonic()
            try:
                self._events = await api.list("events", fields="type=Warning")
            except StartFailed as error:  # users may lack the permission
                self._can_list_events = _response_status(error) != HTTP_FORBIDDEN

    async def create(
        self, job: Mapping[str, Any], secret_of: Callable[[Object], Object | None]
    ) -> None:
        """Create a Job and the Secret that it owns; retry until the API server responds.

        Parameters
        ----------
        job : mapping
            The Job.
        secret_of : callable
            Returns the Secret, if any, for the created Job.

        Raises
        ------
        OSError
            With the message of the API server; EAGAIN if it did not respond, or refused
            temporarily.
        """
        until, pause = time.monotonic() + CREATE_SECONDS, 1.0
        while True:
            try:
                async with self._request_slots:  # for both: no other Job precedes this Secret
                    created = await run_within(
                        REQUEST_SECONDS, self._create_object("jobs", job, BATCH)
                    )
                    kind = {key: job[key] for key in ("apiVersion", "kind")}
                    if (secret := secret_of({**kind, **created})) is not None:
                        await run_within(
                            REQUEST_SECONDS, self._create_object("secrets", secret, "v1")
                        )
                    return
            except (TimeoutError, EngineError) as error:
                if isinstance(error, StartFailed) and not _is_retryable(error):
                    raise OSError(errno.EPERM, error_text(error), "Kubernetes") from error
                if time.monotonic() > until:
                    raise OSError(errno.EAGAIN, error_text(error), "Kubernetes") from error
            await asyncio.sleep(pause)
            pause = min(2 * pause, REQUEST_SECONDS)

    async def _create_object(self, kind: str, content: Mapping[str, Any], version: str) -> Object:
        api, name = await self._api(), str(content["metadata"]["name"])
        try:
            return await api.create(kind, content, version)
        except ObjectNotFound as error:
            raise StartFailed("kubernetes", error_text(error)) from error
        except StartFailed as error:
            # A response was lost: the name is unique to this attempt.
            if _EXISTS not in str(error):
                raise
            return await api.get(kind, name, version)

    async def delete(self, name: str) -> bool:
        """Delete a Job and its pods; return whether it is deleted or being deleted."""
        try:
            async with self._request_slots:
                api = await self._api()
                await run_within(REQUEST_SECONDS, api.delete("jobs", name, BATCH))
        except ObjectNotFound:
            return True
        except (TimeoutError, EngineError):
            return False
        return True

    async def has_secret(self, name: str) -> bool | None:
        """Whether a Secret exists; None if the API server fails."""
        try:
            async with self._request_slots:
                api = await self._api()
                await run_within(REQUEST_SECONDS, api.get("secrets", name))
        except ObjectNotFound:
            return False
        except (TimeoutError, EngineError):
            return None
        return True

    async def read_log(self, pod: str) -> bytes | None:
        """Return the whole log of a pod; None if it is unavailable."""
        try:
            async with self._request_slots:
                return await run_within(REQUEST_SECONDS, self._read_log(pod))
        except (TimeoutError, EngineError):
            return None

    async def _read_log(self, pod: str) -> bytes:
        api = await self._api()
        parts = api.log_parts(pod, CONTAINER, follow=False)
        return b"".join([part async for part in parts])

    async def follow(self, pod: str) -> AsyncIterator[bytes]:
        """Yield the log of a pod from its beginning, as it is written."""
        api = await self._api()
        async for part in api.log_parts(pod, CONTAINER, follow=True):
            yield part

    async def _api(self) -> KubernetesApi:
        if self._connected is None:
            api = KubernetesApi(self._settings.namespace)
            await api.connect(self._settings.kubeconfig, self._settings.context)
            self._connected = api
        return self._connected


async def run_within(seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine within a time limit.

    ``asyncio.wait_for`` of Python 3.10 and 3.11 loses a cancellation that coincides with the end.
    Raises TimeoutError.
    """
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
    finally:
        task.cancel()
    if not done:
        raise TimeoutError(f"the API server did not respond in {seconds:g} s")
    return task.result()


def error_text(error: Exception) -> str:
    """Return the message of an error without the engine's prefix."""
    engine = getattr(error, "engine", "")
    return str(error).removeprefix(f"engine {engine}: ")


def _response_status(error: Exception) -> int:
    """Return the HTTP status of the API server's response; 0 if unknown."""
    response = getattr(error.__cause__, "response", None)
    return int(getattr(response, "status_code", 0))


def _is_retryable(error: Exception) -> bool:
    """Whether a refusal may be temporary."""
    status, message = _response_status(error), str(error)
    if status == HTTP_CONFLICT:
        return _EXISTS not in message  # concurrent change of the quota
    return status in _BUSY or (status == HTTP_FORBIDDEN and "exceeded quota" in message)


def _creation_time(pod: Object) -> str:
    return str(pod["metadata"].get("creationTimestamp", ""))
