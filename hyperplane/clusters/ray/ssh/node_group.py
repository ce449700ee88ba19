"""The head of a Ray cluster on this machine, and its worker nodes on hosts reached through ssh."""

from __future__ import annotations

from typing import Any, ClassVar

from hyperplane.clusters.ray.remote_node_group import RemoteRayNodeGroup
from hyperplane.clusters.remote_nodes.ssh_group import SshWorkerGroup
from hyperplane.spec.settings import RaySshSettings


class SshRayNodeGroup(SshWorkerGroup, RemoteRayNodeGroup):
    """The nodes of a cluster; the worker nodes are on hosts.

    Parameters
    ----------
    report : callable
        Reports an event by its keywords.
    """

    program: ClassVar[str] = "hyperplane.clusters.ray.ssh.host_program"

    def _start_head(self, request: dict[str, Any]) -> None:
        """Connect to all hosts, and start the head at the address that they see."""
        settings = RaySshSettings(**request["ssh"]).with_keys(request["ssh_keys"])
        host = self._connect(settings, request["hosts"], request["python"])
        self._start_encrypted_head(request, host, settings.security == "tls")
