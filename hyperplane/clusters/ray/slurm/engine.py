"""The engine ``ray:slurm``: a Ray cluster with its head on this machine and jobs of Slurm."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, cast

from hyperplane.clusters import records
from hyperplane.clusters.engine import Availability
from hyperplane.clusters.ray.engine import INSTALL_RAY, RemoteRayEngine
from hyperplane.clusters.ray.slurm.cluster import ENGINE, SlurmRayCluster
from hyperplane.clusters.ray.slurm.script import render_job_script
from hyperplane.core.errors import Fault, StartFailed
from hyperplane.core.optional import is_installed
from hyperplane.core.units import plural
from hyperplane.platforms.local.addresses import find_address
from hyperplane.platforms.slurm.commands import describe_missing_commands
from hyperplane.platforms.slurm.shared_folder import private_folder, shared_folder
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.request import ClusterRequest
from hyperplane.spec.settings import EngineSettings, RaySlurmSettings

_INTERFACE = "hyperplane.engines.slurm.interface"


class SlurmRayEngine(RemoteRayEngine):
    """Starts a head of Ray on this machine and one Slurm job for each worker node."""

    name: ClassVar[str] = ENGINE
    settings: ClassVar[type[EngineSettings]] = RaySlurmSettings

    def available(self) -> Availability:
        """Return whether Ray and Slurm's commands are installed; query nothing."""
        if not is_installed("ray"):
            return Availability(False, INSTALL_RAY)
        if not is_installed("cryptography"):
            return Availability(False, "it needs cryptography: pip install 'hyperplane[slurm]'")
        if missing_commands := describe_missing_commands():
            return Availability(False, missing_commands)
        contact = "Slurm is contacted when a cluster starts"
        return Availability(True, f"Ray is installed, and {shutil.which('sbatch')}; {contact}")

    def faults(self, request: ClusterRequest, settings: EngineSettings) -> list[Fault]:
        """Return a fault if the interface of the settings is one that no other machine reaches.

        A plan may be made on a machine without that interface. Slurm refuses other invalid requests
        when a job is submitted.
        """
        del request
        interface = cast(RaySlurmSettings, settings).interface
        with suppress(ValueError):
            address = find_address(interface)
            if address.startswith("127."):
                given = f"{interface!r}, the address {address}"
                return [Fault(_INTERFACE, given, "an interface of this machine that nodes reach")]
        return []

    def start_line(self, plan: ClusterPlan) -> str:
        """Return a line with the number of jobs."""
        jobs = plural(plan.dask_workers, "Slurm job")
        return f"starting the head node of Ray on this machine and submitting {jobs}"

    def render(self, plan: ClusterPlan) -> str:
        """Return the sbatch script of a worker node, without contacting Slurm."""
        settings = cast(RaySlurmSettings, plan.settings)
        folder = private_folder(settings, plan.name)
        return render_job_script(plan, settings, folder)

    def scratch_parent(self, plan: ClusterPlan) -> str:
        """Return the folder that this machine shares with the nodes."""
        folder = shared_folder(cast(RaySlurmSettings, plan.settings))
        folder.mkdir(parents=True, exist_ok=True)
        return str(folder)

    def build_cluster(
        self, plan: ClusterPlan, record: records.ClusterRecord, folder: Path
    ) -> SlurmRayCluster:
        """Return the object of a new cluster whose folder is valid."""
        interface = cast(RaySlurmSettings, plan.settings).interface
        try:
            host = find_address(interface)
        except ValueError as error:
            given = f"{_INTERFACE} = {interface!r}"
            raise StartFailed(self.name, f"{given}: expected {error}") from error
        return SlurmRayCluster(plan, record, folder, host)
