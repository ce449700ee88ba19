"""The master of a Spark cluster on this machine, and its workers on hosts reached through ssh."""

from __future__ import annotations

from typing import Any, ClassVar

from hyperplane.clusters.remote_nodes.ssh_group import SshWorkerGroup
from hyperplane.clusters.spark.remote_node_group import RemoteSparkNodeGroup
from hyperplane.clusters.spark.worker_program import read_versions
from hyperplane.platforms.ssh.hosts import HostConnectionError
from hyperplane.spec.settings import HostSettings


class SshSparkNodeGroup(SshWorkerGroup, RemoteSparkNodeGroup):
    """The master and the workers of a cluster; the workers are on hosts.

    Parameters
    ----------
    report : callable
        Reports an event by its keywords.
    """

    program: ClassVar[str] = "hyperplane.clusters.spark.ssh.host_program"

    def _start_head(self, request: dict[str, Any]) -> None:
        """Connect to all hosts, check them, and start the master at the address that they see."""
        self._settings = request
        hosts: dict[str, int] = request["hosts"]
        settings = HostSettings(**request["ssh"]).with_keys(request["ssh_keys"])
        host = self._connect(settings, list(hosts), request["python"])
        self._loop.run(self._check_hosts(hosts))
        self._start_master(request, host)

    async def _check_hosts(self, hosts: dict[str, int]) -> None:
        """Raise an error that names all hosts on which no worker can run, and why."""
        expected = read_versions()
        checks = {
            host: {"check": {**expected, "ram": ram}, "variables": self._list_variables()}
            for host, ram in hosts.items()
        }
        replies = await self._ask_hosts(checks)
        faults = {host: reply["fault"] for host, reply in replies.items() if reply["fault"]}
        if faults:
            raise HostConnectionError(faults, len(hosts))

    def _list_variables(self) -> dict[str, str]:
        java_home = self._settings["java_home"]
        return {"JAVA_HOME": java_home} if java_home else {}

    def _configure(self, request: dict[str, Any], host: str) -> dict[str, Any]:
        """Return also the variables of the settings."""
        return {**super()._configure(request, host), "variables": self._list_variables()}
