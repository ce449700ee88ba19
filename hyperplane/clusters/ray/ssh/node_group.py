"""The head of a Ray cluster on this machine, and its worker nodes on hosts reached through ssh.

The program with this group has the ssh connections: when it ends with the process that owns the
cluster, the worker nodes end with their connections.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import time
from collections.abc import Callable
from typing import Any

import asyncssh

from hyperplane.clusters.ray.remote_node_group import RemoteRayNodeGroup
from hyperplane.platforms.ssh.hosts import HostConnectionError, SshConnections, explain_error
from hyperplane.platforms.ssh.processes import HostProcess
from hyperplane.spec.settings import RaySshSettings

#: Module that hosts run.
PROGRAM = "hyperplane.clusters.ray.ssh.host_program"
#: Worker nodes for each connection to a host: OpenSSH allows ten sessions (MaxSessions).
_NODES_PER_CONNECTION = 8
#: Seconds after which a worker node that has not started counts as failed.
_START_SECONDS = 900.0
#: Seconds for which an unreachable host of a worker node that has run is tried again, and the
#: longest pause.
_UNREACHABLE_SECONDS, _LONGEST_PAUSE = 1800.0, 30.0


class HostWorkerNode:
    """A worker node on a host, which ends with its ssh connection.

    Parameters
    ----------
    process : HostProcess
        The program on the host.
    host : str
        Address of the host.
    pid : int
        Process ID of the raylet on the host.
    """

    def __init__(self, process: HostProcess, host: str, pid: int) -> None:
        self.process, self.host, self.pid = process, host, pid

    def is_running(self) -> bool:
        """Return whether its program runs and is connected."""
        return not self.process.ended.is_set()

    def end(self) -> None:
        """Do nothing: it has ended, or ends with the connections."""


class SshRayNodeGroup(RemoteRayNodeGroup):
    """The nodes of a cluster; the worker nodes are on hosts.

    Parameters
    ----------
    report : callable
        Reports an event by its keywords.
    """

    def __init__(self, report: Callable[..., None]) -> None:
        super().__init__(report)
        self._connections: SshConnections | None = None
        self._python = ""
        #: Worker nodes whose host cannot be reached, and since when.
        self._unreachable: dict[str, float] = {}

    def _start_head(self, request: dict[str, Any]) -> None:
        """Connect to all hosts, and start the head at the address that they see."""
        settings = RaySshSettings(**request["ssh"])
        self._python = request["python"]
        # Addresses of nodes are those of the connections, and Ray's are of version 4.
        self._connections = SshConnections(settings, socket.AF_INET)
        self._loop.run(self._connections.open(request["hosts"]))
        host, _ = self._loop.run(self._find_addresses(request["hosts"][0]))
        self._start_encrypted_head(request, host, settings.security == "tls")

    async def _find_addresses(self, name: str) -> tuple[str, str]:
        """Return the addresses of this machine and of a host, in their connection."""
        assert self._connections is not None  # noqa: S101 - for mypy
        connection = await self._connections.connection(name)
        ends = [connection.get_extra_info(each) for each in ("sockname", "peername")]
        own, other = (str(end[0]) if end else "" for end in ends)
        if not own or not other:
            reason = (
                "it is reached through another host; nodes of Ray connect to each other directly"
            )
            raise HostConnectionError({name: reason}, 1)
        if ipaddress.ip_address(own).is_loopback:
            reason = "it is a name of this machine at a loopback address; use its network address"
            raise HostConnectionError({name: reason}, 1)
        return own, other

    async def _start_remote_worker(self, request: dict[str, Any]) -> HostWorkerNode:
        assert self._connections is not None  # noqa: S101 - for mypy
        name = request["on_host"]
        await self._connections.open([name])  # raises an error with advice
        _, host = await self._find_addresses(name)
        configuration = self._configure(request, host)
        process = HostProcess(
            self._connections,
            name,
            [self._python, "-m", PROGRAM],
            request["index"] // _NODES_PER_CONNECTION,
        )
        try:
            await process.start(configuration)
            reply = await asyncio.wait_for(process.read_reply(), _START_SECONDS)
        except TimeoutError as error:
            await process.end()
            raise RuntimeError(f"{name}: it did not start in {_START_SECONDS:g} s") from error
        except (asyncssh.Error, OSError) as error:
            await process.end()
            reason = explain_error(error, self._connections.settings)
            raise HostConnectionError({name: reason}, 1) from error
        except BaseException:
            await process.end()
            raise
        if "pid" not in reply:
            await process.end()
            reason = reply.get("fault") or process.explain_failure() or "it did not start"
            tail = "\n".join([*process.log][-5:])
            raise RuntimeError(f"{name}: {reason}\n{tail}")
        self._unreachable.pop(request["worker"], None)
        return HostWorkerNode(process, host, reply["pid"])

    def _handle_failure(self, name: str, error: Exception) -> None:
        """Try an unreachable host again for half an hour, if the worker node has run before."""
        if isinstance(error, HostConnectionError) and self._starts[name] > 1:
            now = time.monotonic()
            if name not in self._unreachable:
                self._unreachable[name] = now
                message = f"worker node {name} is started again when its host is reached: {error}"
                self._report(event="warning", message=message)
            elapsed = now - self._unreachable[name]
            if elapsed < _UNREACHABLE_SECONDS:
                self._starts[name] -= 1  # it was not started
                self._due[name] = now + min(_LONGEST_PAUSE, 1 + elapsed / 2)
                return
        super()._handle_failure(name, error)

    async def _end_workers(self) -> None:
        nodes = [node for node in self._workers.values() if isinstance(node, HostWorkerNode)]
        ended = (node.process.end() for node in nodes)
        await asyncio.gather(*ended, return_exceptions=True)
        if self._connections is not None:
            await self._connections.close()
