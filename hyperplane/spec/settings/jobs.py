"""Settings of pipeline jobs, and of their e-mail."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from hyperplane.core.units import in_seconds, parse_bytes, parse_seconds
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
#: Target of a notification: a Slack webhook, and beginnings of the others.
SLACK_WEBHOOK, SLACK_PREFIX, EMAIL_PREFIX, JSON_PREFIX = "webhook", "slack:", "email:", "json:"
#: Part of an e-mail address: no separators, no control characters, and no parts of characters.
_EMAIL_PART = r"[^\s\x00-\x1f\x7f-\x9f\ud800-\udfff@,;<>]+"
_TARGET = re.compile(
    rf"{SLACK_WEBHOOK}|{SLACK_PREFIX}\S+|{EMAIL_PREFIX}{_EMAIL_PART}@{_EMAIL_PART}"
    rf"|{JSON_PREFIX}[A-Za-z_][A-Za-z0-9_]*"
)


def check_target(value: str) -> str:
    """Return a target of notifications; raise ValueError if it has none of the four forms."""
    if not _TARGET.fullmatch(value):
        raise ValueError(
            "'slack:#channel', 'webhook', 'email:name@example.com', or 'json:VARIABLE' with the "
            "variable that has the URL"
        )
    return value


Targets = tuple[Annotated[str, AfterValidator(check_target)], ...]
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
    notify: Targets = ()
    notify_success: Targets = ()
    notify_late: Targets = ()
    late_after: Duration = "12h"
    clean_older_than: Duration | None = None
    clean_keep: Annotated[int, Field(ge=0)] | None = None

    @property
    def late_seconds(self) -> float:
        """Seconds from the submission after which a job that has not ended is late."""
        return parse_seconds(self.late_after)

    @property
    def cleans(self) -> bool:
        """Whether the supervisor removes ended jobs."""
        return self.clean_older_than is not None or self.clean_keep is not None

    @property
    def clean_seconds(self) -> float | None:
        """Least seconds since the end of a job that is removed; None for any time."""
        return None if self.clean_older_than is None else parse_seconds(self.clean_older_than)

    @property
    def log_bytes(self) -> int:
        """Largest size of the log of an attempt in bytes; 0 for no limit."""
        return 0 if self.log_limit is None else parse_bytes(str(self.log_limit))


class EmailSettings(BaseModel):
    """Settings of the SMTP server; ``config/email.yaml`` explains each."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: Annotated[str, Field(min_length=1)] = "localhost"
    port: Annotated[int, Field(ge=1, le=65535)] = 587
    security: Literal["starttls", "tls", "none"] = "starttls"
    sender: str | None = None
