"""The master and the workers of one Spark cluster, for ``local_nodes/node_program.py``.

The request ``{"ready": false}`` stops the clock of the idle timeout.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, ClassVar

from hyperplane.clusters.local_nodes.worker_group import WorkerGroup
from hyperplane.clusters.spark.master import SparkMaster
from hyperplane.clusters.spark.processes import kill_children


class SparkNodeGroup(WorkerGroup):
    """The master, which is a child process of this process, and the workers of a cluster.

    Parameters
    ----------
    report : callable
        Reports an event by its keywords.
    """

    head: ClassVar[str] = "the master of the cluster"

    def __init__(self, report: Callable[..., None]) -> None:
        super().__init__(report)
        self._master: SparkMaster | None = None
        #: Time of day from which the idle timeout counts.
        self._idle_since: float | None = None
        self._checked_at = 0.0

    def _start_master(self, request: dict[str, Any], host: str) -> None:
        self._settings = request
        self._master = SparkMaster(request["java"], host, request["page_port"])

    def _set_ready(self, ready: bool) -> None:
        super()._set_ready(ready)
        self._idle_since = time.time() if ready else None

    def _is_head_started(self) -> bool:
        return self._master is not None

    def _is_head_running(self) -> bool:
        return self._master is not None and self._master.is_running()

    def check(self) -> bool:
        """Report the master as soon as it answers; then as for all workers."""
        if self._master is not None and self._master.find_page():
            address, page = self._master.address, self._master.page
            self._report(event="head", address=address, dashboard=page)
        return super().check()

    def _is_idle(self) -> bool:
        """Return whether no program ran a job during the idle timeout."""
        timeout, now = self._settings["idle_timeout"], time.time()
        if timeout is None or self._idle_since is None or now - self._idle_since < timeout:
            return False
        if now - self._checked_at < min(1.0, timeout / 4):
            return False
        self._checked_at = now
        assert self._master is not None  # noqa: S101 - for mypy
        try:
            last = max(self._idle_since, self._master.find_last_activity(now))
        except (OSError, ValueError, KeyError):  # the cluster is busy, or a program has just ended
            return False
        if now - last < timeout:
            return False
        self._report(event="idle", seconds=now - last)
        return True

    def _end_processes(self) -> None:
        """End all processes of this machine."""
        if self._master is not None:
            self._master.kill()  # first: it would start executors again
        kill_children()
