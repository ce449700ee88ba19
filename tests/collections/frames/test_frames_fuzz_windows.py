"""Time windows of unusual collections: the result of pandas, or an allowed error."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from functools import partial

import pandas as pd
import pandas_results
import pytest
from frame_strategies import QUICK, functions_of
from fuzz_calls import COMPARED, NO_REFERENCE, REFUSED, Helper, Tally, calls
from hypothesis import given, settings
from hypothesis import strategies as st
from pandas_versions import IS_BEFORE_PANDAS_3_1
from result_checks import (
    COMPUTED,
    INEXACT,
    largest,
    run_helper,
    run_pandas,
    same_groups,
    same_types,
)
from scale import scaled_calls
from unusual_frames import KINDS, MOMENTS, NUMBERS, TEXTS, cases, column_of

from hyperplane.dataframe import window_agg, window_counts

#: Times of one week, since pandas makes a row per window.
NAIVE = ["time s", "time ms", "time us", "time ns", "arrow time", "arrow time s"]
ZONED = [kind for kind in MOMENTS if kind.startswith("zoned")] + ["arrow zoned", "arrow offset"]
#: Declared type -> types that partitions may have instead.
FAMILIES = [NAIVE, NAIVE, ZONED, ZONED, [*NAIVE, *ZONED], ["nanoseconds"]]


@st.composite
def times(draw, name, sizes, may_be_wrong):
    """Draw a column of times, sometimes with a wrong meta."""
    family = draw(st.sampled_from(FAMILIES))
    declared = draw(st.sampled_from(family))
    methods = (
        ["right meta", "right meta", "wrong meta", "family", "family", "none"]
        if may_be_wrong
        else ["right meta"]
    )
    method = draw(st.sampled_from(methods))
    if method == "none":
        family = [declared, declared, draw(st.sampled_from(sorted([*NUMBERS, *TEXTS])))]
    if method in ("family", "none"):
        kinds = [draw(st.sampled_from(family)) for _ in sizes]
    else:
        kinds = [declared if method == "right meta" else draw(st.sampled_from(family))] * len(sizes)
    return draw(column_of(name, kinds, sizes, KINDS[declared][1]))


SIDES = st.sampled_from(["left", "right", None])


def window(draw, case):
    """Draw the arguments that both helpers share."""
    return {
        "time": case.columns[0].name,
        "every": draw(st.sampled_from(["1h", "7h", "1D", "2D", "W", "MS"])),
        "closed": draw(SIDES),
        "label": draw(SIDES),
    }


def grouper(how, rows):
    times = rows[how["time"]]
    zone = times.dt.tz if pd.api.types.is_datetime64_any_dtype(times.dtype) else None
    return pandas_results.grouper(how["time"], how["every"], how["closed"], how["label"], zone)


def named_index(groups, by, how):
    """Return groups with the names of their keys, which pandas 3.0 leaves out for Arrow's times."""
    return groups.rename_axis([*by, how["time"]]) if IS_BEFORE_PANDAS_3_1 else groups


def rows_in_declared_zone(case, keys):
    """Return the rows with times in the declared zone, which windows follow."""
    whole = case.keyed(keys)
    time = case.columns[0]
    zone = getattr(pd.Series([], dtype=time.declared).dt, "tz", None)
    values = [value for part in time.parts for value in part.astype(object)]
    known = [value for value in values if not pd.isna(value)]
    if time.has_right_meta or zone is None or not known:
        return whole
    if not all(isinstance(value, pd.Timestamp) and value.tz is not None for value in known):
        return whole
    times = [pd.NaT if pd.isna(value) else value.tz_convert(zone) for value in values]
    result = whole.copy()
    result[time.name] = pd.Series(times, dtype=pd.DatetimeTZDtype("ns", zone))
    return result


def agg_arguments(draw, case):
    names = draw(st.permutations([column.name for column in case.columns[1:]]))
    some = st.sampled_from(functions_of(case.meta[names[0]].dtype))
    return {**window(draw, case), "agg": {names[0]: draw(some)}, "by": list(names[1:]) or None}


def as_numbers(result, rows):
    """Return a result whose boolean columns are numbers.

    Where windows have no rows, pandas makes numbers of them, of those that are not nullable.
    """
    result = result.copy()
    for name in result.columns:
        if pd.api.types.is_bool_dtype(rows[name].dtype):
            values = result[name].astype(object)
            result[name] = values.map(lambda v: float(v) if v in (0, 1) else v, na_action="ignore")
    return result


def check_agg(case, how, plain):
    result = run_helper(case, lambda: window_agg(case.df, **how), ["'min'", "'max'"])
    if result is None:
        return REFUSED
    spec, by = how["agg"], how["by"]
    whole = rows_in_declared_zone(case, by or [])
    windows = grouper(how, whole)
    keys = [*by, windows] if by else windows
    want = run_pandas(lambda: whole.groupby(keys, observed=True).agg(spec))
    if want is None or (IS_BEFORE_PANDAS_3_1 and whole.empty):
        return NO_REFERENCE
    want = named_index(want, by or [], how)
    most, short = largest(whole[list(spec)])
    inexact = [name for name in spec if spec[name] in INEXACT]
    loose = most * most + most, 1e-3 if short else 1e-9
    if not case.has_right_meta:
        result, want = (as_numbers(frame, whole) for frame in (result, want))
    same_groups(result, want, inexact, *loose, case.has_right_meta)
    if (
        plain
    ):  # compared with pandas: plain Dask has no windows with keys, and other sides of windows
        rows = pd.concat(case.parts)
        own = run_pandas(lambda: rows.groupby(keys, observed=True).agg(spec))
        own = None if own is None else named_index(own, by or [], how)
        agree = lambda: same_groups(own, want, inexact, *loose)  # noqa: E731
        same_types(result, own, agree, [name for name in spec if spec[name] in COMPUTED])
    return COMPARED


def counts_arguments(draw, case):
    columns = case.columns[1:]
    names = [column.name for column in columns]
    has_right_meta = [
        column.name for column in columns if column.has_right_meta
    ]  # pandas fails on these less often
    target = draw(
        st.sampled_from(has_right_meta if has_right_meta and draw(st.booleans()) else names)
    )
    others = [name for name in names if name != target] or None
    return {**window(draw, case), "target": target, "by": draw(st.sampled_from([None, others]))}


def value_named(target, name):
    """Return the value of a column of counts by its name, in a canonical form."""
    text = name.removeprefix(f"{target}_")
    if re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:.*[+-]\d\d:\d\d", text):
        return str(pd.Timestamp(text).tz_convert("UTC"))
    try:
        return str(Decimal(text).normalize() + 0)
    except InvalidOperation:
        return text


def named_alike(target, counts):
    """Return the counts of values that occur."""
    occurring = counts.loc[:, (counts != 0).any().to_numpy()]
    return occurring.rename(columns=partial(value_named, target))


def check_counts(case, how, plain):
    result = run_helper(case, lambda: window_counts(case.df, **how), ["would name two columns"])
    if result is None:
        return REFUSED
    target, by = how["target"], how["by"] or []
    whole = rows_in_declared_zone(case, [*by, target])[[how["time"], *by, target]]
    dummies = run_pandas(lambda: pd.get_dummies(whole, columns=[target]))
    (column,) = (column for column in case.columns if column.name == target)
    if dummies is None:
        return NO_REFERENCE
    if "decimals" in column.kinds:  # of one scale per partition, as documented
        return NO_REFERENCE
    counted = [name for name in dummies.columns if name not in (how["time"], *by)]
    windows = grouper(how, whole)
    keys = [*by, windows] if by else windows
    want = run_pandas(lambda: dummies.groupby(keys, observed=True)[counted].sum())
    if want is None or (IS_BEFORE_PANDAS_3_1 and whole.empty):
        return NO_REFERENCE
    want = named_index(want, by, how)
    if not column.has_right_meta:  # column names follow the types of partitions: 1 and 1.0
        want, result = (named_alike(target, counts) for counts in (want, result))
        if not want.columns.is_unique:
            return NO_REFERENCE
        assert result.columns.is_unique
        assert set(result.columns) == set(want.columns)
        want = want[list(result.columns)]
    # get_dummies names zero -0.0 if that occurs first.
    assert list(result.columns) == [name.replace("_-0.0", "_0.0") for name in want.columns]
    same_groups(result, want.set_axis(result.columns, axis=1), [], ordered=case.has_right_meta)
    # For Arrow columns pandas returns NumPy counts if a time is missing, else Arrow counts.
    if case.has_right_meta and not isinstance(column.declared, pd.ArrowDtype):
        same_types(result, want.set_axis(result.columns, axis=1), lambda: None)
    return COMPARED


HELPERS = {
    "window_agg": Helper(agg_arguments, check_agg),
    "window_counts": Helper(counts_arguments, check_counts),
}


@pytest.mark.slow
def test_windows():
    tally = Tally("windows", HELPERS)

    @settings(QUICK, max_examples=scaled_calls(8, 560))
    @given(drawn=calls(cases(st.integers(2, 3), first=times), HELPERS))
    def check(drawn):
        tally.check(drawn)

    check()
    tally.assert_enough_calls()
