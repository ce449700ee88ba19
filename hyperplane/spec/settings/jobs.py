"""Settings of pipeline jobs."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from hyperplane.core.units import in_seconds, parse_bytes
from hyperplane.spec.settings.base import Duration

#: A shorter log could only contain the note about omitted lines.
_SHORTEST_LOG = 4096


def _check_log_size(value: str | int) -> str | int:
    allowed = f"at least {_SHORTEST_LOG} bytes, such as '100 MB'; null for no limit"
    try:
        if parse_bytes(str(value)) >= _SHORTEST_LOG:
            return value
    except ValueError:
        pass
    raise ValueError(allowed)


LogSize = Annotated[str | int, AfterValidator(_check_log_size)]
#: Time limit of a job in seconds; -1 for no limit.
Limit = Annotated[float, BeforeValidator(in_seconds)]


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
    log_limit: LogSize | None = "100 MB"
    timeout: Limit = 86_400
    active_timeout: Limit = 86_400
    max_retries: Annotated[int, Field(ge=0, le=10)] = 2
    default_pool: str = "16_16"
    notify: tuple[str, ...] = ()

    @property
    def log_bytes(self) -> int:
        """Largest size of the log of an attempt in bytes; 0 for no limit."""
        return 0 if self.log_limit is None else parse_bytes(str(self.log_limit))
