"""The error of calls that wait for a scheduler which does not answer any more."""

from __future__ import annotations

from typing import Any

from distributed.client import FutureCancelledError
from distributed.comm.core import CommClosedError

from hyperplane.core.errors import HyperplaneError


class SchedulerUnreachable(HyperplaneError, ConnectionError, FutureCancelledError, CommClosedError):
    """The scheduler of a cluster does not answer, or the connection to it was closed.

    Also the errors that Dask raises for a closed connection, ``FutureCancelledError`` and
    ``CommClosedError``, so that code for these catches it.

    Attributes
    ----------
    cause : str
        ``"silent"`` if the connection is open but the scheduler does not answer,
        ``"disconnected"`` if the connection was closed.
    seconds : float
        Time without an answer; 0 after a closed connection.
    key : object
        Key of the future that ended with the error; empty if a call did.
    """

    def __new__(cls, message: str = "", *args: Any, **kwargs: Any) -> SchedulerUnreachable:
        """Create the error; ``ConnectionError`` would read further arguments as those of errno."""
        del args, kwargs
        return ConnectionError.__new__(cls, message)

    def __init__(
        self, message: str, cause: str = "silent", seconds: float = 0.0, key: Any = ""
    ) -> None:
        ConnectionError.__init__(self, message)
        # The attributes of FutureCancelledError, which is the error of a single future.
        self.key, self.reason, self.msg = key, f"scheduler-{cause}", message
        self.cause, self.seconds = cause, seconds

    def __str__(self) -> str:
        return str(self.msg)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.msg, self.cause, self.seconds, self.key)


# Tracebacks name the public module, as they do for the other errors.
SchedulerUnreachable.__module__ = "hyperplane.errors"
