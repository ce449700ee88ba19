"""Columns by their very names: to Polars ``*`` and ``^...$`` are patterns."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl
from polars import selectors


def column(name: str) -> pl.Expr:
    """The column of a name.

    Examples
    --------
    >>> pl.DataFrame({"*": [1], "b": [2]}).select(column("*")).columns
    ['*']
    """
    if name == "*" or (name.startswith("^") and name.endswith("$")):
        return selectors.by_name(name).as_expr()
    return pl.col(name)


def columns(names: Iterable[str]) -> list[pl.Expr]:
    """The columns of some names, in this order."""
    return [column(name) for name in names]
