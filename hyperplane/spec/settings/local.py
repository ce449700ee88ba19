"""Settings of engines of this machine."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from hyperplane.spec.settings.base import (
    EngineSettings,
    Fraction,
    NotNegative,
    PreflightSettings,
    StartupSettings,
)


class MachineSettings(EngineSettings):
    """Settings of engines that fit a request to the cores and memory of this machine."""

    fit: Literal["fit", "exact"] = "fit"
    reserve_fraction: Fraction = 0.10
    single_process_cores: Annotated[int, Field(ge=1)] = 3


class LocalSettings(MachineSettings, StartupSettings, PreflightSettings):
    """Settings of the local engine; ``config/engines.yaml`` explains each."""

    oom_free_memory: Fraction = 0.5
    reserve_disk_gb: NotNegative = 2.0
    start_method: Literal["preload", "spawn"] = "preload"
    preload: tuple[str, ...] = ()
    security: Literal["user", "none"] = "user"
