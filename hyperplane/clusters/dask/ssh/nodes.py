"""Dask servers on hosts of the ssh engine: a scheduler, or the workers of a node."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import asyncssh
from distributed.core import Status
from distributed.deploy.spec import ProcessInterface

from hyperplane.core.errors import EngineError, StartFailed, StartTimeout
from hyperplane.platforms.ssh.hosts import SshConnections
from hyperplane.platforms.ssh.processes import HostProcess

#: Module that hosts run.
PROGRAM = "hyperplane.clusters.dask.ssh.process"
#: Program that prints the version of hyperplane on a host.
_PRINT_VERSION = "import hyperplane; print(hyperplane.__version__)"
#: Time limit of that program, in seconds.
_VERSION_SECONDS = 10.0
#: Time limit of the command that kills a process, and of the end of that process, in seconds.
_KILL_SECONDS = 10.0
#: Last lines of the log that are shown when a host is lost.
LAST_LINES = 5
#: Seconds that a node may take to transfer its results.
RETIRE_TIMEOUT_SECONDS = 60.0

logger = logging.getLogger(__name__)


class HostServer(ProcessInterface):
    """A process with Dask servers on a host, for SpecCluster.

    Parameters
    ----------
    connections : SshConnections
        Connections to the hosts.
    host : str
        The host that it runs on.
    python : str
        Path of Python on the host.
    timeout : float
        Time limit in seconds for a process that is started after the deadline, by scale().
    deadline : float
        Time limit of the cluster's start, by ``time.monotonic``, for all processes of that start.
    config : mapping
        Configuration that is sent to :data:`PROGRAM`.
    faults : list of str
        Receives a message if the process does not start.
    """

    def __init__(
        self,
        connections: SshConnections,
        host: str,
        python: str,
        timeout: float,
        deadline: float,
        config: Mapping[str, Any],
        faults: list[str],
    ) -> None:
        super().__init__()
        self.host = host
        self._connections, self._python = connections, python
        self.process = HostProcess(connections, host, [python, "-m", PROGRAM])
        self.cores = self.pid = 0
        self.dashboard_port: int | None = None
        self._timeout, self._deadline = timeout, deadline
        self._config, self._faults = config, faults
        self._watching: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the process and wait until it reports that it is ready."""
        await self.process.start(self._config)
        await self._check_not_closed()
        remaining = self._deadline - time.monotonic()
        try:
            reply = await asyncio.wait_for(
                self.process.read_reply(), remaining if remaining > 0 else self._timeout
            )
        except TimeoutError as error:
            reason = f"did not start within {self._timeout:g} s (timeout); raise timeout"
            raise self._start_error(f"the {self._config['role']} {reason}", StartTimeout) from error
        await self._check_not_closed()
        if "addresses" not in reply:
            reason = reply.get("fault") or await self._explain_failure()
            raise self._start_error(reason, StartFailed)
        [self.address, *_] = reply["addresses"]
        self.cores, self.dashboard_port = reply["cores"], reply["dashboard"]
        self.pid = reply["pid"]
        await super().start()
        self._watching = asyncio.create_task(self._watch())

    async def read_process(self) -> str:
        """Return the text of ``/proc/PID/stat`` of the process; empty if it cannot be read."""
        connection = await self._connections.connection(self.host)
        result = await connection.run(f"cat /proc/{self.pid}/stat")
        return str(result.stdout or "")

    async def read_ending(self) -> str:
        """Return why a scheduler has ended by itself; empty if it did not say why."""
        for line in reversed(await self.process.read_rest()):
            with contextlib.suppress(ValueError):
                reply = json.loads(line)
                if isinstance(reply, dict) and "ending" in reply:
                    return str(reply["ending"])
        return ""

    async def kill(self) -> None:
        """Kill a process that does not answer; a stopped one ends by no other signal."""
        with contextlib.suppress(OSError, asyncio.TimeoutError, asyncssh.Error):
            connection = await self._connections.connection(self.host)
            await asyncio.wait_for(connection.run(f"kill -KILL {self.pid}"), _KILL_SECONDS)
            await asyncio.wait_for(self.process.ended.wait(), _KILL_SECONDS)

    async def _check_not_closed(self) -> None:
        """End the process and raise StartFailed if :meth:`close` was called during the start."""
        if self.status != Status.created:
            await self.process.end()
            raise StartFailed("ssh", f"{self.host}: the cluster was closed before it had started")

    async def _explain_failure(self) -> str:
        """Return why the process did not start: another version of hyperplane, or its log."""
        # From sys.modules, because this layer does not import the package's __init__.
        here, there = sys.modules["hyperplane"].__version__, await self._read_version()
        if there not in ("", here):
            key = self._connections.settings.locate("python")
            return (
                f"{self._python} on the host has hyperplane {there}, but this machine has {here}; "
                f"install {here} there, or set {key} to a Python that has it"
            )
        return self.process.explain_failure() or f"the {self._config['role']} did not start"

    async def _read_version(self) -> str:
        """Return the version of hyperplane on the host; "" if there is none or no answer."""
        command = shlex.join([self._python, "-c", _PRINT_VERSION])
        with contextlib.suppress(OSError, asyncio.TimeoutError, asyncssh.Error):
            connection = await self._connections.connection(self.host)
            result = await asyncio.wait_for(connection.run(command), _VERSION_SECONDS)
            words = str(result.stdout or "").split()
            # The last word, because a login shell may print a greeting.
            return words[-1] if result.exit_status == 0 and words else ""
        return ""

    def _start_error(self, reason: str, kind: type[EngineError]) -> EngineError:
        fault = f"{self.host}: {reason}"
        self._faults.append(fault)
        return kind("ssh", fault, "\n".join(self.process.log))

    async def _watch(self) -> None:
        await self.process.ended.wait()
        if self.status == Status.running:
            self.status = Status.closed
            self._on_lost()

    def _on_lost(self) -> None:
        """Handle the end of the process without :meth:`close`."""

    async def close(self) -> None:
        """End the process."""
        self.status = Status.closing
        await self.process.end()
        if self._watching is not None:
            self._watching.cancel()
        await super().close()


class HostWorkers(HostServer):
    """The worker processes of one node.

    Parameters
    ----------
    scheduler : str
        Address of the scheduler.
    name : str
        Name of the node.
    group : sequence of str
        Suffixes of the names of its worker processes.
    config : mapping
        Configuration that all nodes share.
    index_on_host : int
        Index of the node among those on the same host; the first nodes have the first GPUs.
    **common
        Arguments of HostServer.
    """

    def __init__(
        self,
        scheduler: str,
        name: str,
        group: Sequence[str],
        config: Mapping[str, Any],
        index_on_host: int = 0,
        **common: Any,
    ) -> None:
        self.name = name
        self.names = [name + suffix for suffix in group] or [name]
        # Clusters of version 0.1.0 send "place" to the same program.
        node_config = {"scheduler": scheduler, "names": self.names, "place": index_on_host}
        super().__init__(config={**config, **node_config}, **common)

    def _on_lost(self) -> None:
        cluster = self._cluster() if hasattr(self, "_cluster") else None
        if cluster is not None and cluster.status == Status.running:
            cluster.forget(self)
            tail = "\n".join([*self.process.log][-LAST_LINES:])
            logger.warning(
                "cluster %s has lost %s on host %s\n%s", cluster.name, self.name, self.host, tail
            )

    async def close(self) -> None:
        """End the processes; if the cluster runs, move their results to other workers first."""
        cluster = self._cluster() if hasattr(self, "_cluster") else None
        if cluster is not None and cluster.status == Status.running:
            with contextlib.suppress(OSError, asyncio.TimeoutError):
                await asyncio.wait_for(cluster.retire(self.names), RETIRE_TIMEOUT_SECONDS)
        await super().close()
