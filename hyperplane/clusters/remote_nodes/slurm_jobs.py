"""What the engines of all frameworks need for workers that are jobs of Slurm."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from hyperplane.clusters import records
from hyperplane.clusters.remote_nodes.job_script import render_job_script
from hyperplane.core.errors import Fault, StartFailed
from hyperplane.platforms.local.addresses import find_address
from hyperplane.platforms.slurm.shared_folder import log_folder, private_folder, shared_folder
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.settings import BatchSettings


def find_interface_faults(settings: BatchSettings) -> list[Fault]:
    """Return a fault if the interface of the settings is one that no other machine reaches.

    A plan may be made on a machine without that interface. Slurm refuses other invalid requests
    when a job is submitted.
    """
    with suppress(ValueError):
        address = find_address(settings.interface)
        if address.startswith("127."):
            given = f"{settings.interface!r}, the address {address}"
            allowed = "an interface of this machine that nodes reach"
            return [Fault(settings.locate("interface"), given, allowed)]
    return []


def find_own_address(engine: str, settings: BatchSettings) -> str:
    """Return the address of this machine by which nodes reach it; raise a StartFailed if none."""
    try:
        return find_address(settings.interface)
    except ValueError as error:
        given = f"{settings.locate('interface')} = {settings.interface!r}"
        raise StartFailed(engine, f"{given}: expected {error}") from error


def create_shared_folder(settings: BatchSettings) -> str:
    """Return the folder that this machine shares with the nodes."""
    folder = shared_folder(settings)
    folder.mkdir(parents=True, exist_ok=True)
    return str(folder)


def render_plan(plan: ClusterPlan, program: str) -> str:
    """Return the sbatch script of a worker, without contacting Slurm."""
    settings = plan.settings
    assert isinstance(settings, BatchSettings)  # noqa: S101 - of engines of Slurm
    return render_job_script(plan, settings, private_folder(settings, plan.name), program)


def build_request(
    plan: ClusterPlan, record: records.ClusterRecord, host: str, program: str
) -> dict[str, Any]:
    """Return what the class of the workers needs to submit jobs that run a program."""
    settings = plan.settings
    assert isinstance(settings, BatchSettings)  # noqa: S101 - of engines of Slurm
    folder = Path(record.scratch)
    return {
        "host": host,
        "interface_key": settings.locate("interface"),
        "name": plan.name,
        "logs": str(log_folder(settings, folder)),
        "script": render_job_script(plan, settings, folder, program),
        "local_directory": settings.local_directory,
        "user_tmpdir": os.environ.get("TMPDIR", ""),
    }
