"""Build the sbatch script of a node of a plan."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

from hyperplane.clusters.dask.remote_process import as_variables, server_settings, worker_variables
from hyperplane.clusters.dask.settings import user_settings
from hyperplane.clusters.remote_nodes.slurm_listing import job_comment
from hyperplane.core.units import gb_to_bytes, parse_seconds
from hyperplane.platforms.slurm.directives import BatchResources, node_directives
from hyperplane.platforms.slurm.logs import job_log
from hyperplane.platforms.slurm.script import quote_word
from hyperplane.platforms.slurm.shared_folder import log_folder, private_folder
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.settings import SlurmSettings
from hyperplane.spec.settings.slurm import parse_walltime

#: Seconds after which a worker process without a scheduler ends; a job may start after its cluster
#: has been closed.
DEATH_TIMEOUT_SECONDS = 300
#: Options of a worker -> files of the key pair.
TLS_FILES = {"--tls-ca-file": "ca.pem", "--tls-cert": "cert.pem", "--tls-key": "key.pem"}


def lifetime(settings: SlurmSettings) -> int | None:
    """Return the seconds after which a worker retires, before the time limit of its job."""
    if settings.walltime is None:
        return None
    walltime = parse_walltime(settings.walltime)
    margin: float = parse_seconds(settings.leave_before)
    return math.ceil(max(walltime - margin, walltime / 2))


def render(plan: ClusterPlan) -> str:
    """Return the script of the first job of a plan."""
    settings = cast(SlurmSettings, plan.settings)
    with user_settings():
        make = make_script_builder(plan, settings, private_folder(settings, plan.name))
    protocol = "tls" if settings.security == "tls" else "tcp"
    return make(f"{protocol}://SCHEDULER:PORT", f"{plan.name}-0")


def make_script_builder(
    plan: ClusterPlan, settings: SlurmSettings, folder: Path
) -> Callable[[str | None, str | None], str]:
    """Return a function that builds the script for a scheduler address and a worker name.

    Dask's settings are read now, so that later jobs have the same settings. ``folder`` is the
    folder of the cluster, with the files of its key pair.
    """
    variables = worker_variables(plan)
    dotted = server_settings(plan, settings)
    if plan.worker.ngpus and (seconds := lifetime(settings)) is not None:
        dotted["distributed.worker.lifetime.duration"] = f"{seconds}s"  # no option of dask-cuda
    dask_settings = as_variables(dotted)

    def make(scheduler: str | None, name: str | None) -> str:
        return render_job_script(
            plan, settings, folder, variables, dask_settings, str(scheduler), str(name)
        )

    return make


def render_job_script(
    plan: ClusterPlan,
    settings: SlurmSettings,
    folder: Path,
    variables: Mapping[str, str],
    dask_settings: Mapping[str, str],
    scheduler: str,
    name: str,
) -> str:
    """Return the script of a job.

    Parameters
    ----------
    plan : ClusterPlan
        The plan; a job is one of its nodes.
    settings : SlurmSettings
        Settings of the engine. All of them are quoted except the prologue, which is shell code.
    folder : Path
        Folder of the cluster, with the files of its key pair.
    variables : mapping of str to str
        Environment variables of the worker processes. The prologue can change them.
    dask_settings : mapping of str to str
        Dask settings as environment variables.
    scheduler : str
        Address of the scheduler.
    name : str
        Name of the worker.
    """
    lines = ["#!/bin/bash", *_directives(plan, settings, folder)]
    lines += ["", *_exports(variables)]
    if settings.prologue:
        lines += ["# The prologue of the settings.", *settings.prologue]
    lines += _exports(dask_settings)
    words = _worker_command(plan, settings, folder, scheduler, name)
    return "\n".join([*lines, "", " \\\n  ".join(words)]) + "\n"


def _directives(plan: ClusterPlan, settings: SlurmSettings, folder: Path) -> list[str]:
    worker = plan.worker
    memory = worker.total_ram + gb_to_bytes(settings.memory_margin_gb)
    resources = BatchResources(worker.cores_per_worker, memory, worker.ngpus)
    log = job_log(log_folder(settings, folder), plan.name)
    return node_directives(settings, plan.name, job_comment(plan.engine), log, resources)


def _exports(variables: Mapping[str, str]) -> list[str]:
    return [f"export {name}={quote_word(value)}" for name, value in variables.items()]


def _worker_command(
    plan: ClusterPlan, settings: SlurmSettings, folder: Path, scheduler: str, name: str
) -> list[str]:
    """Return the command of a job: one process with a nanny for each worker process.

    It begins with ``exec``, so that signals to the job reach the nannies and not a shell.
    """
    worker = plan.worker
    options: dict[str, str | int | None] = {
        "--name": name,
        # dask-cuda starts a worker process on each GPU of the job.
        "--nworkers": None if worker.ngpus else worker.nprocs,
        "--nthreads": worker.nthreads,
        "--memory-limit": f"{worker.ram_per_proc}B",
        "--death-timeout": DEATH_TIMEOUT_SECONDS,
        # On loopback, because the pages of a worker have no TLS.
        "--dashboard-address": "127.0.0.1:0",
        "--interface": settings.interface,
        "--local-directory": settings.local_directory,
    }
    if (seconds := lifetime(settings)) is not None and not worker.ngpus:
        options["--lifetime"] = f"{seconds}s"
    if settings.security == "tls":
        options["--protocol"] = "tls://"
        options.update({key: str(folder / file) for key, file in TLS_FILES.items()})
    command = ["dask", "cuda", "worker"] if worker.ngpus else ["distributed.cli.dask_worker"]
    program = [settings.python or sys.executable, "-m", *command, scheduler]
    return [
        " ".join(["exec", *map(quote_word, program)]),
        *(f"{key} {quote_word(str(value))}" for key, value in options.items() if value is not None),
        "--no-dashboard",
    ]
