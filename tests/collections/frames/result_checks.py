"""Comparison of results in the fuzz tests: by Python values, independent of column types."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from decimal import Decimal

import numpy as np
import pandas as pd
from unusual_frames import DistinctBoolean, normal

from hyperplane.errors import HyperplaneError
from hyperplane.formats.pandas_frames.object_columns import has_integers_and_floats

#: Functions whose last digits depend on the order of rows.
INEXACT = {"sum", "mean", "std", "var", "median"}
#: Functions whose result types are wider for short floats and decimals, as documented.
COMPUTED = {"mean", "std", "var", "sum", "median"}
#: Errors of pandas for an operation that is not defined for a type.
PANDAS_ERRORS = (
    ValueError,
    TypeError,
    NotImplementedError,
    AttributeError,
    ArithmeticError,
    KeyError,
    AssertionError,
    RuntimeError,
)


def run_helper(case, call, allowed=()):
    """Return the result of a helper, or None for an error of hyperplane that is allowed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return call().compute(scheduler="sync")
        except HyperplaneError as error:
            if not case.may_be_refused and not any(text in str(error) for text in allowed):
                raise
            return None


def run_pandas(call):
    """Return the result of pandas, or None if it raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return call()
        except PANDAS_ERRORS:
            return None


def run_dask(case, call):
    """Return the result of plain Dask; None if it raises or the meta is wrong."""
    if not case.has_right_meta:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return call(case.df).compute(scheduler="sync")
        except Exception:  # noqa: BLE001 - Dask raises many types; pandas is compared, too
            return None


def same_types(result, other, agree, documented=()):
    """Assert that types equal those of another result, if that has the right values.

    Parameters
    ----------
    result, other : pandas.DataFrame
        The result of a helper, and that of plain Dask or pandas, which may be None.
    agree : callable
        Raises an AssertionError if the values of the other result are wrong.
    documented : container
        Columns whose types differ from those of the other result, as documented.
    """
    if other is None or other.empty:  # a window without rows may have any type
        return
    try:
        agree()
    except AssertionError:
        return
    for name in result.columns:
        dtype, other_dtype = result[name].dtype, other[name].dtype
        # pandas may infer strings from objects; the values themselves are compared elsewhere.
        if name not in documented and object not in (dtype, other_dtype):
            assert dtype == other_dtype, (name, dtype, other_dtype)
    if isinstance(result.index, pd.RangeIndex):
        return
    levels = [frame.index.to_frame().dtypes.to_list() for frame in (result, other)]
    for dtype, other_dtype in zip(*levels, strict=True):
        kinds = (pd.CategoricalDtype, pd.SparseDtype)  # whose values may differ in type
        categories = any(isinstance(kind, kinds) for kind in (dtype, other_dtype))
        # Windows over Arrow times have an index of NumPy times, as documented.
        windows = pd.api.types.is_datetime64_any_dtype(other_dtype) and isinstance(
            other_dtype, pd.ArrowDtype
        )
        # pandas has no index of 16-bit floats.
        short = "float16" in str(other_dtype) or "halffloat" in str(other_dtype)
        if object not in (dtype, other_dtype) and not categories and not windows and not short:
            assert dtype == other_dtype, ("index", dtype, other_dtype)


def is_near(one, other, scale=0.0, rtol=1e-9):
    """Return whether two values are equal, floats up to their last digits."""
    numbers = (int, float, Decimal)
    # The sum of objects has the type of the first; the sum of one boolean is that boolean.
    one, other = (
        value.value if isinstance(value, DistinctBoolean) else value for value in (one, other)
    )
    if isinstance(one, numbers) and isinstance(other, numbers):
        if isinstance(one, int) and isinstance(other, int):
            return one == other
        truncation = 0.0  # pandas truncates the mean of decimals to their scale
        if isinstance(one, float) and isinstance(other, Decimal) and other.is_finite():
            truncation = 10.0 ** int(other.as_tuple().exponent)
        return math.isclose(one, other, rel_tol=rtol, abs_tol=max(rtol * scale, truncation))
    # For pandas the sum of a group of only missing durations in an object column is a number.
    return one == other or (one == ("span", 0) and type(other) is int and other == 0)


def kind_of(value):
    """Return a value with its kind, so that 1, 1.0 and Decimal(1) differ."""
    value = normal(value)
    kinds = {int: "whole", float: "float", Decimal: "decimal"}
    return (kinds[type(value)], value) if type(value) in kinds else value


def choose_row_form(case):
    """Return the function by which values are compared: with kinds, unless these may change."""
    mixed = any(
        dtype == np.dtype(object) and has_integers_and_floats(case.whole[name])
        for name, dtype in case.whole.dtypes.items()
    )
    return kind_of if case.has_right_meta and not mixed else normal


def rows_of(frame, form=normal):
    """Return the rows as tuples, in order."""
    if frame.columns.empty:
        return [()] * len(frame)
    return [
        tuple(form(value) for value in row)
        for row in zip(*(frame[c].astype(object) for c in frame.columns), strict=True)
    ]


def _hashable(row):
    return tuple(repr(value) if isinstance(value, (list, dict)) else value for value in row)


def count_rows(rows):
    """Count each row."""
    return Counter(map(_hashable, rows))


def same_rows(result, want, form=normal):
    """Assert that two frames have the same rows, in any order."""
    assert list(result.columns) == list(want.columns)
    assert count_rows(rows_of(result, form)) == count_rows(rows_of(want, form))


def index_rows(index):
    """Return the keys of a result as tuples."""
    levels = [index.get_level_values(i) for i in range(index.nlevels)]
    return [
        tuple(normal(value) for value in row)
        for row in zip(*(level.astype(object) for level in levels), strict=True)
    ]


def same_groups(result, want, inexact, scale=0.0, rtol=1e-9, ordered=True):
    """Assert that two grouped results have the same groups, in order, with the same values."""
    assert list(result.columns) == list(want.columns)
    assert list(result.index.names) == list(want.index.names)
    keys, wanted = index_rows(result.index), index_rows(want.index)
    if ordered:
        assert keys == wanted
    rows, other_rows = (
        dict(zip(keys, rows_of(result), strict=True)),
        dict(zip(wanted, rows_of(want), strict=True)),
    )
    assert rows.keys() == other_rows.keys()
    for key, row in rows.items():
        for name, one, other in zip(result.columns, row, other_rows[key], strict=True):
            exact = name not in inexact
            # pandas converts objects to floats, which loses digits.
            exact = exact and not (isinstance(one, int) and isinstance(other, float))
            assert one == other if exact else is_near(one, other, scale, rtol), (
                key,
                name,
                one,
                other,
            )


def largest(frame):
    """Return the largest finite number of a frame, for tolerances, and whether floats are short."""
    most, short = 0.0, False
    for name in frame.columns:
        dtype = frame[name].dtype
        if pd.api.types.is_numeric_dtype(dtype) and not pd.api.types.is_complex_dtype(dtype):
            values = [
                abs(float(v))
                for v in frame[name].astype(object)
                if v is not None and not pd.isna(v)
            ]
            most = max([most, *(v for v in values if math.isfinite(v))])
            short = short or any(
                text in str(dtype).lower() for text in ("float32", "float16", "float[", "halffloat")
            )
    return most, short
