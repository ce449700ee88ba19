"""window_agg against pandas, on random frames in random partitions."""

from __future__ import annotations

import pandas as pd
import pandas_results
import pytest
from frame_strategies import (
    FREQUENCIES,
    QUICK,
    UNITS,
    aggregations,
    frames,
    in_partitions,
    open_files,
)
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pandas.tseries.frequencies import to_offset
from scale import scaled

from hyperplane.dataframe import window_agg
from hyperplane.errors import DataError

HOW_MANY = scaled(8, 60)
OF_THE_CALENDAR = tuple(type(to_offset(of)) for of in ("D", "W", "MS", "ME", "QE", "SME", "B"))
SIDES = st.sampled_from(["left", "right", None])


@pytest.fixture(scope="module")
def files():
    with open_files(keep_objects=True) as opened:
        yield opened


def check(data, files, keys, **of_frame):
    every = data.draw(st.sampled_from(sorted(FREQUENCIES)), "every")
    # Windows of a millisecond on times in whole seconds are refused.
    units = tuple(unit for unit in UNITS if (every, unit) != ("1ms", "s"))
    frame = data.draw(frames(every, keys=len(keys), units=units, **of_frame), "frame")
    agg = data.draw(aggregations(frame), "agg")
    sides = {"closed": data.draw(SIDES, "closed"), "label": data.draw(SIDES, "label")}
    df = data.draw(in_partitions(frame, files), "df")
    held = df.compute()
    assert len(held) == len(frame)
    want = pandas_results.window_agg(held, "time", every, agg, keys, **sides)
    assume(want is not None)  # pandas fails for some edges at daylight saving changes
    into = data.draw(st.integers(1, 3), "split_out") if keys else 1
    lazy = window_agg(df, "time", every, agg, keys or None, **sides, split_out=into)
    if of_old_clocks(held.time, every):
        with pytest.raises(DataError, match="UTC offset that windows of"):
            lazy.compute()
        return
    result = lazy.compute()
    pandas_results.same_frame(result.sort_index() if into > 1 else result, want)


def of_old_clocks(times, every):
    """Return whether windows begin at a midnight with an old, irregular UTC offset."""
    first = times.min()
    if first is pd.NaT or first.tz is None or isinstance(to_offset(every), OF_THE_CALENDAR):
        return False
    if every == "1ms":  # a divisor of every midnight
        return False
    return first.year < 1910 and str(first.tz) in ("Asia/Kolkata", "Asia/Kathmandu")


@settings(QUICK, max_examples=HOW_MANY)
@given(data=st.data())
def test_windows_equal_pandas(data, files):
    check(data, files, [], values=2)


@settings(QUICK, max_examples=HOW_MANY)
@given(data=st.data())
def test_windows_with_keys_equal_pandas(data, files):
    check(data, files, data.draw(st.sampled_from([["k0"], ["k0", "k1"]])), values=1)


@settings(QUICK, max_examples=HOW_MANY // 2)
@given(data=st.data())
def test_many_rows_in_many_partitions(data, files):
    check(data, files, data.draw(st.sampled_from([[], ["k0"]])), values=1, most=60)
