"""Settings of the engines of Ray."""

from __future__ import annotations

from hyperplane.spec.settings.local import MachineSettings


class RayLocalSettings(MachineSettings):
    """Settings of the engine ``ray:local``; ``config/engines.yaml`` explains each."""

    dashboard: bool = True
