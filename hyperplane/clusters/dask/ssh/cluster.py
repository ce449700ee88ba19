"""SpecCluster whose scheduler and workers run on hosts reached through ssh.

Dask's SSHCluster writes the whole configuration, keys included, into the command that the host
runs; every user of the host can read it there. It also leaves processes behind when its owner is
killed. This cluster sends the configuration of each process through its ssh connection, and the
process ends with that connection; see :mod:`hyperplane.clusters.dask.ssh.process`.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, cast

import asyncssh
from distributed.core import Status
from distributed.utils import format_dashboard_link

from hyperplane.clusters.dask.guarded_cluster import GuardedCluster, loopback_link
from hyperplane.clusters.dask.owner_relay import carry_out_requests
from hyperplane.clusters.dask.remote_process import node_name
from hyperplane.clusters.dask.ssh.nodes import HostServer, HostWorkers
from hyperplane.core.errors import EngineError, StartFailed
from hyperplane.guard.same_user import is_client_permitted
from hyperplane.platforms.ssh.hosts import HostConnectionError, SshConnections

#: Seconds that a scheduler on a host may take to answer when the cluster closes.
_ANSWER_SECONDS = 10.0


class GuardedSSHCluster(GuardedCluster):
    """Cluster on hosts that are reached through ssh.

    Parameters
    ----------
    hosts : SshConnections
        Connections to the hosts; closed with the cluster.
    node_hosts : sequence of str
        One host for each node that the cluster can have; a host may occur several times.
    nodes : int
        Number of nodes to start with.
    dashboard_port : int
        Port of this machine that is forwarded to the dashboard; 0 for any free port.
    **kwargs
        Arguments of GuardedCluster and SpecCluster.
    """

    before_scheduler = "the hosts did not connect, or "
    start_of_worker = ("node", "started")

    def __init__(
        self,
        *,
        hosts: SshConnections,
        node_hosts: Sequence[str],
        nodes: int,
        dashboard_port: int,
        **kwargs: Any,
    ) -> None:
        self._hosts, self._node_hosts = hosts, list(node_hosts)
        self._dashboard_port = dashboard_port
        self._forward: asyncssh.SSHListener | None = None
        self._requests: asyncio.Task[None] | None = None
        template = kwargs["worker"]
        workers: dict[str, Any] = {}
        for number, host in enumerate(self._node_hosts[:nodes]):
            index = self._node_hosts[:number].count(host)
            workers[f"node-{number}"] = _node_spec(host, template, index)
        super().__init__(workers=workers, **kwargs)

    async def _start(self) -> None:
        used = self._used_hosts()
        if self.scheduler_spec["cls"] is HostServer:
            used.append(self.scheduler_spec["options"]["host"])
        try:
            await self._hosts.open(used)
        except BaseException as error:
            await self._hosts.close()
            self.status = Status.closed  # Dask has not started anything yet
            if isinstance(error, HostConnectionError):
                raise StartFailed("ssh", f"nothing was started: {error}") from error
            raise
        await super()._start()
        if isinstance(self.scheduler, HostServer) and self._forward is None:
            try:
                await self._forward_dashboard(self.scheduler)
            except BaseException:
                await self._close()
                raise
            self._watcher = asyncio.create_task(self._close_with_scheduler(self.scheduler))
            self._requests = asyncio.create_task(carry_out_requests(self))

    def _used_hosts(self) -> list[str]:
        return [spec["options"]["host"] for spec in self.worker_spec.values()]

    async def _forward_dashboard(self, scheduler: HostServer) -> None:
        """Forward a port of the loopback address, because the pages have no authentication."""
        connection = await self._hosts.connection(scheduler.host)
        port = self._dashboard_port
        try:
            self._forward = await connection.forward_local_port(
                "127.0.0.1",
                port,
                "127.0.0.1",
                cast(int, scheduler.dashboard_port),
                accept_handler=self._permits,
            )
        except OSError as error:
            message = f"port {port} of this machine cannot be opened for the dashboard"
            raise StartFailed(
                "ssh",
                f"{message}: {error.strerror}; everything was closed again. Pass another "
                "dashboard_port",
            ) from error

    def _permits(self, host: str, port: int) -> bool:
        """Return whether a process of this machine may connect to the forwarded dashboard."""
        if not self.security.require_encryption:
            return True
        server = "127.0.0.1", 0 if self._forward is None else self._forward.get_port()
        return is_client_permitted((host, port), server)

    async def _close_with_scheduler(self, scheduler: HostServer) -> None:
        """Close the cluster when its scheduler ends: by the idle timeout or another client."""
        await scheduler.process.ended.wait()
        ending = await scheduler.read_ending()
        if self.status == Status.running:
            self.shutdown_scheduler = False  # a request to an ended scheduler would wait
            self.end_reason = self.end_reason or ending or "its scheduler has ended"
            threading.Thread(target=self.close_all, name="hyperplane-close", daemon=False).start()

    @property
    def dashboard_link(self) -> str:
        """Link to the dashboard, as seen from this machine."""
        if self._forward is None:
            return loopback_link(str(super().dashboard_link), self.scheduler_address)
        return str(format_dashboard_link("127.0.0.1", self._forward.get_port()))

    def new_worker_spec(self) -> dict[str, Any]:
        """Return the specification of one more node, on a host that can take it."""
        free = Counter(self._node_hosts) - Counter(self._used_hosts())
        if not free:
            raise EngineError(
                "ssh",
                f"no host is free for one more node: hyperplane.engines.ssh.hosts has "
                f"{len(self._node_hosts)}; add hosts (one that is listed twice takes two nodes)",
            )
        host = next(name for name in self._node_hosts if free[name])
        [(name, template)] = super().new_worker_spec().items()
        used_indices = [
            spec["options"]["index_on_host"]
            for spec in self.worker_spec.values()
            if spec["options"]["host"] == host
        ]
        index = next(
            number for number in range(len(used_indices) + 1) if number not in used_indices
        )
        return {name: _node_spec(host, template, index)}

    def _new_worker_name(self, worker_number: int) -> str:
        return f"node-{worker_number}"

    def scale(self, n: int = 0, memory: str | int | None = None, cores: int | None = None) -> Any:
        """Scale to at least `n` worker processes, by whole nodes."""
        nodes = math.ceil(n / self._processes)
        if memory is None and cores is None:
            while len(self.worker_spec) > nodes:  # newest first, as Dask does without groups
                self.worker_spec.popitem()
        return super().scale(nodes, memory=memory, cores=cores)

    def forget(self, node: HostWorkers) -> None:
        """Remove a lost node from the specification, so that scale() and adapt() replace it."""
        if self.workers.get(node.name) is node:
            del self.workers[node.name]
            self.worker_spec.pop(node.name, None)

    async def retire(self, names: Sequence[str]) -> None:
        """Move the results of worker processes to other workers and close them."""
        scheduler = cast(Any, self.scheduler_comm)
        await scheduler.retire_workers(names=list(names), close_workers=True, remove=True)

    @property
    def _processes(self) -> int:
        return len(self.new_spec.get("group", ())) or 1

    def _threads_per_worker(self) -> int:
        config = self.new_spec["options"]["config"]
        return int(config["options"]["nthreads"]) * self._processes

    def _memory_per_worker(self) -> int:
        config = self.new_spec["options"]["config"]
        return int(config["options"]["memory_limit"]) * self._processes

    def adapt(self, *, maximum: float = math.inf, **kwargs: Any) -> Any:  # type: ignore[override]
        """Scale with the work, by whole nodes, within the number of hosts."""
        kwargs.setdefault("worker_key", partial(node_name, grouped=self._processes > 1))
        limit = len(self._node_hosts) * self._processes
        return super().adapt(maximum=min(maximum, limit), **kwargs)

    async def read_scheduler_process(self) -> str:
        """Return the text of ``/proc/PID/stat`` of a scheduler on a host; empty without it."""
        if not isinstance(self.scheduler, HostServer):
            return ""
        return await self.scheduler.read_process()

    async def _kill_silent_scheduler(self) -> None:
        """Kill a scheduler on a host that does not answer: closing would wait for it forever."""
        scheduler = self.scheduler
        if not isinstance(scheduler, HostServer) or self.scheduler_comm is None:
            return
        with suppress(OSError):  # the connection is closed: it has ended, or ends
            try:
                await asyncio.wait_for(self.scheduler_comm.identity(n_workers=0), _ANSWER_SECONDS)
            except TimeoutError:
                self.end_reason = self.end_reason or "its scheduler did not answer"
                self.shutdown_scheduler = False  # it cannot be asked
                await scheduler.kill()

    async def _close(self) -> None:
        if self._requests is not None:
            self._requests.cancel()
        if self.status == Status.running:
            await self._kill_silent_scheduler()
        closed_before = self.status == Status.closed
        try:
            await super()._close()
        finally:
            if not closed_before:
                await self._hosts.close()


def _node_spec(host: str, template: Mapping[str, Any], index: int) -> dict[str, Any]:
    return {**template, "options": {**template["options"], "host": host, "index_on_host": index}}
