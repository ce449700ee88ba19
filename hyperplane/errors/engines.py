"""What is wrong with an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hyperplane.errors.requests import HyperplaneError


class EngineError(HyperplaneError, RuntimeError):
    """An engine could not do what the plan asks.

    Attributes
    ----------
    engine : str
        Name of the engine.
    log_tail : str
        The last lines that the engine's parts logged; may be empty.
    """

    def __init__(self, engine: str, message: str, log_tail: str = "") -> None:
        tail = f"\nlast lines of the log:\n{log_tail}" if log_tail else ""
        super().__init__(f"engine {engine}: {message}{tail}")
        self.engine = engine
        self.log_tail = log_tail


class EngineUnavailable(EngineError):
    """The engine cannot be used here; the message says why."""


class StartFailed(EngineError):
    """The cluster did not come up; what had been started was closed again."""


class StartTimeout(EngineError, TimeoutError):
    """The cluster was not ready in time; what had been started was closed again."""

    if not TYPE_CHECKING:
        # Python finds the first parent's, which cannot make an object with this one's layout.
        __new__ = TimeoutError.__new__
