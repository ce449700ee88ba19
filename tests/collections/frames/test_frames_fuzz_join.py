"""Joins of awkward collections: the rows that pandas makes, or an error of ours."""

from __future__ import annotations

from awkward_checks import bag, dask_answer, ours, pandas_answer, rows_of, same_rows, same_types
from awkward_frames import Case, cases, columns, sizes
from frame_strategies import QUICK
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scale import scaled

from hyperplane.dataframe import join


@st.composite
def sides(draw):
    """Two collections with one or two keys of one name; of the same kinds, or of two."""
    left = draw(cases(draw(st.integers(1, 3))))
    keys = [column.name for column in left.columns[: draw(st.integers(1, 2))]]
    each = draw(sizes(most=6, parts=3))
    made = []
    for column in left.columns[: len(keys)]:
        alike = draw(st.integers(0, 3)) > 0
        kinds = sorted(set(column.kinds)) if alike else None
        how = {"kinds": tuple(kinds), "lies": False} if kinds else {}
        made.append(draw(columns(column.name, each, **how)))
    made.append(draw(columns("other", each, lies=False)))
    return left, Case(made, False, sum(each)), keys


@settings(QUICK, max_examples=scaled(25, 800))
@given(data=st.data())
def test_joined(data):
    left, right, keys = data.draw(sides(), "sides")
    how = data.draw(st.sampled_from(["inner", "left"]), "how")
    both = type("Both", (), {"refusable": left.refusable or right.refusable})
    alike = all(left.meta[key].dtype == right.meta[key].dtype for key in keys)
    made = ours(both, lambda: join(left.df, right.df, keys, how), [] if alike else [""])
    if made is None:
        return
    one, other = left.whole, right.whole
    want = pandas_answer(lambda: one.merge(other, on=keys, how=how))
    assume(want is not None)
    assert list(made.columns) == list(want.columns)
    assert bag(rows_of(made)) == bag(rows_of(want))
    if how == "inner" and right.honest:  # whole numbers that may be missing are nullable
        own = dask_answer(left, lambda df: df.merge(right.df, on=keys))
        same_types(made, own, lambda: same_rows(own, want))
