"""Lossless conversion of pandas, Polars and Arrow tables to Arrow; errors name the column."""

from __future__ import annotations

import datetime as dt
import decimal
import numbers
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from hyperplane.core.errors import DataError

#: Base class -> kind of its values, in the order of the checks; any other class is its own kind.
_KINDS: tuple[tuple[type, str], ...] = (
    (bool, "booleans"),
    (decimal.Decimal, "decimals"),
    (numbers.Real, "numbers"),
    (str, "text"),
    (bytes, "bytes"),
    (dt.datetime, "times"),
    (dt.date, "dates"),
    (dict, "records"),
)
_LISTS = (list, tuple)
_MINUTE = dt.timedelta(minutes=1)


def to_arrow(table: Any, format_name: str, *, index: bool | None = None) -> Any:
    """Return any table as an Arrow table; errors name the column."""
    import pandas as pd
    import pyarrow as pa

    if isinstance(table, pa.Table):
        return table
    if type(table).__module__.startswith("polars"):
        return _polars_to_arrow(table, format_name)
    frame = _to_pandas(table)
    for position, dtype in enumerate(frame.dtypes):
        if isinstance(dtype, pd.SparseDtype):
            frame = frame.copy(deep=False)
            frame.isetitem(position, frame.iloc[:, position].sparse.to_dense())
        elif dtype == "object":
            _check_kinds(frame.iloc[:, position], format_name)
    check_zones(frame, format_name)
    with _name_bad_column(frame, format_name):
        return pa.Table.from_pandas(frame, preserve_index=index)


def to_text_table(table: Any, format_name: str) -> Any:
    """Return an Arrow table for text formats; categories are replaced by their values.

    The columns of the index are the first ones. An index of integers without a name is left out.
    """
    import pyarrow as pa

    if isinstance(table, pa.Table) or type(table).__module__.startswith("polars"):
        return decode_categories(to_arrow(table, format_name), lambda kind: True)
    frame = _to_pandas(table)
    has_index = _is_index_written(frame)
    arrow = decode_categories(to_arrow(frame, format_name, index=has_index), lambda kind: True)
    levels = frame.index.nlevels if has_index else 0
    names = arrow.column_names
    return arrow.select([*names[len(names) - levels :], *names[: len(names) - levels]])


def decode_categories(table: Any, kinds: Callable[[Any], bool]) -> Any:
    """Replace categorical columns whose value type satisfies ``kinds`` by their values."""
    import pyarrow as pa

    for position, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type) and kinds(field.type.value_type):
            values = table.column(position).cast(field.type.value_type)
            table = table.set_column(position, field.with_type(values.type), values)
    return table


def _polars_to_arrow(table: Any, format_name: str) -> Any:
    """Return a Polars table as an Arrow table, which has no 128-bit integers."""
    import pyarrow as pa

    columns = {}
    for name in table.columns:
        try:
            columns[name] = table.get_column(name).to_arrow()
        except pa.ArrowException as error:
            message = (
                f"{format_name} does not support {table.schema[name]}; convert it first with cast()"
            )
            raise DataError(name, message) from error
    return pa.table(columns)


def _to_pandas(table: Any) -> Any:
    """Return a table as a pandas dataframe."""
    if hasattr(table, "to_pandas"):  # subclasses of Polars dataframes in other packages
        return table.to_pandas()
    return table.to_frame() if hasattr(table, "to_frame") else table


def _is_index_written(frame: Any) -> bool:
    """Return whether text formats write the index: all but integers without a name."""
    from pandas.api.types import is_integer_dtype

    for name in frame.index.names:
        if name is not None and name in frame.columns:
            raise DataError(str(name), "is also a name of the index; rename one of them")
    return frame.index.name is not None or not is_integer_dtype(frame.index.dtype)


def _check_kinds(column: Any, format_name: str) -> None:
    """Raise DataError if a column of Python objects has values of several kinds."""
    kinds = find_mixed_kinds(column)
    if kinds:
        advice = f"convert it first, for example with df[{column.name!r}].astype(str)"
        message = f"{format_name} requires values of one type, and it holds {' and '.join(kinds)}"
        raise DataError(str(column.name), f"{message}; {advice}")


@contextmanager
def _name_bad_column(frame: Any, format_name: str) -> Iterator[None]:
    """Raise conversion errors of this block as a DataError that names the column."""
    import pyarrow as pa

    conversion_errors = (pa.ArrowException, OverflowError, TypeError, ValueError)
    try:
        yield
    except conversion_errors as error:
        for name in frame.columns:
            try:
                pa.array(frame[name], from_pandas=True)
            except conversion_errors as column_error:
                needs = f"{format_name} requires values of one type, such as numbers, text or times"
                advice = f"convert it with df[{name!r}].astype(str) ({one_line(column_error)})"
                raise DataError(str(name), f"{needs}; {advice}") from error
        raise


def one_line(error: BaseException) -> str:
    """Return the message of an Arrow error on one line, shortened."""
    return " ".join(str(error).split())[:200]


def find_mixed_kinds(values: Iterable[Any]) -> list[str]:
    """Return the kinds of values in a column, or nested in it, if there are several.

    Missing values do not count.

    Examples
    --------
    >>> find_mixed_kinds([1, 2.5, None]), find_mixed_kinds([2.5, True])
    ([], ['booleans', 'numbers'])
    >>> find_mixed_kinds([[b"a"], ["b"]])
    ['bytes', 'text']
    """
    items = list(values)
    types = set(map(type, items))
    names = {_name_kind(value_class) for value_class in types}
    all_nan = all(item != item for item in items if type(item) is float)
    if float in types and len(names) > 1 and all_nan:
        names = {_name_kind(value_class) for value_class in types - {float}}
    names.discard("")
    if names == {"times"}:
        # Arrow converts times without a zone as if they were in UTC.
        names = {
            "times without a time zone" if item.tzinfo is None else "times with a time zone"
            for item in items
            if isinstance(item, dt.datetime) and item == item  # NaT is a datetime
        }
    if len(names) > 1:
        return sorted(names)
    if any(issubclass(value_class, _LISTS) for value_class in types):
        return find_mixed_kinds(
            [inner for item in items if isinstance(item, _LISTS) for inner in item]
        )
    if dict in types:
        records = [item for item in items if isinstance(item, dict)]
        for name in dict.fromkeys(name for record in records for name in record):
            kinds = find_mixed_kinds([record.get(name) for record in records])
            if kinds:
                return kinds
    return []


def _name_kind(value_class: type) -> str:
    """Return the kind of a type; empty for missing values."""
    import numpy as np
    import pandas as pd

    if value_class in (type(None), type(pd.NA), type(pd.NaT)):
        return ""
    if issubclass(value_class, np.bool_):
        return "booleans"
    if issubclass(value_class, (*_LISTS, np.ndarray)):
        return "lists"
    return next(
        (name for base, name in _KINDS if issubclass(value_class, base)), value_class.__name__
    )


def check_zones(frame: Any, format_name: str) -> None:
    """Raise for times whose zone offset has seconds, which Arrow rejects or rounds silently.

    Raises
    ------
    DataError
        For the first such column or index level.
    """
    for position, name in enumerate(frame.columns):
        values = frame.iloc[:, position]
        zone = _find_odd_zone(values)
        if zone is not None:
            times = f"df[{name!r}].dt.tz_convert('UTC')"
            others = f"pd.to_datetime(df[{name!r}], utc=True)"
            advice = f"df[{name!r}] = {times if getattr(values.dtype, 'tz', None) else others}"
            raise DataError(str(name), _describe_zone(zone, format_name, advice))
    for level in range(frame.index.nlevels):
        zone = _find_odd_zone(frame.index.get_level_values(level))
        if zone is not None:
            name = frame.index.names[level]
            which = f", level={level}" if frame.index.nlevels > 1 else ""
            advice = f"df.tz_convert('UTC'{which}) on each partition"
            raise DataError(
                "index" if name is None else str(name), _describe_zone(zone, format_name, advice)
            )


def _describe_zone(zone: dt.tzinfo, format_name: str, advice: str) -> str:
    """Return the message for a zone whose offset has seconds."""
    message = (
        f"has times of the zone {zone}, but {format_name} only supports offsets of whole minutes"
    )
    return f"{message}; convert them first, for example with {advice}"


def _find_odd_zone(values: Any) -> dt.tzinfo | None:
    """Return the first zone of values whose offset is not whole minutes; None if there is none."""
    for zone in _iterate_zones(values):
        offset = _get_fixed_offset(zone)
        if offset is not None and offset % _MINUTE:
            return zone
    return None


def _get_fixed_offset(zone: dt.tzinfo) -> dt.timedelta | None:
    """Return the offset of a zone; None if it depends on the time, as in named zones."""
    try:
        return zone.utcoffset(None)
    except Exception:  # noqa: BLE001 - user-defined zones may require a time
        return None


def _iterate_zones(values: Any) -> Iterator[dt.tzinfo]:
    """Yield the zones of values, of their categories, or of intervals."""
    dtype: Any = values.dtype
    while True:
        inner = getattr(dtype, "categories", None)
        inner = getattr(dtype, "subtype", None) if inner is None else inner.dtype
        if inner is None:
            break
        dtype = inner
    zone = getattr(dtype, "tz", None)
    if zone is not None:
        yield zone
    elif dtype == "object" and isinstance(_find_first_present(values), dt.datetime):
        zones = (value.tzinfo for value in values if isinstance(value, dt.datetime))
        yield from (zone for zone in zones if zone is not None)


def _find_first_present(values: Any) -> Any:
    """Return the first value that is not missing."""
    import pandas as pd

    return next((value for value in values if value is not None and value is not pd.NaT), None)
