"""The head of a Ray cluster on this machine, and its worker nodes as jobs of Slurm."""

from __future__ import annotations

from typing import Any, ClassVar

from hyperplane.clusters.ray.remote_node_group import RemoteRayNodeGroup
from hyperplane.clusters.remote_nodes.slurm_group import SlurmWorkerGroup


class SlurmRayNodeGroup(SlurmWorkerGroup, RemoteRayNodeGroup):
    """The nodes of a cluster; the worker nodes are jobs.

    Parameters
    ----------
    report : callable
        Reports an event by its keywords.
    """

    own_prefix: ClassVar[str] = "RAY_"

    def _start_head(self, request: dict[str, Any]) -> None:
        """Start the server for the jobs, and the head at the address that they see."""
        self._start_server(request)
        self._start_encrypted_head(request, request["host"], request["tls"])
        self._start_checks()
