"""Statistics of the columns of one shard, and how those of several shards are combined."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from hyperplane.core.errors import DataError, check
from hyperplane.ml.shards.frame_functions import ensure_frame, find_missing_columns


class ColumnSummary(NamedTuple):
    """Statistics of the values of one column; those of numbers have a mean.

    ``rows`` is the number of values that are not missing, ``squares`` the sum of squared
    differences from the mean.
    """

    rows: int
    mean: float | None = None
    squares: float = 0.0
    least: Any = None
    most: Any = None


def summarize(shard: Any, names: list[Any]) -> list[ColumnSummary]:
    """Return the statistics of some columns."""
    frame = ensure_frame(shard)
    check(find_missing_columns(frame, cols=names))
    return [_summarize_column(frame[name].dropna()) for name in names]


def _summarize_column(values: Any) -> ColumnSummary:
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    if not len(values):
        return ColumnSummary(0)
    if not is_numeric_dtype(values.dtype) or is_bool_dtype(values.dtype):
        return ColumnSummary(len(values), least=values.min(), most=values.max())
    numbers = values.to_numpy("float64")
    mean = float(numbers.mean())
    squares = float(((numbers - mean) ** 2).sum())
    return ColumnSummary(len(numbers), mean, squares, numbers.min(), numbers.max())


def join_summaries(summaries: Sequence[list[ColumnSummary]]) -> list[ColumnSummary]:
    """Combine the statistics of several shards."""
    return [_join_column(list(column)) for column in zip(*summaries, strict=True)]


def _join_column(summaries: list[ColumnSummary]) -> ColumnSummary:
    filled = [each for each in summaries if each.rows]
    if not filled:
        return ColumnSummary(0)
    count = sum(each.rows for each in filled)
    least, most = min(each.least for each in filled), max(each.most for each in filled)
    means = [(each.rows, each.mean) for each in filled if each.mean is not None]
    if len(means) < len(filled):
        return ColumnSummary(count, None, 0.0, least, most)
    mean = sum(each * rows for rows, each in means) / count
    squares = sum(each.squares for each in filled)
    squares += sum(rows * (each - mean) ** 2 for rows, each in means)
    return ColumnSummary(count, mean, squares, least, most)


def finish_summary(summaries: Sequence[ColumnSummary], names: Sequence[Any]) -> Any:
    """Return the rows count, mean, std, min and max, with a column for each name."""
    import numpy as np
    import pandas as pd

    columns = []
    for each in summaries:
        has_deviation = each.mean is not None and each.rows > 1
        std = np.sqrt(each.squares / (each.rows - 1)) if has_deviation else np.nan
        mean = np.nan if each.mean is None else each.mean
        ends = [np.nan if value is None else value for value in (each.least, each.most)]
        is_text = each.rows > 0 and each.mean is None
        kind = "object" if is_text else "float64"
        columns.append(pd.Series([each.rows, mean, std, *ends], dtype=kind))
    result = pd.concat(columns, axis=1).set_axis(["count", "mean", "std", "min", "max"])
    return result.set_axis(list(names), axis=1)


def get_maximum(shard: Any, name: Any) -> Any:
    """Return the maximum of a column; None without values."""
    frame = ensure_frame(shard)
    check(find_missing_columns(frame, col_name=[name]))
    values = frame[name].dropna()
    return values.max() if len(values) else None


def join_maxima(values: Sequence[Any]) -> Any:
    """Return the maximum of values that are not missing; NaN without any."""
    present = [value for value in values if value is not None and value == value]
    return max(present) if present else float("nan")


def count_missing(shard: Any) -> Any:
    """Return the number of missing values of each column, as a Series."""
    return ensure_frame(shard).isna().sum()


def join_counts(counts: Sequence[Any]) -> Any:
    """Add the counts of shards, which need the same columns."""
    total = counts[0]
    for each in counts[1:]:
        if list(each.index) != list(total.index):
            given, expected = (list(map(str, series.index)) for series in (each, total))
            differing = [
                name for name in [*given, *expected] if name not in given or name not in expected
            ]
            shown = f"a shard has the columns {', '.join(given)}; another has {', '.join(expected)}"
            raise DataError((differing or given)[0], shown)
        total = total + each.to_numpy()
    return total
