"""Settings of the local engine."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from hyperplane.spec.settings.base import Fraction, NotNegative, StartupSettings


class LocalSettings(StartupSettings):
    """Settings of the local engine; ``config/engines.yaml`` explains each."""

    fit: Literal["fit", "exact"] = "fit"
    reserve_fraction: Fraction = 0.10
    reserve_disk_gb: NotNegative = 2.0
    single_process_cores: Annotated[int, Field(ge=1)] = 3
    start_method: Literal["preload", "spawn"] = "preload"
    preload: tuple[str, ...] = ()
