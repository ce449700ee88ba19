"""State of the run of a driver, in a service of Amazon that has no exit codes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, ClassVar, Self

#: Parts of messages, in lower case, of a run without enough memory. Amazon has no list of them.
_OUT_OF_MEMORY = ("out of memory", "outofmemory", "exceeding memory limits")


@dataclass(frozen=True)
class RunStatus:
    """State of a run; base of those of each service.

    Parameters
    ----------
    state : str
        Its state, such as ``"RUNNING"``.
    reason : str
        Why it is in the state; may be empty.
    exit_code : int or None
        Exit code of the program, negative for a signal. None in the answers of a service.
    started, stopped : float
        Times in seconds since 1970; 0 before.
    log_url : str
        Folder of a bucket with the logs of the service, which appear some minutes after the end;
        empty if there is none.
    """

    state: str
    reason: str = ""
    exit_code: int | None = None
    started: float = 0.0
    stopped: float = 0.0
    log_url: str = ""

    #: States of a run that has succeeded, that has failed, and that the service or a user ended.
    succeeded: ClassVar[str]
    failed: ClassVar[str] = "FAILED"
    terminated: ClassVar[tuple[str, ...]]
    #: Parts of messages, in lower case, of a failure of the service, and of a lack of capacity.
    lost_messages: ClassVar[tuple[str, ...]]
    capacity_messages: ClassVar[tuple[str, ...]]

    @classmethod
    def ended_states(cls) -> tuple[str, ...]:
        """Return the states of a run that has ended."""
        return (cls.succeeded, cls.failed, *cls.terminated)

    @property
    def container_reason(self) -> str:
        """Why its program ended, which is the reason of the run."""
        return self.reason

    @property
    def has_ended(self) -> bool:
        """Whether the run has ended."""
        return self.state in self.ended_states()

    @property
    def has_succeeded(self) -> bool:
        """Whether the run has ended without an error."""
        return self.state == self.succeeded

    @property
    def is_out_of_memory(self) -> bool:
        """Whether the run was ended for its memory."""
        return self.state == self.failed and self.says(_OUT_OF_MEMORY)

    @property
    def is_lost(self) -> bool:
        """Whether the service failed, so that the run can be repeated."""
        is_failure = self.state == self.failed and self.exit_code is None
        return is_failure and self.says(self.lost_messages)

    @property
    def has_no_capacity(self) -> bool:
        """Whether the run never started, because the service or the account had no capacity."""
        return self.state == self.failed and self.says(self.capacity_messages)

    @property
    def was_terminated(self) -> bool:
        """Whether the service or a user ended it, not its program."""
        return self.state in self.terminated

    def describe(self) -> str:
        """Return the state with its reason, in one line."""
        return f"{self.state} ({self.reason})" if self.reason else self.state

    def with_exit_code(self, code: int | None) -> Self:
        """Return a copy with the exit code of the program."""
        return replace(self, exit_code=code)

    def says(self, parts: tuple[str, ...]) -> bool:
        """Return whether the reason has one of some texts."""
        return any(part in self.reason.lower() for part in parts)


def seconds_of(time: Any) -> float:
    """Return a time of boto3 in seconds since 1970; 0 if there is none."""
    return time.timestamp() if isinstance(time, datetime) else 0.0


def one_line(text: Any) -> str:
    """Return a text of an answer in one line; empty if there is none."""
    return " ".join(str(text or "").split())
