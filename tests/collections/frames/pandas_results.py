"""Reference results of the dataframe helpers, computed with pandas."""

from __future__ import annotations

import re
import warnings
from collections import Counter

import numpy as np
import pandas as pd
from pandas_versions import IS_BEFORE_PANDAS_3_1


def grouper(time, every, closed, label, zone=None):
    """The windows of pandas 3.1, with any pandas.

    pandas 3.0 puts a window without rows before the first day that is closed on the right.
    """
    days = re.fullmatch(r"(\d*)D", every)
    if IS_BEFORE_PANDAS_3_1 and days and zone is None:
        every = f"{24 * int(days[1] or 1)}h"
    return pd.Grouper(key=time, freq=every, closed=closed, label=label)


def window_agg(frame, time, every, agg, by=None, *, closed="right", label="right"):
    """Return the result of pandas with the groups that occur; None if pandas fails."""
    windows = grouper(time, every, closed, label, frame[time].dt.tz)
    return group_agg(frame, [*by, windows] if by else windows, agg)


def group_agg(frame, by, agg):
    """Return the result of a group-by of pandas."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # overflow of float32, inf - inf
        try:
            return frame.groupby(by, observed=True).agg(agg)
        except (ValueError, TypeError, NotImplementedError, AttributeError, ArithmeticError):
            return None


def window_counts(frame, time, every, targets, by=(), *, closed="right", label="right"):
    """Return the sums of ``get_dummies`` per window; keys are renamed temporarily."""
    keys = {name: f"by {name}" for name in by}
    used = frame[[time, *by, *targets]].rename(columns=keys)
    dummies = pd.get_dummies(used, columns=list(targets))
    counted = [name for name in dummies.columns if name not in (time, *keys.values())]
    windows = grouper(time, every, closed, label, frame[time].dt.tz)
    groups = [*keys.values(), windows] if keys else windows
    # pandas 3.0 raises AttributeError if all times are missing; 3.1 returns no windows, as here.
    dummies = dummies.dropna(subset=[time])
    sums = dummies.groupby(groups, observed=True)[counted].sum()
    if keys:
        sums.index = sums.index.set_names([*keys, time])
    return sums


def top_n(frame, by, column, n, *, ascending=False):
    """Return the first rows of each group, sorted by group and by the column."""
    ordered = frame.sort_values(column, ascending=ascending, kind="stable")
    kept = ordered.groupby(by, observed=True).head(n).dropna(subset=by)
    order = [True] * len(by) + [ascending]
    return kept.sort_values([*by, column], ascending=order, kind="stable", ignore_index=True)


def value_counts(frame, by):
    """Return counts, the most frequent first; the smaller value first among equal counts."""
    values = frame[by[0]] if len(by) == 1 else frame[by]
    counts = values.value_counts()
    # For one column of categories pandas includes those that do not occur.
    if len(by) > 1 or not isinstance(values.dtype, pd.CategoricalDtype):
        counts = counts[counts > 0]
    return counts.sort_index().sort_values(ascending=False, kind="stable")


def rows_of(frame):
    """Count the rows; all missing values are equal."""
    rows = frame.astype(object).itertuples(index=False)
    return Counter(tuple(None if pd.isna(value) else value for value in row) for row in rows)


def same_frame(result, expected, **how):
    """Assert that two frames are equal, except where the type in pandas is not determined.

    The mean of float32 is float32 or float64 in pandas, by version and grouping; the frequency
    of an index depends on whether there was a row; objects miss None or NaN.
    """
    if expected.empty:  # the type of objects is not determined then
        how["check_index_type"] = how["check_dtype"] = False
    result, expected = _one_kind_of_missing(result), _one_kind_of_missing(expected)
    for position, dtype in enumerate(expected.dtypes):
        if dtype == np.float32 and result.dtypes.iloc[position] == np.float64:
            expected = expected.copy()
            expected.isetitem(position, expected.iloc[:, position].astype("float64"))
            how["rtol"] = 1e-5
    pd.testing.assert_frame_equal(result, expected, check_freq=False, **how)


def _one_kind_of_missing(frame):
    """Return the frame with NaN for all missing objects."""
    for position, dtype in enumerate(frame.dtypes):
        if dtype == np.dtype(object):
            frame = frame.copy()
            values = frame.iloc[:, position]
            frame.isetitem(position, values.where(values.notna(), np.nan))
    return frame
