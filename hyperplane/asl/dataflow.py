"""How data goes through a state: from its input to the work, and from there to its output."""

from __future__ import annotations

from typing import Any

from hyperplane.asl.errors import StateError
from hyperplane.asl.field_types import is_number
from hyperplane.asl.path_lookup import PathNotFound, cached_path, find_value, put_value
from hyperplane.asl.retry_catch import RUNTIME
from hyperplane.asl.templates import fill_template


def select_path(state: dict[str, Any], name: str, data: Any, context: Any) -> Any:
    """What ``InputPath``, ``OutputPath`` or ``ItemsPath`` selects; ``null`` selects ``{}``."""
    text = state.get(name, "$")
    return {} if text is None else follow_path(text, data, context, name)


def follow_path(text: str, data: Any, context: Any, name: str) -> Any:
    """What a path in a field leads to; ``States.Runtime`` when it leads nowhere."""
    path = cached_path(text)
    try:
        return find_value(path, context if path.context else data)
    except PathNotFound as error:
        raise StateError(RUNTIME, f"{name} {error}") from None


def build_output(state: dict[str, Any], data: Any, result: Any, context: Any) -> Any:
    """The output of a state.

    Parameters
    ----------
    state : dict
        The state.
    data : JSON
        Its input, as it came.
    result : JSON
        What its work made.
    context : JSON
        The context object.

    Returns
    -------
    JSON
        After ``ResultSelector``, ``ResultPath`` and ``OutputPath``.

    Examples
    --------
    >>> finished({"ResultPath": "$.sum"}, {"a": 1, "b": 2}, 3, {})
    {'a': 1, 'b': 2, 'sum': 3}
    """
    if "ResultSelector" in state:
        result = fill_template(state["ResultSelector"], result, context)
    return select_path(state, "OutputPath", apply_result_path(state, data, result), context)


def apply_result_path(clause: dict[str, Any], data: Any, result: Any) -> Any:
    """A result in the input, where ``ResultPath`` says."""
    text = clause.get("ResultPath", "$")
    if text is None:
        return data
    try:
        return put_value(cached_path(text), data, result)
    except PathNotFound as error:
        raise StateError("States.ResultPathMatchFailure", str(error)) from None


def read_whole_number(
    holder: dict[str, Any], name: str, data: Any, context: Any, least: int = 0
) -> int | None:
    """A whole number that a field gives, or the path in the field beside it; None for neither."""
    value = _read_field_or_path(holder, name, data, context)
    if value is None:
        return None
    if type(value) is not int or value < least:
        raise StateError(RUNTIME, f"{name}Path leads to {value!r}, no whole number from {least}")
    return value


def read_percentage(holder: dict[str, Any], name: str, data: Any, context: Any) -> float | None:
    """A percentage, as :func:`whole` finds it."""
    value = _read_field_or_path(holder, name, data, context)
    if value is None:
        return None
    if not is_number(value) or not 0 <= value <= 100:
        raise StateError(RUNTIME, f"{name}Path leads to {value!r}, no number from 0 to 100")
    return float(value)


def _read_field_or_path(holder: dict[str, Any], name: str, data: Any, context: Any) -> Any:
    if name in holder:
        return holder[name]
    if f"{name}Path" not in holder:
        return None
    value = follow_path(holder[f"{name}Path"], data, context, f"{name}Path")
    if value is None:
        raise StateError(RUNTIME, f"{name}Path leads to null")
    return value
