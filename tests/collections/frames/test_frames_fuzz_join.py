"""Joins of unusual collections: the rows of pandas, or an allowed error."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
from frame_strategies import QUICK
from fuzz_calls import COMPARED, NO_REFERENCE, REFUSED, Helper, Tally, calls
from hypothesis import given, settings
from hypothesis import strategies as st
from result_checks import (
    count_rows,
    rows_of,
    run_dask,
    run_helper,
    run_pandas,
    same_rows,
    same_types,
)
from scale import scaled_calls
from unusual_frames import (
    Case,
    cases,
    columns,
    has_booleans_and_numbers,
    make_booleans_distinct,
    sizes,
)

from hyperplane.dataframe import join
from hyperplane.formats.pandas_frames.lossless_dtypes import nullable_dtype


@dataclass
class Sides:
    """Two collections that share some column names."""

    left: Case
    right: Case

    @property
    def has_right_meta(self):
        """Whether both metas are right."""
        return self.left.has_right_meta and self.right.has_right_meta

    @property
    def may_be_refused(self):
        """Whether an error of hyperplane is allowed."""
        return self.left.may_be_refused or self.right.may_be_refused


@st.composite
def sides(draw):
    """Draw two collections with one or two common keys, of equal or different kinds."""
    # Most joins with wrongly declared keys are refused, so only a third of the cases have them.
    left = draw(cases(st.integers(1, 3), may_be_wrong=draw(st.integers(0, 2)) > 0))
    each = draw(sizes(most=6, parts=3))
    drawn = []
    for column in left.columns[:2]:
        kinds = sorted(set(column.kinds)) if draw(st.integers(0, 3)) > 0 else None
        how = {"kinds": tuple(kinds), "may_be_wrong": False} if kinds else {}
        drawn.append(draw(columns(column.name, each, **how)))
    drawn.append(draw(columns("other", each, may_be_wrong=False)))
    return Sides(left, Case(drawn, False, sum(each)))


def arguments(draw, both):
    names = [column.name for column in both.right.columns[:-1]]
    keys = draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    return {"on": keys, "how": draw(st.sampled_from(["inner", "left"]))}


def digits_are_lost(left, right, name):
    """Return whether pandas compares signed and unsigned integers as floats."""
    wholes = [case.whole[name] for case in (left, right)]
    if wholes[0].dtype == wholes[1].dtype and not pd.api.types.is_float_dtype(wholes[0].dtype):
        return False
    both = [column for case in (left, right) for column in case.columns if column.name == name]
    parts = [part for column in both for part in column.parts]
    numbers = [part for part in parts if pd.api.types.is_integer_dtype(part.dtype)]
    return any(abs(int(value)) >= 2**53 for part in numbers for value in part.dropna())


def check_join(both, how, plain):
    left, right, keys = both.left, both.right, how["on"]
    taken = [*keys, "other"]
    alike = all(left.meta[key].dtype == right.meta[key].dtype for key in keys)
    result = run_helper(both, lambda: join(left.df, right.df[taken], **how), [] if alike else [""])
    if result is None:
        return REFUSED
    # With unmatched rows pandas converts integers to floats and loses digits.
    other = right.whole[taken].astype(
        {
            name: nullable_dtype(dtype)
            for name, dtype in right.whole[taken].dtypes.items()
            if name not in keys and isinstance(dtype, np.dtype) and dtype.kind in "iu"
        }
    )
    rows = left.whole
    for key in keys:
        values = [value for side in (rows, other) for value in side[key].astype(object)]
        # If the declared types differ there is a warning, and True equals 1, as in Dask.
        one_type = left.meta[key].dtype == right.meta[key].dtype
        if one_type and has_booleans_and_numbers(pd.Series(values, dtype=object)):
            rows, other = (
                side.assign(**{key: make_booleans_distinct(side[key])}) for side in (rows, other)
            )
    want = run_pandas(lambda: rows.merge(other, **how))
    if want is None or any(digits_are_lost(left, right, key) for key in keys):
        return NO_REFERENCE
    assert list(result.columns) == list(want.columns)
    assert count_rows(rows_of(result)) == count_rows(rows_of(want))
    if plain and alike and how["how"] == "inner":  # integers that may be missing are nullable
        own = run_dask(left, lambda df: df.merge(right.df[taken], on=keys))
        same_types(result, own, lambda: same_rows(own, want))
    return COMPARED


HELPERS = {"join": Helper(arguments, check_join)}


@pytest.mark.slow
def test_joined():
    tally = Tally("join", HELPERS)

    @settings(QUICK, max_examples=scaled_calls(10, 600))
    @given(drawn=calls(sides(), HELPERS))
    def check(drawn):
        tally.check(drawn)

    check()
    tally.assert_enough_calls()
