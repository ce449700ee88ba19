"""The head of a Ray cluster on this machine, and its worker nodes on other machines."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from hyperplane.clusters.ray import driver_environment
from hyperplane.clusters.ray.certificates import CertificateAuthority
from hyperplane.clusters.ray.node_group import RayNodeGroup, WorkerNode
from hyperplane.clusters.ray.node_processes import WAIT_VARIABLE
from hyperplane.core.event_loop_thread import EventLoopThread


class RemoteRayNodeGroup(RayNodeGroup):
    """The nodes of a cluster; the worker nodes are on other machines.

    Their starts run together, in an event loop of another thread; :meth:`check` reports how each
    has ended.

    Parameters
    ----------
    report : callable
        Reports an event by its keywords.
    """

    def __init__(self, report: Callable[..., None]) -> None:
        super().__init__(report)
        self._loop = EventLoopThread()
        self._authority: CertificateAuthority | None = None

    def _start_encrypted_head(self, request: dict[str, Any], host: str, tls: bool) -> None:
        """Start the head at an address that the other machines reach."""
        if tls:
            self._authority = CertificateAuthority()
            driver_environment.write_certificates(
                Path(request["folder"]), *self._authority.issue(host)
            )
        self._start_head_at(request, host)

    def _configure(self, request: dict[str, Any], host: str) -> dict[str, Any]:
        """Return the configuration of the program with a requested node at an address."""
        issued = self._authority.issue(host) if self._authority is not None else ()
        return {
            **request,
            "head": self._head.gcs_address,
            "host": host,
            "token": os.environ["RAY_AUTH_TOKEN"],
            "tls": [text.decode() for text in issued],
            "variables": _select_variables(),
        }

    def _start_worker(self, request: dict[str, Any]) -> None:
        self._starting[request["worker"]] = self._loop.start(self._start_remote_worker(request))

    @abstractmethod
    async def _start_remote_worker(self, request: dict[str, Any]) -> WorkerNode:
        """Start a worker node on another machine, and return it when it is registered."""

    def check(self) -> bool:
        """Report the worker nodes whose start has ended; then as for nodes of this machine."""
        for name, future in list(self._starting.items()):
            if not future.done():
                continue
            del self._starting[name]
            try:
                self._register(name, future.result())
            except Exception as error:  # noqa: BLE001 - of any library; the reason is reported
                self._handle_failure(name, error)
        return super().check()

    def end(self) -> None:
        """End all worker nodes, and all processes of this machine."""
        for future in self._starting.values():
            future.cancel()
        with suppress(Exception):
            self._loop.run(self._end_workers())
        super().end()

    @abstractmethod
    async def _end_workers(self) -> None:
        """End the worker nodes on other machines."""


def _select_variables() -> dict[str, str]:
    """Return the settings of Ray in the environment, which all nodes of a cluster need."""
    others = {*driver_environment.VARIABLES, WAIT_VARIABLE}
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith("RAY_") and name not in others
    }
