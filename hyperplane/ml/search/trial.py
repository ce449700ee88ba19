"""One trial of a search, as its objective sees it, and the result of the trial."""

from __future__ import annotations

import json
import os
import socket
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from inspect import Parameter, signature
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any, Literal, Protocol

from hyperplane.core.argument_checks import describe_value
from hyperplane.core.errors import Fault, check
from hyperplane.core.public_calls import check_call
from hyperplane.core.units import is_boolean, whole_number

State = Literal["complete", "pruned", "failed"]
#: Steps are stored as integers of 32 bits.
_MAX_STEP = 2**31
#: Maximum length of the stored text of an error.
_MAX_ERROR = 2000


class TrialStopped(Exception):
    """Raised by an objective, or by this module, when a trial ends early."""


class ReportChannel(Protocol):
    """Connection of a trial with its search."""

    def report(self, value: float, step: int) -> None:
        """Send an intermediate value."""

    def should_prune(self) -> bool:
        """Return whether the trial should end after the last reported value."""


@check_call
class Trial:
    """The trial that an objective runs, passed as its second argument.

    The names of the methods are those of Optuna.

    Parameters
    ----------
    number : int
        Number of the trial in its search, from 0.
    params : dict
        The values of its parameters.
    channel : ReportChannel
        Receives the intermediate values.
    """

    def __init__(self, number: int, params: Mapping[str, Any], channel: ReportChannel) -> None:
        self.number, self.params = number, dict(params)
        self._channel = channel
        self.last: float | None = None

    def report(self, value: float, step: int) -> None:
        """Report an intermediate value.

        Parameters
        ----------
        value : float
            The value so far, such as the score after an epoch.
        step : int
            Its number, from 0; each step is reported once.

        Raises
        ------
        RequestError
            If the value is not a number, or the step is not a whole number from 0.
        """
        number, whole = _as_float(value), whole_number(step)
        faults = []
        if number is None:
            faults.append(Fault("value", describe_value(value), "a number"))
        if whole is None or not 0 <= whole < _MAX_STEP:
            faults.append(
                Fault("step", describe_value(step), f"a whole number from 0 to {_MAX_STEP - 1}")
            )
        check(faults)
        self.last = number
        self._channel.report(number or 0.0, whole or 0)

    def should_prune(self) -> bool:
        """Return whether the last reported value is too bad for the trial to go on.

        Returns
        -------
        bool
            If True, return from the objective: the trial then counts as ended early. Always False
            unless the search has early stopping.
        """
        self._stopped = self._channel.should_prune()
        return self._stopped

    _stopped = False

    @property
    def is_stopped(self) -> bool:
        """Whether the last answer of ``should_prune`` was True."""
        return self._stopped


@dataclass(frozen=True)
class TrialResult:
    """Result of one trial.

    Parameters
    ----------
    state : {"complete", "pruned", "failed"}
        How the trial ended; ``pruned`` if early stopping ended it.
    value : float or None
        Value of the objective; the last reported one if the trial was pruned.
    started, ended : float
        Seconds since 1970.
    worker : str
        Host and process id of the process that ran it.
    error : str
        Text of the error if it failed.
    """

    state: State
    value: float | None
    started: float
    ended: float
    worker: str
    error: str = ""

    def write(self, file: Path) -> None:
        """Write this result to a file, at once or not at all."""
        draft = file.with_suffix(f".{os.getpid()}.draft")
        draft.write_text(json.dumps(asdict(self)))
        draft.replace(file)

    @classmethod
    def read(cls, file: Path) -> TrialResult | None:
        """Return the result in a file; None if there is none."""
        try:
            return cls(**json.loads(file.read_text()))
        except (FileNotFoundError, ValueError, TypeError):
            return None


def run_trial(objective: Callable[..., Any], trial: Trial) -> TrialResult:
    """Run the objective of a trial; its errors become part of the result.

    Examples
    --------
    >>> class Ignored:
    ...     def report(self, value, step): ...
    ...     def should_prune(self):
    ...         return False
    >>> run_trial(lambda params: params["x"] ** 2, Trial(0, {"x": 3}, Ignored())).value
    9.0
    """
    started = time.time()
    worker = f"{socket.gethostname()}:{os.getpid()}"

    def end(state: State, value: float | None, error: str = "") -> TrialResult:
        return TrialResult(state, value, started, time.time(), worker, error[:_MAX_ERROR])

    try:
        if takes_trial(objective):
            value = objective(dict(trial.params), trial)
        else:
            value = objective(dict(trial.params))
    except TrialStopped:
        return end("pruned", trial.last)
    except BaseException as error:
        # In the thread of a task only the objective raises this; Dask would end its worker.
        if isinstance(error, KeyboardInterrupt) and current_thread() is main_thread():
            raise
        if type(error).__name__ == "TrialPruned":  # Optuna's, which the worker may not have
            return end("pruned", trial.last)
        return end("failed", None, _describe_error(error))
    if trial.is_stopped:
        return end("pruned", trial.last if value is None else _as_float(value))
    number = _as_float(value)
    if number is None or number != number:
        return end(
            "failed", None, f"the objective returned {describe_value(value)}; expected a number"
        )
    return end("complete", number)


def takes_trial(objective: Callable[..., Any]) -> bool:
    """Return whether an objective has a second parameter, for the trial.

    Examples
    --------
    >>> takes_trial(lambda params: 1), takes_trial(lambda params, trial: 1)
    (False, True)
    """
    try:
        parameters = signature(objective).parameters.values()
    except (TypeError, ValueError):  # some functions in C have no signature
        return False
    kinds = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    positional = [each for each in parameters if each.kind in kinds]
    required = [each for each in positional if each.default is Parameter.empty]
    return len(required) > 1 or any(each.name == "trial" for each in positional[1:])


def _as_float(value: object) -> float | None:
    if is_boolean(value) or isinstance(value, (str, bytes)):
        return None
    with suppress(TypeError, ValueError, OverflowError):
        return float(value)  # type: ignore[arg-type]
    return None


def _describe_error(error: BaseException) -> str:
    """Return type and message of an error, and the line of the objective that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    own = str(Path(__file__))
    inner = [frame for frame in frames if frame.filename != own]
    place = f" ({Path(inner[0].filename).name}:{inner[0].lineno})" if inner else ""
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - it runs code of any class
        message = "its message cannot be shown"
    return f"{type(error).__name__}: {message}{place}"
