"""Settings of engines and jobs, one module for each section of the configuration."""

from __future__ import annotations

from hyperplane.spec.settings.base import EngineSettings, RemoteSettings, StartupSettings
from hyperplane.spec.settings.cuda import CudaSettings
from hyperplane.spec.settings.gateway import GatewaySettings
from hyperplane.spec.settings.jobs import JobSettings
from hyperplane.spec.settings.kubernetes import KubernetesJobSettings, KubernetesSettings
from hyperplane.spec.settings.local import LocalSettings, MachineSettings
from hyperplane.spec.settings.ray import RayLocalSettings, RaySlurmSettings, RaySshSettings
from hyperplane.spec.settings.slurm import BatchSettings, SlurmSettings
from hyperplane.spec.settings.spark import SparkLocalSettings
from hyperplane.spec.settings.ssh import HostSettings, SshSettings

__all__ = [
    "BatchSettings",
    "CudaSettings",
    "EngineSettings",
    "GatewaySettings",
    "HostSettings",
    "JobSettings",
    "KubernetesJobSettings",
    "KubernetesSettings",
    "LocalSettings",
    "MachineSettings",
    "RayLocalSettings",
    "RaySlurmSettings",
    "RaySshSettings",
    "RemoteSettings",
    "SlurmSettings",
    "SparkLocalSettings",
    "SshSettings",
    "StartupSettings",
]
