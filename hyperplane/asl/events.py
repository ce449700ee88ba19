"""Events of an execution, which ``run_machine`` passes to ``on_event``."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Literal

EventKind = Literal["entered", "succeeded", "retried", "caught", "failed"]


@dataclass(frozen=True)
class Event:
    """An event of a state.

    A state that is stopped because another branch failed or the execution ended has no final event.

    Parameters
    ----------
    kind : str
        ``entered``, then ``retried`` before each further attempt, and finally ``succeeded``,
        ``caught`` (a Catch handles the error) or ``failed``.
    path : tuple of str and int
        Names of states and numbers of branches or items, such as ``("Fan", 0, "Fetch")``.
    at : datetime
        Time of the event in UTC.
    error, cause : str
        Name and description of the error; empty without one.
    attempt : int
        For ``retried``, the number of the next attempt, from 2; for other kinds 1.
    wait : float
        For ``retried``, the seconds until the next attempt; for other kinds 0.
    """

    kind: EventKind
    path: tuple[str | int, ...]
    at: dt.datetime
    error: str = ""
    cause: str = ""
    attempt: int = 1
    wait: float = 0.0
