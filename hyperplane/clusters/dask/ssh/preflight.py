"""Checks of hosts before a cluster starts on them: one short program on each host."""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from typing import cast

import asyncssh

from hyperplane.core.units import format_bytes, plural
from hyperplane.guard.preflight.check_deadline import CheckDeadline
from hyperplane.guard.preflight.environment import (
    EnvironmentRequest,
    PreflightEnvironment,
    check_paths,
    describe_here,
    parse_output,
    program_command,
)
from hyperplane.guard.preflight.missing_modules import check_modules
from hyperplane.guard.preflight.ports import check_dashboard_port, check_interfaces
from hyperplane.guard.preflight.report import PreflightFinding
from hyperplane.guard.preflight.request import PreflightRequest
from hyperplane.guard.preflight.run_checks import Check
from hyperplane.guard.preflight.spill_disk import check_spill_folders, configured_folder
from hyperplane.guard.preflight.versions import compare_versions
from hyperplane.platforms.ssh.hosts import HostConnectionError, SshConnections, explain_error
from hyperplane.platforms.ssh.processes import explain_python_failure
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.settings import SshSettings

#: Seconds that are waited for connections to close, less than the time between the end of a check
#: and that of all checks.
_CLOSE_SECONDS = 0.2
#: Errors of connections; those of keys are no ``asyncssh.Error``.
_CONNECTION_ERRORS = (
    OSError,
    asyncssh.Error,
    asyncssh.KeyImportError,
    asyncssh.KeyEncryptionError,
)


def list_checks(plan: ClusterPlan, request: PreflightRequest) -> list[Check]:
    """Return the checks of a plan."""
    remote = plan.request.scheduler_deploy_mode == "remote"
    return [
        Check("hosts", partial(_check_hosts, plan, request)),
        Check("dashboard port", lambda _: check_dashboard_port(plan.dashboard_port, remote)),
    ]


def _check_hosts(
    plan: ClusterPlan, request: PreflightRequest, deadline: CheckDeadline
) -> Iterator[PreflightFinding]:
    settings = cast(SshSettings, plan.settings)
    spill = settings.local_directory or configured_folder()
    with request.for_environment(spill) as (asked, marker):
        results = deadline.run(_query_hosts(plan, settings, asked, deadline.remaining))
        here = describe_here(EnvironmentRequest())
    known = {
        host: result for host, result in results.items() if isinstance(result, PreflightEnvironment)
    }
    yield from _explain_failures(settings, results, len(results))
    if not known:
        return
    versions = {host: environment.versions for host, environment in known.items()}
    yield from compare_versions(here.versions, versions, settings.versions == "refuse")
    # A scheduler imports the modules, too: it unpickles the graphs of clients.
    yield from check_modules(request.program, known, request.needed, request.sync)
    yield from check_interfaces(settings.interface, settings.locate("interface"), known)
    nodes = set(settings.hosts[: plan.nodes])
    workers = {host: environment for host, environment in known.items() if host in nodes}
    yield from check_paths(workers, marker)
    yield from check_spill_folders(workers)
    yield from _check_memory(plan, settings, workers)


async def _query_hosts(
    plan: ClusterPlan, settings: SshSettings, asked: EnvironmentRequest, seconds: float
) -> dict[str, PreflightEnvironment | BaseException]:
    """Return the environment of each host, or the error."""
    hosts = list(dict.fromkeys(_list_hosts(plan, settings)))
    connections = SshConnections(settings)
    try:
        results = await asyncio.gather(
            *(
                asyncio.wait_for(_query_host(connections, host, settings, asked), seconds)
                for host in hosts
            ),
            return_exceptions=True,
        )
    finally:
        await connections.close(_CLOSE_SECONDS)
    return dict(zip(hosts, results, strict=True))


def _list_hosts(plan: ClusterPlan, settings: SshSettings) -> Iterator[str]:
    if plan.request.scheduler_deploy_mode == "remote":
        yield settings.scheduler_host or settings.hosts[0]
    yield from settings.hosts[: plan.nodes]


async def _query_host(
    connections: SshConnections, host: str, settings: SshSettings, asked: EnvironmentRequest
) -> PreflightEnvironment:
    connection = await connections.connection(host)
    python = settings.python or sys.executable
    result = await connection.run(shlex.join(program_command(python, asked)))
    output, errors = str(result.stdout or ""), str(result.stderr or "")
    environment = parse_output(output)
    if environment is None:
        key = settings.locate("python")
        reason = explain_python_failure(python, errors, result.exit_status, key)
        raise _ProgramError(reason or f"{python} failed: {errors.strip()[-200:]}")
    if environment.versions.get("hyperplane") is None:
        reason = explain_python_failure(
            python, "No module named hyperplane", 1, settings.locate("python")
        )
        raise _ProgramError(reason)
    return environment


class _ProgramError(Exception):
    """Python on a host cannot run worker processes; the message has the reason and advice."""


def _explain_failures(
    settings: SshSettings, results: dict[str, PreflightEnvironment | BaseException], count: int
) -> Iterable[PreflightFinding]:
    connecting: dict[str, str] = {}
    good = True
    for host, error in results.items():
        if not isinstance(error, BaseException):
            continue
        good = False
        if isinstance(error, _ProgramError):
            yield PreflightFinding("python", "fault", f"{host}: {error}")
        elif isinstance(error, TimeoutError | asyncio.TimeoutError):
            text = f"{host} has not answered yet; the start waits {settings.connect_timeout:g} s"
            yield PreflightFinding("hosts", "unchecked", text)
        elif isinstance(error, _CONNECTION_ERRORS):
            connecting[host] = explain_error(error, settings)
        else:
            raise error
    if connecting:
        message = str(HostConnectionError(connecting, count))
        yield PreflightFinding("hosts", "fault", message)
    elif good:
        yield PreflightFinding("hosts", "ok", f"{plural(count, 'host')} can be used")


def _check_memory(
    plan: ClusterPlan, settings: SshSettings, workers: dict[str, PreflightEnvironment]
) -> Iterator[PreflightFinding]:
    needed = plan.worker.total_ram
    for host, environment in workers.items():
        nodes = settings.hosts[: plan.nodes].count(host)
        if needed > environment.memory:
            text = (
                f"{host}: its processes need {format_bytes(needed)} together, but the machine has "
                f"{format_bytes(environment.memory)}"
            )
            advice = "request less (ram_gb_per_proc, nprocs)"
            yield PreflightFinding("memory", "fault", text, advice)
        elif nodes > 1 and needed * nodes > environment.memory:
            text = (
                f"{host}: the processes of its {nodes} nodes need {format_bytes(needed * nodes)}, "
                f"but the machine has {format_bytes(environment.memory)}"
            )
            yield PreflightFinding("memory", "warning", text, "request less (ram_gb_per_proc)")
