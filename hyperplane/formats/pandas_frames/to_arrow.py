"""Convert tables of pandas, Polars and Arrow to Arrow, without loss or with the column's name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hyperplane.core.errors import DataError
from hyperplane.formats.pandas_frames.mixed_kinds import find_mixed_kinds
from hyperplane.formats.pandas_frames.time_zones import check_zones


def to_arrow(table: Any, form: str, *, index: bool | None = None) -> Any:
    """Return any table as an Arrow table; errors name the column."""
    import pandas as pd
    import pyarrow as pa

    if isinstance(table, pa.Table):
        return table
    if type(table).__module__.startswith("polars"):
        return _polars_to_arrow(table, form)
    frame = _to_pandas(table)
    for place, dtype in enumerate(frame.dtypes):
        if isinstance(dtype, pd.SparseDtype):
            frame = frame.copy(deep=False)
            frame.isetitem(place, frame.iloc[:, place].sparse.to_dense())
        elif dtype == "object":
            _check_kinds(frame.iloc[:, place], form)
    check_zones(frame, form)
    with _name_bad_column(frame, form):
        return pa.Table.from_pandas(frame, preserve_index=index)


def to_text_table(table: Any, form: str) -> Any:
    """Return an Arrow table for text formats, index first unless it is only row numbers."""
    import pyarrow as pa

    if isinstance(table, pa.Table) or type(table).__module__.startswith("polars"):
        return decode_categories(to_arrow(table, form), lambda kind: True)
    frame = _to_pandas(table)
    has_index = _is_index_kept(frame)
    arrow = decode_categories(to_arrow(frame, form, index=has_index), lambda kind: True)
    levels = frame.index.nlevels if has_index else 0
    names = arrow.column_names
    return arrow.select([*names[len(names) - levels :], *names[: len(names) - levels]])


def decode_categories(table: Any, kinds: Callable[[Any], bool]) -> Any:
    """Replace categorical columns whose value type satisfies ``kinds`` by their values."""
    import pyarrow as pa

    for place, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type) and kinds(field.type.value_type):
            values = table.column(place).cast(field.type.value_type)
            table = table.set_column(place, field.with_type(values.type), values)
    return table


def _polars_to_arrow(table: Any, form: str) -> Any:
    """Return a Polars table as an Arrow table, which has no 128-bit integers."""
    import pyarrow as pa

    columns = {}
    for name in table.columns:
        try:
            columns[name] = table.get_column(name).to_arrow()
        except pa.ArrowException as error:
            wrong = f"{form} does not support {table.schema[name]}; convert it first with cast()"
            raise DataError(name, wrong) from error
    return pa.table(columns)


def _to_pandas(table: Any) -> Any:
    """Return any table as a pandas dataframe."""
    if hasattr(table, "to_pandas"):  # Polars and Arrow
        return table.to_pandas()
    return table.to_frame() if hasattr(table, "to_frame") else table


def _is_index_kept(frame: Any) -> bool:
    """Return whether text holds the index: it has a name, or is not integers."""
    from pandas.api.types import is_integer_dtype

    for name in frame.index.names:
        if name is not None and name in frame.columns:
            raise DataError(str(name), "is also a name of the index; rename one of them")
    return frame.index.name is not None or not is_integer_dtype(frame.index.dtype)


def _check_kinds(column: Any, form: str) -> None:
    """Raise DataError if a column of Python objects has values of several kinds."""
    kinds = find_mixed_kinds(column)
    if kinds:
        advice = f"convert it first, for example with df[{column.name!r}].astype(str)"
        wrong = f"{form} requires values of one type, and it holds {' and '.join(kinds)}"
        raise DataError(str(column.name), f"{wrong}; {advice}")


@contextmanager
def _name_bad_column(frame: Any, form: str) -> Iterator[None]:
    """Raise conversion errors of this block as a DataError that names the column."""
    import pyarrow as pa

    odd = (pa.ArrowException, OverflowError, TypeError, ValueError)
    try:
        yield
    except odd as error:
        for name in frame.columns:
            try:
                pa.array(frame[name], from_pandas=True)
            except odd as wrong:
                needs = f"{form} requires values of one type, such as numbers, text or times"
                advice = f"convert it with df[{name!r}].astype(str) ({one_line(wrong)})"
                raise DataError(str(name), f"{needs}; {advice}") from error
        raise


def one_line(error: BaseException) -> str:
    """Return the message of an Arrow error on one line, shortened."""
    return " ".join(str(error).split())[:200]
