"""The settings of pipeline jobs."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from hyperplane.spec.settings.base import Duration


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
