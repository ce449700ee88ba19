"""What the ssh engine starts on a host: a scheduler, or the worker processes of a node."""

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

from hyperplane.engines.ssh.hosts import SshConnections
from hyperplane.errors import StartFailed

LOG_LINES = 40
#: Lines of it that are shown when a host is lost.
LAST_LINES = 5
#: Characters that are read at once.
CHUNK = 65_536
#: Seconds that a process gets to end after its connection says so.
PATIENCE = 20.0
#: Seconds that a node may take to hand over its results.
RETIRE_WITHIN = 60.0

logger = logging.getLogger(__name__)


class HostProcess(ProcessInterface):
    """A process on a host, tied to its connection.

    Parameters
    ----------
    hosts : Hosts
        The connections.
    host : str
        Where it runs.
    python : str
        The Python there.
    patience : float
        Seconds it may take to be ready, later than at the start of the cluster.
    deadline : float
        When the start of the cluster is over, by ``time.monotonic``.
    told : mapping
        What it is told, see :mod:`hyperplane.engines.ssh.process`.
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
        """Start it and wait until it says that it is ready."""
        connection = await self._hosts.connection(self.host)
        command = shlex.join([self._python, "-m", "hyperplane.engines.ssh.process"])
        self._process = process = await connection.create_process(command)
        process.stdin.write(json.dumps(self._config, default=str) + "\n")
        self._reading = [asyncio.create_task(self._read(process.stderr))]
        left = self._deadline - time.monotonic()
        try:
            answer = await asyncio.wait_for(
                self._read_reply(process), left if left > 0 else self._patience
            )
        except TimeoutError as error:
            raise self._failed(f"not ready within {self._patience:g} s") from error
        if "addresses" not in answer:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(process.wait_closed(), 2)
            raise self._failed(answer.get("fault"))
        [self.address, *_] = answer["addresses"]
        self.cores, self.dashboard_port = answer["cores"], answer["dashboard"]
        self._reading.append(asyncio.create_task(self._read(process.stdout)))
        self._reading.append(asyncio.create_task(self._wait(process)))
        await super().start()

    async def _read_reply(self, process: asyncssh.SSHClientProcess[str]) -> dict[str, Any]:
        """What it says when it is ready or cannot be; a login shell may say something before."""
        async for line in process.stdout:
            with contextlib.suppress(ValueError):
                found = json.loads(line)
                if isinstance(found, dict):
                    return found
            self._log.append(line.rstrip())
        return {}

    def _failed(self, fault: str | None) -> StartFailed:
        tail = "\n".join(self._log)
        if fault is None and "No module named" in tail:
            name = tail.rpartition("No module named")[2].split()[0].strip("'\")(")
            fault = (
                f"{self._python} there has no {name.partition('.')[0]}; install the same packages "
                "as here, or set hyperplane.engines.ssh.python"
            )
        elif fault is None and self._process is not None and self._process.exit_status == 127:
            fault = (
                f"there is no {self._python}; set hyperplane.engines.ssh.python to the Python on "
                "the hosts"
            )
        fault = f"{self.host}: {fault or self._config['role'] + ' did not start'}"
        self._hosts.faults.append(fault)
        return StartFailed("ssh", fault, tail)

    async def _read(self, stream: asyncssh.SSHReader[str]) -> None:
        """Take in what it says, all the time: a process that nobody reads stands still."""
        with contextlib.suppress(asyncssh.Error, OSError):
            while text := await stream.read(CHUNK):
                self._log.extend(text.splitlines())

    async def _wait(self, process: asyncssh.SSHClientProcess[str]) -> None:
        with contextlib.suppress(asyncssh.Error, OSError):
            await process.wait_closed()
        self.ended.set()
        if self.status == Status.running:
            self.status = Status.closed
            self._lost()

    def _lost(self) -> None:
        """It has ended, and not because we wanted it."""

    async def close(self) -> None:
        """End it politely, and at the latest when the connection goes."""
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
        Name of the node among the workers of the cluster.
    group : sequence of str
        What follows it in the names of its worker processes.
    told : mapping
        What all nodes are told.
    place : int
        How many nodes of the cluster are on the host before this one; they have the first GPUs.
    **where
        As for HostProcess.
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

    def _lost(self) -> None:
        cluster = self._cluster() if hasattr(self, "_cluster") else None
        if cluster is not None and cluster.status == Status.running:
            cluster.forget(self)
            last = "\n".join([*self._log][-LAST_LINES:])
            logger.warning("host %s is lost to cluster %s\n%s", self.host, cluster.name, last)

    async def close(self) -> None:
        """End the processes; of a cluster that goes on, when others have their results."""
        cluster = self._cluster() if hasattr(self, "_cluster") else None
        if cluster is not None and cluster.status == Status.running:
            with contextlib.suppress(OSError, asyncio.TimeoutError):
                await asyncio.wait_for(cluster.retire(self.names), RETIRE_WITHIN)
        await super().close()
