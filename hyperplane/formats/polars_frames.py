"""Polars frames: conversion from Arrow, and columns by literal name."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import polars as pl
import pyarrow as pa
from polars import selectors


def as_polars(table: pa.Table) -> pl.DataFrame:
    """Convert an Arrow table to a Polars frame.

    Polars (2.1) reads the wrong part of the buffers, or panics, if a sliced column has lists of a
    fixed size, or dictionaries within other types. Such columns are copied first.

    Examples
    --------
    >>> pairs = pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int64(), 2))
    >>> as_polars(pa.table({"pair": pairs.slice(1)})).rows()
    [(None,), ([3, 4],)]
    """
    broken = [n for n, field in enumerate(table.schema) if _is_broken_by_slicing(field.type)]
    all_rows = pa.array(np.arange(table.num_rows if broken else 0))
    for n in broken:
        table = table.set_column(n, table.field(n), table.column(n).take(all_rows))
    return pl.DataFrame(table)


def _is_broken_by_slicing(kind: pa.DataType, nested: bool = False) -> bool:
    if pa.types.is_fixed_size_list(kind) or (nested and pa.types.is_dictionary(kind)):
        return True
    return any(_is_broken_by_slicing(kind.field(n).type, True) for n in range(kind.num_fields))


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
