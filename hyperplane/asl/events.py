"""Events of an execution, which ``run_machine`` passes to ``on_event``."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Literal


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
        Number of the next attempt, from 1.
    wait : float
        Seconds until the next attempt.
    """

    kind: Literal["entered", "succeeded", "retried", "caught", "failed"]
    path: tuple[str | int, ...]
    at: dt.datetime
    error: str = ""
    cause: str = ""
    attempt: int = 1
    wait: float = 0.0
