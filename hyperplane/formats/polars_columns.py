"""Polars columns by literal name; ``pl.col`` treats ``*`` and ``^...$`` as patterns."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl
from polars import selectors


def column(name: str) -> pl.Expr:
    """Return the expression of the column with exactly this name.

    Examples
    --------
    >>> pl.DataFrame({"*": [1], "b": [2]}).select(column("*")).columns
    ['*']
    """
    if name == "*" or (name.startswith("^") and name.endswith("$")):
        return selectors.by_name(name).as_expr()
    return pl.col(name)


def columns(names: Iterable[str]) -> list[pl.Expr]:
    """Return the expressions of several columns by literal name."""
    return [column(name) for name in names]
