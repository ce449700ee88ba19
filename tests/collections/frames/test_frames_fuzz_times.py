"""``to_datetime`` of awkward columns: each value as pandas reads it alone, or an error of ours."""

from __future__ import annotations

import numpy as np
import pandas as pd
from awkward_checks import NO_ANSWER, ours
from awkward_frames import Case, Column, columns, series, sizes
from frame_strategies import QUICK
from hypothesis import given, settings
from hypothesis import strategies as st
from scale import scaled

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


@st.composite
def case(draw):
    """A column of text, of numbers, or of any kind."""
    each = draw(sizes())
    way = draw(st.sampled_from(["text", "text", "number", "any"]))
    if way == "any":
        return Case([draw(columns("at", each))], False, sum(each))
    pool, types = {
        "text": (TEXTS, ["str", object, "string"]),
        "number": draw(
            st.sampled_from(
                [
                    (NUMBERS, ["int64", "Int64"]),
                    ([*NUMBERS, 2**63, 2**64 - 1][4:8], ["uint64", "UInt64"]),
                    (FLOATS, ["float64"]),
                    ([0.0, 1.5, np.nan, 2048.0], ["float16", "float32"]),
                ]
            )
        ),
    }[way]
    dtype = draw(st.sampled_from(types))
    parts = [
        series(draw(st.lists(st.sampled_from(pool), min_size=n, max_size=n)), dtype) for n in each
    ]
    return Case([Column("at", ["text"] * len(each), parts, parts[0].dtype)], False, sum(each))


def alone(value, how):
    """A value by itself, as pandas reads it; None where it is no time."""
    if value is None or pd.isna(value):
        return None
    try:
        made = pd.to_datetime(value, errors="coerce", **how)
    except NO_ANSWER:
        return None
    return None if made is pd.NaT else made


def instant(value, *, round_to=1000):
    """Nanoseconds since 1970 to the microsecond; of other zones as UTC."""
    if value is None or value is pd.NaT:
        return None
    ticks = value._value * {"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}[value.unit]
    return ticks // round_to


@settings(QUICK, max_examples=scaled(40, 1000))
@given(data=st.data())
def test_times(data):
    made_case = data.draw(case(), "case")
    dtype = made_case.meta["at"].dtype
    number = pd.api.types.is_numeric_dtype(dtype) and not pd.api.types.is_bool_dtype(dtype)
    unit = data.draw(st.sampled_from(["s", "ms", "us", "ns"]), "unit") if number else None
    form = None if number else data.draw(st.sampled_from(FORMS), "format")
    utc, dayfirst = data.draw(st.booleans(), "utc"), data.draw(st.booleans(), "dayfirst")
    allowed = ["utc=True", "text, numbers or times", "None: 'at' is of type", "no times"]
    how = {"utc": utc, "unit": unit, "dayfirst": dayfirst}
    made = ours(
        made_case,
        lambda: to_datetime(made_case.df, "at", form, "coerce", **how),
        [*allowed, "has no form", "column of type"],
    )
    if made is None:
        return
    times = made["at"]
    if made_case.honest:
        assert times.dtype == to_datetime(made_case.df, "at", form, "coerce", **how).dtypes["at"]
    assert len(times) == made_case.rows
    assert times.isna().all() or (times.dt.tz is not None) >= utc
    whole = made_case.whole["at"]
    text = all(isinstance(v, str) or v is None or pd.isna(v) for v in whole)
    if not text and not number:
        return
    for value, at in zip(whole, times, strict=True):
        if text and form is None:
            iso = alone(value, {"format": "ISO8601", "utc": True})
            want = iso or alone(value, {"format": "mixed", "utc": True, "dayfirst": dayfirst})
        else:
            how = {"unit": unit} if number else {"format": form}
            if number and (
                float(value) != value if value is not None and not pd.isna(value) else False
            ):
                continue
            want = alone(value, {"utc": True, **how})
        assert instant(None if at is pd.NaT else at) == instant(want), (value, at, want)


@settings(QUICK, max_examples=scaled(10, 300))
@given(data=st.data())
def test_repartitioned(data):
    made_case = data.draw(case(), "case")
    made = ours(made_case, lambda: repartition(made_case.df, "1MB", data_size="3MB"))
    if made is not None:
        assert len(made) == made_case.rows
