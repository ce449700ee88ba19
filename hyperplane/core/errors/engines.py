"""Errors of engines and of running clusters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hyperplane.core.errors.base import Fault, HyperplaneError


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


class PreflightError(StartFailed):
    """The checks before a start found faults; nothing was started.

    Attributes
    ----------
    faults : tuple of Fault
        All faults that the checks found.
    """

    def __init__(self, engine: str, faults: Sequence[Fault]) -> None:
        if len(faults) == 1:  # the subject is that of the report, which the text does not need
            text = str(faults[0]).removeprefix(f"{faults[0].where}: ")
        else:
            text = "\n  ".join([f"{len(faults)} faults were found:", *map(str, faults)])
        super().__init__(engine, f"nothing was started: {text}")
        self.faults = tuple(faults)


class StartTimeout(EngineError, TimeoutError):
    """The cluster did not start in time; processes and jobs that it had started were ended."""

    if not TYPE_CHECKING:
        # The first base has another __new__, which cannot create an object of OSError's layout.
        __new__ = TimeoutError.__new__


class ClusterStalled(HyperplaneError, RuntimeError):
    """A cluster cannot make progress; its unfinished tasks were ended with this error.

    Attributes
    ----------
    cause : str
        ``"memory"`` if all workers that have tasks are paused, ``"lost"`` if the workers have
        ended, ``"deadlock"`` if tasks wait for each other, ``"shuffle"`` if a shuffle was started
        again too often.
    tasks : int
        Number of unfinished tasks.
    seconds : float
        Time since the last task has finished; 0 for a shuffle.
    """

    def __init__(self, message: str, cause: str = "", tasks: int = 0, seconds: float = 0) -> None:
        super().__init__(message)
        self.cause, self.tasks, self.seconds = cause, tasks, seconds
