"""Evaluation of the rules of a Choice state."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any

from hyperplane.asl.errors import RUNTIME, StateError
from hyperplane.asl.path_lookup import PathNotFound, cached_path, find_value
from hyperplane.asl.strict_json import is_number
from hyperplane.asl.timestamps import parse_timestamp

_PIECE = re.compile(r"\\([*\\])|(\*)|(\\.?)|[^*\\]+", re.DOTALL)
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "Equals": operator.eq,
    "LessThan": operator.lt,
    "GreaterThan": operator.gt,
    "LessThanEquals": operator.le,
    "GreaterThanEquals": operator.ge,
}
#: Type in the name of a comparison -> conversion of a value; None for values of another type.
_COMPARABLE: dict[str, Callable[[Any], Any]] = {
    "String": lambda value: value if isinstance(value, str) else None,
    "Numeric": lambda value: value if is_number(value) else None,
    "Boolean": lambda value: value if isinstance(value, bool) else None,
    "Timestamp": parse_timestamp,
}
_TYPE_TESTS: dict[str, Callable[[Any], bool]] = {
    "IsNull": lambda value: value is None,
    "IsNumeric": is_number,
    "IsString": lambda value: isinstance(value, str),
    "IsBoolean": lambda value: isinstance(value, bool),
    "IsTimestamp": lambda value: parse_timestamp(value) is not None,
}
_OTHER_RULE_FIELDS = ("Variable", "Next", "Comment")


def matches_rule(rule: dict[str, Any], data: Any, context: Any) -> bool:
    """Whether a rule matches; ``data`` and ``context`` are the values of ``$`` and ``$$``.

    False for values of another type than that of the comparison. A path without a value raises
    ``States.Runtime``, except in ``IsPresent``.

    Examples
    --------
    >>> matches_rule({"Variable": "$.n", "NumericLessThan": 3}, {"n": 2}, {})
    True
    """
    if "Variable" not in rule:
        if "And" in rule:
            return all(matches_rule(inner, data, context) for inner in rule["And"])
        if "Or" in rule:
            return any(matches_rule(inner, data, context) for inner in rule["Or"])
        return not matches_rule(rule["Not"], data, context)
    name = next(field for field in rule if field not in _OTHER_RULE_FIELDS)
    expected = rule[name]
    try:
        value = _value_at_path(rule["Variable"], data, context)
    except PathNotFound as error:
        if name == "IsPresent":
            return expected is False
        raise StateError(RUNTIME, f"Variable {error}") from None
    if name == "IsPresent":
        return expected is True
    if name in _TYPE_TESTS:
        return _TYPE_TESTS[name](value) is expected
    if name.endswith("Path"):
        try:
            expected = _value_at_path(expected, data, context)
        except PathNotFound as error:
            raise StateError(RUNTIME, f"{name} {error}") from None
        name = name.removesuffix("Path")
    if name == "StringMatches":
        return isinstance(value, str) and matches_pattern(expected, value)
    kind = next(kind for kind in _COMPARABLE if name.startswith(kind))
    left, right = _COMPARABLE[kind](value), _COMPARABLE[kind](expected)
    if left is None or right is None:
        return False
    return _COMPARISONS[name.removeprefix(kind)](left, right)


def _value_at_path(text: str, data: Any, context: Any) -> Any:
    path = cached_path(text)
    return find_value(path, context if path.context else data)


def matches_pattern(pattern: str, text: str) -> bool:
    r"""Whether a text matches a pattern of ``StringMatches``.

    ``*`` matches any characters, ``\*`` and ``\\`` are literals. A backslash before another
    character raises ``States.Runtime``.

    Examples
    --------
    >>> matches_pattern("log-*.txt", "log-2026.txt"), matches_pattern(r"5\*", "5 stars")
    (True, False)
    """
    parts = [""]
    for piece in _PIECE.finditer(pattern):
        if piece.group(3):
            raise StateError(RUNTIME, rf"a backslash in {pattern!r} is not followed by * or \ ")
        if piece.group(2):
            parts.append("")
        else:
            parts[-1] += piece.group(1) or piece.group()
    if len(parts) == 1:
        return text == parts[0]
    first, *middle, last = parts
    if not (text.startswith(first) and text.endswith(last) and len(text) >= len(first + last)):
        return False
    position, end = len(first), len(text) - len(last)
    for part in middle:
        # The earliest match leaves the most text to later parts, so no backtracking is needed.
        index = text.find(part, position, end)
        if index < 0:
            return False
        position = index + len(part)
    return True
