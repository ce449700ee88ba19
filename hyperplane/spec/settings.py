"""The settings of engines and jobs, as ``config/`` holds them."""

from __future__ import annotations

from typing import Annotated, Literal

from dask.utils import parse_timedelta
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

Fraction = Annotated[float, Field(ge=0, lt=1)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


def _duration(value: str | float) -> str | float:
    try:
        parse_timedelta(value)
    except (ValueError, LookupError):
        raise ValueError("seconds, or text such as '300s'") from None
    return value


Duration = Annotated[str | float, AfterValidator(_duration)]


class EngineSettings(BaseModel):
    """What every engine has: when an idle cluster ends by itself."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    idle_timeout: Duration | None = None


class LocalSettings(EngineSettings):
    """Settings of the local engine; ``config/engines.yaml`` explains each."""

    fit: Literal["fit", "exact"] = "fit"
    reserve_fraction: Fraction = 0.10
    reserve_disk_gb: NotNegative = 2.0
    single_process_cores: Annotated[int, Field(ge=1)] = 3
    start_method: Literal["preload", "spawn"] = "preload"
    preload: tuple[str, ...] = ()
    lost_worker_timeout: Duration = "300s"
    no_workers_timeout: Duration = "300s"
    worker_ttl: Duration = "60s"


class JobSettings(BaseModel):
    """Settings of pipeline jobs; ``config/jobs.yaml`` explains each."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    home: str | None = None
    store: Annotated[str | None, Field(repr=False)] = None
    secrets: str = "/etc/hyperplane/secrets"
    steps_at_once: Annotated[int, Field(ge=1)] = 16
    chunks_at_once: Annotated[int, Field(ge=1)] | None = None
    retry_wait: Duration = "1s"
    retry_wait_most: Duration = "60s"
    grace: Duration = "10s"
    linger: Duration = "30s"
    timeout: float = 86_400
    active_timeout: float = 86_400
    max_retries: Annotated[int, Field(ge=0, le=10)] = 2
    notify: tuple[str, ...] = ()
