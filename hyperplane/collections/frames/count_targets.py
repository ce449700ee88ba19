"""The columns whose values :func:`window_counts` counts, and the columns of the counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl

from hyperplane.collections.frames.column_names import escape, unescape
from hyperplane.collections.frames.convert import column_to_pandas, from_pandas, is_stored_as_codes
from hyperplane.collections.frames.kernels import polars_kernel as kernel
from hyperplane.errors import DataError, Fault

Values = Sequence[Any]


@dataclass(frozen=True)
class CountTarget:
    """A column whose values are counted.

    Attributes
    ----------
    name : str
        As it is named inside tasks, where no name is a pattern of Polars.
    like : pandas.Series
        The declared type, without rows.
    known : tuple or None
        The values that get a column, where they are known before anything is read.
    others : bool
        Whether values that are not known may be there; they are not counted.
    top : int or None
        Only so many of the values get a column, the most frequent ones.
    max_values : int
        More different values than this are an error.
    """

    name: str
    like: pd.Series[Any]
    known: tuple[Any, ...] | None
    allows_others: bool
    top: int | None
    max_values: int

    def check(self, table: pl.DataFrame) -> None:
        """Raise an error for counts that cannot be part of the result."""
        if self.known is None:
            if self.top is None:
                self._check_distinct_count(table)
        elif not self.allows_others:
            values = table.get_column(self.name).drop_nulls()
            other = values.filter(~values.is_in(self._known_values(values.dtype).implode()))
            if len(other):
                raise DataError(
                    unescape(self.name),
                    f"holds {other[0]!r:.60}, which is no category of the type that the collection "
                    "says; name the values to count with categories=[...]",
                )

    def select_values(self, table: pl.DataFrame, keys: Sequence[str]) -> pl.Series:
        """The values that get a column, in the order of the columns."""
        if self.known is not None:
            return self._known_values(table.schema[self.name])
        if self.top is None:
            self._check_distinct_count(table)
        return kernel.select_most_frequent(table, self.name, keys, self.top)

    def column_names(self, values: pl.Series) -> list[str]:
        """Names of the columns as ``get_dummies`` gives them."""
        named: Any = values
        if self.known is not None:
            named = self.known
        elif not isinstance(self.like.dtype, pd.CategoricalDtype):
            dtype = self.like.dtype
            if isinstance(values.dtype, pl.Duration):  # objects of it, too, are named as in pandas
                dtype = np.dtype(f"m8[{values.dtype.time_unit}]")
            named = pd.Series(column_to_pandas(values, dtype))
        return [f"{unescape(self.name)}_{value}" for value in named]

    def count_dtype(self) -> str:
        """The type of the counts: sums of the booleans that ``get_dummies`` makes of a type."""
        dtype: Any = self.like.dtype
        if isinstance(dtype, pd.CategoricalDtype):
            dtype = dtype.categories.dtype
        if isinstance(dtype, pd.ArrowDtype):
            return "int64[pyarrow]"
        return "Int64" if isinstance(dtype, pd.StringDtype) and dtype.na_value is pd.NA else "int64"

    def _known_values(self, kind: pl.DataType) -> pl.Series:
        """The known values in the type of the data; null where that cannot hold the value."""
        known, dtype = list(self.known or ()), self.like.dtype
        if isinstance(dtype, pd.CategoricalDtype) and is_stored_as_codes(dtype):
            codes = dtype.categories.get_indexer(pd.Index(known, dtype=object)).tolist()
            return pl.Series([code if code >= 0 else None for code in codes], dtype=pl.Int64)
        times = pd.Series(known)
        if times.dtype.kind in "mM":  # of which Polars would take microseconds
            values = from_pandas(times.to_frame("known")).to_series()
        else:
            values = pl.Series(known, strict=False)
        if values.dtype == kind:
            return values
        if (values.dtype == pl.String) != (kind == pl.String):
            return values.clear().cast(kind).extend_constant(None, len(known))
        made = values.cast(kind, strict=False)
        back = made.cast(values.dtype, strict=False)
        return pl.select(pl.when(back == values).then(made)).to_series()

    def _check_distinct_count(self, table: pl.DataFrame) -> None:
        found = table.get_column(self.name).drop_nulls().n_unique()
        if found > self.max_values:
            raise DataError(
                unescape(self.name),
                f"{found:,} different values or more, allowed are max_values={self.max_values:,}; "
                "count the most frequent with top=20, or name those that you want with "
                "categories=[...]",
            )


def make_count_targets(
    like: pd.DataFrame,
    names: Sequence[str],
    categories: Values | Mapping[str, Values] | None,
    top: int | None,
    max_values: int,
) -> tuple[list[CountTarget], list[Fault]]:
    """The targets of a call, and what is wrong with its categories."""
    given, faults = _parse_categories(names, categories)
    targets = []
    for name in names:
        if name not in like.columns:
            continue  # a fault of its own
        values, known = like[name].iloc[:0], None
        dtype: Any = values.dtype
        if name in given:
            known = tuple(given[name])
        elif isinstance(dtype, pd.CategoricalDtype) and dd.utils.has_known_categories(values):
            known = tuple(dtype.categories)
        targets.append(CountTarget(escape(name), values, known, name in given, top, max_values))
    if top is not None and any(target.known is not None for target in targets):
        allowed = "targets whose categories are not known before"
        faults.append(Fault("top", repr(top), allowed, "leave top or categories out"))
    return targets, faults


def _parse_categories(
    names: Sequence[str], categories: Values | Mapping[str, Values] | None
) -> tuple[dict[str, list[Any]], list[Fault]]:
    """The values that a call names for each target, and what is wrong with them."""
    if categories is None:
        return {}, []
    if isinstance(categories, Mapping):
        said: Mapping[str, Any] = categories
    elif len(names) == 1 and _is_list_like(categories):
        said = {names[0]: categories}
    else:
        allowed = "a list for one target, or a mapping {target: list}"
        return {}, [Fault("categories", repr(categories), allowed)]
    faults = [
        Fault("categories", repr(name), f"one of the targets, {', '.join(names)}")
        for name in said
        if name not in names
    ]
    given: dict[str, list[Any]] = {}
    for name, values in said.items():
        if not _is_list_like(values):
            faults.append(Fault(f"categories[{name!r}]", repr(values)[:80], "a list of values"))
            continue
        given[name] = list(values)
        if not _are_unique_values_of_one_type(given[name]):
            allowed = "values of one kind, each once and none missing"
            faults.append(Fault(f"categories[{name!r}]", repr(given[name])[:80], allowed))
    return given, faults


def _is_list_like(values: Any) -> bool:
    return np.iterable(values) and not isinstance(values, (str, bytes))


def _are_unique_values_of_one_type(values: list[Any]) -> bool:
    """Whether values are of one type, each once and none missing."""
    try:
        each_once = len(set(values)) == len(values)
    except TypeError:  # lists and the like are no values of a column
        return False
    missing = pd.Series(values, dtype=object).isna().any()
    return each_once and not missing and len({type(value) for value in values}) <= 1
