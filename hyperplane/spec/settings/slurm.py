"""The settings of the slurm engine."""

from __future__ import annotations

from hyperplane.spec.settings.base import RemoteSettings


class SlurmSettings(RemoteSettings):
    """Settings of the slurm engine; ``config/engines.yaml`` explains each."""
