"""Find columns of Python objects whose values Arrow would convert silently.

Arrow converts True beside 2.5 to 1.0, text beside bytes to bytes, and dates beside times to times.
"""

from __future__ import annotations

import datetime as dt
import decimal
import numbers
from collections.abc import Iterable
from typing import Any

#: Kinds by base class, the first match counts; any other type is a kind itself.
_KINDS: tuple[tuple[type, str], ...] = (
    (bool, "booleans"),
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
    """Return the kinds of values in a column, or nested in it, if there are several.

    Missing values do not count.

    Examples
    --------
    >>> find_mixed_kinds([1, 2.5, None]), find_mixed_kinds([2.5, True])
    ([], ['booleans', 'numbers'])
    >>> find_mixed_kinds([[b"a"], ["b"]])
    ['bytes', 'text']
    """
    items = list(values)
    types = set(map(type, items))
    names = {_kind_name(one) for one in types}
    if float in types and len(names) > 1 and all(one != one for one in items if type(one) is float):
        names = {_kind_name(one) for one in types - {float}}
    names.discard("")
    if len(names) > 1:
        return sorted(names)
    if any(issubclass(one, _LISTS) for one in types):
        return find_mixed_kinds(
            [inner for one in items if isinstance(one, _LISTS) for inner in one]
        )
    if dict in types:
        records = [one for one in items if isinstance(one, dict)]
        for name in dict.fromkeys(name for one in records for name in one):
            kinds = find_mixed_kinds([one.get(name) for one in records])
            if kinds:
                return kinds
    return []


def _kind_name(value_class: type) -> str:
    """Return the kind of a type; empty for missing values."""
    import numpy as np
    import pandas as pd

    if value_class in (type(None), type(pd.NA), type(pd.NaT)):
        return ""
    if issubclass(value_class, np.bool_):
        return "booleans"
    if issubclass(value_class, (*_LISTS, np.ndarray)):
        return "lists"
    return next(
        (name for base, name in _KINDS if issubclass(value_class, base)), value_class.__name__
    )
