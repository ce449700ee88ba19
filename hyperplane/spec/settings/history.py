"""Settings of the records of runs."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class HistorySettings(BaseModel):
    """Settings of the records of runs; ``config/history.yaml`` explains each."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    keep: Annotated[int, Field(ge=0)] = 200
