"""Errors of the libraries below, as errors that name column, partition and value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, NoReturn, TypeVar

import pandas as pd
import polars as pl
import pyarrow as pa

from hyperplane.collections.frames.column_names import unescape
from hyperplane.collections.frames.convert import from_pandas
from hyperplane.collections.frames.kernels.concatenate import TypeConflict
from hyperplane.collections.frames.sources.reader import reading
from hyperplane.errors import DataError, HyperplaneError

T = TypeVar("T")

#: What work on values of a wrong kind can raise. A panic of Polars is no Exception.
_FOREIGN = (
    pa.ArrowException,
    pl.exceptions.PolarsError,
    pl.exceptions.PanicException,
    ArithmeticError,
    AttributeError,
    NotImplementedError,
    TypeError,
    ValueError,
)
_SHOWN = 200


def run_task(
    function: Callable[..., T],
    *arguments: Any,
    partitions: Sequence[tuple[int, int]] | None = None,
    **named: Any,
) -> T:
    """Call a function of a task; errors of the libraries below become a :class:`DataError`.

    Parameters
    ----------
    function : callable
        What the task does.
    partitions : sequence of (int, int), optional
        The first and last partition that each of its tables is made of, for errors.
    """
    try:
        return function(*arguments, **named)
    except TypeConflict as error:
        if partitions is None:
            raise
        raise error.in_partitions(partitions) from error
    except HyperplaneError:
        raise
    except _FOREIGN as error:
        _raise(error, "of the result")


def run_in_partition(
    function: Callable[..., T],
    *arguments: Any,
    partition_info: Mapping[str, Any] | None = None,
    **named: Any,
) -> T:
    """Call a function of ``map_partitions``; its errors name the partition.

    Dask calls without ``partition_info`` where it only wants to know the type of a result.
    """
    try:
        return run_task(function, *arguments, **named)
    except DataError as error:
        if not partition_info:
            raise
        raise _in_partition(error, partition_info["number"]) from error


def on_piece(work: Callable[..., T]) -> Callable[..., T]:
    """Make a function of a piece and its number say where and on what it could not work."""

    @wraps(work)
    def task(piece: Any, number: int, *arguments: Any) -> T:
        if not isinstance(piece, pd.DataFrame) and hasattr(piece, "scan"):
            return _naming_file(work, piece, number, arguments)
        try:
            if not isinstance(piece, pd.DataFrame):
                kind = type(piece).__name__
                raise DataError("of the partition", f"a {kind}, where a pandas frame is expected")
            return work(piece, number, *arguments)
        except DataError as error:
            raise _in_partition(error, number) from error
        except HyperplaneError:
            raise
        except _FOREIGN as error:
            try:
                _raise(error, _unworkable_column(piece))
            except DataError as ours:
                raise _in_partition(ours, number) from error

    return task


def _naming_file(work: Callable[..., T], piece: Any, number: int, arguments: tuple[Any, ...]) -> T:
    ours: HyperplaneError | None = None
    with reading(piece):
        try:
            return work(piece, number, *arguments)
        except HyperplaneError as error:  # which says what is wrong better
            ours = error
    raise ours


def _in_partition(error: DataError, number: int) -> DataError:
    column = unescape(error.column)
    message = str(error).removeprefix(f"column {error.column!r}: ")
    return DataError(column, f"{message} (partition {number})")


def _raise(error: BaseException, column: str) -> NoReturn:
    first = (str(error).splitlines() or [""])[0][:_SHOWN]
    message = f"cannot be worked on as it is ({type(error).__name__}: {first})"
    raise DataError(column, message) from error


def _unworkable_column(frame: pd.DataFrame) -> str:
    """The column that has no form in Polars; all of them where each has one."""
    for position, name in enumerate(frame.columns):
        try:
            from_pandas(frame.iloc[:, [position]].set_axis(["column"], axis=1))
        except (HyperplaneError, *_FOREIGN):
            return str(name)
    return ", ".join(map(str, frame.columns))
