"""Search spaces: the values that each parameter of a search can take."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, Literal

from hyperplane.core.argument_checks import describe_value, is_one_of
from hyperplane.core.errors import Fault, check
from hyperplane.core.public_calls import check_call
from hyperplane.core.units import is_boolean

if TYPE_CHECKING:
    import optuna

Scale = Literal["linear", "log", "reverse_log"]
_SCALES = ("linear", "log", "reverse_log")
_ALLOWED = "a list of values, a Range, or a uniform, loguniform or randint distribution of scipy"
#: Maximum length of the text of a value that is compared or stored.
MAX_TEXT = 2000
#: Address of an object in its text, which differs in each process.
_ADDRESS = re.compile(r"(?<= at )0x[0-9a-fA-F]+")
#: Maximum number of combinations that are listed: all of a grid, or those to draw from at random.
MAX_COMBINATIONS = 1_000_000
#: Values that the database of a search can contain; others are stored by their position.
_STORABLE = (bool, int, float, str, type(None))


@check_call
@dataclass(frozen=True)
class Range:
    """A range of numbers for :func:`tune`; both ends are included.

    Parameters
    ----------
    low, high : int or float
        The ends. If both are integers, the values are integers.
    scale : {"linear", "log", "reverse_log"}
        Scale on which values are drawn: ``log`` draws as many values from 0.01 to 0.1 as from 0.1
        to 1, and ``reverse_log`` mirrors this, so that most values are near ``high``.
    step : int or float, optional
        Distance between possible values, counted from ``low``; only for a linear scale.

    Raises
    ------
    RequestError
        With every invalid argument.

    Examples
    --------
    >>> from hyperplane.ml import Range
    >>> Range(1e-4, 1.0, scale="log")
    Range(low=0.0001, high=1.0, scale='log', step=None)
    """

    low: float
    high: float
    scale: Scale = "linear"
    step: float | None = None

    def __post_init__(self) -> None:
        check(self._find_faults())

    def _find_faults(self) -> list[Fault]:
        faults = [
            Fault(name, describe_value(value), "a finite number")
            for name, value in (("low", self.low), ("high", self.high))
            if not _is_number(value)
        ]
        if not faults and self.low > self.high:
            faults.append(Fault("high", repr(self.high), f"at least {self.low}"))
        elif not faults and not _is_number(self.high - self.low):
            allowed = f"a finite distance from {self.low}"
            faults.append(Fault("high", repr(self.high), allowed))
        if not is_one_of(self.scale, _SCALES) or self.scale is None:
            faults.append(
                Fault("scale", describe_value(self.scale), f"one of {', '.join(_SCALES)}")
            )
        elif self.scale != "linear" and _is_number(self.low) and self.low <= 0:
            faults.append(Fault("low", repr(self.low), f"more than 0 for the scale {self.scale}"))
        if self.step is not None:
            if not _is_number(self.step) or self.step <= 0:
                faults.append(Fault("step", describe_value(self.step), "a number greater than 0"))
            elif self.scale != "linear":
                faults.append(
                    Fault("step", describe_value(self.step), "None unless the scale is linear")
                )
            elif _is_integer(self.low) and not _is_integer(self.step):
                faults.append(Fault("step", describe_value(self.step), "an integer, as low is one"))
            elif not faults and not _has_finite_quotient(self.high - self.low, self.step):
                allowed = "a step of which the range has a finite number"
                faults.append(Fault("step", describe_value(self.step), allowed))
        return faults


@dataclass(frozen=True)
class Choice:
    """A parameter with a list of values."""

    values: tuple[Any, ...]


Parameter = Range | Choice


def parse_space(space: object) -> tuple[dict[str, Parameter], list[Fault]]:
    """Return the parameters of a search space, and its faults.

    Examples
    --------
    >>> parameters, faults = parse_space({"C": [0.1, 1.0], "degree": Range(2, 5), "gamma": 3})
    >>> parameters
    {'C': Choice(values=(0.1, 1.0)), 'degree': Range(low=2, high=5, scale='linear', step=None)}
    >>> [fault.where for fault in faults]
    ['space.gamma']
    """
    if not isinstance(space, Mapping) or not space:
        asked = "an empty mapping" if isinstance(space, Mapping) else describe_value(space)
        return {}, [Fault("space", asked, "a mapping of names of parameters to their values")]
    parameters: dict[str, Parameter] = {}
    faults = []
    for name, values in space.items():
        parameter = _parse(values)
        if not isinstance(name, str) or not name:
            faults.append(Fault("space", describe_value(name), "names of parameters, as text"))
        elif parameter is None:
            faults.append(Fault(f"space.{name}", describe_value(values), _ALLOWED))
        else:
            parameters[name] = parameter
    return parameters, faults


def list_values(parameter: Parameter) -> list[Any] | None:
    """Return all values of a parameter in order; None if there are infinitely many."""
    if isinstance(parameter, Choice):
        return list(parameter.values)
    step = parameter.step or (1 if _has_integers(parameter) else None)
    if step is None:
        return None
    return [parameter.low + number * step for number in range(_count_steps(parameter, step))]


def count_values(parameter: Parameter) -> float:
    """Return the number of values of a parameter.

    Examples
    --------
    >>> count_values(Range(1, 8)), count_values(Range(0.0, 1.0))
    (8, inf)
    """
    if isinstance(parameter, Choice):
        return len(parameter.values)
    step = parameter.step or (1 if _has_integers(parameter) else None)
    return math.inf if step is None else _count_steps(parameter, step)


def suggest(trial: optuna.Trial, parameters: Mapping[str, Parameter]) -> dict[str, Any]:
    """Return the values of all parameters for a trial of Optuna."""
    return {name: _suggest(parameter, trial, name) for name, parameter in parameters.items()}


def to_stored(values: Mapping[str, Any], parameters: Mapping[str, Parameter]) -> dict[str, Any]:
    """Return what the database contains for values of parameters."""
    return {name: _store(parameters[name], value) for name, value in values.items()}


def from_stored(stored: Mapping[str, Any], parameters: Mapping[str, Parameter]) -> dict[str, Any]:
    """Return the values of parameters for the entries of the database."""
    return {name: _restore(parameters[name], value) for name, value in stored.items()}


def list_grid(parameters: Mapping[str, Parameter]) -> tuple[list[dict[str, Any]], list[Fault]]:
    """Return all combinations of values; faults if there are too many, or infinitely many.

    Examples
    --------
    >>> grid, faults = list_grid({"a": Choice((1, 2)), "b": Range(0.0, 1.0, step=0.5)})
    >>> len(grid), grid[1]
    (6, {'a': 1, 'b': 0.5})
    """
    counts = {name: count_values(parameter) for name, parameter in parameters.items()}
    faults = [
        Fault(f"space.{name}", repr(parameters[name]), "a list of values or a Range with a step")
        for name, count in counts.items()
        if math.isinf(count)
    ]
    if not faults and (count := math.prod(counts.values())) > MAX_COMBINATIONS:
        allowed = f"at most {MAX_COMBINATIONS:,} combinations of a grid"
        advice = "use a step, or search='random'"
        faults.append(Fault("space", f"{count:,} combinations", allowed, advice))
    if faults:
        return [], faults
    columns = {name: list_values(parameter) for name, parameter in parameters.items()}
    rows = product(*(values or [] for values in columns.values()))
    return [dict(zip(columns, row, strict=True)) for row in rows], []


def describe(parameters: Mapping[str, Parameter]) -> str:
    """Return the space as JSON, to compare it with that of an earlier search."""
    return json.dumps({name: _describe(parameters[name]) for name in sorted(parameters)})


def _suggest(parameter: Parameter, trial: optuna.Trial, name: str) -> Any:
    """Return the value of one parameter for a trial of Optuna."""
    if isinstance(parameter, Choice):
        if _is_storable(parameter):
            return trial.suggest_categorical(name, parameter.values)
        return parameter.values[trial.suggest_categorical(name, range(len(parameter.values)))]
    low, high, log = parameter.low, parameter.high, parameter.scale != "linear"
    if _has_integers(parameter):
        step = int(parameter.step or 1)
        value: float = trial.suggest_int(name, int(low), int(high), step=step, log=log)
    else:
        value = trial.suggest_float(name, low, high, step=parameter.step, log=log)
    return _store(parameter, value)


def _store(parameter: Parameter, value: Any) -> Any:
    """Return what the database contains for a value."""
    if isinstance(parameter, Choice):
        if _is_storable(parameter):
            return value
        return next(number for number, each in enumerate(parameter.values) if each is value)
    # Optuna has no reversed scale: the value is mirrored.
    mirrored = parameter.scale == "reverse_log"
    return parameter.low + parameter.high - value if mirrored else value


def _restore(parameter: Parameter, stored: Any) -> Any:
    """Return the value for an entry of the database."""
    if isinstance(parameter, Choice) and not _is_storable(parameter):
        return parameter.values[stored]
    return stored if isinstance(parameter, Choice) else _store(parameter, stored)


def _describe(parameter: Parameter) -> list[Any]:
    """Return what distinguishes a parameter from others, for JSON."""
    if isinstance(parameter, Choice):
        return [
            "choice",
            [_ADDRESS.sub("", describe_value(value, MAX_TEXT)) for value in parameter.values],
        ]
    low, high = parameter.low, parameter.high
    return ["range", _has_integers(parameter), low, high, parameter.scale, parameter.step]


def _is_storable(choice: Choice) -> bool:
    return all(type(value) in _STORABLE for value in choice.values)


def _has_integers(parameter: Range) -> bool:
    return _is_integer(parameter.low) and _is_integer(parameter.high)


def _has_finite_quotient(distance: float, step: float) -> bool:
    try:
        return math.isfinite(distance / step)
    except OverflowError:  # of integers
        return False


def _count_steps(parameter: Range, step: float) -> int:
    # A small tolerance, as 0.3 / 0.1 is less than 3.
    return math.floor((parameter.high - parameter.low) / step + 1e-9) + 1


def _parse(values: Any) -> Parameter | None:
    """Return the parameter with these values; None if they describe none."""
    if isinstance(values, Range):
        return values
    if hasattr(values, "dist") and hasattr(values, "rvs"):
        return _parse_scipy(values)
    if hasattr(values, "tolist") and getattr(values, "ndim", 0) == 1:
        values = values.tolist()  # a numpy array or a pandas series
    if isinstance(values, Sequence) and not isinstance(values, (str, bytes)) and len(values):
        return Choice(tuple(_to_python(value) for value in values))
    return None


def _parse_scipy(distribution: Any) -> Range | None:
    """Return the range of a distribution of scipy; None if it is of another kind."""
    low, high = (number.item() for number in distribution.support())
    kind = distribution.dist.name
    if kind == "randint":
        return Range(int(low), int(high))
    if kind == "uniform":
        return Range(float(low), float(high))
    if kind in ("loguniform", "reciprocal"):
        return Range(float(low), float(high), scale="log")
    return None


def _to_python(value: Any) -> Any:
    """Return a number of numpy as a number of Python, and other values unchanged."""
    is_scalar = type(value).__module__ == "numpy" and getattr(value, "ndim", 1) == 0
    return value.item() if is_scalar else value


def _is_number(value: object) -> bool:
    try:
        return isinstance(value, (int, float)) and not is_boolean(value) and math.isfinite(value)
    except OverflowError:  # an integer beyond the largest float
        return False


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not is_boolean(value)
