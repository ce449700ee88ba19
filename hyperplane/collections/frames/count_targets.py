"""Targets of :func:`window_counts`: the counted columns and the result columns of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl

from hyperplane.collections.frames.kernels import polars_kernel as kernel
from hyperplane.core.errors import DataError, Fault
from hyperplane.formats.pandas_frames.categories import is_stored_as_codes
from hyperplane.formats.pandas_frames.column_names import escape, unescape
from hyperplane.formats.pandas_frames.from_pandas import from_pandas
from hyperplane.formats.pandas_frames.to_pandas import column_to_pandas

Values = Sequence[Any]


@dataclass(frozen=True)
class CountTarget:
    """A column whose values are counted."""

    #: The escaped name.
    name: str
    #: Empty column of the declared type.
    like: pd.Series[Any]
    #: The values that get a column, if they are known before the data is read.
    known: tuple[Any, ...] | None
    #: Whether the data may have values other than the known ones, which are then not counted.
    allows_others: bool
    #: Number of most frequent values that get a column; None for all.
    top: int | None
    #: Maximum number of distinct values.
    max_values: int

    def check(self, table: pl.DataFrame) -> None:
        """Raise DataError for an undeclared category or too many distinct values."""
        if self.known is None:
            if self.top is None:
                self._check_distinct_count(table)
        elif not self.allows_others:
            values = table.get_column(self.name).drop_nulls()
            undeclared = values.filter(
                ~values.is_in(self._get_known_values(values.dtype).implode())
            )
            if len(undeclared):
                raise DataError(
                    unescape(self.name),
                    f"holds {undeclared[0]!r:.60}, which is not one of the declared categories; "
                    "give the values to count with categories=[...]",
                )

    def select_values(self, table: pl.DataFrame, keys: Sequence[str]) -> pl.Series:
        """Return the values that get a column, in the order of the columns."""
        if self.known is not None:
            return self._get_known_values(table.schema[self.name])
        if self.top is None:
            self._check_distinct_count(table)
        return kernel.select_most_frequent(table, self.name, keys, self.top)

    def column_names(self, values: pl.Series) -> list[str]:
        """Return the names of the columns, as ``get_dummies`` names them."""
        labels: Any = values
        if self.known is not None:
            labels = self.known
        elif not isinstance(self.like.dtype, pd.CategoricalDtype):
            dtype = self.like.dtype
            if isinstance(values.dtype, pl.Duration):  # also if the declared type is object
                dtype = np.dtype(f"m8[{values.dtype.time_unit}]")
            labels = pd.Series(column_to_pandas(values, dtype))
        return [f"{unescape(self.name)}_{value}" for value in labels]

    def count_dtype(self) -> str:
        """Return the type of the counts, which is that of sums of booleans of ``get_dummies``."""
        dtype: Any = self.like.dtype
        if isinstance(dtype, pd.CategoricalDtype):
            dtype = dtype.categories.dtype
        if isinstance(dtype, pd.ArrowDtype):
            return "int64[pyarrow]"
        return "Int64" if isinstance(dtype, pd.StringDtype) and dtype.na_value is pd.NA else "int64"

    def _get_known_values(self, kind: pl.DataType) -> pl.Series:
        """Return the known values in the type of the data; null for those it cannot represent."""
        known, dtype = list(self.known or ()), self.like.dtype
        if isinstance(dtype, pd.CategoricalDtype) and is_stored_as_codes(dtype):
            codes = dtype.categories.get_indexer(pd.Index(known, dtype=object)).tolist()
            return pl.Series([code if code >= 0 else None for code in codes], dtype=pl.Int64)
        times = pd.Series(known)
        if times.dtype.kind in "mM":  # Polars would truncate them to microseconds
            values = from_pandas(times.to_frame("known")).to_series()
        else:
            values = pl.Series(known, strict=False)
        if values.dtype == kind:
            return values
        if (values.dtype == pl.String) != (kind == pl.String):
            return values.clear().cast(kind).extend_constant(None, len(known))
        converted = values.cast(kind, strict=False)
        restored = converted.cast(values.dtype, strict=False)
        return pl.select(pl.when(restored == values).then(converted)).to_series()

    def _check_distinct_count(self, table: pl.DataFrame) -> None:
        count = table.get_column(self.name).drop_nulls().n_unique()
        if count > self.max_values:
            raise DataError(
                unescape(self.name),
                f"has at least {count:,} distinct values, more than "
                f"max_values={self.max_values:,}; count the most frequent ones with top=20, or "
                "give the values to count with categories=[...]",
            )


def make_count_targets(
    like: pd.DataFrame,
    names: Sequence[str],
    categories: Values | Mapping[str, Values] | None,
    top: int | None,
    max_values: int,
) -> tuple[list[CountTarget], list[Fault]]:
    """Return the targets of a call and the faults of its ``categories`` and ``top``."""
    values_by_target, faults = _parse_categories(names, categories)
    targets = []
    for name in names:
        if name not in like.columns:
            continue  # reported by find_column_faults
        values, known = like[name].iloc[:0], None
        dtype: Any = values.dtype
        if name in values_by_target:
            known = tuple(values_by_target[name])
        elif isinstance(dtype, pd.CategoricalDtype) and dd.utils.has_known_categories(values):
            known = tuple(dtype.categories)
        allows_others = name in values_by_target
        targets.append(CountTarget(escape(name), values, known, allows_others, top, max_values))
    if top is not None and any(target.known is not None for target in targets):
        allowed = "None for targets whose values are known: by categories, or by a category type"
        faults.append(Fault("top", repr(top), allowed, "leave top or categories out"))
    return targets, faults


def _parse_categories(
    names: Sequence[str], categories: Values | Mapping[str, Values] | None
) -> tuple[dict[str, list[Any]], list[Fault]]:
    """Return the values for each target in ``categories``, and the faults of the argument."""
    if categories is None:
        return {}, []
    if isinstance(categories, Mapping):
        by_target: Mapping[str, Any] = categories
    elif len(names) == 1 and _is_list_like(categories):
        by_target = {names[0]: categories}
    else:
        allowed = "a list for one target, or a mapping {target: list}"
        return {}, [Fault("categories", repr(categories), allowed)]
    faults = [
        Fault("categories", repr(name), f"one of the targets, {', '.join(names)}")
        for name in by_target
        if name not in names
    ]
    lists: dict[str, list[Any]] = {}
    for name, values in by_target.items():
        if not _is_list_like(values):
            faults.append(Fault(f"categories[{name!r}]", repr(values)[:80], "a list of values"))
            continue
        lists[name] = list(values)
        if not _are_unique_values_of_one_type(lists[name]):
            allowed = "values of one type, each once and none missing"
            faults.append(Fault(f"categories[{name!r}]", repr(lists[name])[:80], allowed))
    return lists, faults


def _is_list_like(values: Any) -> bool:
    return np.iterable(values) and not isinstance(values, (str, bytes))


def _are_unique_values_of_one_type(values: list[Any]) -> bool:
    """Return whether values are unique, of one type and none missing."""
    try:
        each_once = len(set(values)) == len(values)
    except TypeError:  # unhashable values, such as lists
        return False
    missing = pd.Series(values, dtype=object).isna().any()
    return each_once and not missing and len({type(value) for value in values}) <= 1
