"""The head of a Ray cluster on this machine, and its worker nodes on other machines."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hyperplane.clusters.ray import driver_environment
from hyperplane.clusters.ray.node_group import RayNodeGroup
from hyperplane.clusters.ray.node_processes import WAIT_VARIABLE
from hyperplane.clusters.remote_nodes.certificates import CertificateAuthority
from hyperplane.clusters.remote_nodes.worker_group import RemoteWorkerGroup


class RemoteRayNodeGroup(RemoteWorkerGroup, RayNodeGroup):
    """The nodes of a cluster; the worker nodes are on other machines.

    Parameters
    ----------
    report : callable
        Reports an event by its keywords.
    """

    def __init__(self, report: Callable[..., None]) -> None:
        super().__init__(report)
        self._authority: CertificateAuthority | None = None

    def _start_encrypted_head(self, request: dict[str, Any], host: str, tls: bool) -> None:
        """Start the head at an address that the other machines reach."""
        if tls:
            self._authority = CertificateAuthority()
            self._authority.issue(host).write(Path(request["folder"]))
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


def _select_variables() -> dict[str, str]:
    """Return the settings of Ray in the environment, which all nodes of a cluster need."""
    others = {*driver_environment.VARIABLES, WAIT_VARIABLE}
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith("RAY_") and name not in others
    }
