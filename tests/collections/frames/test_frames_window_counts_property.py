"""window_counts against get_dummies, on random frames in random partitions."""

from __future__ import annotations

import dask.dataframe as dd
import pandas as pd
import pandas_results
import pytest
from frame_strategies import FREQUENCIES, KINDS, QUICK, UNITS, frames, in_partitions, open_files
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pandas_versions import IS_BEFORE_PANDAS_3_1
from scale import scaled

from hyperplane.dataframe import window_counts

SIDES = st.sampled_from(["left", "right", None])
#: get_dummies does not support durations, and names zero -0.0 if that occurs first.
COUNTED = [kind for kind in KINDS if kind not in ("timedelta", "float64")]


@pytest.fixture(scope="module")
def files():
    with open_files(keep_objects=True) as opened:
        yield opened


def check(data, files, keys, targets, **more):
    every = data.draw(st.sampled_from(sorted(FREQUENCIES)), "every")
    kinds = data.draw(st.sampled_from([COUNTED, ["category", "ordered", "category of int"]]))
    # Windows of a millisecond on times in whole seconds are refused.
    units = [unit for unit in UNITS if (every, unit) != ("1ms", "s")]
    drawn = frames(every, kinds, keys=len(keys), values=len(targets), units=tuple(units))
    frame = data.draw(drawn, "frame")
    sides = {"closed": data.draw(SIDES, "closed"), "label": data.draw(SIDES, "label")}
    df = data.draw(in_partitions(frame, files), "df")
    held = df.compute()
    # Beside keys pandas 3.0 has an AttributeError where no row has a time.
    assume(not IS_BEFORE_PANDAS_3_1 or not keys or held.time.notna().any())
    want = pandas_results.window_counts(held, "time", every, targets, keys, **sides)
    first = held.time.min()
    zoned = first is not pd.NaT and first.tz is not None
    assume(not zoned or first.year > 1910)  # see test_frames_window_agg
    lazy = window_counts(df, "time", every, targets, keys or None, **sides)
    result = lazy.compute()
    pandas_results.same_frame(result, want)
    if isinstance(lazy, dd.DataFrame):
        pandas_results.same_frame(lazy._meta, result.iloc[:0], check_index_type=False)


@settings(QUICK, max_examples=scaled(6, 40))
@given(data=st.data())
def test_counts_equal_get_dummies(data, files):
    check(data, files, [], data.draw(st.sampled_from([["v0"], ["v0", "v1"]])))


@settings(QUICK, max_examples=scaled(6, 40))
@given(data=st.data())
def test_counts_with_keys_equal_get_dummies(data, files):
    check(data, files, data.draw(st.sampled_from([["k0"], ["k0", "k1"]])), ["v0"])
