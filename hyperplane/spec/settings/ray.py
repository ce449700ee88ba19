"""Settings of the engines of Ray."""

from __future__ import annotations

from typing import ClassVar

from hyperplane.spec.settings.base import Duration, LeaseTimes, NotNegative
from hyperplane.spec.settings.kubernetes import Bytes, ClusterPodSettings
from hyperplane.spec.settings.local import MachineSettings
from hyperplane.spec.settings.slurm import BatchSettings
from hyperplane.spec.settings.ssh import HostSettings


class RayLocalSettings(MachineSettings):
    """Settings of the engine ``ray:local``; ``config/engines.yaml`` explains each."""

    dashboard: bool = True


class RaySshSettings(HostSettings):
    """Settings of the engine ``ray:ssh``; ``config/engines.yaml`` explains each."""

    inherited: ClassVar[frozenset[str]] = frozenset(HostSettings.model_fields) - {"idle_timeout"}

    dashboard: bool = True
    idle_timeout: Duration | None = "30 minutes"


class RaySlurmSettings(BatchSettings):
    """Settings of the engine ``ray:slurm``; ``config/engines.yaml`` explains each."""

    inherited: ClassVar[frozenset[str]] = frozenset(BatchSettings.model_fields) - {
        "idle_timeout",
        "memory_margin_gb",
    }

    dashboard: bool = True
    memory_margin_gb: NotNegative = 0.5
    idle_timeout: Duration | None = "30 minutes"


class RayKubernetesSettings(ClusterPodSettings, LeaseTimes):
    """Settings of the engine ``ray:kubernetes``; ``config/engines.yaml`` explains each."""

    inherited: ClassVar[frozenset[str]] = frozenset(ClusterPodSettings.model_fields) - {
        "idle_timeout",
        "memory_overhead",
        "scheduler_ram",
    }

    scheduler_ram: Bytes = "4Gi"
    memory_overhead: Bytes = "500MB"
    lease_timeout: Duration = "5 minutes"
    idle_timeout: Duration | None = "30 minutes"
