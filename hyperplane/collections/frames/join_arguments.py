"""Checks of the arguments that joins share; faults name the side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd

from hyperplane.collections.frames.arguments import (
    collect_faults,
    find_column_faults,
    find_key_faults,
)
from hyperplane.collections.frames.source_collection import Frame, as_collection
from hyperplane.core.errors import Fault, RequestError, check


def open_sides(left: Frame, right: Frame) -> tuple[dd.DataFrame, dd.DataFrame]:
    """Return both sides as collections; faults of both are reported together."""
    with collect_faults() as faults:
        with faults.collect():
            left = as_side(left, "left")
        with faults.collect():
            right = as_side(right, "right")
    return left, right


def find_side_faults(
    left: dd.DataFrame, right: dd.DataFrame, where: str, keys: Sequence[Any]
) -> list[Fault]:
    """Return a fault for each key that a side does not have, or that cannot be compared."""
    result: list[Fault] = []
    for side, frame in (("left", left), ("right", right)):
        try:
            with name_side_in_faults(side):
                result += [
                    replace(fault, allowed=f"a column of {side}: {fault.allowed}")
                    for fault in find_column_faults(frame._meta, **{where: keys})
                ]
                result += find_key_faults(frame._meta, where, keys)
        except RequestError as error:
            result += error.faults
    return result


def as_side(df: Frame, side: str) -> dd.DataFrame:
    """Convert one side to a collection; faults name the side."""
    if isinstance(df, dd.Series):
        given, allowed = "a Dask series", "a Dask dataframe, a URL or URLs"
        check([Fault(side, given, allowed, f"write {side}.to_frame()")])
    with name_side_in_faults(side):
        return as_collection(df)


@contextmanager
def name_side_in_faults(side: str) -> Iterator[None]:
    """Name the side in faults: in place of the argument ``df``, before other arguments."""
    try:
        yield
    except RequestError as error:
        faults = [
            replace(fault, where=side if fault.where == "df" else f"{side}, {fault.where}")
            for fault in error.faults
        ]
        raise RequestError(faults) from error.__cause__


def find_key_type_faults(left: pd.DataFrame, right: pd.DataFrame, keys: list[str]) -> list[Fault]:
    """Return a fault for each key whose types pandas cannot join; objects are not checked."""
    faults = []
    for key in keys:
        types = left[key].dtype, right[key].dtype
        if any(dtype == np.dtype(object) for dtype in types):
            continue
        try:
            left[[key]].iloc[:0].merge(right[[key]].iloc[:0], on=key)
        except ValueError:
            given = f"{key!r}, {types[0]} on the left and {types[1]} on the right"
            advice = advise_on_types(key, *types)
            allowed = "columns whose types can be compared"
            faults.append(Fault("on", given, allowed, advice))
    return faults


def advise_on_types(column: str, left: Any, right: Any) -> str:
    """Return how to convert a column of one side to the type of the other.

    Examples
    --------
    >>> advise_on_types("t", pd.DatetimeTZDtype("us", "UTC"), np.dtype("datetime64[us]"))
    "convert one side, as with right.assign(t=right['t'].dt.tz_localize('UTC'))"
    """
    side, call = "right", "astype(...)"
    zones = getattr(left, "tz", None), getattr(right, "tz", None)
    if any(zones) and getattr(left, "kind", "") == getattr(right, "kind", "") == "M":
        if zones[0] is None:
            side, call = "left", f"dt.tz_localize({str(zones[1])!r})"
        elif zones[1] is None:
            call = f"dt.tz_localize({str(zones[0])!r})"
        elif zones[0] != zones[1]:
            call = f"dt.tz_convert({str(zones[0])!r})"
    return f"convert one side, as with {side}.assign({column}={side}[{column!r}].{call})"


def are_suffixes(suffixes: Any) -> bool:
    """Return whether a value is a tuple or list of two strings."""
    return (
        isinstance(suffixes, (tuple, list))
        and len(suffixes) == 2
        and all(isinstance(suffix, str) for suffix in suffixes)
    )


def find_name_clash_faults(
    left: pd.DataFrame, right: pd.DataFrame, keys: list[str], suffixes: tuple[str, str]
) -> list[Fault]:
    """Return a fault if two columns of the result would have the same name."""
    names = [
        name + suffix * (name in other.columns)
        for side, other, suffix in ((left, right, suffixes[0]), (right, left, suffixes[1]))
        for name in side.columns
        if name not in keys
    ]
    repeated = sorted({name for name in [*keys, *names] if [*keys, *names].count(name) > 1})
    if not repeated:
        return []
    given = f"{suffixes!r}, which makes two columns {', '.join(map(repr, repeated[:5]))}"
    return [Fault("suffixes", given, "two strings that make all column names unique")]
