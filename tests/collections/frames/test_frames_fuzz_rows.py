"""Sorts, top rows and distinct rows of unusual collections: as in pandas, or an error."""

from __future__ import annotations

import pytest
from frame_strategies import QUICK
from fuzz_calls import COMPARED, NO_REFERENCE, REFUSED, Helper, Tally, calls
from hypothesis import given, settings
from hypothesis import strategies as st
from result_checks import (
    choose_row_form,
    rows_of,
    run_dask,
    run_helper,
    run_pandas,
    same_rows,
    same_types,
)
from scale import scaled_calls
from unusual_frames import cases

from hyperplane.dataframe import drop_duplicates, sort_values, top_n_per_group

SPLITS = st.sampled_from([None, 1, 3])


def some(draw, case, **how):
    """Draw some columns of a case."""
    names = st.sampled_from([column.name for column in case.columns])
    return draw(st.lists(names, min_size=1, unique=True, **how))


def sort_arguments(draw, case):
    return {
        "by": some(draw, case, max_size=2),
        "ascending": draw(st.booleans()),
        "na_position": draw(st.sampled_from(["first", "last"])),
        "split_out": draw(SPLITS),
    }


def check_sort(case, how, plain):
    result = run_helper(case, lambda: sort_values(case.df, **how), ["of type category"])
    if result is None:
        return REFUSED
    whole = case.whole
    in_order = {name: how[name] for name in ("ascending", "na_position")}

    def one_by_one():
        # By several columns pandas sorts infinite numbers like missing values.
        rows = whole
        for name in reversed(how["by"]):
            rows = rows.sort_values(name, kind="stable", **in_order)
        return rows

    same_rows(result, whole, choose_row_form(case))
    if case.has_right_meta:
        same_types(result, case.meta, lambda: None)
    want = run_pandas(one_by_one)
    if want is None:
        return NO_REFERENCE
    assert rows_of(result) == rows_of(want)
    return COMPARED


def top_arguments(draw, case):
    names = draw(st.permutations(list(case.meta.columns)))
    return {
        "by": list(names[1 : draw(st.integers(2, 3))]),
        "column": names[0],
        "n": draw(st.integers(1, 3)),
        "ascending": draw(st.booleans()),
        "split_out": draw(st.sampled_from([1, 1, 2])),
    }


def check_top(case, how, plain):
    result = run_helper(case, lambda: top_n_per_group(case.df, **how), ["of type category"])
    if result is None:
        return REFUSED
    by = how["by"]
    whole = case.keyed(by)
    in_order = {"by": how["column"], "ascending": how["ascending"], "kind": "stable"}

    def chosen():
        ordered = whole.sort_values(**in_order)
        return ordered.groupby(by, observed=True).head(how["n"]).dropna(subset=by)

    want = run_pandas(chosen)
    if want is None:
        return NO_REFERENCE
    same_rows(result, want, choose_row_form(case))
    if case.has_right_meta:
        same_types(result, case.meta, lambda: None)
    if case.has_right_meta and how["split_out"] == 1:

        def in_groups():
            rows = want.sort_values(**in_order)
            for name in reversed(by):
                rows = rows.sort_values(name, kind="stable")
            return rows

        ordered = run_pandas(in_groups)
        assert ordered is None or rows_of(result) == rows_of(ordered)
    return COMPARED


def distinct_arguments(draw, case):
    return {
        "subset": some(draw, case) if draw(st.integers(0, 3)) else None,
        "keep": draw(st.sampled_from(["first", "last"])),
        "split_out": draw(SPLITS),
    }


def check_distinct(case, how, plain):
    result = run_helper(case, lambda: drop_duplicates(case.df, **how))
    if result is None:
        return REFUSED
    subset, keep = how["subset"], how["keep"]
    rows = case.keyed(subset or case.meta.columns)
    want = run_pandas(lambda: rows.drop_duplicates(subset, keep=keep))
    if want is None:
        return NO_REFERENCE
    same_rows(result, want, choose_row_form(case))
    if plain:
        own = run_dask(case, lambda df: df.drop_duplicates(subset, keep=keep))
        same_types(result, own, lambda: same_rows(own, want))
    return COMPARED


HELPERS = {
    "sort_values": Helper(sort_arguments, check_sort),
    "top_n_per_group": Helper(top_arguments, check_top),
    "drop_duplicates": Helper(distinct_arguments, check_distinct),
}


@pytest.mark.slow
def test_rows():
    tally = Tally("rows", HELPERS)

    @settings(QUICK, max_examples=scaled_calls(12, 1150))
    @given(drawn=calls(cases(st.integers(2, 3)), HELPERS))
    def check(drawn):
        tally.check(drawn)

    check()
    tally.assert_enough_calls()
