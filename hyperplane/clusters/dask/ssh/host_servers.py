"""Servers of the ssh engine on a host: a scheduler, or the worker processes of one node."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from functools import partial
from typing import Any

import dask.config
import psutil
from distributed import Nanny, Scheduler
from distributed.utils import get_ip_interface

from hyperplane.clusters.dask.lazy_dashboard import LazyDashboard
from hyperplane.clusters.dask.owner_relay import OwnerRelay
from hyperplane.clusters.dask.owner_requests import CLOSE_OWNER, CLOSED_BY_PROGRAM
from hyperplane.clusters.dask.remote_process import make_security
from hyperplane.clusters.dask.ssh.gpus import gpu_fault, nannies
from hyperplane.core.dask_internals.message_batches import install_message_batches
from hyperplane.guard.budget import BudgetGuard, BudgetMeter
from hyperplane.guard.busy import BusyWorkerGuard
from hyperplane.guard.idle import IDLE, IdleGuard
from hyperplane.guard.same_user import check_dashboards
from hyperplane.guard.usage import BUDGET_USED, UsageMonitor
from hyperplane.platforms.local import machine
from hyperplane.platforms.ssh.host_program import OwnerPipe, send_reply

#: Seconds for an orderly shutdown, and for one after the owner was killed or the connection lost.
SHUTDOWN_SECONDS, LOST_SECONDS = 15.0, 1.5


def run_servers(config: dict[str, Any], owner: OwnerPipe) -> None:
    """Start the servers of a configuration, and run until the connection is closed."""
    dask.config.update(dask.config.config, config["settings"], priority="new")
    if fault := (
        machine.find_memory_fault(config["ram"])
        or interface_fault(config["options"]["interface"])
        or gpu_fault(config)
    ):
        send_reply(fault=fault)
        sys.exit(1)
    install_message_batches()
    if config["tls"]:
        check_dashboards()
    asyncio.run(_serve(config, owner))


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


async def _serve(config: dict[str, Any], owner: OwnerPipe) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, stop.set)
    owner.call_at_end(lambda: loop.call_soon_threadsafe(stop.set), SHUTDOWN_SECONDS, LOST_SECONDS)
    servers = _create_servers(config)
    starting: asyncio.Future[Any] = asyncio.gather(*servers)
    ended: asyncio.Future[Any] = asyncio.ensure_future(stop.wait())
    await asyncio.wait({starting, ended}, return_when=asyncio.FIRST_COMPLETED)
    if starting.done():
        await starting  # raises its error
        for server in servers:
            if isinstance(server, Scheduler):
                await _add_guards(server, config, stop)
                if config["renew_busy_workers"]:
                    busy = BusyWorkerGuard()
                    server.add_plugin(busy)
                    await busy.start(server)
        send_reply(
            addresses=[server.address for server in servers],
            dashboard=servers[0].http_server.port if config["role"] == "scheduler" else None,
            cores=machine.cores(),
            pid=os.getpid(),
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


async def _add_guards(scheduler: Scheduler, config: dict[str, Any], stop: asyncio.Event) -> None:
    """Add the dashboard, the handlers of requests to the cluster object, and the guards."""
    LazyDashboard(scheduler)
    OwnerRelay(scheduler)

    def end(reason: str) -> None:
        """Send the reason to the cluster object, which then closes the other processes."""
        send_reply(ending=reason)
        stop.set()

    def close_owner() -> None:  # a function, because Dask logs the name of a handler
        end(CLOSED_BY_PROGRAM)

    scheduler.handlers[CLOSE_OWNER] = close_owner
    guards: list[Any] = [UsageMonitor(config["spill"], plan=config["plan"])]
    if config["idle_timeout"] is not None:
        guards.append(IdleGuard(config["idle_timeout"], partial(end, IDLE)))
    if config["budget"] is not None:
        guards.append(BudgetGuard(BudgetMeter(*config["budget"]), partial(end, BUDGET_USED)))
    for guard in guards:
        scheduler.add_plugin(guard)
        await guard.start(scheduler)
