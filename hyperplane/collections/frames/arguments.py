"""Checks of arguments that several dataframe helpers share."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import dask.dataframe as dd
import pandas as pd
import pyarrow as pa

from hyperplane.core.argument_checks import find_count_faults
from hyperplane.core.errors import Fault, RequestError, check

#: Maximum partitions of a result: an exchange has this many tasks per input partition.
MAX_PARTITIONS = 10_000
#: Name of the column that :func:`ensure_time_column` makes of an index without a name.
_DEFAULT_TIME_NAME = "time"
_VALID_NAMES = "unique column names that are strings and do not begin and end with '__'"


class ArgumentFaults(list[Fault]):
    """List of the faults of one call."""

    @contextmanager
    def collect(self) -> Iterator[None]:
        """Add the faults of a RequestError that a block raises, and continue after the block."""
        try:
            yield
        except RequestError as error:
            self.extend(error.faults)


@contextmanager
def collect_faults() -> Iterator[ArgumentFaults]:
    """Raise a RequestError with all collected faults at the end of a block."""
    faults = ArgumentFaults()
    yield faults
    check(faults)


def list_names(by: Any) -> list[str]:
    """Return one name, or a sequence of names, as a list without duplicates."""
    if by is None:
        return []
    is_list = isinstance(by, Sequence) and not isinstance(by, str)
    names: list[Any] = []
    for name in by if is_list else [by]:
        # Other values may not be comparable; find_column_faults reports them.
        if not isinstance(name, str) or name not in names:
            names.append(name)
    return names


def has_column(like: pd.DataFrame, name: object) -> bool:
    """Return whether a value is a string and the name of a column."""
    return isinstance(name, str) and name in like.columns


def find_column_faults(like: pd.DataFrame, **columns: Sequence[Any]) -> list[Fault]:
    """Return a fault for each unknown column; the keywords are names of arguments.

    A RequestError is raised if the frame has column names that the helpers do not support.
    """
    check(_find_name_faults(like))
    return [
        make_unknown_column_fault(like, name, where)
        for where, names in columns.items()
        for name in names
        if not has_column(like, name)
    ]


def _find_name_faults(like: pd.DataFrame) -> list[Fault]:
    """Return a fault if a column name is not a string, not unique, or reserved."""
    unsupported = [name for name in like.columns if not isinstance(name, str)]
    unsupported += list(like.columns[like.columns.duplicated()])
    unsupported += [name for name in like.columns if str(name)[:2] == str(name)[-2:] == "__"]
    if not unsupported:
        return []
    shown = ", ".join(map(repr, unsupported[:5]))
    return [Fault("df", f"columns {shown}", _VALID_NAMES, "rename them with df.rename")]


def make_unknown_column_fault(like: pd.DataFrame, column: object, where: str) -> Fault:
    """Return the fault for an unknown column, with similar names as advice."""
    names = [str(name) for name in like.columns]
    similar = difflib.get_close_matches(column, names, 3) if isinstance(column, str) else []
    advice = f"did you mean {' or '.join(map(repr, similar))}?" if similar else ""
    if not isinstance(column, str):
        advice = "write the name of the column as a string"
    shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
    given = " ".join(repr(column).split())[:80]
    return Fault(where, given, f"one of {shown}", advice)


def find_key_faults(like: pd.DataFrame, where: str, keys: Sequence[Any]) -> list[Fault]:
    """Return a fault for each key column of a type that pandas cannot group by."""
    faults = []
    for key in keys:
        if not has_column(like, key):
            continue
        dtype = like[key].dtype
        nested = isinstance(dtype, pd.ArrowDtype) and pa.types.is_nested(dtype.pyarrow_dtype)
        if nested or dtype.kind == "c" or isinstance(dtype, pd.IntervalDtype):
            given = f"{key!r} of type {dtype}"
            faults.append(Fault(where, given, "numbers, text, times or categories"))
    return faults


def find_split_out_faults(value: object) -> list[Fault]:
    """Return a fault if ``split_out`` is not an integer from 1 to MAX_PARTITIONS."""
    faults = find_count_faults("split_out", value)
    count = int(cast("int", value)) if not faults else 0
    if count > MAX_PARTITIONS:
        given = f"{count:,}"[:80] if count < 10**60 else "a number of more than 60 digits"
        faults.append(Fault("split_out", given, f"at most {MAX_PARTITIONS:,}"))
    return faults


def find_window_split_faults(split_out: object, keys: Sequence[str]) -> list[Fault]:
    """Return a fault if ``split_out`` is invalid, or not 1 for windows without keys."""
    faults = find_split_out_faults(split_out)
    if not faults and split_out != 1 and not keys:
        advice = "a result without keys has one row per window; leave split_out out"
        faults.append(Fault("split_out", repr(split_out), "1 without by", advice))
    return faults


def ensure_time_column(df: dd.DataFrame, time: Any) -> tuple[dd.DataFrame, Any]:
    """Return the collection with its times in a column, and the name of that column.

    ``time`` is a column, the name of the index, or None for the index. A RequestError is raised if
    it is the index and a column has the same name, or the index has no times.
    """
    index = df._meta.index
    named = isinstance(time, str) and time == index.name
    if has_column(df._meta, time) or not (time is None or named):
        return df, time
    if not pd.api.types.is_datetime64_any_dtype(index.dtype):
        given = f"{time!r}, the index, of type {index.dtype}"
        advice = "write the name of a column; for an index of text, df.reset_index() makes it one"
        check([Fault("time", given, "a column or an index of times", advice)])
    name = index.name if isinstance(index.name, str) else _DEFAULT_TIME_NAME
    if name in df._meta.columns:
        advice = f"write time={name!r} for the column, or rename the index: "
        advice += "df.rename_axis(index='at')"
        allowed = f"an index with another name than any column, but {name!r} is a column too"
        check([Fault("time", "None", allowed, advice)])
    if index.name != name:
        df = df.rename_axis(index=name)
    return df.reset_index(), name
