"""Strict parsing and copying of JSON values."""

from __future__ import annotations

import json
import math
from typing import Any


def parse_json(text: str | bytes) -> Any:
    """Parse JSON text; raise ValueError for invalid JSON, NaN, infinity and deep nesting.

    Examples
    --------
    >>> parse_json('{"a": [1, 2.5, null]}')
    {'a': [1, 2.5, None]}
    """
    try:
        return json.loads(text, parse_constant=reject_constant, parse_float=parse_finite)
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None
    except UnicodeDecodeError:
        raise ValueError("the text is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"invalid JSON: {error}") from None


def reject_constant(name: str) -> Any:
    """Refuse ``NaN`` and ``Infinity``, which Python's decoder accepts."""
    raise ValueError(f"{name} is not JSON")


def parse_finite(digits: str) -> float:
    """Parse a float; refuse numbers that overflow to infinity."""
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits[:20]} is too large a number")
    return number


def copy_json(value: Any) -> Any:
    """Copy a value as JSON would represent it; raise ValueError if it cannot.

    Examples
    --------
    >>> copy_json({"a": (1, 2)})
    {'a': [1, 2]}
    """
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{type(value).__name__} is not JSON: {error}") from None


def copy_json_to_depth(value: Any, deepest: int) -> Any:
    """Copy a value like :func:`copy_json`; raise ValueError beyond ``deepest`` levels.

    Examples
    --------
    >>> copy_json_to_depth({"a": [1]}, 2)
    {'a': [1]}
    """
    copy = copy_json(value)
    level = [copy]
    for _ in range(deepest + 1):
        level = [one for one in level if isinstance(one, (dict, list))]
        if not level:
            return copy
        level = [
            inner for one in level for inner in (one.values() if isinstance(one, dict) else one)
        ]
    raise ValueError(f"it is nested deeper than {deepest} levels")
