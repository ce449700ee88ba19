"""Windows of time over awkward collections: what pandas makes of the rows, or an error of ours."""

from __future__ import annotations

import pandas as pd
from awkward_checks import (
    COMPUTED,
    INEXACT,
    index_rows,
    largest,
    ours,
    pandas_answer,
    rows_of,
    same_groups,
    same_types,
)
from awkward_frames import KINDS, MOMENTS, cases, columns
from frame_strategies import QUICK, functions_of
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scale import scaled

from hyperplane.dataframe import window_agg, window_counts

#: What a column of times is declared as; its partitions may be of other types.
TIMES = [kind for kind in MOMENTS if pd.api.types.is_datetime64_any_dtype(KINDS[kind][1])]
TIMES.remove("far")  # pandas makes a row for each window between


@st.composite
def times(draw, name, sizes):
    """A column of times, seldom of a type that the meta does not say."""
    lies = draw(st.integers(0, 3)) == 0
    made = draw(columns(name, sizes, lies=lies, kinds=TIMES))
    assume(pd.api.types.is_datetime64_any_dtype(made.declared))
    values = [value for part in made.parts for value in part.astype(object).dropna()]
    years = {getattr(value, "year", None) for value in values}
    assume(len(years) < 2 and not years & {1400, 3000})
    return made


WIDTHS = st.sampled_from(["1h", "7h", "1D", "2D", "W", "MS"])
SIDES = st.sampled_from(["left", "right", None])


def drawn(data):
    """The arguments of a window."""
    every = data.draw(WIDTHS, "every")
    return every, {"closed": data.draw(SIDES, "closed"), "label": data.draw(SIDES, "label")}


@settings(QUICK, max_examples=scaled(25, 800))
@given(data=st.data())
def test_windows(data):
    case = data.draw(cases(data.draw(st.integers(2, 3)), first=times), "case")
    names = [column.name for column in case.columns]
    time, values, by = names[0], names[1:2], names[2:]
    every, sides = drawn(data)
    some = st.sampled_from(functions_of(case.meta[values[0]].dtype))
    spec = {values[0]: data.draw(some, "f")}
    made = ours(
        case,
        lambda: window_agg(case.df, time, every, spec, by or None, **sides),
        ["'min'", "'max'"],
    )
    if made is None:
        return
    whole = case.whole
    grouper = pd.Grouper(key=time, freq=every, **sides)
    want = pandas_answer(
        lambda: whole.groupby([*by, grouper] if by else grouper, observed=True).agg(spec)
    )
    assume(want is not None)
    most, short = largest(whole[values])
    inexact = [name for name in values if spec[name] in INEXACT]
    same_groups(made, want, inexact, most * most + most, 1e-3 if short else 1e-9, case.honest)
    if case.honest:  # plain Dask has no windows with keys, and no sides of windows as these
        same_types(made, want, lambda: None, [name for name in values if spec[name] in COMPUTED])


@settings(QUICK, max_examples=scaled(25, 800))
@given(data=st.data())
def test_counts(data):
    case = data.draw(cases(2, first=times), "case")
    time, target = (column.name for column in case.columns)
    every, sides = drawn(data)
    made = ours(
        case,
        lambda: window_counts(case.df, time, every, target, **sides),
        ["of whole numbers and fractions"],
    )
    if made is None:
        return
    whole = case.whole
    dummies = pandas_answer(lambda: pd.get_dummies(whole, columns=[target]))
    assume(dummies is not None and case.columns[1].honest)
    grouper = pd.Grouper(key=time, freq=every, **sides)
    counted = [name for name in dummies.columns if name != time]
    want = pandas_answer(lambda: dummies.groupby(grouper)[counted].sum())
    assume(want is not None)
    # Zero is 0.0, which get_dummies names -0.0 where that comes first.
    assert list(made.columns) == [name.replace("_-0.0", "_0.0") for name in want.columns]
    assert index_rows(made.index) == index_rows(want.index)
    assert rows_of(made) == rows_of(want)
    same_types(made, want.set_axis(made.columns, axis=1), lambda: None)
