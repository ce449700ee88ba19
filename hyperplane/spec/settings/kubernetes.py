"""The settings of the kubernetes engine."""

from __future__ import annotations

from hyperplane.spec.settings.base import RemoteSettings


class KubernetesSettings(RemoteSettings):
    """Settings of the kubernetes engine; ``config/engines.yaml`` explains each."""
