"""Names of columns that Polars would take for patterns, escaped while a helper works.

Polars reads ``"*"`` as all columns and ``"^...$"`` as a regular expression, in most places where
it takes a name.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import pandas as pd

#: No pattern ends with it, and it is not visible in a message.
_MARK = "\u200b"

Name = TypeVar("Name")


def escape(name: Name) -> Name:
    """The name that a column has in tables of Polars."""
    if not isinstance(name, str):
        return name
    pattern = name in ("", "*") or (name.startswith("^") and name.endswith("$"))
    return name + _MARK if pattern or name.endswith(_MARK) else name  # type: ignore[return-value]


def unescape(name: Name) -> Name:
    """The name that a column has in pandas."""
    if isinstance(name, tuple):
        return tuple(map(unescape, name))  # type: ignore[return-value]
    if not isinstance(name, str):
        return name
    return name.removesuffix(_MARK)  # type: ignore[return-value]


def escape_all(names: Iterable[Name]) -> list[Name]:
    """The names that columns have in tables of Polars."""
    return [escape(name) for name in names]


def escape_columns(frame: pd.DataFrame) -> pd.DataFrame:
    """The same frame with escaped names."""
    made = frame.copy(deep=False)
    made.columns = pd.Index(escape_all(frame.columns), dtype=frame.columns.dtype)
    return made


def has_escaped(frame: Any) -> bool:
    """Whether a column or a level of the index has an escaped name."""
    return any(unescape(name) != name for name in [*frame.columns, *frame.index.names])


def unescape_columns(frame: Any) -> Any:
    """The same frame with the names of pandas, those of the index too."""
    made = frame.copy(deep=False)
    if isinstance(made.columns, pd.MultiIndex):
        made.columns = pd.MultiIndex.from_tuples([unescape(name) for name in made.columns])
    else:
        made.columns = pd.Index([unescape(name) for name in made.columns], dtype="str")
    made.index = made.index.set_names([unescape(name) for name in made.index.names])
    return made
