"""Start the cluster of a plan as Slurm jobs."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from distributed.security import Security
from distributed.utils import get_ip

from hyperplane.clusters.dask import failed_start
from hyperplane.clusters.dask.cluster_guards import ClusterGuards
from hyperplane.clusters.dask.cluster_records import finish_start, release_cluster, reserve_record
from hyperplane.clusters.dask.guarded_cluster import cluster_settings
from hyperplane.clusters.dask.local_process import LOOPBACK
from hyperplane.clusters.dask.remote_process import key_pair, server_settings
from hyperplane.clusters.dask.settings import user_settings
from hyperplane.clusters.dask.slurm import script as slurm_script
from hyperplane.clusters.dask.slurm.cluster import GuardedSLURMCluster
from hyperplane.clusters.dask.slurm.job_messages import StartupMonitor, explain_end
from hyperplane.clusters.dask.start_errors import StepTimeout, describe_cause, step_timeout
from hyperplane.clusters.dask.wait_for_workers import connect_client
from hyperplane.clusters.engine import StartedCluster
from hyperplane.clusters.records import ClusterRecord
from hyperplane.core.errors import StartFailed
from hyperplane.core.optional import need
from hyperplane.platforms.slurm.shared_folder import (
    find_removable,
    log_folder,
    remove_empty,
    shared_folder,
    write_private_files,
)
from hyperplane.spec.dask_options import DaskOptions
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.settings import SlurmSettings

_FOLDERS = "hyperplane.engines.slurm.shared_folder"
_FOLDER_ADVICE = "Set it to a folder that you can write to here and on the nodes"


def start(plan: ClusterPlan) -> StartedCluster:
    """Start the scheduler and a job for each node; return when all workers have connected.

    Raises
    ------
    StartTimeout
        If the workers did not connect in time, with the status of the jobs.
    StartFailed
        If Slurm refuses a job or will never start one, or if the start failed otherwise. In all
        cases the jobs are cancelled.
    """
    settings = cast(SlurmSettings, plan.settings)
    began = time.monotonic()
    created_folders = find_removable(shared_folder(settings))
    record = _reserve_record(plan, settings, created_folders)
    folder_of_logs = log_folder(settings, Path(record.scratch))
    release = partial(_release, plan.name, record.scratch, created_folders)
    try:
        folder, security = Path(record.scratch), _security(settings)
        _write_keys(key_pair(security), folder)
        folder_of_logs.mkdir(parents=True, exist_ok=True)
        with user_settings():
            arguments = _arguments(plan, settings, folder, security)
    except OSError as error:
        release()
        raise StartFailed(
            "slurm",
            f"{_FOLDERS} or .log_folder cannot be created or written: {error}. {_FOLDER_ADVICE}",
        ) from error
    except BaseException:  # after this block the cluster object cleans up
        release()
        raise
    try:
        deadline = began + plan.request.timeout
        cluster = GuardedSLURMCluster(release=release, deadline=deadline, **arguments)
    except StepTimeout as error:
        advice = "Raise timeout, or check that sbatch and squeue answer"
        raise step_timeout(plan, error, advice) from error
    except StartFailed as error:
        message = f"{error.message} (everything was closed again)"
        raise StartFailed("slurm", message, error.log_tail) from error
    except Exception as error:
        message = f"{describe_cause(error, plan)} (everything was closed again)"
        raise StartFailed("slurm", message) from error
    try:
        monitor = StartupMonitor(cluster.jobs, folder_of_logs, cluster.incomplete_jobs)
        client = connect_client(cluster, plan, settings, began, monitor)
        record = replace(record, security=key_pair(security))
        return finish_start(cluster, client, record, plan)
    except BaseException:
        failed_start.abandon(cluster)
        raise


def _reserve_record(
    plan: ClusterPlan, settings: SlurmSettings, created_folders: list[Path]
) -> ClusterRecord:
    direct = DaskOptions.of(plan.options).tuning.direct_to_workers
    shared = shared_folder(settings)
    try:
        shared.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        remove_empty(created_folders)
        message = f"{_FOLDERS} cannot be created: {error}. {_FOLDER_ADVICE}"
        raise StartFailed("slurm", message) from error
    try:
        return reserve_record(plan, str(shared), direct_to_workers=direct)
    except StartFailed:
        remove_empty(created_folders)
        raise


def _security(settings: SlurmSettings) -> Security:
    if settings.security == "none":
        return Security()
    need("cryptography", extra="slurm")
    return cast(Security, Security.temporary())


def _write_keys(tls: dict[str, str], folder: Path) -> None:
    """Write the key pair to files for the nodes; no other user can enter the folder."""
    names = dict(zip(("ca_file", "cert", "key"), slurm_script.TLS_FILES.values(), strict=True))
    write_private_files(folder, {names[field]: tls[field] for field in names if field in tls})


def _arguments(
    plan: ClusterPlan, settings: SlurmSettings, folder: Path, security: Security
) -> dict[str, Any]:
    """Return the arguments of GuardedSLURMCluster for a plan."""
    worker = plan.worker
    address = {"interface": settings.interface} if settings.interface else {"host": get_ip()}
    return {
        "name": plan.name,
        "first_jobs": plan.nodes,
        "explain": partial(explain_end, settings, log_folder(settings, folder)),
        "silence_logs": logging.WARNING,
        "security": security,
        "protocol": "tls://" if settings.security == "tls" else "tcp://",
        "scheduler_options": {
            **address,
            "dashboard": False,  # see lazy_dashboard
            "dashboard_address": f"{LOOPBACK}:{plan.dashboard_port}",
        },
        "scheduler_config": server_settings(plan, settings),
        "cluster_config": cluster_settings(settings),
        "guards": ClusterGuards.of(plan, replaces_workers=True),
        # Per job; scale(cores=...) and scale(memory=...) use them.
        "cores": worker.total_threads,
        "memory": f"{worker.total_ram}B",
        "processes": worker.nprocs,
        "script": slurm_script.make_script_builder(plan, settings, folder),
    }


def _release(name: str, scratch: str, created_folders: list[Path]) -> None:
    """Release the cluster and remove the folders that were created for it."""
    release_cluster(name, scratch)
    remove_empty(created_folders)
