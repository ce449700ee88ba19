"""Build the sbatch script of a worker."""

from __future__ import annotations

import sys
from pathlib import Path

from hyperplane.clusters.gpu_requests import count_gpus
from hyperplane.clusters.remote_nodes.slurm_listing import job_comment
from hyperplane.core.units import gb_to_bytes
from hyperplane.platforms.slurm.directives import (
    BatchResources,
    format_directives,
    node_directives,
)
from hyperplane.platforms.slurm.logs import job_log
from hyperplane.platforms.slurm.script import quote_word
from hyperplane.platforms.slurm.shared_folder import log_folder
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.settings import BatchSettings

#: File in the folder of a cluster with what a job needs to connect to it.
CONNECTION_FILE = "connection.json"
#: The last word of a script, in the place of the name of the worker.
NAME_PLACEHOLDER = "WORKER_NODE"


def render_job_script(
    plan: ClusterPlan, settings: BatchSettings, folder: Path, program: str
) -> str:
    """Return the script of the job with a worker, with a placeholder for its name.

    Parameters
    ----------
    plan : ClusterPlan
        The plan; a job has the cores and the memory of one of its worker processes.
    settings : BatchSettings
        Settings of the engine. All of them are quoted except the prologue, which is shell code.
    folder : Path
        Folder of the cluster that all nodes share.
    program : str
        Module that the job runs.
    """
    worker = plan.worker
    memory = worker.ram_per_proc + gb_to_bytes(settings.memory_margin_gb)
    log = job_log(log_folder(settings, folder), plan.name)
    lines = ["#!/bin/bash"]
    resources = BatchResources(worker.nthreads, memory, count_gpus(worker))
    lines += node_directives(settings, plan.name, job_comment(plan.engine), log, resources)
    # Otherwise the job would start again beside the one that replaces it.
    lines += format_directives(["--no-requeue"])
    if settings.prologue:
        lines += ["", "# The prologue of the settings.", *settings.prologue]
    command = [settings.python or sys.executable, "-m", program]
    words = [*command, str(folder / CONNECTION_FILE), NAME_PLACEHOLDER]
    # With exec, so that signals to the job reach the program and not a shell.
    return "\n".join([*lines, "", "exec " + " ".join(map(quote_word, words))]) + "\n"


def insert_name(script: str, name: str) -> str:
    r"""Return a script with the name of the worker; the same word in a prologue is kept.

    Examples
    --------
    >>> insert_name("export A=WORKER_NODE\nexec program WORKER_NODE", "worker-1")
    'export A=WORKER_NODE\nexec program worker-1'
    """
    before, _, after = script.rpartition(NAME_PLACEHOLDER)
    return f"{before}{name}{after}"
