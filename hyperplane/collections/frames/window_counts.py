"""One-hot counts over windows of time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
from dask.delayed import Delayed
from dask.tokenize import tokenize

from hyperplane.collections.frames import plan
from hyperplane.collections.frames.arguments import (
    collect_faults,
    columns_fault,
    count_fault,
    has_column,
    keys_fault,
    names_of,
)
from hyperplane.collections.frames.cells import CELL, Side, Windows, windows
from hyperplane.collections.frames.column_names import (
    escape,
    escape_all,
    escape_columns,
    unescape,
    unescape_columns,
)
from hyperplane.collections.frames.convert import column_to_pandas, is_coded
from hyperplane.collections.frames.finish import (
    empty_index,
    group_rows,
    lazy,
    placed,
    with_index,
    without_freq,
)
from hyperplane.collections.frames.kernels import polars_kernel as kernel
from hyperplane.collections.frames.kernels.concatenate import TypeConflict
from hyperplane.collections.frames.object_columns import holds_whole_numbers_and_fractions
from hyperplane.collections.frames.source import Frame, collection, opened, source
from hyperplane.collections.frames.task_errors import on_piece
from hyperplane.collections.frames.time_column import time_column
from hyperplane.errors import DataError, Fault

Values = Sequence[Any]
#: Why columns of such objects are refused.
_TWO_NAMES = (
    "holds objects of whole numbers and fractions, where 1 and 1.0 are one value but would name "
    "two columns; make them one type, as with astype('float64')"
)


@dataclass(frozen=True)
class Counting:
    """What is counted: the rows of each window, key and value of each target."""

    like: pd.DataFrame
    by: tuple[str, ...]
    windows: Windows
    targets: tuple[str, ...]
    known: tuple[tuple[Any, ...] | None, ...]
    top: int | None
    max_values: int

    @property
    def keys(self) -> list[str]:
        """Key columns of the partial tables."""
        return [*self.by, CELL]


def window_counts(
    df: Frame,
    time: str | None,
    every: str,
    target: str | Sequence[str],
    by: str | Sequence[str] | None = None,
    *,
    closed: Side | None = "right",
    label: Side | None = "right",
    categories: Values | Mapping[str, Values] | None = None,
    top: int | None = None,
    max_values: int = 1000,
) -> dd.DataFrame | Delayed:
    """Count the values of columns in each window of time: what ``get_dummies`` is used for.

    The result is that of ``pd.get_dummies(df, columns=target)`` followed by
    ``groupby(pd.Grouper(...)).sum()``, without ever making the table of zeros and ones.

    Parameters
    ----------
    df : dask.dataframe.DataFrame, URL or list of URLs
        The rows, in any order of time. URLs are read with :func:`read`.
    time : str or None
        Column of times, or the name of the index. None is the index, whose windows are then
        called ``time`` if it has no name.
    every : str
        Width of a window as a frequency of pandas, such as ``"1h"``.
    target : str or list of str
        Columns whose values are counted. Missing values get no column.
    by : str or list of str, optional
        Columns to group by beside the windows.
    closed, label : {"right", "left"} or None
        As in :func:`window_agg`: the right unless it is said, or None for pandas' own choice.
    categories : list, or mapping of target to list, optional
        The values that get a column, in this order; others are not counted.
    top : int, optional
        Only the most frequent values of each target get a column; of equally frequent ones, the
        smaller value.
    max_values : int
        More different values than this of one target are an error, unless ``top`` is given.

    Returns
    -------
    dask.dataframe.DataFrame or dask.delayed.Delayed
        Lazy, with columns ``<target>_<value>`` and whole numbers. A Dask dataframe knows its
        columns before it runs: where ``categories`` or the column's type does not say them, the
        result is a Delayed, and ``compute()`` gives the pandas frame.

    Raises
    ------
    RequestError
        With all that is wrong with the arguments.
    DataError
        When it is computed, if a target has more than ``max_values`` different values.

    Examples
    --------
    >>> import pandas as pd, dask.dataframe as dd
    >>> times = pd.to_datetime(["2026-01-01 09:10", "2026-01-01 09:50", "2026-01-01 11:00"])
    >>> events = pd.DataFrame({"time": times, "type": ["buy", "view", "view"]})
    >>> df = dd.from_pandas(events, npartitions=2)
    >>> window_counts(df, "time", "1h", "type").compute()
                         type_buy  type_view
    time
    2026-01-01 10:00:00         1          1
    2026-01-01 11:00:00         0          1
    """
    df, time = time_column(collection(df), time)
    like = df._meta
    targets, keys = names_of(target), names_of(by)
    with collect_faults() as faults:
        faults += columns_fault(like, time=[time], target=targets, by=keys)
        faults += keys_fault(like, "by", keys) + keys_fault(like, "target", targets)
        texts = [name for name in keys if isinstance(name, str)]
        both = [name for name in targets if has_column(like, name) and name in texts]
        faults += [Fault("target", repr(name), "a column that is not in by") for name in both]
        if not targets:
            faults.append(Fault("target", repr(target), "at least one column"))
        faults += count_fault("max_values", max_values)
        faults += count_fault("top", top) if top is not None else []
        texts = [name for name in targets if isinstance(name, str)]
        known, wrong = _known(like, texts, categories)
        faults += wrong
        if top is not None and any(values is not None for values in known):
            allowed = "targets whose categories are not known before"
            faults.append(Fault("top", repr(top), allowed, "leave top or categories out"))
        with faults.of():
            cells = windows(like, time, every, closed, label)
    used = list(dict.fromkeys([time, *keys, *targets]))
    read = source(df, used)
    counting = Counting(
        escape_columns(like[used].iloc[:0]),
        tuple(escape_all(keys)),
        replace(cells, time=escape(cells.time)),
        tuple(escape_all(targets)),
        known,
        top,
        max_values,
    )
    token = tokenize(read.token, counting)
    tables = plan.tasks(
        "window-counts-partial",
        token,
        partial_counts,
        [[piece, number, read.where, counting] for number, piece in enumerate(read.pieces)],
    )
    merge = partial(_merged, keys=counting.keys, like=counting.like)
    merged = plan.tree("window-counts-merge", token, merge, tables)
    [result] = plan.tasks("window-counts", token, pivoted, [[merged, counting]])
    if any(values is None for values in known):
        return result
    return lazy([result], _nothing(counting), "window-counts")


@on_piece
def partial_counts(
    piece: Any, number: int, where: pl.Expr | None, counting: Counting
) -> list[pl.DataFrame]:
    """The counts of a task's rows, one table for each target."""
    rows = opened(piece, counting.like, where, exact=[counting.windows.time])
    rows = kernel.cells(rows, counting.windows)
    if isinstance(piece, pd.DataFrame):
        for name in counting.targets:
            values = piece[unescape(name)]
            if values.dtype == np.dtype(object) and holds_whole_numbers_and_fractions(values):
                raise DataError(name, _TWO_NAMES)
    tables = kernel.counts(rows, counting.keys, counting.targets)
    for table, name, known in zip(tables, counting.targets, counting.known, strict=True):
        if known is None and counting.top is None:  # no need to wait for the rest
            _check_number(table, name, counting.max_values)
    return tables


def pivoted(tables: list[list[pl.DataFrame]], counting: Counting) -> pd.DataFrame:
    """Put cells into windows and values into columns."""
    merged = _merged(tables, counting.keys, counting.like)
    numbers, labels = placed(merged[0], counting.windows, counting.like)
    merged = [table.join(numbers, on=CELL, how="left") for table in merged]
    # The rows that have no value have their window, too, so any target's table has all keys.
    rows = group_rows(merged[0], counting.by, labels)
    names: list[str] = []
    blocks: list[Any] = []
    for table, target, known in zip(merged, counting.targets, counting.known, strict=True):
        values = _values(table, target, known, counting)
        names += _columns(target, known, values, counting.like)
        blocks.append(kernel.pivoted(table, rows, target, values))
    types = [
        _type(counting.like[target].dtype)
        for target, block in zip(counting.targets, blocks, strict=True)
        for _ in range(block.shape[1])
    ]
    made = pd.DataFrame(np.hstack(blocks)).astype(dict(enumerate(types)))
    made.columns = pd.Index(names, dtype="str")  # where there is none, too
    return unescape_columns(with_index(made, rows, without_freq(labels), counting))


def _nothing(counting: Counting) -> pd.DataFrame:
    """The result's columns and types, without rows."""
    columns = {
        f"{unescape(target)}_{value}": pd.Series(dtype=_type(counting.like[target].dtype))
        for target, known in zip(counting.targets, counting.known, strict=True)
        for value in known or ()
    }
    made = pd.DataFrame(columns)
    made.columns = made.columns.astype("str")
    made.index = empty_index(counting)
    return unescape_columns(made)


def _known(
    like: pd.DataFrame, targets: Sequence[str], categories: Values | Mapping[str, Values] | None
) -> tuple[tuple[tuple[Any, ...] | None, ...], list[Fault]]:
    """The values of each target, where they are known before anything is read."""
    if categories is None:
        given: Mapping[str, Values] = {}
    elif isinstance(categories, Mapping):
        given = categories
    elif len(targets) == 1 and np.iterable(categories) and not isinstance(categories, (str, bytes)):
        given = {targets[0]: categories}
    else:
        allowed = "a list for one target, or a mapping {target: list}"
        return (None,) * len(targets), [Fault("categories", repr(categories), allowed)]
    faults = [
        Fault("categories", repr(name), f"one of the targets, {', '.join(targets)}")
        for name in given
        if name not in targets
    ]
    given = {
        name: list(values)
        if np.iterable(values) and not isinstance(values, (str, bytes))
        else values
        for name, values in given.items()
    }
    for name, values in given.items():
        if not isinstance(values, list):
            faults.append(Fault(f"categories[{name!r}]", repr(values)[:80], "a list of values"))
            continue
        if not _is_one_kind(values):
            allowed = "values of one kind, each once and none missing"
            faults.append(Fault(f"categories[{name!r}]", repr(values)[:80], allowed))
    if faults:
        return (None,) * len(targets), faults
    known: list[tuple[Any, ...] | None] = []
    for name in targets:
        dtype = like[name].dtype if name in like.columns else None
        if name in given:
            known.append(tuple(given[name]))
        elif isinstance(dtype, pd.CategoricalDtype) and dd.utils.has_known_categories(like[name]):
            known.append(tuple(dtype.categories))
        else:
            known.append(None)
    return tuple(known), []


def _is_one_kind(values: list[Any]) -> bool:
    """Whether values are of one type, each once and none missing."""
    try:
        each_once = len(set(values)) == len(values)
    except TypeError:  # lists and the like are no values of a column
        return False
    missing = pd.Series(values, dtype=object).isna().any()
    return each_once and not missing and len({type(value) for value in values}) <= 1


def _values(
    table: pl.DataFrame, target: str, known: tuple[Any, ...] | None, counting: Counting
) -> pl.Series:
    """The values that get a column, in the order of the columns."""
    dtype: Any = counting.like[target].dtype
    if known is not None and isinstance(dtype, pd.CategoricalDtype) and is_coded(dtype):
        codes = dtype.categories.get_indexer(pd.Index(known, dtype=object)).tolist()
        return pl.Series([code if code >= 0 else None for code in codes], dtype=pl.Int64)
    if known is not None:
        return _known_values(known, table.schema[target])
    if counting.top is None:
        _check_number(table, target, counting.max_values)
    return kernel.most_frequent(table, target, counting.keys, counting.top)


def _known_values(known: tuple[Any, ...], kind: pl.DataType) -> pl.Series:
    """Values that were named before, in the type that the data has; null where it has no such."""
    values = pl.Series(list(known), strict=False)
    if values.dtype == kind or (values.dtype == pl.String) != (kind == pl.String):
        return (
            values
            if values.dtype == kind
            else values.clear().cast(kind).extend_constant(None, len(known))
        )
    made = values.cast(kind, strict=False)
    back = made.cast(values.dtype, strict=False)
    return pl.select(pl.when(back == values).then(made)).to_series()


def _columns(
    target: str, known: tuple[Any, ...] | None, values: pl.Series, like: pd.DataFrame
) -> list[str]:
    """Names as ``get_dummies`` gives them."""
    if known is not None:
        return [f"{unescape(target)}_{value}" for value in known]
    dtype = like[target].dtype
    if isinstance(dtype, pd.CategoricalDtype):
        return [f"{unescape(target)}_{value}" for value in values]
    return [f"{unescape(target)}_{value}" for value in pd.Series(column_to_pandas(values, dtype))]


def _type(dtype: Any) -> str:
    """The type of the counts: sums of the booleans that ``get_dummies`` makes of a type."""
    if isinstance(dtype, pd.CategoricalDtype):
        dtype = dtype.categories.dtype
    if isinstance(dtype, pd.ArrowDtype):
        return "int64[pyarrow]"
    return "Int64" if isinstance(dtype, pd.StringDtype) and dtype.na_value is pd.NA else "int64"


def _check_number(table: pl.DataFrame, target: str, most: int) -> None:
    found = table.get_column(target).drop_nulls().n_unique()
    if found > most:
        raise DataError(
            target,
            f"{found:,} different values or more, allowed are max_values={most:,}; count the most "
            "frequent with top=20, or name those that you want with categories=[...]",
        )


def _merged(
    tables: list[list[pl.DataFrame]], keys: list[str], like: pd.DataFrame
) -> list[pl.DataFrame]:
    merged = []
    for each in zip(*tables, strict=True):
        target = each[0].columns[0]
        kinds = [table.schema[target] for table in each]
        mixed = any(kind.is_integer() for kind in kinds) and any(kind.is_float() for kind in kinds)
        if mixed and not pd.api.types.is_numeric_dtype(like[target].dtype):
            whole = next(place for place, kind in enumerate(kinds) if kind.is_integer())
            other = next(place for place, kind in enumerate(kinds) if kind.is_float())
            texts = ("holds whole numbers", " and fractions", f"; it {_TWO_NAMES}")
            raise TypeConflict(unescape(target), texts, (whole, other))
        merged.append(kernel.add_counts(list(each), keys, target))
    return merged
