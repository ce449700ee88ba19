"""Program on hosts of the ssh engine: a scheduler, or the worker processes of one node.

It receives its configuration, with key pair and settings, and ends with the ssh connection, as
:mod:`hyperplane.platforms.ssh.host_program` describes.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from typing import Any

import dask.config
import psutil
from distributed import Nanny, Scheduler
from distributed.utils import get_ip_interface

from hyperplane.clusters.dask.guarded_cluster import CLOSE_OWNER
from hyperplane.clusters.dask.lazy_dashboard import LazyDashboard
from hyperplane.clusters.dask.remote_process import make_security
from hyperplane.clusters.dask.ssh.gpus import gpu_fault, nannies
from hyperplane.guard.busy import BusyWorkerGuard
from hyperplane.guard.idle import IdleGuard
from hyperplane.platforms.local import machine
from hyperplane.platforms.ssh.host_program import (
    end_with_connection,
    read_configuration,
    send_reply,
)

#: Seconds for an orderly shutdown.
SHUTDOWN_SECONDS = 15.0


def main() -> None:
    """Start the servers of the configuration on standard input, and run until it is closed."""
    config = read_configuration()
    dask.config.update(dask.config.config, config["settings"], priority="new")
    if fault := (
        machine.find_memory_fault(config["ram"])
        or interface_fault(config["options"]["interface"])
        or gpu_fault(config)
    ):
        send_reply(fault=fault)
        sys.exit(1)
    asyncio.run(_serve(config))


def interface_fault(name: str | None) -> str:
    """Return the fault of a network interface's name, or ""; with None Dask selects one."""
    if name is None:
        return ""
    try:
        get_ip_interface(name)
    except ValueError:
        usable = ", ".join(
            interface
            for interface, addresses in psutil.net_if_addrs().items()
            if any(address.family == socket.AF_INET for address in addresses)
        )
        return (
            f"there is no network interface {name!r} with an IPv4 address, only {usable}; set "
            "hyperplane.engines.ssh.interface to one that all machines have"
        )
    return ""


async def _serve(config: dict[str, Any]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, stop.set)
    end_with_connection(lambda: loop.call_soon_threadsafe(stop.set), SHUTDOWN_SECONDS)
    servers = _create_servers(config)
    starting: asyncio.Future[Any] = asyncio.gather(*servers)
    ended: asyncio.Future[Any] = asyncio.ensure_future(stop.wait())
    await asyncio.wait({starting, ended}, return_when=asyncio.FIRST_COMPLETED)
    if starting.done():
        await starting  # raises its error
        for server in servers:
            if isinstance(server, Scheduler):
                await _add_guards(server, config["idle_timeout"], stop)
                if config["renew_busy_workers"]:
                    busy = BusyWorkerGuard()
                    server.add_plugin(busy)
                    await busy.start(server)
        send_reply(
            addresses=[server.address for server in servers],
            dashboard=servers[0].http_server.port if config["role"] == "scheduler" else None,
            cores=machine.cores(),
        )
        finished: asyncio.Future[Any] = asyncio.gather(*(server.finished() for server in servers))
        await asyncio.wait({finished, ended}, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.gather(*(server.close() for server in servers), return_exceptions=True)


def _create_servers(config: dict[str, Any]) -> list[Any]:
    common = {**config["options"], "security": make_security(config["tls"])}
    if config["role"] == "scheduler":
        return [Scheduler(**common)]
    if config["ngpus"]:
        return list(nannies(config, common["security"]))
    return [Nanny(config["scheduler"], name=name, **common) for name in config["names"]]


async def _add_guards(
    scheduler: Scheduler, idle_timeout: float | None, stop: asyncio.Event
) -> None:
    """Add the dashboard, the handler that closes the cluster, and the idle guard."""
    LazyDashboard(scheduler)
    # The cluster object then closes the processes on the other hosts.
    scheduler.handlers[CLOSE_OWNER] = stop.set
    if idle_timeout is not None:
        guard = IdleGuard(idle_timeout, stop.set)
        scheduler.add_plugin(guard)
        await guard.start(scheduler)


if __name__ == "__main__":
    main()
