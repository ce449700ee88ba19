"""The settings of the cuda engine."""

from __future__ import annotations

from hyperplane.spec.settings.base import EngineSettings


class CudaSettings(EngineSettings):
    """Settings of the cuda engine; ``config/engines.yaml`` explains each."""
