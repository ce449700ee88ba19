"""Errors of engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hyperplane.core.errors.base import HyperplaneError


class EngineError(HyperplaneError, RuntimeError):
    """An engine could not start, find or close a cluster.

    Attributes
    ----------
    engine : str
        Name of the engine; empty if the error concerns no single engine.
    message : str
        The text without the name of the engine and without the log.
    log_tail : str
        Last lines of the logs of scheduler and workers; may be empty.
    """

    def __init__(self, engine: str, message: str, log_tail: str = "") -> None:
        tail = f"\nlast lines of the log:\n{log_tail}" if log_tail else ""
        named = f"engine {engine}: " if engine else ""
        super().__init__(f"{named}{message}{tail}")
        self.engine, self.message = engine, message
        self.log_tail = log_tail


class EngineUnavailable(EngineError):
    """The engine cannot be used here; the message has the reason."""


class StartFailed(EngineError):
    """The cluster failed to start; processes and jobs that it had started were ended."""


class StartTimeout(EngineError, TimeoutError):
    """The cluster did not start in time; processes and jobs that it had started were ended."""

    if not TYPE_CHECKING:
        # The first base has another __new__, which cannot create an object of OSError's layout.
        __new__ = TimeoutError.__new__
