"""Putting rows in order, in Polars: where to cut, cutting, sorting."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from hyperplane.collections.frames.kernels.concatenate import concat_tables
from hyperplane.collections.frames.kernels.polars_kernel import split_by_number

#: Values of a task that say how its rows are spread.
_SAMPLE_SIZE = 2048


def sample_values(frame: pl.LazyFrame, column: str) -> tuple[pl.Series, int]:
    """Some values of a column, drawn by chance, and for how many they stand."""
    values = frame.select(column).collect().to_series().drop_nulls()
    if len(values) > _SAMPLE_SIZE:
        # Neighbours often are alike, so not a slice; a fixed seed, so that a lost task comes back
        # as it was.
        chosen = np.random.default_rng(0).integers(0, len(values), _SAMPLE_SIZE)
        return values.gather(chosen), len(values)
    return values, len(values)


def find_split_values(
    samples: Sequence[tuple[pl.Series, int]], descending: bool, into: int
) -> pl.Series | None:
    """Values that cut the rows of all samples into parts of about the same size.

    None where no value is known.
    """
    known = [place for place, (values, _) in enumerate(samples) if len(values)]
    some = [samples[place] for place in known]
    if not some:
        return None
    name = some[0][0].name
    weights = np.concatenate([np.full(len(values), rows / len(values)) for values, rows in some])
    table = concat_tables([pl.DataFrame({name: values}) for values, _ in some], known)
    table = table.rename({name: "value"}).with_columns(weight=pl.Series(weights))
    table = table.sort("value", descending=descending)
    share = np.cumsum(table.get_column("weight").to_numpy()) / weights.sum()
    places = np.searchsorted(share, np.arange(1, into) / into).clip(0, table.height - 1)
    return table.get_column("value").gather(places).unique().sort()


def split_by_values(
    rows: pl.DataFrame,
    column: str,
    cuts: pl.Series | None,
    into: int,
    descending: bool,
    nulls_last: bool,
) -> list[pl.DataFrame]:
    """Rows by the edges that they lie between, in their old order within each part."""
    values = rows.get_column(column)
    if cuts is None:  # all are missing
        return [rows, *[rows.clear()] * (into - 1)]
    number = cuts.search_sorted(values.cast(cuts.dtype), side="left").cast(pl.Int64)
    if descending:
        number = len(cuts) - number
    missing = into - 1 if nulls_last else 0
    bucket = pl.select(pl.when(values.is_null()).then(missing).otherwise(number)).to_series()
    return split_by_number(rows, bucket, into)


def sort_rows(
    rows: pl.DataFrame, by: Sequence[str], descending: Sequence[bool], nulls_last: bool
) -> pl.DataFrame:
    """Rows in order; those of equal values as they were."""
    # By one column after the other, the least important first: Polars takes ten times longer to
    # compare rows by several. And an eager sort takes three times longer than a lazy one.
    for key, down in reversed(list(zip(by, descending, strict=True))):
        lazy = rows.lazy().sort(key, descending=down, nulls_last=nulls_last, maintain_order=True)
        rows = lazy.collect()
    return rows
