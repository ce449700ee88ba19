"""``to_datetime`` parses each value of unusual columns as pandas parses it alone, or fails."""

from __future__ import annotations

import re
from decimal import Decimal
from numbers import Real

import numpy as np
import pandas as pd
import pytest
from frame_strategies import QUICK
from fuzz_calls import COMPARED, NO_REFERENCE, REFUSED, Helper, Tally, calls
from hypothesis import given, settings
from hypothesis import strategies as st
from pandas_versions import IS_BEFORE_PANDAS_3_1, IS_PANDAS_2, TEXT
from result_checks import PANDAS_ERRORS, run_helper, run_pandas, same_rows
from scale import scaled_calls
from unusual_frames import Case, Column, columns, series, sizes

from hyperplane.dataframe import repartition, to_datetime

TEXTS = [
    "2026-01-31 10:00",
    "2026-01-31T10:00:00.123456789",
    "01/02/2026",
    "31.01.2026",
    "1400-01-01",
    "9999-12-31 23:59:59",
    "2026-01-31 10:00+02:00",
    "2026-01-31T10:00:00Z",
    "",
    "no time",
    None,
]
FORMS = [None, None, None, "%Y-%m-%d %H:%M", "%d.%m.%Y", "%m/%d/%Y", "%Y-%m-%d %H:%M%z"]
NUMBERS = [0, 1, -1, 1_700_000_000, 2**53 + 1, 10**15, 10**17, 2**62, -(2**62)]
FLOATS = [0.0, -0.0, 1.5, np.nan, np.inf, -np.inf, 1.7e9, 1e17, 1e300]


#: Values and types that the partitions of a column alternate between.
FAMILIES = [
    [(TEXTS, kind) for kind in (TEXT, object, "string", "string[pyarrow]")],
    [(NUMBERS, "int64"), (NUMBERS, "Int64"), (FLOATS, "float64"), (FLOATS[:2], "Float64")],
    [([*NUMBERS, 2**63, 2**64 - 1][4:8], kind) for kind in ("uint64", "UInt64")],
    [([0.0, 1.5, np.nan, 2048.0], kind) for kind in ("float16", "float32")],
]


@st.composite
def times(draw):
    """Draw a column of text, of numbers or of any kind, of one or several types."""
    each = draw(sizes())
    method = draw(st.sampled_from(["right meta", "family", "family", "any"]))
    if method == "any":
        return Case([draw(columns("at", each))], False, sum(each))
    family = st.sampled_from(draw(st.sampled_from([FAMILIES[0], *FAMILIES])))
    declared = draw(family)
    parts = []
    for size in each:
        pool, kind = declared if method == "right meta" else draw(family)
        chosen = draw(st.lists(st.sampled_from(pool), min_size=size, max_size=size))
        parts.append(series(chosen, kind))
    dtype = pd.Series([], dtype=declared[1]).dtype
    return Case([Column("at", [method] * len(each), parts, dtype)], False, sum(each))


def alone(value, how):
    """Return a value as pandas parses it alone; None if it is not a time."""
    if value is None or pd.isna(value):
        return None
    try:
        result = pd.to_datetime(value, errors="coerce", **how)
        if IS_PANDAS_2 and result is pd.NaT:
            result = beyond_nanoseconds(value, **how)
    except PANDAS_ERRORS:
        return None
    if result is pd.NaT or (IS_BEFORE_PANDAS_3_1 and abs(instant(result)) >= 2**63):
        return None  # pandas 3.0 returns times that are out of the bounds of microseconds
    return result


def beyond_nanoseconds(value, unit=None, format=None, **how):  # noqa: A002
    """Return a time that the constructors of pandas 2 represent, but not its ``to_datetime``."""
    if unit is not None:
        whole = np.isfinite(value) and value == int(value)
        return pd.Timestamp(np.datetime64(int(value), unit)) if whole else pd.NaT
    # Only texts of ISO 8601 in TEXTS have such a year.
    is_iso = format in ("ISO8601", "mixed") and re.match(r"\d{4}-", value)
    return pd.Timestamp(value) if is_iso else pd.NaT


def instant(value, *, round_to=1000):
    """Return nanoseconds since 1970 in UTC, rounded to microseconds."""
    if value is None or value is pd.NaT:
        return None
    ticks = value._value * {"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}[value.unit]
    return ticks // round_to


ALLOWED = ["utc=True", "text, numbers or times", "None: 'at' is of type", "not times"]
ALLOWED += ["has no form", "column of type"]


def is_number(case):
    dtype = case.meta["at"].dtype
    return pd.api.types.is_numeric_dtype(dtype) and not pd.api.types.is_bool_dtype(dtype)


def other_order(text, dayfirst):
    """Return whether a date of three numbers has a day in the position of the month."""
    match = re.search(r"(?<!\d)(\d+)([./ -])(\d+)\2(\d+)(?!\d)", text)
    if not match:
        return False
    first, second = int(match[1]), int(match[3])
    return second > 12 if len(match[1]) == 4 or dayfirst else first > 12


def times_arguments(draw, case):
    number = is_number(case)
    return {
        "format": None if number else draw(st.sampled_from(FORMS)),
        "utc": draw(st.booleans()),
        "unit": draw(st.sampled_from(["s", "ms", "us", "ns"])) if number else None,
        "dayfirst": draw(st.booleans()),
    }


def check_times(case, how, plain):
    how = {"errors": "coerce", **how}
    # pandas cannot concatenate nanoseconds and times out of their range.
    if run_pandas(lambda: case.df.compute(scheduler="sync")) is None:
        return NO_REFERENCE
    result = run_helper(case, lambda: to_datetime(case.df, "at", **how), ALLOWED)
    if result is None:
        return REFUSED
    times = result["at"]
    if case.has_right_meta:
        assert times.dtype == to_datetime(case.df, "at", **how).dtypes["at"]
    assert len(times) == case.rows
    assert times.isna().all() or (times.dt.tz is not None) >= how["utc"]
    whole, number = case.whole["at"], is_number(case)
    text = all(isinstance(v, str) or (pd.api.types.is_scalar(v) and pd.isna(v)) for v in whole)
    if not text and not number:
        return NO_REFERENCE
    for value, at in zip(whole, times, strict=True):
        if text and how["format"] is None:
            iso = alone(value, {"format": "ISO8601", "utc": True})
            dayfirst = {"dayfirst": how["dayfirst"]}
            want = iso or alone(value, {"format": "mixed", "utc": True, **dayfirst})
            # pandas swaps month and day of a value that is not a date in the requested order.
            if isinstance(value, str) and other_order(value, how["dayfirst"]):
                want = None
        else:
            one = {"unit": how["unit"]} if number else {"format": how["format"]}
            missing = value is None or pd.isna(value)
            # pandas does not take other objects, or integers beyond floats, for numbers.
            is_float = isinstance(value, (Real, Decimal)) and float(value) == value
            if number and not missing and not is_float:
                continue
            want = alone(value, {"utc": True, **one})
        assert instant(None if at is pd.NaT else at) == instant(want), (value, at, want)
    return COMPARED


def repartition_arguments(draw, case):
    return {"partition_size": "1MB", "data_size": draw(st.sampled_from(["1MB", "3MB", "20MB"]))}


def check_repartition(case, how, plain):
    # Dask and pandas cannot concatenate categories of two types.
    want = run_pandas(lambda: case.df.compute(scheduler="sync"))
    one = run_pandas(lambda: case.df.repartition(npartitions=1).compute(scheduler="sync"))
    if want is None or one is None:
        return NO_REFERENCE
    result = run_helper(case, lambda: repartition(case.df, **how))
    if result is None:
        return REFUSED
    same_rows(result, want)
    return COMPARED


HELPERS = {
    "to_datetime": Helper(times_arguments, check_times),
    "repartition": Helper(repartition_arguments, check_repartition),
}


@pytest.mark.slow
def test_times():
    tally = Tally("times", HELPERS)

    @settings(QUICK, max_examples=scaled_calls(10, 850))
    @given(drawn=calls(times(), HELPERS))
    def check(drawn):
        tally.check(drawn)

    check()
    tally.assert_enough_calls()
