"""Columns of Python objects of which Arrow would make something else without a word.

It takes True beside 2.5 for 1.0, text beside bytes for bytes, and a date beside a time for a time.
"""

from __future__ import annotations

import datetime as dt
import decimal
import numbers
from collections.abc import Iterable
from typing import Any

#: The first that a type is a kind of; what is none of them is a kind for itself.
_KINDS: tuple[tuple[type, str], ...] = (
    (bool, "truth values"),
    (decimal.Decimal, "decimals"),
    (numbers.Real, "numbers"),
    (str, "text"),
    (bytes, "bytes"),
    (dt.datetime, "times"),
    (dt.date, "dates"),
    (dict, "records"),
)
_LISTS = (list, tuple)


def find_mixed_kinds(values: Iterable[Any]) -> list[str]:
    """The kinds of values in a column, or in the lists and records of it, if they are several.

    Missing values do not count.

    Examples
    --------
    >>> mixed_kinds([1, 2.5, None]), mixed_kinds([2.5, True]), mixed_kinds([[b"a"], ["b"]])
    ([], ['numbers', 'truth values'], ['bytes', 'text'])
    """
    held = list(values)
    types = set(map(type, held))
    names = {_kind_name(one) for one in types}
    if float in types and len(names) > 1 and all(one != one for one in held if type(one) is float):
        names = {_kind_name(one) for one in types - {float}}
    names.discard("")
    if len(names) > 1:
        return sorted(names)
    if any(issubclass(one, _LISTS) for one in types):
        return find_mixed_kinds([inner for one in held if isinstance(one, _LISTS) for inner in one])
    if dict in types:
        records = [one for one in held if isinstance(one, dict)]
        for name in dict.fromkeys(name for one in records for name in one):
            found = find_mixed_kinds([one.get(name) for one in records])
            if found:
                return found
    return []


def _kind_name(held: type) -> str:
    import numpy as np
    import pandas as pd

    if held in (type(None), type(pd.NA), type(pd.NaT)):
        return ""
    if issubclass(held, np.bool_):
        return "truth values"
    if issubclass(held, (*_LISTS, np.ndarray)):
        return "lists"
    return next((name for base, name in _KINDS if issubclass(held, base)), held.__name__)
