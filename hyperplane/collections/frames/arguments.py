"""Arguments that several helpers share, and their faults."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pandas as pd
import pyarrow as pa

from hyperplane.errors import Fault, RequestError, check

#: Partitions of a result at most: an exchange plans as many tasks for each partition of the rows.
MAX_PARTITIONS = 10_000
_VALID_NAMES = "columns of different names that are text and do not begin and end with '__'"


class FaultCollector(list[Fault]):
    """Faults as they are found."""

    @contextmanager
    def collect(self) -> Iterator[None]:
        """Add the faults that a block raises, and go on after it."""
        try:
            yield
        except RequestError as error:
            self.extend(error.faults)


@contextmanager
def collect_faults() -> Iterator[FaultCollector]:
    """Raise at the end of a block all faults that were found in it."""
    faults = FaultCollector()
    yield faults
    check(faults)


def list_names(by: Any) -> list[str]:
    """One name or several, as a list without repeats."""
    if by is None:
        return []
    several = isinstance(by, Sequence) and not isinstance(by, str)
    names: list[Any] = []
    for name in by if several else [by]:
        # What is no text is no name and may not even be comparable: columns_fault says so.
        if not isinstance(name, str) or name not in names:
            names.append(name)
    return names


def has_column(like: pd.DataFrame, name: object) -> bool:
    """Whether it is the name of a column, whatever was given as one."""
    return isinstance(name, str) and name in like.columns


def find_column_faults(like: pd.DataFrame, **asked: Sequence[Any]) -> list[Fault]:
    """A fault for each column that is not there, with the names that come near."""
    check(_find_name_faults(like))  # at once: nothing else can be said of such a frame
    return [
        make_unknown_column_fault(like, name, where)
        for where, names in asked.items()
        for name in names
        if not has_column(like, name)
    ]


def _find_name_faults(like: pd.DataFrame) -> list[Fault]:
    """A fault when columns cannot be told apart by text, as Polars does it."""
    wrong = [name for name in like.columns if not isinstance(name, str)]
    wrong += list(like.columns[like.columns.duplicated()])
    wrong += [name for name in like.columns if str(name)[:2] == str(name)[-2:] == "__"]
    if not wrong:
        return []
    shown = ", ".join(map(repr, wrong[:5]))
    return [Fault("df", f"columns {shown}", _VALID_NAMES, "rename them")]


def make_unknown_column_fault(like: pd.DataFrame, column: object, where: str) -> Fault:
    """The fault of a column that is not there."""
    names = [str(name) for name in like.columns]
    near = difflib.get_close_matches(column, names, 3) if isinstance(column, str) else []
    advice = f"did you mean {' or '.join(map(repr, near))}?" if near else ""
    if not isinstance(column, str):
        advice = "write the name of a column as text, not in a list of its own"
    shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
    asked = " ".join(repr(column).split())[:80]
    return Fault(where, asked, f"one of {shown}", advice)


def find_key_faults(like: pd.DataFrame, where: str, keys: Sequence[Any]) -> list[Fault]:
    """A fault for each column whose values pandas cannot group by, by their type."""
    faults = []
    for key in keys:
        if not has_column(like, key):
            continue
        dtype = like[key].dtype
        nested = isinstance(dtype, pd.ArrowDtype) and pa.types.is_nested(dtype.pyarrow_dtype)
        if nested or dtype.kind == "c" or isinstance(dtype, pd.IntervalDtype):
            asked = f"{key!r} of type {dtype}"
            faults.append(Fault(where, asked, "numbers, text, times or categories"))
    return faults


def find_count_faults(where: str, value: object) -> list[Fault]:
    """A fault when a value is no whole number of at least one."""
    whole = isinstance(value, int) and not isinstance(value, bool) and value >= 1
    return [] if whole else [Fault(where, repr(value)[:80], "a whole number, 1 or more")]


def find_split_out_faults(value: object) -> list[Fault]:
    """A fault when ``split_out`` is no number of partitions that tasks can be planned for."""
    faults = find_count_faults("split_out", value)
    if not faults and isinstance(value, int) and value > MAX_PARTITIONS:
        asked = f"{value:,}"[:80] if value < 10**60 else "a number of more than 60 digits"
        faults.append(Fault("split_out", asked, f"at most {MAX_PARTITIONS:,}"))
    return faults


def find_window_split_faults(split_out: object, keys: Sequence[str]) -> list[Fault]:
    """A fault when a result cannot be in so many partitions."""
    faults = find_split_out_faults(split_out)
    if not faults and split_out != 1 and not keys:
        advice = "windows alone are few; leave split_out out"
        faults.append(Fault("split_out", repr(split_out), "1 without by", advice))
    return faults
