"""Group-bys of awkward collections: what pandas makes of the rows, or an error of ours."""

from __future__ import annotations

import pandas as pd
from awkward_checks import (
    COMPUTED,
    INEXACT,
    dask_answer,
    largest,
    ours,
    pandas_answer,
    same_groups,
    same_types,
)
from awkward_frames import cases
from frame_strategies import QUICK, functions_of
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scale import scaled

from hyperplane.dataframe import group_agg, value_counts


@settings(QUICK, max_examples=scaled(60, 1500))
@given(data=st.data())
def test_groups(data):
    case = data.draw(cases(data.draw(st.integers(2, 4))), "case")
    names = [column.name for column in case.columns]
    keys = data.draw(st.integers(1, min(2, len(names) - 1)), "keys")
    by, values = names[:keys], names[keys:]
    spec = {}
    for name in values:
        some = st.sampled_from(functions_of(case.meta[name].dtype))
        spec[name] = data.draw(
            st.one_of(some, st.lists(some, min_size=1, max_size=3, unique=True)), "f"
        )
    split = data.draw(st.sampled_from([1, 1, 2]), "split")
    made = ours(case, lambda: group_agg(case.df, by, spec, split_out=split), ["'min'", "'max'"])
    if made is None:
        return
    whole = case.whole
    want = pandas_answer(lambda: whole.groupby(by, observed=True).agg(spec))
    assume(want is not None)
    most, short = largest(whole[values])
    nested = isinstance(want.columns, pd.MultiIndex)
    inexact = [c for c in want.columns if (c[1] if nested else spec[c]) in INEXACT]
    loose = most * most + most, 1e-3 if short else 1e-9
    same_groups(made, want, inexact, *loose, case.honest and split == 1)
    own = dask_answer(case, lambda df: df.groupby(by, observed=True).agg(spec))
    said = [c for c in made.columns if (c[1] if nested else spec[c]) in COMPUTED]
    same_types(made, own, lambda: same_groups(own, want, inexact, *loose, ordered=False), said)


@settings(QUICK, max_examples=scaled(40, 800))
@given(data=st.data())
def test_value_counts(data):
    case = data.draw(cases(data.draw(st.integers(1, 2))), "case")
    names = [column.name for column in case.columns]
    normalize = data.draw(st.booleans(), "normalize")
    made = ours(case, lambda: value_counts(case.df, names, normalize=normalize))
    if made is None:
        return
    whole = case.whole
    counted = whole[names[0]] if len(names) == 1 else whole
    want = pandas_answer(lambda: counted.value_counts(normalize=normalize))
    assume(want is not None)
    made, want = made.to_frame(), want.to_frame()
    if (
        not case.honest or len(names) > 1
    ):  # of categories that differ, and combinations, those that occur
        made, want = made[made.iloc[:, 0] > 0], want[want.iloc[:, 0] > 0]
    same_groups(made, want, list(want.columns), ordered=False)
    own = dask_answer(case, lambda df: df[names[0]].value_counts(normalize=normalize).to_frame())
    if len(names) == 1:
        same_types(made, own, lambda: same_groups(own, want, list(want.columns), ordered=False))
    assert made.iloc[:, 0].is_monotonic_decreasing
