"""Joins of unusual collections: the rows of pandas, or an allowed error."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
from frame_strategies import QUICK
from fuzz_calls import COMPARED, NO_ANSWER, REFUSED, Helper, Tally, calls
from hypothesis import given, settings
from hypothesis import strategies as st
from result_checks import bag, dask_answer, ours, pandas_answer, rows_of, same_rows, same_types
from scale import scaled
from unusual_frames import Case, cases, columns, has_truth_and_numbers, sizes, told_apart

from hyperplane.dataframe import join
from hyperplane.formats.pandas_frames.lossless_dtypes import nullable_dtype


@dataclass
class Sides:
    """Two collections that share some column names."""

    left: Case
    right: Case

    @property
    def honest(self):
        """Whether both metas are right."""
        return self.left.honest and self.right.honest

    @property
    def refusable(self):
        """Whether an error of hyperplane is allowed."""
        return self.left.refusable or self.right.refusable


@st.composite
def sides(draw):
    """Draw two collections with one or two common keys, of equal or different kinds."""
    # Most joins with wrongly declared keys are refused, so only a third of the cases have them.
    left = draw(cases(st.integers(1, 3), lies=draw(st.integers(0, 2)) > 0))
    each = draw(sizes(most=6, parts=3))
    made = []
    for column in left.columns[:2]:
        kinds = sorted(set(column.kinds)) if draw(st.integers(0, 3)) > 0 else None
        how = {"kinds": tuple(kinds), "lies": False} if kinds else {}
        made.append(draw(columns(column.name, each, **how)))
    made.append(draw(columns("other", each, lies=False)))
    return Sides(left, Case(made, False, sum(each)))


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
    made = ours(both, lambda: join(left.df, right.df[taken], **how), [] if alike else [""])
    if made is None:
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
        if one_type and has_truth_and_numbers(pd.Series(values, dtype=object)):
            rows, other = (side.assign(**{key: told_apart(side[key])}) for side in (rows, other))
    want = pandas_answer(lambda: rows.merge(other, **how))
    if want is None or any(digits_are_lost(left, right, key) for key in keys):
        return NO_ANSWER
    assert list(made.columns) == list(want.columns)
    assert bag(rows_of(made)) == bag(rows_of(want))
    if plain and alike and how["how"] == "inner":  # integers that may be missing are nullable
        own = dask_answer(left, lambda df: df.merge(right.df[taken], on=keys))
        same_types(made, own, lambda: same_rows(own, want))
    return COMPARED


HELPERS = {"join": Helper(arguments, check_join)}


@pytest.mark.slow
def test_joined():
    tally = Tally("join", HELPERS)

    @settings(QUICK, max_examples=scaled(18, 600))
    @given(drawn=calls(sides(), HELPERS))
    def check(drawn):
        tally.check(drawn)

    check()
    tally.enough()
