"""Errors of executions: MachineFailed for callers, and three internal ones."""

from __future__ import annotations

from hyperplane.core.errors import HyperplaneError

#: Names of two errors of the language.
RUNTIME = "States.Runtime"
TIMEOUT = "States.Timeout"


class MachineFailed(HyperplaneError, RuntimeError):
    """A state machine failed with an error that no Catch of it handles.

    Attributes
    ----------
    error : str
        The error name, such as ``"States.Timeout"``, the ``Error`` of a Fail state, or the name of
        the exception class of a Python task. ``"Cancelled"`` if the caller ended the execution.
    cause : str
        Description of the error; may be empty.
    state : str
        The state that failed, such as ``"Fan[0].Fetch"``; empty if the whole execution failed.
    """

    def __init__(self, error: str, cause: str, state: str) -> None:
        where = f" in state {state}" if state else ""
        why = f": {cause}" if cause else ""
        super().__init__(f"the machine failed{where} with {error or 'an unnamed error'}{why}")
        self.error = error
        self.cause = cause
        self.state = state


class StateError(Exception):
    """A state failed; Retry and Catch handle the error by its name."""

    def __init__(self, name: str, cause: str) -> None:
        super().__init__(f"{name}: {cause}")
        self.name = name
        self.cause = cause
        self.state = ""


class ExecutionStopped(Exception):
    """The whole execution ends with an error that no state can catch."""

    def __init__(self, name: str, cause: str) -> None:
        super().__init__(f"{name}: {cause}")
        self.name = name
        self.cause = cause


class BranchStopped(Exception):
    """A branch is stopped because another branch failed or the execution was cancelled."""
