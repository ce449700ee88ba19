"""JSON values, strictly: what is not JSON is refused, and nobody shares a list with a task."""

from __future__ import annotations

import json
import math
from typing import Any


def parse_json(text: str | bytes) -> Any:
    """Read JSON text.

    Raises
    ------
    ValueError
        It is not JSON: NaN and numbers without end are not, and neither is what nests too deep.

    Examples
    --------
    >>> parse_json('{"a": [1, 2.5, null]}')
    {'a': [1, 2.5, None]}
    """
    try:
        return json.loads(text, parse_constant=reject_constant, parse_float=parse_finite)
    except RecursionError:
        raise ValueError("the JSON nests too deep") from None
    except UnicodeDecodeError:
        raise ValueError("the text is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON: {error}") from None


def reject_constant(name: str) -> Any:
    """Refuse ``NaN`` and ``Infinity``, which Python's reader would take."""
    raise ValueError(f"{name} is not JSON")


def parse_finite(digits: str) -> float:
    """A number, unless it is too large to be one."""
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits[:20]} is too large a number")
    return number


def copy_json(value: Any) -> Any:
    """A copy of a value, as JSON would carry it.

    Raises
    ------
    ValueError
        It cannot be written as JSON.

    Examples
    --------
    >>> plain({"a": (1, 2)})
    {'a': [1, 2]}
    """
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{type(value).__name__} is not JSON: {error}") from None


def copy_json_to_depth(value: Any, deepest: int) -> Any:
    """A copy as :func:`plain` makes it, of a value with few levels of objects and lists.

    Raises
    ------
    ValueError
        It cannot be written as JSON, or has more than ``deepest`` levels.

    Examples
    --------
    >>> shallow({"a": [1]}, 2)
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
