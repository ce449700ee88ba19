"""Start the cluster of a plan on hosts that are reached through ssh."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, cast

from distributed import Scheduler
from distributed.security import Security

from hyperplane.clusters.dask import failed_start, remote_process
from hyperplane.clusters.dask.budget_meter import new_budget_meter
from hyperplane.clusters.dask.cluster_guards import ClusterGuards
from hyperplane.clusters.dask.cluster_records import finish_start, release_cluster, reserve_record
from hyperplane.clusters.dask.guarded_cluster import (
    TIME_TO_LIVE,
    cluster_settings,
    dashboard_routes,
)
from hyperplane.clusters.dask.local_process import (
    DASHBOARD_USERS,
    LOOPBACK,
    MESSAGE_BATCHES,
    PARENT_DEATH,
    user_preloads,
)
from hyperplane.clusters.dask.settings import in_force, snapshot
from hyperplane.clusters.dask.ssh.cluster import GuardedSSHCluster
from hyperplane.clusters.dask.ssh.host_servers import interface_fault
from hyperplane.clusters.dask.ssh.nodes import PROGRAM, HostServer, HostWorkers
from hyperplane.clusters.dask.start_errors import StepTimeout, step_timeout
from hyperplane.clusters.dask.wait_for_workers import connect_client
from hyperplane.clusters.engine import StartedCluster
from hyperplane.core.errors import EngineError, StartFailed, StartTimeout
from hyperplane.core.units import plural
from hyperplane.guard.run_recorder import summarize_plan
from hyperplane.platforms.ssh.hosts import SshConnections
from hyperplane.spec.dask_options import DaskOptions
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.settings import SshSettings

#: Seconds after the time limit in which hosts that have reached it report their faults.
_REPORT_SECONDS = 10.0
#: Advice if worker processes that hosts have reported as started do not connect in time.
_WAIT_ADVICE = (
    "The hosts have started them. Raise timeout to wait longer, or request fewer processes"
)

logger = logging.getLogger(__name__)


def start(plan: ClusterPlan) -> StartedCluster:
    """Start the scheduler and the workers; return when all workers have connected.

    Raises
    ------
    StartTimeout
        If the workers did not connect in time.
    StartFailed
        If the start failed otherwise. In both cases nothing is left running.
    """
    settings = cast(SshSettings, plan.settings)
    began = time.monotonic()
    tls = remote_process.key_pair(Security.temporary()) if settings.security == "tls" else {}
    record = reserve_record(plan, None, security=tls)
    hosts = SshConnections(settings)
    faults: list[str] = []
    common = {
        "connections": hosts,
        "python": _python_path(settings),
        "timeout": plan.request.timeout,
        "deadline": began + plan.request.timeout,
        "faults": faults,
    }
    try:
        cluster = GuardedSSHCluster(
            name=plan.name,
            hosts=hosts,
            node_hosts=settings.hosts,
            nodes=plan.nodes,
            dashboard_port=plan.dashboard_port,
            scheduler=_scheduler(plan, settings, tls, common),
            worker={
                "cls": HostWorkers,
                "options": {
                    **common,
                    "group": _process_suffixes(plan),
                    "config": _worker_config(plan, tls),
                },
                **({"group": _process_suffixes(plan)} if _process_suffixes(plan) else {}),
            },
            silence_logs=logging.WARNING,
            security=remote_process.make_security(tls),
            scheduler_config=remote_process.server_settings(plan, settings),
            cluster_config=cluster_settings(settings),
            guards=ClusterGuards.of(plan),
            release=partial(release_cluster, plan.name, record.scratch),
            deadline=began + plan.request.timeout + _REPORT_SECONDS,
        )
    except BaseException as error:
        release_cluster(plan.name, record.scratch)
        if not isinstance(error, Exception):
            raise
        raise _start_error(error, faults, plan) from error
    try:
        client = connect_client(cluster, plan, settings, began, lambda: _WAIT_ADVICE)
        _warn_of_few_cores(cluster, plan)
        return finish_start(cluster, client, record, plan)
    except BaseException:
        with suppress(OSError):
            failed_start.abandon(cluster)
        raise


def describe(plan: ClusterPlan) -> dict[str, Any]:
    """Return the processes that a start would run on each host, without secrets."""
    settings = cast(SshSettings, plan.settings)
    config = _worker_config(plan, {})
    command = [_python_path(settings), "-m", PROGRAM]
    remote = plan.request.scheduler_deploy_mode == "remote"
    return {
        "scheduler": {
            "host": (settings.scheduler_host or settings.hosts[0]) if remote else "this machine",
            **({"command": command} if remote else {}),
            "options": _scheduler_options(plan, settings),
        },
        "workers": {
            "hosts": list(settings.hosts[: plan.nodes]),
            "processes of each": plan.worker.nprocs,
            **({"GPUs of each": plan.worker.ngpus} if plan.worker.ngpus else {}),
            "command": list(command),
            "options": config["options"],
            "variables": config["variables"],
        },
        "settings": remote_process.server_settings(plan, settings),
        "security": settings.security,
    }


def _warn_of_few_cores(cluster: GuardedSSHCluster, plan: ClusterPlan) -> None:
    threads = plan.worker.total_threads
    few = {node.host: node.cores for node in cluster.workers.values() if node.cores < threads}
    if few:
        counts = ", ".join(f"{host} has {plural(cores, 'core')}" for host, cores in few.items())
        logger.warning(
            "%s for the %s of a node; the threads share the cores",
            counts,
            plural(threads, "thread"),
        )


def _python_path(settings: SshSettings) -> str:
    return settings.python or sys.executable


def _process_suffixes(plan: ClusterPlan) -> list[str]:
    processes = plan.worker.nprocs
    return [f"-{number}" for number in range(processes)] if processes > 1 else []


def _protocol(settings: SshSettings) -> str:
    return "tls://" if settings.security == "tls" else "tcp://"


def _scheduler_options(plan: ClusterPlan, settings: SshSettings) -> dict[str, Any]:
    # On a host any port is used; the requested port of this machine is forwarded to it.
    port = plan.dashboard_port if plan.request.scheduler_deploy_mode == "local" else 0
    return {
        "protocol": _protocol(settings),
        "interface": settings.interface,
        "port": 0,
        # On loopback, because the pages have no authentication.
        "dashboard_address": f"{LOOPBACK}:{port}",
        "dashboard": False,  # see lazy_dashboard
    }


def _scheduler(
    plan: ClusterPlan, settings: SshSettings, tls: dict[str, str], common: Mapping[str, Any]
) -> dict[str, Any]:
    options = _scheduler_options(plan, settings)
    if plan.request.scheduler_deploy_mode == "local":
        if fault := interface_fault(settings.interface):
            raise StartFailed("ssh", f"this machine, on which the scheduler runs: {fault}")
        security = remote_process.make_security(tls)
        return {"cls": Scheduler, "options": {**options, "security": security}}
    meter = new_budget_meter(plan)
    config = {
        **_process_config(plan, "scheduler", tls),
        "options": options,
        "idle_timeout": plan.idle_timeout,
        "spill": DaskOptions.of(plan.options).memory.spill,
        "plan": summarize_plan(plan).model_dump(),
        "budget": None if meter is None else [meter.limit, meter.unit, meter.price],
        "renew_busy_workers": TIME_TO_LIVE in remote_process.server_settings(plan, settings),
        "ram": 0,
    }
    host = settings.scheduler_host or settings.hosts[0]
    return {"cls": HostServer, "options": {**common, "host": host, "config": config}}


def _worker_config(plan: ClusterPlan, tls: dict[str, str]) -> dict[str, Any]:
    settings = cast(SshSettings, plan.settings)
    preloads = [PARENT_DEATH, MESSAGE_BATCHES]
    if settings.security == "tls":
        preloads.append(DASHBOARD_USERS)
    options = {
        "nthreads": plan.worker.nthreads,
        "memory_limit": plan.worker.ram_per_proc,
        "protocol": _protocol(settings),
        "interface": settings.interface,
        "local_directory": settings.local_directory,
        "dashboard_address": f"{LOOPBACK}:0",
        "death_timeout": plan.request.timeout,
        "preload": [*user_preloads(), *preloads],
    }
    config = {
        **_process_config(plan, "worker", tls),
        "options": options,
        "ram": plan.worker.total_ram,
    }
    return {**config, "ngpus": plan.worker.ngpus}


def _process_config(plan: ClusterPlan, role: str, tls: dict[str, str]) -> dict[str, Any]:
    settings = cast(SshSettings, plan.settings)
    with in_force({**remote_process.server_settings(plan, settings), **dashboard_routes()}):
        dask_settings = snapshot()
    return {
        "role": role,
        "settings": dask_settings,
        "variables": remote_process.worker_variables(plan),
        "tls": tls,
    }


def _start_error(error: Exception, faults: Sequence[str], plan: ClusterPlan) -> EngineError:
    """Return an error with the reasons of all hosts."""
    if isinstance(error, StepTimeout) and not faults:
        return step_timeout(plan, error, "Raise timeout, or check that the hosts answer")
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, EngineError):
        cause = cause.__cause__ or cause.__context__
    if faults:
        tail = cause.log_tail if isinstance(cause, EngineError) else ""
        late = isinstance(cause, StartTimeout) or isinstance(error, StepTimeout)
        kind = StartTimeout if late else StartFailed
        lines = "\n  ".join(dict.fromkeys(faults))
        return kind("ssh", f"everything was closed again:\n  {lines}", tail)
    if isinstance(cause, EngineError):
        return cause
    return StartFailed("ssh", f"{error} (everything was closed again)")
