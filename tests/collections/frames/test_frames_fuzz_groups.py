"""Group-bys of unusual collections: the result of pandas, or an allowed error."""

from __future__ import annotations

import pandas as pd
import pytest
from frame_strategies import QUICK, functions_of
from fuzz_calls import COMPARED, FULL, NO_REFERENCE, REFUSED, Helper, Tally, calls
from hypothesis import given, settings
from hypothesis import strategies as st
from result_checks import (
    COMPUTED,
    INEXACT,
    index_rows,
    largest,
    run_dask,
    run_helper,
    run_pandas,
    same_groups,
    same_types,
)
from scale import scaled_calls
from unusual_frames import cases

from hyperplane.dataframe import group_agg, value_counts


def agg_arguments(draw, case):
    names = draw(st.permutations([column.name for column in case.columns]))
    keys = draw(st.integers(1, min(2, len(names) - 1)))
    agg = {}
    for name in names[keys:]:
        some = st.sampled_from(functions_of(case.meta[name].dtype))
        agg[name] = draw(st.one_of(some, st.lists(some, min_size=1, max_size=3, unique=True)))
    split = draw(st.sampled_from([1, 1, 2]))
    return {"by": list(names[:keys]), "agg": agg, "split_out": split}


def check_agg(case, how, plain):
    by, spec = how["by"], how["agg"]
    result = run_helper(case, lambda: group_agg(case.df, **how), ["'min'", "'max'"])
    if result is None:
        return REFUSED
    whole = case.keyed(by)
    want = run_pandas(lambda: whole.groupby(by, observed=True).agg(spec))
    if want is None:
        return NO_REFERENCE
    most, short = largest(whole[list(spec)])
    nested = isinstance(want.columns, pd.MultiIndex)
    inexact = [c for c in want.columns if (c[1] if nested else spec[c]) in INEXACT]
    loose = most * most + most, 1e-3 if short else 1e-9
    same_groups(result, want, inexact, *loose, case.has_right_meta and how["split_out"] == 1)
    if plain:
        own = run_dask(case, lambda df: df.groupby(by, observed=True).agg(spec))
        documented = [c for c in result.columns if (c[1] if nested else spec[c]) in COMPUTED]
        agree = lambda: same_groups(own, want, inexact, *loose, ordered=False)  # noqa: E731
        same_types(result, own, agree, documented)
    return COMPARED


def counts_arguments(draw, case):
    names = [column.name for column in case.columns]
    columns = draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True))
    return {"columns": columns, "normalize": draw(st.booleans())}


def check_counts(case, how, plain):
    names, normalize = how["columns"], how["normalize"]
    result = run_helper(case, lambda: value_counts(case.df, **how))
    if result is None:
        return REFUSED
    counted = case.keyed(names)[names[0] if len(names) == 1 else names]
    want = run_pandas(lambda: counted.value_counts(normalize=normalize))
    if want is None:
        return NO_REFERENCE
    keys = index_rows(want.index)
    if len(set(keys)) < len(keys):  # pandas counts equal lists separately
        return NO_REFERENCE
    result, want = result.to_frame(), want.to_frame()
    assert result.iloc[:, 0].dropna().is_monotonic_decreasing
    # For differing categories and for combinations, only values that occur are counted.
    if not case.has_right_meta or len(names) > 1:
        result, want = result[result.iloc[:, 0] > 0], want[want.iloc[:, 0] > 0]
    same_groups(result, want, list(want.columns), ordered=False)
    if plain and len(names) == 1:
        own = run_dask(case, lambda df: df[names[0]].value_counts(normalize=normalize).to_frame())
        same_types(result, own, lambda: same_groups(own, want, list(want.columns), ordered=False))
    return COMPARED


HELPERS = {
    "group_agg": Helper(agg_arguments, check_agg),
    "value_counts": Helper(counts_arguments, check_counts),
}


@pytest.mark.slow
def test_groups():
    tally = Tally("groups", HELPERS)

    @settings(QUICK, max_examples=scaled_calls(10, 800))
    @given(drawn=calls(cases(st.integers(2, 4)), HELPERS))
    def check(drawn):
        tally.check(drawn)

    check()
    tally.assert_enough_calls()


def test_all_files_together_compare_enough():
    compared, on_wrong_types = map(sum, zip(*FULL.values(), strict=True))
    assert compared >= 10_000
    assert on_wrong_types >= 5_000
