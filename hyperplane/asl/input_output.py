"""Input and output processing of states: paths, selectors and numeric fields."""

from __future__ import annotations

from typing import Any

from hyperplane.asl.errors import RUNTIME, StateError
from hyperplane.asl.field_types import EXCLUSIVE_MAXIMUM
from hyperplane.asl.path_lookup import PathNotFound, cached_path, find_value, put_value
from hyperplane.asl.payload_templates import fill_template
from hyperplane.asl.strict_json import is_number


def select_path(state: dict[str, Any], name: str, data: Any, context: Any) -> Any:
    """Apply ``InputPath``, ``OutputPath`` or ``ItemsPath``; ``null`` selects ``{}``."""
    text = state.get(name, "$")
    return {} if text is None else follow_path(text, data, context, name)


def follow_path(text: str, data: Any, context: Any, name: str) -> Any:
    """Return the value at the path of a field; raise ``States.Runtime`` if there is none."""
    path = cached_path(text)
    try:
        return find_value(path, context if path.context else data)
    except PathNotFound as error:
        raise StateError(RUNTIME, f"{name} {error}") from None


def build_output(state: dict[str, Any], data: Any, result: Any, context: Any) -> Any:
    """Apply ``ResultSelector``, ``ResultPath`` and ``OutputPath`` to the result of a state.

    ``data`` is the unprocessed input of the state.

    Examples
    --------
    >>> build_output({"ResultPath": "$.sum"}, {"a": 1, "b": 2}, 3, {})
    {'a': 1, 'b': 2, 'sum': 3}
    """
    if "ResultSelector" in state:
        result = fill_template(state["ResultSelector"], result, context)
    return select_path(state, "OutputPath", apply_result_path(state, data, result), context)


def apply_result_path(clause: dict[str, Any], data: Any, result: Any) -> Any:
    """Insert a result into the input at ``ResultPath``."""
    text = clause.get("ResultPath", "$")
    if text is None:
        return data
    try:
        return put_value(cached_path(text), data, result)
    except PathNotFound as error:
        raise StateError("States.ResultPathMatchFailure", str(error)) from None


def read_seconds(
    holder: dict[str, Any], name: str, data: Any, context: Any, least: int = 0
) -> int | None:
    """Read a number of seconds as :func:`read_whole_number` does, up to the language's limit."""
    seconds = read_whole_number(holder, name, data, context, least)
    if seconds is not None and seconds >= EXCLUSIVE_MAXIMUM:
        problem = f"{seconds}, not below {EXCLUSIVE_MAXIMUM} seconds"
        raise StateError(RUNTIME, f"{_describe_path(holder, name)} is {problem}")
    return seconds


def read_whole_number(
    holder: dict[str, Any], name: str, data: Any, context: Any, least: int = 0
) -> int | None:
    """Read an integer from a field or from its ``...Path`` field; None if both are missing."""
    value = _read_field_or_path(holder, name, data, context)
    if value is None:
        return None
    if type(value) is not int or value < least:
        problem = f"{value!r}, not a whole number of at least {least}"
        raise StateError(RUNTIME, f"{_describe_path(holder, name)} is {problem}")
    return value


def read_percentage(holder: dict[str, Any], name: str, data: Any, context: Any) -> float | None:
    """Read a percentage from a field or from its ``...Path`` field; None if both are missing."""
    value = _read_field_or_path(holder, name, data, context)
    if value is None:
        return None
    if not is_number(value) or not 0 <= value <= 100:
        problem = f"{value!r}, not a number from 0 to 100"
        raise StateError(RUNTIME, f"{_describe_path(holder, name)} is {problem}")
    return float(value)


def _read_field_or_path(holder: dict[str, Any], name: str, data: Any, context: Any) -> Any:
    if name in holder:
        return holder[name]
    if f"{name}Path" not in holder:
        return None
    value = follow_path(holder[f"{name}Path"], data, context, f"{name}Path")
    if value is None:
        raise StateError(RUNTIME, f"{_describe_path(holder, name)} is null, not a number")
    return value


def _describe_path(holder: dict[str, Any], name: str) -> str:
    """Describe the value that a ``...Path`` field refers to, for messages."""
    return f"the value at {name}Path {holder.get(f'{name}Path')}"
