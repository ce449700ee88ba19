"""Dask's SpecCluster with its processes on hosts that are reached through ssh.

Dask's own SSHCluster writes the whole configuration, keys included, into the command that the host
runs, where every user of the host can read it, and leaves what it started when its owner is killed.
This one tells each process through its connection; see :mod:`hyperplane.engines.ssh_process`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import shlex
import threading
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import Any, cast

import asyncssh
from distributed.core import Status
from distributed.deploy.spec import ProcessInterface
from distributed.utils import format_dashboard_link

from hyperplane.engines.guarded import GuardedCluster
from hyperplane.engines.ssh_hosts import Hosts
from hyperplane.errors import EngineError, StartFailed

LOG_LINES = 40
#: Seconds that a process gets to end after its connection says so.
PATIENCE = 20.0
#: Bytes of one line of the other side at most: an answer, or what Dask logs.
LINE = 2**20


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
        Seconds it may take to be ready.
    told : mapping
        What it is told, see :mod:`hyperplane.engines.ssh_process`.
    """

    def __init__(
        self, hosts: Hosts, host: str, python: str, patience: float, told: Mapping[str, Any]
    ) -> None:
        super().__init__()
        self.host = host
        self._patience = patience
        self.cores = 0
        self.dashboard_port: int | None = None
        self.ended = asyncio.Event()
        self._hosts, self._python, self._told = hosts, python, told
        self._log: deque[str] = deque(maxlen=LOG_LINES)
        self._process: asyncssh.SSHClientProcess[str] | None = None
        self._reading: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Start it and wait until it says that it is ready."""
        connection = await self._hosts.connection(self.host)
        command = shlex.join([self._python, "-m", "hyperplane.engines.ssh_process"])
        self._process = process = await connection.create_process(command)
        process.stdin.write(json.dumps(self._told, default=str) + "\n")
        self._reading = [asyncio.create_task(self._read_log(process))]
        try:
            line = await asyncio.wait_for(process.stdout.readline(), self._patience)
        except asyncio.TimeoutError as error:
            raise self._failed(f"not ready within {self._patience:g} s") from error
        answer = json.loads(line) if line.startswith("{") else {}
        if "addresses" not in answer:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(process.wait_closed(), 2)
            raise self._failed(answer.get("fault"))
        [self.address, *_] = answer["addresses"]
        self.cores, self.dashboard_port = answer["cores"], answer["dashboard"]
        self._reading.append(asyncio.create_task(self._wait(process)))
        await super().start()

    def _failed(self, fault: str | None) -> StartFailed:
        tail = "\n".join(self._log)
        if fault is None and "No module named" in tail:
            name = tail.rpartition("No module named")[2].split()[0].strip("'\")(")
            fault = (
                f"{self._python} there has no {name.partition('.')[0]}; install the same packages "
                "as here, or set engines.ssh.python"
            )
        elif fault is None and self._process is not None and self._process.exit_status == 127:
            fault = f"there is no {self._python}; set engines.ssh.python to the Python on the hosts"
        fault = f"{self.host}: {fault or self._told['role'] + ' did not start'}"
        self._hosts.faults.append(fault)
        return StartFailed("ssh", fault, tail)

    async def _read_log(self, process: asyncssh.SSHClientProcess[str]) -> None:
        """Take in what it logs, all the time: a process nobody reads stands still."""
        with contextlib.suppress(asyncssh.Error, OSError):
            async for line in process.stderr:
                self._log.append(line.rstrip())

    async def _wait(self, process: asyncssh.SSHClientProcess[str]) -> None:
        with contextlib.suppress(asyncssh.Error, OSError):
            await process.wait_closed()
        self.status = Status.closed
        self.ended.set()

    async def close(self) -> None:
        """End it politely, and at the latest when the connection goes."""
        if self._process is not None and not self._process.is_closing():
            with contextlib.suppress(asyncssh.Error, OSError):
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
    **where
        As for HostProcess.
    """

    def __init__(
        self,
        scheduler: str,
        name: str,
        group: Sequence[str],
        told: Mapping[str, Any],
        **where: Any,
    ) -> None:
        names = [name + suffix for suffix in group] or [name]
        super().__init__(told={**told, "scheduler": scheduler, "names": names}, **where)


class GuardedSSHCluster(GuardedCluster):
    """A cluster on hosts that are reached through ssh.

    Parameters
    ----------
    hosts : Hosts
        The connections; closed with the cluster.
    places : sequence of str
        A host for each node that the cluster can have.
    nodes : int
        How many to start with.
    dashboard_port : int
        Port of this machine that leads to the dashboard; 0 for any.
    **kwargs
        As for GuardedCluster and SpecCluster.
    """

    def __init__(
        self, *, hosts: Hosts, places: Sequence[str], nodes: int, dashboard_port: int, **kwargs: Any
    ) -> None:
        self._hosts, self._places = hosts, list(places)
        self._dashboard_port = dashboard_port
        self._forward: asyncssh.SSHListener | None = None
        template = kwargs["worker"]
        workers: dict[str, Any] = {}
        for number, host in enumerate(self._places[:nodes]):
            workers[f"node-{number}"] = _on(host, template)
        super().__init__(workers=workers, **kwargs)

    async def _start(self) -> None:
        used = self._used()
        if self.scheduler_spec["cls"] is HostProcess:
            used.append(self.scheduler_spec["options"]["host"])
        try:
            await self._hosts.open(used)
        except BaseException:
            await self._hosts.close()
            self.status = Status.closed  # nothing has begun that Dask would close
            raise
        await super()._start()
        if isinstance(self.scheduler, HostProcess):
            await self._lead_to_dashboard(self.scheduler)
            self._following = asyncio.create_task(self._follow(self.scheduler))

    def _used(self) -> list[str]:
        return [spec["options"]["host"] for spec in self.worker_spec.values()]

    async def _lead_to_dashboard(self, scheduler: HostProcess) -> None:
        """A port here, on the loopback address, through the connection: pages need no password."""
        connection = await self._hosts.connection(scheduler.host)
        self._forward = await connection.forward_local_port(
            "127.0.0.1", self._dashboard_port, "127.0.0.1", cast(int, scheduler.dashboard_port)
        )

    async def _follow(self, scheduler: HostProcess) -> None:
        """Close when the scheduler has ended: another program or the idle timeout wants it so."""
        await scheduler.ended.wait()
        if self.status == Status.running:
            self.shutdown_scheduler = False  # to ask it once more would wait for an answer
            threading.Thread(target=self.close_all, name="hyperplane-close", daemon=False).start()

    @property
    def dashboard_link(self) -> str:
        """Where the dashboard is to be seen from this machine."""
        if self._forward is None:
            return str(super().dashboard_link)
        return str(format_dashboard_link("127.0.0.1", self._forward.get_port()))

    def new_worker_spec(self) -> dict[str, Any]:
        """One more node, on a host that has a place left."""
        free = Counter(self._places) - Counter(self._used())
        if not free:
            raise EngineError(
                "ssh",
                f"no host is free for one more node: hosts has {len(self._places)} "
                "(hyperplane.engines.ssh.hosts; a host that stands there twice takes two)",
            )
        host = next(place for place in self._places if free[place])
        [(name, template)] = super().new_worker_spec().items()
        return {name: _on(host, template)}

    def _new_worker_name(self, worker_number: int) -> str:
        return f"node-{worker_number}"

    def scale(self, n: int = 0, memory: str | int | None = None, cores: int | None = None) -> Any:
        """Have so many worker processes: as many nodes as have them."""
        return super().scale(math.ceil(n / self._processes), memory=memory, cores=cores)

    @property
    def _processes(self) -> int:
        return len(self.new_spec.get("group", ())) or 1

    def _threads_per_worker(self) -> int:
        told = self.new_spec["options"]["told"]
        return int(told["options"]["nthreads"]) * self._processes

    def _memory_per_worker(self) -> int:
        told = self.new_spec["options"]["told"]
        return int(told["options"]["memory_limit"]) * self._processes

    def adapt(self, *, maximum: float = math.inf, **kwargs: Any) -> Any:  # type: ignore[override]
        """Scale with the work, to as many nodes as there are hosts for."""
        most = len(self._places) * self._processes
        return super().adapt(maximum=min(maximum, most), **kwargs)

    async def _close(self) -> None:
        closed_before = self.status == Status.closed
        await super()._close()
        if not closed_before:
            await self._hosts.close()


def _on(host: str, template: Mapping[str, Any]) -> dict[str, Any]:
    return {**template, "options": {**template["options"], "host": host}}
