"""The settings of the gateway engine."""

from __future__ import annotations

from hyperplane.spec.settings.base import RemoteSettings


class GatewaySettings(RemoteSettings):
    """Settings of the gateway engine; ``config/engines.yaml`` explains each."""
