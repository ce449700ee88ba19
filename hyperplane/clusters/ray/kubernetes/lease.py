"""Lease of a cluster whose program is killed: the deadline of the Job that owns it.

Programs that use the cluster postpone ``activeDeadlineSeconds`` of the Job. After the deadline
Kubernetes ends the Job, and deletes it and the cluster that it owns. Pods need no permissions.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from contextlib import suppress
from datetime import datetime
from typing import Any

from hyperplane.platforms.kubernetes.api import KubernetesApi, run_within
from hyperplane.platforms.kubernetes.batch_job import BATCH
from hyperplane.platforms.kubernetes.errors import (
    FORBIDDEN,
    INVALID,
    KubernetesError,
    ObjectNotFound,
    RequestRefused,
)

#: Most seconds between renewals, and for each.
RENEWAL_INTERVAL = 30.0
_FIELD = "/spec/activeDeadlineSeconds"
#: How often a renewal is tried if other programs change the deadline, too.
_ATTEMPTS = 3

logger = logging.getLogger(__name__)


class JobLease:
    """Lease that a program renews.

    Kubernetes counts from the start of the Job by its own clock, and this object by the one of this
    machine from a time before that, so that no two clocks are compared.

    Parameters
    ----------
    api : KubernetesApi
        The connected API.
    job : str
        Name of the Job.
    seconds : float
        Seconds after the last renewal at which the lease expires.
    """

    def __init__(self, api: KubernetesApi, job: str, seconds: float) -> None:
        self._api, self._job, self._seconds = api, job, seconds
        self._interval = min(RENEWAL_INTERVAL, seconds / 5)
        self._began = _read_clocks()
        #: Seconds that had passed since the start of the Job when this object was created.
        self._passed = 0.0
        #: The deadline with which this program creates the Job; no other program relies on it.
        self._first: int | None = None

    async def find_refusal(self) -> str:
        """Return why the Job, which does not exist yet, may not be changed, or an empty text."""
        harmless = json.dumps([{"op": "test", "path": "/kind", "value": "Job"}])
        try:
            with suppress(ObjectNotFound):  # permissions are checked first
                await self._api.get("jobs", self._job, BATCH)
            with suppress(ObjectNotFound):
                await self._api.patch("jobs", self._job, harmless, BATCH)
        except RequestRefused as error:
            if error.status != FORBIDDEN:
                raise
            return str(error)
        return ""

    def add_deadline(self, job: dict[str, Any], timeout: float) -> None:
        """Add a deadline to the manifest, for a program that is killed before it renews it."""
        self._first = math.ceil(timeout + self._seconds)
        job["spec"]["activeDeadlineSeconds"] = self._first

    async def load(self) -> bool:
        """Load the age of the Job of a running cluster; return whether it has a lease."""
        try:
            job = await run_within(self._interval, self._api.get("jobs", self._job, BATCH))
        except ObjectNotFound:
            return False
        start = job.get("status", {}).get("startTime") or job["metadata"]["creationTimestamp"]
        now = self._api.answered_at or time.time()
        # Both times are whole seconds.
        self._passed = max(0.0, now - datetime.fromisoformat(start).timestamp() + 1)
        return "activeDeadlineSeconds" in job["spec"]

    async def begin(self) -> str:
        """Postpone the deadline at once; return why it is refused, or an empty text."""
        try:
            await run_within(self._interval, self._postpone())
        except (KubernetesError, TimeoutError) as error:  # the first renewal may succeed
            if isinstance(error, RequestRefused) and error.status == FORBIDDEN:
                return str(error)
            logger.debug("the lease of Job %s was not begun: %s", self._job, error)
        return ""

    async def renew(self) -> None:
        """Postpone the deadline repeatedly, until the Job is deleted."""
        renewed, warned = _read_clocks(), False
        while True:
            await asyncio.sleep(self._interval)
            try:
                await run_within(self._interval, self._postpone())
            except ObjectNotFound:
                return
            except Exception as error:  # noqa: BLE001 - the next renewal may succeed
                passed = _seconds_since(renewed)
                level = logging.DEBUG
                if passed > self._seconds / 2 and not warned:
                    level, warned = logging.WARNING, True
                message = "the lease of Job %s was not renewed for %.0f s; after %g s its cluster "
                message += "ends: %s"
                logger.log(level, message, self._job, passed, self._seconds, error)
            else:
                renewed, warned = _read_clocks(), False

    async def _postpone(self) -> None:
        """Change the deadline, unless the one of another program is later."""
        for attempt in range(_ATTEMPTS):
            job = await self._api.get("jobs", self._job, BATCH)
            present = job["spec"].get("activeDeadlineSeconds")
            deadline = math.ceil(self._passed + _seconds_since(self._began) + self._seconds)
            if present is not None and present != self._first and present >= deadline:
                return
            patch: list[dict[str, Any]] = [{"op": "add", "path": _FIELD, "value": deadline}]
            if present is not None:  # the patch fails if another program has changed it in between
                patch.insert(0, {"op": "test", "path": _FIELD, "value": present})
            try:
                await self._api.patch("jobs", self._job, json.dumps(patch), BATCH)
            except RequestRefused as error:
                if error.status != INVALID or attempt == _ATTEMPTS - 1:
                    raise
            else:
                self._first = None
                return


async def load_lease(api: KubernetesApi, job: str, seconds: float) -> JobLease | None:
    """Return the lease of a running cluster; None if it has none."""
    lease = JobLease(api, job, seconds)
    return lease if await lease.load() else None


def _read_clocks() -> list[float]:
    """Return times, at least one of which passes while this machine is suspended."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return [time.clock_gettime(time.CLOCK_BOOTTIME)]
    return [time.monotonic(), time.time()]


def _seconds_since(times: list[float]) -> float:
    return max(now - before for now, before in zip(_read_clocks(), times, strict=True))
