"""Conversion of errors of pandas, Polars and Arrow to errors that name a column and a partition."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from typing import Any, NoReturn, TypeVar

import pandas as pd
import polars as pl
import pyarrow as pa

from hyperplane.collections.frames.kernels.concatenate import TypeConflict
from hyperplane.core.errors import DataError, HyperplaneError
from hyperplane.formats.pandas_frames.column_names import unescape
from hyperplane.formats.pandas_frames.from_pandas import from_pandas
from hyperplane.formats.reader import translate_read_errors

T = TypeVar("T")

#: Errors of the libraries for unsuitable values. PanicException is not a subclass of Exception.
_LIBRARY_ERRORS = (
    pa.ArrowException,
    pl.exceptions.PolarsError,
    pl.exceptions.PanicException,
    ArithmeticError,
    AttributeError,
    NotImplementedError,
    TypeError,
    ValueError,
)
#: Maximum characters of a library's error in a message.
_MAX_SHOWN = 200
#: Arrow's message about a pandas column that it cannot convert; the name of an index is None.
_CONVERSION = re.compile(r"Conversion failed for column (.+?) with type ")
_INDEX = "index"
_QUOTES = ("'", '"', "`")


def run_task(
    function: Callable[..., T],
    *arguments: Any,
    partitions: Sequence[tuple[int, int]] | None = None,
    **keywords: Any,
) -> T:
    """Call the function of a task and convert errors of libraries to a :class:`DataError`.

    ``partitions`` has the first and last partition of each table of the arguments, for messages.
    """
    try:
        return function(*arguments, **keywords)
    except TypeConflict as error:
        if partitions is None:
            raise
        raise error.in_partitions(partitions) from error
    except HyperplaneError:
        raise
    except _LIBRARY_ERRORS as error:
        _raise_data_error(error, _find_column(error, [*arguments, *keywords.values()]))


def run_in_partition(
    function: Callable[..., T],
    *arguments: Any,
    partition_info: Mapping[str, Any] | None = None,
    **keywords: Any,
) -> T:
    """Call a function of ``map_partitions`` and add the partition to its errors.

    Dask passes no ``partition_info`` when it infers the type of a result.
    """
    try:
        return run_task(function, *arguments, **keywords)
    except DataError as error:
        if not partition_info:
            raise
        raise _add_partition(error, partition_info["number"]) from error


def name_partition_in_errors(function: Callable[..., T]) -> Callable[..., T]:
    """Decorate a function whose first arguments are a partition and its number.

    Its errors name the partition, or the file if the partition is scanned from files.
    """

    @wraps(function)
    def task(partition: Any, number: int, *arguments: Any) -> T:
        if not isinstance(partition, pd.DataFrame) and hasattr(partition, "scan"):
            return _run_naming_file(function, partition, number, arguments)
        try:
            if not isinstance(partition, pd.DataFrame):
                kind = type(partition).__name__
                problem = f"partition {number} is a {kind}, expected a pandas dataframe"
                raise HyperplaneError(
                    f"{problem}; return one from every function that is passed to map_partitions"
                )
            return function(partition, number, *arguments)
        except DataError as error:
            raise _add_partition(error, number) from error
        except HyperplaneError:
            raise
        except _LIBRARY_ERRORS as error:
            try:
                _raise_data_error(error, _find_column(error, [partition]))
            except DataError as task_error:
                raise _add_partition(task_error, number) from error

    return task


def _run_naming_file(
    function: Callable[..., T], partition: Any, number: int, arguments: tuple[Any, ...]
) -> T:
    """Run a task on a partition of files; errors of libraries become ReadErrors with the file."""
    task_error: HyperplaneError | None = None
    with translate_read_errors(partition):
        try:
            return function(partition, number, *arguments)
        except HyperplaneError as error:  # more precise than a ReadError
            task_error = error
    raise task_error


def _add_partition(error: DataError, number: int) -> DataError:
    """Return a DataError with the partition in its message and the column name of pandas."""
    column = unescape(error.column)
    message = str(error).removeprefix(f"column {error.column!r}: ")
    return DataError(column, f"{message} (partition {number})")


def _raise_data_error(error: BaseException, column: str) -> NoReturn:
    """Raise a DataError for an error of a library; HyperplaneError if no column is known."""
    first_line = (str(error).splitlines() or [""])[0][:_MAX_SHOWN]
    reason = f"({type(error).__name__}: {first_line})"
    if not column:  # no argument of the task is a table
        raise HyperplaneError(f"a task failed {reason}") from error
    raise DataError(column, f"has values that cannot be processed {reason}") from error


def _find_column(error: BaseException, arguments: Sequence[Any]) -> str:
    """Return the column that caused an error; all columns of the task if that is not known."""
    tables = list(_iterate_tables(arguments))
    names = [unescape(str(name)) for table in tables for name in _list_columns(table)]
    message = str(error)
    match = _CONVERSION.search(message)
    if match is not None:
        return _INDEX if match[1] == "None" and "None" not in names else unescape(match[1])
    quoted = [name for name in names if any(f"{mark}{name}{mark}" in message for mark in _QUOTES)]
    unconvertible = map(
        _find_unconvertible_column, (t for t in tables if isinstance(t, pd.DataFrame))
    )
    column = next((name for name in unconvertible if name is not None), None)
    columns = (
        quoted or ([column] if column is not None else _find_conflicting_columns(tables)) or names
    )
    return ", ".join(dict.fromkeys(columns))


def _iterate_tables(values: Iterable[Any]) -> Iterator[Any]:
    """Yield the tables and columns among the arguments of a task, including nested ones."""
    for value in values:
        if isinstance(value, pd.DataFrame | pd.Series | pl.DataFrame | pl.LazyFrame | pa.Table):
            yield value
        elif isinstance(value, list | tuple):
            yield from _iterate_tables(value)
        elif isinstance(value, dict):
            yield from _iterate_tables(value.values())


def _list_columns(table: Any) -> list[Any]:
    if isinstance(table, pd.Series):
        return [] if table.name is None else [table.name]
    if isinstance(table, pa.Table):
        return list(table.column_names)
    return list(table.collect_schema()) if isinstance(table, pl.LazyFrame) else list(table.columns)


def _find_conflicting_columns(tables: Sequence[Any]) -> list[str]:
    """Return the columns whose type differs between the Polars tables."""
    types: dict[str, set[Any]] = {}
    for table in tables:
        if isinstance(table, pl.DataFrame | pl.LazyFrame):
            for name, dtype in table.collect_schema().items():
                types.setdefault(unescape(name), set()).add(dtype)
    return [name for name, dtypes in types.items() if len(dtypes) > 1]


def _find_unconvertible_column(frame: pd.DataFrame) -> str | None:
    """Return the first column or index level that cannot be converted to Polars."""
    levels = [frame.index.get_level_values(number) for number in range(frame.index.nlevels)]
    columns: list[tuple[Any, Any]] = [
        (name, frame.iloc[:, number]) for number, name in enumerate(frame.columns)
    ]
    columns += [(_INDEX if level.name is None else level.name, level) for level in levels]
    for name, values in columns:
        try:
            from_pandas(pd.DataFrame({"column": values.array}))
        except (HyperplaneError, *_LIBRARY_ERRORS):
            return str(name)
    return None
