"""What happens in a run, as it happens."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Event:
    """Something that happened to a state.

    A state that is stopped, because another branch failed or the run is over, has no last event.

    Parameters
    ----------
    kind : str
        ``entered``, then ``succeeded``, ``caught`` (it failed, and a Catch goes on elsewhere) or
        ``failed``; between them ``retried`` for each new attempt.
    path : tuple of str and int
        Where: names of states, and numbers of branches or items, as ``("Fan", 0, "Fetch")``.
    at : datetime
        When, in UTC.
    error, cause : str
        Why it failed; empty else.
    attempt : int
        Which attempt comes now, from 1.
    wait : float
        Seconds until then.
    """

    kind: Literal["entered", "succeeded", "retried", "caught", "failed"]
    path: tuple[str | int, ...]
    at: dt.datetime
    error: str = ""
    cause: str = ""
    attempt: int = 1
    wait: float = 0.0
