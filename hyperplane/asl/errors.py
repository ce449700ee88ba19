"""How a machine fails: one error for callers, three for what happens inside a run."""

from __future__ import annotations

from hyperplane.errors import HyperplaneError


class MachineFailed(HyperplaneError, RuntimeError):
    """A state machine ended in a failure that nothing in it caught.

    Attributes
    ----------
    error : str
        The error name, as ``"States.Timeout"``, the ``Error`` of a Fail state, or the name of
        the exception class of a Python task. ``"Cancelled"`` when the caller ended the run.
    cause : str
        What happened, for the reader; may be empty.
    state : str
        The state that failed, as ``"Fan[0].Fetch"``; empty where it is the run as a whole.
    """

    def __init__(self, error: str, cause: str, state: str) -> None:
        where = f" in state {state}" if state else ""
        why = f": {cause}" if cause else ""
        super().__init__(f"the machine failed{where} with {error or 'an unnamed error'}{why}")
        self.error = error
        self.cause = cause
        self.state = state


class StateError(Exception):
    """A state failed; a Retry or a Catch may name the error."""

    def __init__(self, name: str, cause: str) -> None:
        super().__init__(f"{name}: {cause}")
        self.name = name
        self.cause = cause
        self.state = ""


class ExecutionStopped(Exception):
    """The whole run is over, whatever the states would catch."""

    def __init__(self, name: str, cause: str) -> None:
        super().__init__(f"{name}: {cause}")
        self.name = name
        self.cause = cause


class BranchStopped(Exception):
    """A part of the run is to end because another part has failed."""
