"""Checks of the arguments of ``join_asof``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, get_args

import numpy as np
import pandas as pd

from hyperplane.collections.frames.join_arguments import advise_on_types
from hyperplane.collections.frames.kernels.asof import Direction
from hyperplane.core.argument_checks import describe_value
from hyperplane.core.errors import Fault
from hyperplane.formats.pandas_frames.categories import has_known_categories, is_stored_as_codes

DIRECTIONS: tuple[Direction, ...] = get_args(Direction)


def find_asof_type_faults(
    left: pd.DataFrame, right: pd.DataFrame, on: str, keys: Sequence[str]
) -> list[Fault]:
    """Return a fault for each column whose types cannot be compared, or have no differences."""
    faults = []
    types = left[on].dtype, right[on].dtype
    if any(dtype.kind not in "iufmM" for dtype in types):
        given = f"{on!r}, {types[0]} on the left and {types[1]} on the right"
        advice = "convert text with to_datetime" if "O" in [dtype.kind for dtype in types] else ""
        faults.append(Fault("on", given, "a column of times or numbers", advice))
    elif _get_plain_type(types[0]) != _get_plain_type(types[1]):
        faults.append(_make_type_fault("on", on, types))
    for key in keys:
        types = left[key].dtype, right[key].dtype
        categories = [dtype for dtype in types if isinstance(dtype, pd.CategoricalDtype)]
        if any(not has_known_categories(c) or is_stored_as_codes(c) for c in categories):
            given = f"{key!r}, categories that are not known or not of text, numbers or times"
            advice = f"convert both sides, as with df.assign({key}=df[{key!r}].astype('str'))"
            faults.append(Fault("by", given, "numbers, text, times or their categories", advice))
        elif _get_plain_type(types[0]) != _get_plain_type(types[1]):
            faults.append(_make_type_fault("by", key, types))
    return faults


def _make_type_fault(where: str, column: str, types: tuple[Any, Any]) -> Fault:
    given = f"{column!r}, {types[0]} on the left and {types[1]} on the right"
    return Fault(where, given, "columns of one type", advise_on_types(column, *types))


def _get_plain_type(dtype: Any) -> Any:
    """Return the type without the ways of pandas to store it: nullable, or as categories."""
    if isinstance(dtype, pd.CategoricalDtype):
        return _get_plain_type(dtype.categories.dtype)
    if isinstance(dtype, pd.StringDtype):
        return "text"
    return getattr(dtype, "numpy_dtype", dtype)


def parse_tolerance(tolerance: Any, dtype: Any) -> tuple[float | None, list[Fault]]:
    """Return the maximum difference of values, nanoseconds for times, and faults."""
    if tolerance is None:
        return None, []
    limit: int | float | None
    if dtype.kind in "mM":
        allowed = "a duration such as '5min' or a timedelta, not negative, or None"
        limit = _parse_duration(tolerance)
    else:
        allowed = "a number, not negative, or None"
        limit = _parse_number(tolerance)
        if isinstance(limit, int):
            # Kernels do not take larger numbers, and no two values of a column are further apart.
            limit = min(limit, 2**64) if dtype.kind in "iu" else float(min(limit, 10**308))
    if limit is not None and limit >= 0:
        return limit, []
    given = f"{describe_value(tolerance)}, for a column of type {dtype}"
    return None, [Fault("tolerance", given, allowed)]


def _parse_duration(tolerance: Any) -> int | None:
    """Return nanoseconds; None if the value is no duration."""
    if not isinstance(tolerance, (str, timedelta, np.timedelta64)):
        return None
    try:
        duration: Any = pd.Timedelta(tolerance)
        return None if duration is pd.NaT else int(duration.as_unit("ns").value)
    except (ValueError, OverflowError):
        return None


def _parse_number(tolerance: Any) -> int | float | None:
    """Return a number; None if the value is none."""
    is_number = isinstance(tolerance, (int, float, np.integer, np.floating))
    if not is_number or isinstance(tolerance, bool) or math.isnan(tolerance):
        return None
    number: int | float = tolerance.item() if isinstance(tolerance, np.generic) else tolerance
    return number
