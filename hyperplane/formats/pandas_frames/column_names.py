"""Escaping of column names that Polars interprets as patterns or replaces.

Most functions of Polars take ``"*"`` for all columns and ``"^...$"`` for a regular expression, and
some rename a column with an empty name. Names are escaped in the tables of Polars and unescaped in
results and messages.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import pandas as pd

#: Suffix of escaped names (a zero-width space): no pattern ends with it.
_MARK = "\u200b"

Name = TypeVar("Name")


def escape(name: Name) -> Name:
    """Return the name of a column in Polars."""
    if not isinstance(name, str):
        return name
    pattern = name in ("", "*") or (name.startswith("^") and name.endswith("$"))
    return name + _MARK if pattern or name.endswith(_MARK) else name  # type: ignore[return-value]


def unescape(name: Name) -> Name:
    """Return the name of a column in pandas."""
    if isinstance(name, tuple):
        return tuple(map(unescape, name))  # type: ignore[return-value]
    if not isinstance(name, str):
        return name
    return name.removesuffix(_MARK)  # type: ignore[return-value]


def escape_all(names: Iterable[Name]) -> list[Name]:
    """Return the names of columns in Polars."""
    return [escape(name) for name in names]


def escape_columns(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a shallow copy of a frame with escaped column names."""
    result = frame.copy(deep=False)
    result.columns = pd.Index(escape_all(frame.columns), dtype=frame.columns.dtype)
    return result


def has_escaped(frame: Any) -> bool:
    """Return whether a column or a level of the index has an escaped name."""
    return any(unescape(name) != name for name in [*frame.columns, *frame.index.names])


def unescape_columns(frame: Any) -> Any:
    """Return a shallow copy of a frame with the names of pandas, index levels included."""
    result = frame.copy(deep=False)
    if isinstance(result.columns, pd.MultiIndex):
        result.columns = pd.MultiIndex.from_tuples([unescape(name) for name in result.columns])
    else:
        result.columns = pd.Index([unescape(name) for name in result.columns], dtype="str")
    result.index = result.index.set_names([unescape(name) for name in result.index.names])
    return result
