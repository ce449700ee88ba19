"""Workers of a cluster on hosts that are reached through ssh.

The program with this group has the ssh connections: when it ends with the process that owns the
cluster, the workers end with their connections.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import asyncssh

from hyperplane.clusters.remote_nodes.worker_group import RemoteWorkerGroup
from hyperplane.platforms.ssh.hosts import HostConnectionError, SshConnections, explain_error
from hyperplane.platforms.ssh.processes import HostProcess
from hyperplane.spec.settings import HostSettings

#: Workers for each connection to a host: OpenSSH allows ten sessions (MaxSessions).
_WORKERS_PER_CONNECTION = 8
#: Seconds after which a worker that has not started counts as failed.
_START_SECONDS = 900.0
#: Seconds for which an unreachable host of a worker that has run is tried again, and the longest
#: pause.
_UNREACHABLE_SECONDS, _LONGEST_PAUSE = 1800.0, 30.0
#: Lines of the output of a program that an error has.
_LAST_LINES = 5
#: Fault of a program that has ended for an unknown reason; its output may have it.
_NOT_STARTED = "it did not start"


class HostWorker:
    """A worker on a host, which ends with its ssh connection.

    Parameters
    ----------
    process : HostProcess
        The program on the host.
    host : str
        Address of the host.
    pid : int
        Process ID of the worker on the host.
    """

    def __init__(self, process: HostProcess, host: str, pid: int) -> None:
        self.process, self.host, self.pid = process, host, pid

    def is_running(self) -> bool:
        """Return whether its program runs and is connected."""
        return not self.process.ended.is_set()

    def end(self) -> None:
        """Do nothing: it has ended, or ends with the connections."""


class SshWorkerGroup(RemoteWorkerGroup):
    """The workers of a cluster, which are on hosts.

    Parameters
    ----------
    report : callable
        Reports an event by its keywords.
    """

    #: Module that hosts run.
    program: ClassVar[str]

    def __init__(self, report: Callable[..., None]) -> None:
        super().__init__(report)
        self._connections: SshConnections | None = None
        self._python = ""
        #: Workers whose host cannot be reached, and since when.
        self._unreachable: dict[str, float] = {}

    def _connect(self, settings: HostSettings, hosts: list[str], python: str) -> str:
        """Connect to all hosts; return the address of this machine that the first one sees."""
        self._python = python
        # Addresses of workers are those of the connections, and of version 4.
        self._connections = SshConnections(settings, socket.AF_INET)
        self._loop.run(self._connections.open(hosts))
        return self._loop.run(self._find_addresses(hosts[0]))[0]

    async def _find_addresses(self, name: str) -> tuple[str, str]:
        """Return the addresses of this machine and of a host, in their connection."""
        assert self._connections is not None  # noqa: S101 - for mypy
        connection = await self._connections.connection(name)
        ends = [connection.get_extra_info(each) for each in ("sockname", "peername")]
        own, other = (str(end[0]) if end else "" for end in ends)
        if not own or not other:
            reason = (
                f"it is reached through another host; {self.noun}s of a cluster connect to each "
                "other directly"
            )
            raise HostConnectionError({name: reason}, 1)
        if ipaddress.ip_address(own).is_loopback:
            reason = "it is a name of this machine at a loopback address; use its network address"
            raise HostConnectionError({name: reason}, 1)
        return own, other

    async def _ask_hosts(
        self, configurations: Mapping[str, dict[str, Any]]
    ) -> dict[str, dict[str, Any]]:
        """Run the program on hosts, each with its configuration; return the reply of each.

        That of a host without a reply has an item ``fault``.
        """
        answers = (self._ask_host(name, each) for name, each in configurations.items())
        results = await asyncio.gather(*answers, return_exceptions=True)
        return {
            name: _describe_result(name, result)
            for name, result in zip(configurations, results, strict=True)
        }

    async def _ask_host(self, name: str, configuration: dict[str, Any]) -> dict[str, Any]:
        process = await self._start_program(name, configuration, 0)
        try:
            reply = await self._read_reply(process)
            if reply.get("fault") == _NOT_STARTED:
                reply["fault"] = "\n    ".join([_NOT_STARTED, *_list_last_lines(process)])
            return reply
        finally:
            await process.end()

    async def _start_program(
        self, name: str, configuration: dict[str, Any], number: int
    ) -> HostProcess:
        assert self._connections is not None  # noqa: S101 - for mypy
        process = HostProcess(self._connections, name, [self._python, "-m", self.program], number)
        try:
            await process.start(configuration)
        except (asyncssh.Error, OSError) as error:
            await process.end()
            reason = explain_error(error, self._connections.settings)
            raise HostConnectionError({name: reason}, 1) from error
        return process

    async def _read_reply(self, process: HostProcess) -> dict[str, Any]:
        """Return the reply of a program; without one it has an item ``fault``."""
        assert self._connections is not None  # noqa: S101 - for mypy
        try:
            reply = await asyncio.wait_for(process.read_reply(), _START_SECONDS)
        except TimeoutError as error:
            raise RuntimeError(
                f"{process.host}: it did not start in {_START_SECONDS:g} s"
            ) from error
        except (asyncssh.Error, OSError) as error:
            reason = explain_error(error, self._connections.settings)
            raise HostConnectionError({process.host: reason}, 1) from error
        return reply or {"fault": process.explain_failure() or _NOT_STARTED}

    async def _start_remote_worker(self, request: dict[str, Any]) -> HostWorker:
        assert self._connections is not None  # noqa: S101 - for mypy
        name = request["on_host"]
        await self._connections.open([name])  # raises an error with advice
        _, host = await self._find_addresses(name)
        number = request["index"] // _WORKERS_PER_CONNECTION
        process = await self._start_program(name, self._configure(request, host), number)
        try:
            reply = await self._read_reply(process)
            if "pid" not in reply:
                raise _make_error(process, reply["fault"])
            worker = HostWorker(process, host, reply["pid"])
            if fault := await self._complete_start(worker, reply):
                raise _make_error(process, fault)
        except BaseException:
            await process.end()
            raise
        self._unreachable.pop(request["worker"], None)
        return worker

    def _handle_failure(self, name: str, error: Exception) -> None:
        """Try an unreachable host again for half an hour, if the worker has run before."""
        if isinstance(error, HostConnectionError) and self._starts[name] > 1:
            now = time.monotonic()
            if name not in self._unreachable:
                self._unreachable[name] = now
                message = f"{self.noun} {name} is started again when its host is reached: {error}"
                self._report(event="warning", message=message)
            elapsed = now - self._unreachable[name]
            if elapsed < _UNREACHABLE_SECONDS:
                self._starts[name] -= 1  # it was not started
                self._due[name] = now + min(_LONGEST_PAUSE, 1 + elapsed / 2)
                return
        super()._handle_failure(name, error)

    async def _end_workers(self) -> None:
        workers = [worker for worker in self._workers.values() if isinstance(worker, HostWorker)]
        ended = (worker.process.end() for worker in workers)
        await asyncio.gather(*ended, return_exceptions=True)
        if self._connections is not None:
            await self._connections.close()


def _make_error(process: HostProcess, fault: str) -> RuntimeError:
    """Return an error with the last lines of a program's output."""
    return RuntimeError("\n".join([f"{process.host}: {fault}", *_list_last_lines(process)]))


def _list_last_lines(process: HostProcess) -> list[str]:
    return [*process.log][-_LAST_LINES:]


def _describe_result(name: str, result: dict[str, Any] | BaseException) -> dict[str, Any]:
    """Return the reply of a host; of an error, its text as a fault."""
    if isinstance(result, HostConnectionError):
        return {"fault": result.faults[name]}
    if isinstance(result, RuntimeError):
        return {"fault": str(result).removeprefix(f"{name}: ")}
    if isinstance(result, BaseException):
        raise result
    return result
