"""Settings of engines and jobs, one module for each section of the configuration."""

from __future__ import annotations

from hyperplane.spec.settings.aws import (
    AwsBatchSettings,
    EmrServerlessSettings,
    EmrSettings,
    GlueSettings,
)
from hyperplane.spec.settings.base import (
    EngineSettings,
    LeaseSettings,
    PreflightSettings,
    RemoteSettings,
    StartupSettings,
)
from hyperplane.spec.settings.cuda import CudaSettings
from hyperplane.spec.settings.gateway import GatewaySettings
from hyperplane.spec.settings.gcp import CloudRunSettings, GcpJobSettings, VertexSettings
from hyperplane.spec.settings.history import HistorySettings
from hyperplane.spec.settings.jobs import EmailSettings, JobSettings
from hyperplane.spec.settings.kubernetes import (
    ClusterPodSettings,
    KubernetesJobSettings,
    KubernetesSettings,
    PodSettings,
)
from hyperplane.spec.settings.local import LocalSettings, MachineSettings
from hyperplane.spec.settings.progress import ProgressSettings
from hyperplane.spec.settings.ray import (
    RayKubernetesSettings,
    RayLocalSettings,
    RaySlurmSettings,
    RaySshSettings,
)
from hyperplane.spec.settings.runners import RunnersSection
from hyperplane.spec.settings.slurm import BatchSettings, SlurmSettings
from hyperplane.spec.settings.spark import (
    SparkKubernetesSettings,
    SparkLocalSettings,
    SparkSettings,
    SparkSlurmSettings,
    SparkSshSettings,
)
from hyperplane.spec.settings.ssh import HostSettings, SshSettings

__all__ = [
    "AwsBatchSettings",
    "BatchSettings",
    "CloudRunSettings",
    "ClusterPodSettings",
    "CudaSettings",
    "EmailSettings",
    "EmrServerlessSettings",
    "EmrSettings",
    "EngineSettings",
    "GatewaySettings",
    "GcpJobSettings",
    "GlueSettings",
    "HistorySettings",
    "HostSettings",
    "JobSettings",
    "KubernetesJobSettings",
    "KubernetesSettings",
    "LeaseSettings",
    "LocalSettings",
    "MachineSettings",
    "PodSettings",
    "PreflightSettings",
    "ProgressSettings",
    "RayKubernetesSettings",
    "RayLocalSettings",
    "RaySlurmSettings",
    "RaySshSettings",
    "RemoteSettings",
    "RunnersSection",
    "SlurmSettings",
    "SparkKubernetesSettings",
    "SparkLocalSettings",
    "SparkSettings",
    "SparkSlurmSettings",
    "SparkSshSettings",
    "SshSettings",
    "StartupSettings",
    "VertexSettings",
]
