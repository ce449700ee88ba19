"""The Jobs and pods of one job on Kubernetes, looked at for all its attempts together."""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from hyperplane.engines.kubernetes.api import Api, Missing
from hyperplane.errors import EngineError, StartFailed
from hyperplane.jobs.runners.kubernetes_attempt import CONTAINER, JOB

BATCH = "batch/v1"
#: Seconds for which a look holds.
FRESH = 1.0
#: Seconds that the API server has for one answer.
PATIENCE = 30.0
#: Seconds for which an API server that does not answer is asked to make something.
INSISTS = 300.0
#: Requests that are under way at one time.
AT_ONCE = 8

Object = dict[str, Any]


@dataclass(frozen=True)
class View:
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


class Watch:
    """What a job has on Kubernetes; to be used in one event loop.

    Parameters
    ----------
    namespace : str or None
        That of the context of kubectl if None.
    kubeconfig : str or None
        The configuration of kubectl; the usual one if None.
    """

    def __init__(self, namespace: str | None, kubeconfig: str | None) -> None:
        self._namespace, self._kubeconfig = namespace, kubeconfig
        self._connected: Api | None = None
        self._alone, self._few = asyncio.Lock(), asyncio.Semaphore(AT_ONCE)
        self._view: View | None = None
        self._asked = float("-inf")

    async def view(self, job_id: str, since: float = float("-inf")) -> View | None:
        """What there is of a job, seen after ``since``; None when the API server does not say."""
        async with self._alone:
            if self._asked < max(since, time.monotonic() - FRESH):
                asked = time.monotonic()
                try:
                    self._view = await asyncio.wait_for(self._look(job_id), PATIENCE)
                except (EngineError, asyncio.TimeoutError):
                    self._view = None
                self._asked = asked
            return self._view

    async def _look(self, job_id: str) -> View:
        api, labels = await self._api(), f"{JOB}={job_id}"
        # Jobs first: a pod that has no Job in the list is a new one's.
        jobs = await api.list("jobs", BATCH, labels=labels)
        pods: dict[str, list[Object]] = {}
        for pod in sorted(await api.list("pods", labels=labels), key=_made):
            pods.setdefault(pod["metadata"]["labels"].get("job-name", ""), []).append(pod)
        events: list[Object] = []
        if any(pod["status"].get("phase") == "Pending" for many in pods.values() for pod in many):
            with suppress(StartFailed):  # not everybody may see them
                events = await api.list("events", fields="type=Warning")
        return View({one["metadata"]["name"]: one for one in jobs}, pods, events)

    async def create(self, kind: str, content: Mapping[str, Any], version: str = "v1") -> Object:
        """Make an object, or find it made; it is asked for again until the API server answers.

        Raises
        ------
        OSError
            With what the API server said; EAGAIN when it said nothing.
        """
        until, pause = time.monotonic() + INSISTS, 1.0
        while True:
            try:
                async with self._few:
                    asked = self._created(kind, content, version)
                    return await asyncio.wait_for(asked, PATIENCE)
            except StartFailed as error:
                raise OSError(errno.EPERM, said(error), "Kubernetes") from error
            except (EngineError, asyncio.TimeoutError) as error:
                if time.monotonic() > until:
                    raise OSError(errno.EAGAIN, str(error), "Kubernetes") from error
            await asyncio.sleep(pause)
            pause = min(2 * pause, PATIENCE)

    async def _created(self, kind: str, content: Mapping[str, Any], version: str) -> Object:
        api, name = await self._api(), str(content["metadata"]["name"])
        try:
            return await api.create(kind, content, version)
        except Missing as error:
            raise StartFailed("kubernetes", str(error)) from error
        except StartFailed:
            # An answer that was lost: the name is that of this attempt only.
            with suppress(EngineError):
                return await api.get(kind, name, version)
            raise

    async def delete(self, name: str) -> bool:
        """Delete a Job with its pods, which end politely; whether it is gone or going."""
        try:
            async with self._few:
                api = await self._api()
                await asyncio.wait_for(api.delete("jobs", name, BATCH), PATIENCE)
        except Missing:
            return True
        except (EngineError, asyncio.TimeoutError):
            return False
        return True

    async def log(self, pod: str) -> bytes | None:
        """All that a pod has written; None when it cannot be had."""
        try:
            async with self._few:
                parts = [part async for part in self.follow(pod, follow=False)]
        except (EngineError, asyncio.TimeoutError):
            return None
        return b"".join(parts)

    async def follow(self, pod: str, *, follow: bool = True) -> AsyncIterator[bytes]:
        """What a pod writes, from its beginning; as it comes, or what there is."""
        api = await self._api()
        async for part in api.log_parts(pod, CONTAINER, follow=follow):
            yield part

    async def _api(self) -> Api:
        if self._connected is None:
            api = Api(self._namespace)
            await api.connect(self._kubeconfig)
            self._connected = api
        return self._connected


def said(error: EngineError) -> str:
    """What an error says, without who says it."""
    return str(error).removeprefix(f"engine {error.engine}: ")


def _made(pod: Object) -> str:
    return str(pod["metadata"].get("creationTimestamp", ""))
