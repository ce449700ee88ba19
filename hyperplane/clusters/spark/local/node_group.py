"""The processes of one Spark cluster of this machine, for ``local_nodes/node_program.py``."""

from __future__ import annotations

import subprocess
from typing import Any

from hyperplane.clusters.spark.configuration import LOOPBACK
from hyperplane.clusters.spark.node_group import SparkNodeGroup
from hyperplane.clusters.spark.processes import find_addresses, start_worker


class LocalSparkWorker:
    """A worker whose process is a child of this process.

    Parameters
    ----------
    process : subprocess.Popen
        Its process.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.host, self.pid = LOOPBACK, process.pid

    def is_running(self) -> bool:
        """Return whether its process runs."""
        return self._process.poll() is None

    def end(self) -> None:
        """Kill its process."""
        self._process.kill()

    def cancel(self) -> bool:
        """Kill its process, which has not registered; return that it has been."""
        self.end()
        return True


class LocalSparkNodeGroup(SparkNodeGroup):
    """The master and workers of a cluster, which are child processes of this process.

    Parameters
    ----------
    report : callable
        Reports an event by its keywords.
    """

    def _start_head(self, request: dict[str, Any]) -> None:
        self._start_master(request, LOOPBACK)

    def _start_worker(self, request: dict[str, Any]) -> None:
        assert self._master is not None  # noqa: S101 - for mypy
        folder = f"{self._settings['folder']}/{request['worker']}"
        java, master = self._settings["java"], self._master.address
        process = start_worker(java, LOOPBACK, request, folder, master)
        self._starting[request["worker"]] = LocalSparkWorker(process)

    def check(self) -> bool:
        """Report the workers that the master has registered, or that have ended before."""
        registered = self._master.find_workers() if self._master and self._starting else set()
        for name, worker in list(self._starting.items()):
            if not worker.is_running():
                del self._starting[name]
                self._handle_failure(name, RuntimeError(f"worker {name} has ended at its start"))
            elif registered.intersection(find_addresses(worker.pid)):
                del self._starting[name]
                self._register(name, worker)
        return super().check()

    def _end_processes(self) -> None:
        """End all processes of the cluster; first those that would start others."""
        for worker in [*self._workers.values(), *self._starting.values()]:
            worker.end()
        super()._end_processes()
