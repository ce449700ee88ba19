"""Build the sbatch script of a worker node."""

from __future__ import annotations

import sys
from pathlib import Path

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
from hyperplane.spec.settings import RaySlurmSettings

#: Module that jobs run.
PROGRAM = "hyperplane.clusters.ray.slurm.job_program"
#: File in the folder of a cluster with what a job needs to connect to it.
CONNECTION_FILE = "connection.json"
#: In a script, the place of the name of the worker node.
NAME_PLACEHOLDER = "WORKER_NODE"


def render_job_script(plan: ClusterPlan, settings: RaySlurmSettings, folder: Path) -> str:
    """Return the script of the job with a worker node, with a placeholder for its name.

    Parameters
    ----------
    plan : ClusterPlan
        The plan; a job has the cores and the memory of one of its worker processes.
    settings : RaySlurmSettings
        Settings of the engine. All of them are quoted except the prologue, which is shell code.
    folder : Path
        Folder of the cluster that all nodes share.
    """
    worker = plan.worker
    memory = worker.ram_per_proc + gb_to_bytes(settings.memory_margin_gb)
    log = job_log(log_folder(settings, folder), plan.name)
    lines = ["#!/bin/bash"]
    lines += node_directives(settings, plan.name, log, BatchResources(worker.nthreads, memory))
    # Otherwise the job would start again beside the one that replaces it.
    lines += format_directives(["--no-requeue"])
    if settings.prologue:
        lines += ["", "# The prologue of the settings.", *settings.prologue]
    program = [settings.python or sys.executable, "-m", PROGRAM]
    words = [*program, str(folder / CONNECTION_FILE), NAME_PLACEHOLDER]
    # With exec, so that signals to the job reach the program and not a shell.
    return "\n".join([*lines, "", "exec " + " ".join(map(quote_word, words))]) + "\n"
