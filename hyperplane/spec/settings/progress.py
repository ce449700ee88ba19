"""Settings of the progress of calls that wait for a computation, a cluster or a job."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from hyperplane.core.units import parse_seconds
from hyperplane.spec.settings.base import Duration


class ProgressSettings(BaseModel):
    """Settings of the progress of calls that wait; ``config/progress.yaml`` explains each."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    delay: Duration | None = "2s"
    log_lines: bool = True

    @property
    def delay_seconds(self) -> float | None:
        """Seconds after which progress appears; None for never."""
        return None if self.delay is None else parse_seconds(self.delay)
