"""The Jobs and pods of one job on Kubernetes, looked at for all its attempts together."""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from hyperplane.engines.kubernetes.api import KubernetesApi, ObjectNotFound
from hyperplane.errors import EngineError, StartFailed
from hyperplane.jobs.runners.kubernetes_attempt import CONTAINER, JOB_LABEL
from hyperplane.spec.settings import KubernetesJobSettings

BATCH = "batch/v1"
#: Seconds for which a look holds, and how much longer for each Job.
CACHE_SECONDS, CACHE_SECONDS_PER_JOB = 1.0, 0.01
#: Seconds for which the warnings of a namespace hold, which may be many.
EVENTS_CACHE_SECONDS = 10.0
#: Seconds that the API server has for one answer.
REQUEST_SECONDS = 30.0
#: Seconds for which an API server that does not answer is asked to make something.
CREATE_SECONDS = 300.0
#: Requests that are under way at one time.
MAX_CONCURRENT_REQUESTS = 8

HTTP_FORBIDDEN, HTTP_CONFLICT = 403, 409
#: Answers of an API server that has too much to do, or starts just now.
_BUSY = {429, 500, 502, 503, 504}
_EXISTS = "already exists"

Object = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True)
class JobSnapshot:
    """What there is.

    Parameters
    ----------
    jobs : dict of str to dict
        Jobs by their names.
    pods : dict of str to list
        The pods of each Job, oldest first.
    events : list
        Warnings of the namespace.
    """

    jobs: dict[str, Object] = field(default_factory=dict)
    pods: dict[str, list[Object]] = field(default_factory=dict)
    events: list[Object] = field(default_factory=list)


class JobWatcher:
    """What a job has on Kubernetes; to be used in one event loop.

    Parameters
    ----------
    settings : KubernetesJobSettings
        Which API server and which namespace.
    """

    def __init__(self, settings: KubernetesJobSettings) -> None:
        self._settings = settings
        self._connected: KubernetesApi | None = None
        self._lock, self._request_slots = asyncio.Lock(), asyncio.Semaphore(MAX_CONCURRENT_REQUESTS)
        self._snapshot: JobSnapshot | None = None
        self._snapshot_at = self._events_at = float("-inf")
        self._events: list[Object] = []
        self._can_list_events = True
        #: Why the last look has shown nothing; empty when it has.
        self.last_error = ""

    async def get_snapshot(self, job_id: str, since: float = float("-inf")) -> JobSnapshot | None:
        """What there is of a job, seen after ``since``; None when the API server does not say."""
        async with self._lock:
            fresh = CACHE_SECONDS + CACHE_SECONDS_PER_JOB * (
                len(self._snapshot.jobs) if self._snapshot else 0
            )
            if self._snapshot_at < max(since, time.monotonic() - fresh):
                asked = time.monotonic()
                try:
                    self._snapshot = await run_within(REQUEST_SECONDS, self._list_objects(job_id))
                    self.last_error = ""
                except (TimeoutError, EngineError) as error:
                    self._snapshot, self.last_error = None, error_text(error)
                self._snapshot_at = asked
            return self._snapshot

    async def _list_objects(self, job_id: str) -> JobSnapshot:
        api, labels = await self._api(), f"{JOB_LABEL}={job_id}"
        # Jobs first: a pod that has no Job in the list is a new one's.
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
            except StartFailed as error:  # not everybody may see them
                self._can_list_events = _response_status(error) != HTTP_FORBIDDEN

    async def create(
        self, job: Mapping[str, Any], secret_of: Callable[[Object], Object | None]
    ) -> None:
        """Create a Job and the Secret that it owns, until the API server answers.

        Parameters
        ----------
        job : mapping
            The Job.
        secret_of : callable
            From the Job as it was created to its Secret, if it has one.

        Raises
        ------
        OSError
            With what the API server said; EAGAIN when it said nothing, or what may pass.
        """
        until, pause = time.monotonic() + CREATE_SECONDS, 1.0
        while True:
            try:
                async with (
                    self._request_slots
                ):  # for both: others' Jobs do not come before this Secret
                    made = await run_within(
                        REQUEST_SECONDS, self._create_object("jobs", job, BATCH)
                    )
                    kind = {key: job[key] for key in ("apiVersion", "kind")}
                    if (secret := secret_of({**kind, **made})) is not None:
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
            # An answer that was lost: the name is that of this attempt only.
            if _EXISTS not in str(error):
                raise
            return await api.get(kind, name, version)

    async def delete(self, name: str) -> bool:
        """Delete a Job with its pods, which end politely; whether it is gone or going."""
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
        """Whether there is a Secret; None when nobody says."""
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
        """All that a pod has written; None when it cannot be had."""
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
        """What a pod writes, from its beginning and as it comes."""
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
    """What a coroutine returns, if it does in that time.

    ``asyncio.wait_for`` of Python 3.10 and 3.11 loses a cancellation that comes as the work ends.

    Raises
    ------
    TimeoutError
        Of asyncio, when it does not.
    """
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
    finally:
        task.cancel()
    if not done:
        raise TimeoutError(f"the API server does not answer within {seconds:g} s")
    return task.result()


def error_text(error: Exception) -> str:
    """What an error says, without who says it."""
    engine = getattr(error, "engine", "")
    return str(error).removeprefix(f"engine {engine}: ")


def _response_status(error: Exception) -> int:
    """The status of the API server's answer; 0 when it is not known."""
    response = getattr(error.__cause__, "response", None)
    return int(getattr(response, "status_code", 0))


def _is_retryable(error: Exception) -> bool:
    """Whether a refusal may be another answer next time."""
    status, words = _response_status(error), str(error)
    if status == HTTP_CONFLICT:
        return _EXISTS not in words  # somebody changed the quota at the same time
    return status in _BUSY or (status == HTTP_FORBIDDEN and "exceeded quota" in words)


def _creation_time(pod: Object) -> str:
    return str(pod["metadata"].get("creationTimestamp", ""))
