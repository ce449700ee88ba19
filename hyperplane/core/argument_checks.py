"""Checks of arguments that are booleans, counts or one of a few strings."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from numbers import Integral
from typing import Any

from hyperplane.core.errors import Fault


def find_flag_faults(**flags: object) -> list[Fault]:
    """Return a fault for each argument that is neither True nor False.

    Without this check the string ``"no"`` would count as true.

    Examples
    --------
    >>> [fault.allowed for fault in find_flag_faults(utc="no", dayfirst=False)]
    ['True or False']
    """
    return [
        Fault(where, repr(value)[:80], "True or False")
        for where, value in flags.items()
        if not isinstance(value, bool)
    ]


def find_count_faults(
    where: str, value: Any, least: int = 1, most: int | None = None
) -> list[Fault]:
    """Return a fault if a value is not a whole number of at least ``least``, at most ``most``.

    Examples
    --------
    >>> [fault.allowed for fault in find_count_faults("n", 2.5)], find_count_faults("n", 2)
    (['a whole number, 1 or more'], [])
    """
    is_whole = not isinstance(value, bool) and isinstance(value, Integral)
    number = int(value) if is_whole else least - 1
    if number >= least and (most is None or number <= most):
        return []
    limits = f", {least} or more" if most is None else f" from {least} to {most:,}"
    return [Fault(where, repr(value)[:80], f"a whole number{limits}")]


def is_one_of(value: object, choices: Iterable[str | None]) -> bool:
    """Return whether a value is one of the choices, which are strings or None.

    Other values are never compared: ``==`` of an array or a dataframe returns no boolean.

    Examples
    --------
    >>> is_one_of("left", ("left", "right", None)), is_one_of([1], ("left", "right"))
    (True, False)
    """
    return (value is None or isinstance(value, str)) and value in tuple(choices)


def describe_value(value: object, limit: int = 80) -> str:
    """Return the text of a value for a message, or its type if it has no text of one line.

    Examples
    --------
    >>> describe_value("x" * 100, limit=4), describe_value(10**5000)
    ("'xxx", 'a value of type int')
    >>> import pandas as pd
    >>> describe_value(pd.DataFrame({"a": [1, 2]}))
    'a value of type DataFrame'
    """
    text = ""
    with contextlib.suppress(Exception):  # such as of an integer with thousands of digits
        text = repr(value)
    if not text or "\n" in text:  # such as of a table
        return f"a value of type {type(value).__name__}"
    return text[:limit]
