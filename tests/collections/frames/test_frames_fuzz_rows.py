"""Rows of awkward collections sorted, chosen and made unique: what pandas makes, or an error."""

from __future__ import annotations

from awkward_checks import dask_answer, ours, pandas_answer, rows_of, same_rows, same_types
from awkward_frames import cases
from frame_strategies import QUICK
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scale import scaled

from hyperplane.dataframe import drop_duplicates, sort_values, top_n_per_group


@settings(QUICK, max_examples=scaled(50, 1000))
@given(data=st.data())
def test_sorted(data):
    case = data.draw(cases(data.draw(st.integers(1, 3))), "case")
    names = [column.name for column in case.columns]
    by = names[: data.draw(st.integers(1, min(2, len(names))), "by")]
    ascending = data.draw(st.booleans(), "ascending")
    where = data.draw(st.sampled_from(["first", "last"]), "na_position")
    split = data.draw(st.sampled_from([None, 1, 3]), "split")
    how = {"ascending": ascending, "na_position": where}
    made = ours(
        case, lambda: sort_values(case.df, by, split_out=split, **how), ["of type category"]
    )
    if made is None:
        return
    whole = case.whole

    def one_by_one():
        # By several columns at once pandas takes infinite numbers for missing ones.
        rows = whole
        for name in reversed(by):
            rows = rows.sort_values(name, kind="stable", **how)
        return rows

    want = pandas_answer(one_by_one)
    same_rows(made, whole)
    if case.honest:
        same_types(made, case.meta, lambda: None)
    assume(want is not None)
    assert rows_of(made) == rows_of(want)


@settings(QUICK, max_examples=scaled(50, 1000))
@given(data=st.data())
def test_top(data):
    case = data.draw(cases(data.draw(st.integers(2, 3))), "case")
    names = [column.name for column in case.columns]
    by, column = names[:1], names[1]
    n = data.draw(st.integers(1, 3), "n")
    ascending = data.draw(st.booleans(), "ascending")
    split = data.draw(st.sampled_from([1, 1, 2]), "split")
    made = ours(
        case,
        lambda: top_n_per_group(case.df, by, column, n, ascending=ascending, split_out=split),
        ["of type category"],
    )
    if made is None:
        return
    whole = case.whole

    def chosen():
        ordered = whole.sort_values(column, ascending=ascending, kind="stable")
        return ordered.groupby(by, observed=True).head(n).dropna(subset=by)

    want = pandas_answer(chosen)
    assume(want is not None)
    same_rows(made, want)
    if case.honest:
        same_types(made, case.meta, lambda: None)
    if case.honest and split == 1:
        want = pandas_answer(
            lambda: want.sort_values(column, ascending=ascending, kind="stable").sort_values(
                by, kind="stable"
            )
        )
        assert want is None or rows_of(made) == rows_of(want)


@settings(QUICK, max_examples=scaled(50, 1000))
@given(data=st.data())
def test_distinct(data):
    case = data.draw(cases(data.draw(st.integers(1, 3))), "case")
    names = [column.name for column in case.columns]
    subset = data.draw(
        st.one_of(st.none(), st.lists(st.sampled_from(names), min_size=1, unique=True)), "subset"
    )
    keep = data.draw(st.sampled_from(["first", "last"]), "keep")
    split = data.draw(st.sampled_from([None, 1, 3]), "split")
    made = ours(case, lambda: drop_duplicates(case.df, subset, keep=keep, split_out=split))
    if made is None:
        return
    whole = case.whole
    want = pandas_answer(lambda: whole.drop_duplicates(subset, keep=keep))
    assume(want is not None)
    same_rows(made, want)
    own = dask_answer(case, lambda df: df.drop_duplicates(subset, keep=keep))
    same_types(made, own, lambda: same_rows(own, want))
