"""Processes that the ssh engine starts on hosts: a scheduler, or the workers of a node."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import shlex
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import asyncssh
from distributed.core import Status
from distributed.deploy.spec import ProcessInterface

from hyperplane.core.errors import StartFailed
from hyperplane.platforms.ssh.hosts import SshConnections

LOG_LINES = 40
#: Last lines of the log that are shown when a host is lost.
LAST_LINES = 5
#: Characters per read.
CHUNK = 65_536
#: Seconds that a process may take to end after its input was closed.
PATIENCE = 20.0
#: Seconds that a node may take to transfer its results.
RETIRE_WITHIN = 60.0

logger = logging.getLogger(__name__)


class HostProcess(ProcessInterface):
    """A process on a host that ends with its ssh connection.

    Parameters
    ----------
    hosts : SshConnections
        Connections to the hosts.
    host : str
        The host that it runs on.
    python : str
        Path of Python on the host.
    patience : float
        Seconds that the process may take to start after the deadline, as in a later scale().
    deadline : float
        End of the start of the cluster, by ``time.monotonic``.
    config : mapping
        Configuration that is sent to :mod:`hyperplane.clusters.dask.ssh.process`.
    """

    def __init__(
        self,
        hosts: SshConnections,
        host: str,
        python: str,
        patience: float,
        deadline: float,
        config: Mapping[str, Any],
    ) -> None:
        super().__init__()
        self.host = host
        self._patience, self._deadline = patience, deadline
        self.cores = 0
        self.dashboard_port: int | None = None
        self.ended = asyncio.Event()
        self._hosts, self._python, self._config = hosts, python, config
        self._log: deque[str] = deque(maxlen=LOG_LINES)
        self._process: asyncssh.SSHClientProcess[str] | None = None
        self._reading: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Start the process and wait until it reports that it is ready."""
        connection = await self._hosts.connection(self.host)
        command = shlex.join([self._python, "-m", "hyperplane.clusters.dask.ssh.process"])
        self._process = process = await connection.create_process(command)
        process.stdin.write(json.dumps(self._config, default=str) + "\n")
        self._reading = [asyncio.create_task(self._read(process.stderr))]
        left = self._deadline - time.monotonic()
        try:
            answer = await asyncio.wait_for(
                self._read_reply(process), left if left > 0 else self._patience
            )
        except TimeoutError as error:
            raise self._start_error(f"not ready within {self._patience:g} s") from error
        if "addresses" not in answer:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(process.wait_closed(), 2)
            raise self._start_error(answer.get("fault"))
        [self.address, *_] = answer["addresses"]
        self.cores, self.dashboard_port = answer["cores"], answer["dashboard"]
        self._reading.append(asyncio.create_task(self._read(process.stdout)))
        self._reading.append(asyncio.create_task(self._wait(process)))
        await super().start()

    async def _read_reply(self, process: asyncssh.SSHClientProcess[str]) -> dict[str, Any]:
        """Return the process's reply; lines that a login shell prints before it are logged."""
        async for line in process.stdout:
            with contextlib.suppress(ValueError):
                found = json.loads(line)
                if isinstance(found, dict):
                    return found
            self._log.append(line.rstrip())
        return {}

    def _start_error(self, fault: str | None) -> StartFailed:
        tail = "\n".join(self._log)
        if fault is None and "No module named" in tail:
            name = tail.rpartition("No module named")[2].split()[0].strip("'\")(")
            fault = (
                f"{self._python} on the host has no {name.partition('.')[0]}; install the same "
                "packages as on this machine, or set hyperplane.engines.ssh.python"
            )
        elif fault is None and self._process is not None and self._process.exit_status == 127:
            fault = (
                f"there is no {self._python}; set hyperplane.engines.ssh.python to the path of "
                "Python on the hosts"
            )
        fault = f"{self.host}: {fault or self._config['role'] + ' did not start'}"
        self._hosts.faults.append(fault)
        return StartFailed("ssh", fault, tail)

    async def _read(self, stream: asyncssh.SSHReader[str]) -> None:
        """Read a stream continuously: a process blocks when its output is not read."""
        with contextlib.suppress(asyncssh.Error, OSError):
            while text := await stream.read(CHUNK):
                self._log.extend(text.splitlines())

    async def _wait(self, process: asyncssh.SSHClientProcess[str]) -> None:
        with contextlib.suppress(asyncssh.Error, OSError):
            await process.wait_closed()
        self.ended.set()
        if self.status == Status.running:
            self.status = Status.closed
            self._on_lost()

    def _on_lost(self) -> None:
        """Handle that the process ended without :meth:`close`."""

    async def close(self) -> None:
        """End the process by closing its input; otherwise it ends with the connection."""
        self.status = Status.closing
        if self._process is not None and not self._process.is_closing():
            with contextlib.suppress(asyncssh.Error, OSError, asyncio.TimeoutError):
                self._process.stdin.write_eof()
                await asyncio.wait_for(self._process.wait_closed(), PATIENCE)
        for task in self._reading:
            task.cancel()
        await super().close()


class HostWorkers(HostProcess):
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
    place : int
        Index of the node among those on the same host; lower places have the first GPUs.
    **common
        Arguments of HostProcess.
    """

    def __init__(
        self,
        scheduler: str,
        name: str,
        group: Sequence[str],
        config: Mapping[str, Any],
        place: int = 0,
        **common: Any,
    ) -> None:
        self.name = name
        self.place = place
        self.names = [name + suffix for suffix in group] or [name]
        own = {"scheduler": scheduler, "names": self.names, "place": place}
        super().__init__(config={**config, **own}, **common)

    def _on_lost(self) -> None:
        cluster = self._cluster() if hasattr(self, "_cluster") else None
        if cluster is not None and cluster.status == Status.running:
            cluster.forget(self)
            last = "\n".join([*self._log][-LAST_LINES:])
            logger.warning("cluster %s has lost host %s\n%s", cluster.name, self.host, last)

    async def close(self) -> None:
        """End the processes; while the cluster runs, after their results are on other workers."""
        cluster = self._cluster() if hasattr(self, "_cluster") else None
        if cluster is not None and cluster.status == Status.running:
            with contextlib.suppress(OSError, asyncio.TimeoutError):
                await asyncio.wait_for(cluster.retire(self.names), RETIRE_WITHIN)
        await super().close()
