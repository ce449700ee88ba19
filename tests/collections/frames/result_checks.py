"""Comparison of results in the fuzz tests: by Python values, independent of column types."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from decimal import Decimal

import numpy as np
import pandas as pd
from unusual_frames import Truth, normal

from hyperplane.errors import HyperplaneError
from hyperplane.formats.pandas_frames.object_columns import has_integers_and_floats

#: Functions whose last digits depend on the order of rows.
INEXACT = {"sum", "mean", "std", "var", "median"}
#: Functions whose result types are wider for short floats and decimals, as documented.
COMPUTED = {"mean", "std", "var", "sum", "median"}
#: What pandas raises if an operation is not defined for a type.
NO_ANSWER = (
    ValueError,
    TypeError,
    NotImplementedError,
    AttributeError,
    ArithmeticError,
    KeyError,
    AssertionError,
    RuntimeError,
)


def ours(case, call, allowed=()):
    """Return the result of a helper, or None for an error of hyperplane that is allowed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return call().compute(scheduler="sync")
        except HyperplaneError as error:
            if not case.refusable and not any(text in str(error) for text in allowed):
                raise
            return None


def pandas_answer(call):
    """Return the result of pandas, or None if it raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return call()
        except NO_ANSWER:
            return None


def dask_answer(case, call):
    """Return the result of plain Dask; None if it raises or the meta is wrong."""
    if not case.honest:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return call(case.df).compute(scheduler="sync")
        except Exception:  # noqa: BLE001 - Dask raises many types; pandas is compared, too
            return None


def same_types(made, other, agree, said=()):
    """Assert that types equal those of another result, if that has the right values.

    Parameters
    ----------
    made, other : pandas.DataFrame
        Ours, and that of plain Dask or pandas, which may be None.
    agree : callable
        Raises an AssertionError if the values of the other one are not the right ones.
    said : container
        Columns of which the page says that their types differ.
    """
    if other is None or other.empty:  # a window without rows may have any type
        return
    try:
        agree()
    except AssertionError:
        return
    for name in made.columns:
        ours, theirs = made[name].dtype, other[name].dtype
        # pandas may infer strings from objects; the values themselves are compared elsewhere.
        if name not in said and object not in (ours, theirs):
            assert ours == theirs, (name, ours, theirs)
    if isinstance(made.index, pd.RangeIndex):
        return
    levels = [frame.index.to_frame().dtypes.to_list() for frame in (made, other)]
    for ours, theirs in zip(*levels, strict=True):
        kinds = (pd.CategoricalDtype, pd.SparseDtype)  # whose values may differ in type
        categories = any(isinstance(kind, kinds) for kind in (ours, theirs))
        # Windows over Arrow times have an index of NumPy times, as documented.
        windows = pd.api.types.is_datetime64_any_dtype(theirs) and isinstance(theirs, pd.ArrowDtype)
        short = "float16" in str(theirs) or "halffloat" in str(
            theirs
        )  # pandas has no index of this type
        if object not in (ours, theirs) and not categories and not windows and not short:
            assert ours == theirs, ("index", ours, theirs)


def near(one, other, scale=0.0, rtol=1e-9):
    """Return whether two values are equal, floats up to their last digits."""
    numbers = (int, float, Decimal)
    # The sum of objects has the type of the first; the sum of one boolean is that boolean.
    one, other = (value.value if isinstance(value, Truth) else value for value in (one, other))
    if isinstance(one, numbers) and isinstance(other, numbers):
        if isinstance(one, int) and isinstance(other, int):
            return one == other
        cut = 0.0  # pandas truncates the mean of decimals to their scale
        if isinstance(one, float) and isinstance(other, Decimal) and other.is_finite():
            cut = 10.0 ** int(other.as_tuple().exponent)
        return math.isclose(one, other, rel_tol=rtol, abs_tol=max(rtol * scale, cut))
    # For pandas the sum of a group of only missing durations in an object column is a number.
    return one == other or (one == ("span", 0) and type(other) is int and other == 0)


def kind_of(value):
    """Return a value with its kind, so that 1, 1.0 and Decimal(1) differ."""
    made = normal(value)
    kinds = {int: "whole", float: "float", Decimal: "decimal"}
    return (kinds[type(made)], made) if type(made) in kinds else made


def kinds_kept(case):
    """Return how to compare rows: with their kinds, unless kinds change as documented."""
    mixed = any(
        dtype == np.dtype(object) and has_integers_and_floats(case.whole[name])
        for name, dtype in case.whole.dtypes.items()
    )
    return kind_of if case.honest and not mixed else normal


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


def bag(rows):
    """Count each row."""
    return Counter(map(_hashable, rows))


def same_rows(made, want, form=normal):
    """Assert that two frames have the same rows, in any order."""
    assert list(made.columns) == list(want.columns)
    assert bag(rows_of(made, form)) == bag(rows_of(want, form))


def index_rows(index):
    """Return the keys of a result as tuples."""
    levels = [index.get_level_values(i) for i in range(index.nlevels)]
    return [
        tuple(normal(value) for value in row)
        for row in zip(*(level.astype(object) for level in levels), strict=True)
    ]


def same_groups(made, want, inexact, scale=0.0, rtol=1e-9, ordered=True):
    """Assert that two grouped results have the same groups, in order, with the same values."""
    assert list(made.columns) == list(want.columns)
    assert list(made.index.names) == list(want.index.names)
    keys, wanted = index_rows(made.index), index_rows(want.index)
    if ordered:
        assert keys == wanted
    ours, theirs = (
        dict(zip(keys, rows_of(made), strict=True)),
        dict(zip(wanted, rows_of(want), strict=True)),
    )
    assert ours.keys() == theirs.keys()
    for key, row in ours.items():
        for name, one, other in zip(made.columns, row, theirs[key], strict=True):
            exact = name not in inexact
            # pandas converts objects to floats, which loses digits.
            exact = exact and not (isinstance(one, int) and isinstance(other, float))
            assert one == other if exact else near(one, other, scale, rtol), (key, name, one, other)


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
