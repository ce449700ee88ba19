"""What the fuzz tests compare: values as Python has them, whatever their types."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from decimal import Decimal

import pandas as pd
from awkward_frames import normal

from hyperplane.errors import HyperplaneError

#: Functions whose last digits depend on the order of rows.
INEXACT = {"sum", "mean", "std", "var", "median"}
#: What pandas raises where a question has no answer for a type.
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
    """The answer of a helper, or None for an error of hyperplane where one may be."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return call().compute(scheduler="sync")
        except HyperplaneError as error:
            if not case.refusable and not any(text in str(error) for text in allowed):
                raise
            return None


def pandas_answer(call):
    """The answer of pandas, or None where it has none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return call()
        except NO_ANSWER:
            return None


def near(one, other, scale=0.0, rtol=1e-9):
    """Whether two values are equal, floats but for their last digits."""
    numbers = (int, float, Decimal)
    if isinstance(one, numbers) and isinstance(other, numbers):
        if isinstance(one, int) and isinstance(other, int):
            return one == other
        return math.isclose(one, other, rel_tol=rtol, abs_tol=rtol * scale)
    return one == other


def rows_of(frame):
    """Rows in their order, as tuples."""
    return [
        tuple(normal(value) for value in row)
        for row in zip(*(frame[c].astype(object) for c in frame.columns), strict=True)
    ]


def _hashable(row):
    return tuple(repr(value) if isinstance(value, (list, dict)) else value for value in row)


def bag(rows):
    """How often each row occurs."""
    return Counter(map(_hashable, rows))


def index_rows(index):
    """The keys of a result."""
    levels = [index.get_level_values(i) for i in range(index.nlevels)]
    return [
        tuple(normal(value) for value in row)
        for row in zip(*(level.astype(object) for level in levels), strict=True)
    ]


def same_groups(made, want, inexact, scale=0.0, rtol=1e-9, ordered=True):
    """That two grouped results have the same groups, in order, with the same values."""
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
            # Of objects pandas makes floats that have lost digits.
            exact = exact and not (isinstance(one, int) and isinstance(other, float))
            assert one == other if exact else near(one, other, scale, rtol), (key, name, one, other)


def largest(frame):
    """The largest finite number of a frame, for tolerances; and whether floats are short ones."""
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
