"""Joins of Polars tables by equal keys, as pandas joins them: missing keys are equal."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from hyperplane.collections.frames.join_kinds import How
from hyperplane.collections.frames.kernels.concatenate import TypeConflict, concat_tables
from hyperplane.collections.frames.kernels.indexed_table import IndexedTable
from hyperplane.core.errors import DataError


def join_tables(
    left: pl.DataFrame,
    right: pl.DataFrame,
    keys: Sequence[str],
    how: How,
    *,
    ordered: bool = False,
) -> pl.DataFrame:
    """Join two tables whose other columns have different names.

    With ``ordered``, rows are in the order of the left side, as in pandas; else in no order.
    """
    left, right = _unify_keys(left, right, keys)
    indexed = IndexedTable.build(right, keys)
    if indexed.has_index_for(left.lazy()):
        joined = indexed.join(left, how)
        if joined is not None:
            return joined
    return left.join(
        right,
        on=list(keys),
        how=how,
        nulls_equal=True,
        coalesce=True,
        maintain_order="left_right" if ordered else "none",
    )


def _unify_keys(
    left: pl.DataFrame, right: pl.DataFrame, keys: Sequence[str]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Cast keys whose types differ to a type that has all values of both sides.

    The declared types are equal, but those of tables may differ, as for a file without values.
    """
    for key in keys:
        if left.schema[key] == right.schema[key]:
            continue
        try:
            both = concat_tables([left.select(key), right.select(key)]).to_series()
        except TypeConflict as error:
            message = "has types on the left and on the right that have no common type"
            kinds = f"{left.schema[key]} and {right.schema[key]}"
            raise DataError(error.column, f"{message}: {kinds}") from error
        left = left.with_columns(both.head(left.height))
        right = right.with_columns(both.tail(right.height))
    return left, right
