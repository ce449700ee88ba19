"""window_agg against pandas: particular cases."""

from __future__ import annotations

import datetime
import re
from itertools import product

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pandas_results
import pytest
from frame_strategies import cut
from pandas_versions import IS_PANDAS_2
from scale import FULL, combinations, scaled

from hyperplane.collections.frames.time_bins import normalize_width
from hyperplane.dataframe import window_agg
from hyperplane.errors import DataError, RequestError

ALL = ["sum", "mean", "min", "max", "count", "size", "nunique", "first", "last", "std", "var"]
ALL += ["median"]
PARTITIONS = scaled(3, 5)


@pytest.fixture(autouse=True)
def in_this_thread():
    with dask.config.set(scheduler="sync"):
        yield


def log(times, **columns):
    times = pd.DatetimeIndex(times)
    return pd.DataFrame({"time": times, "v": np.arange(len(times)) % 7, **columns})


def check(frame, every, agg, by=None, partitions=PARTITIONS, **how):
    df = cut(frame, [len(frame) * n // partitions for n in range(1, partitions)])
    result = window_agg(df, "time", every, agg, by, **how).compute()
    keys = [by] if isinstance(by, str) else by or []
    sides = {side: how[side] for side in ("closed", "label") if side in how}
    pandas_results.same_frame(
        result, pandas_results.window_agg(frame, "time", every, agg, keys, **sides)
    )
    return result


WIDTHS = ["15min", "1h", "7h", "1D", "2D", "W"]
#: Zones, and days on which their clocks change, in spring and in autumn.
CHANGES = [
    ("Europe/Berlin", "2024-03-31"),
    ("America/New_York", "2024-03-10"),
    ("Europe/Berlin", "2024-10-27"),
    ("America/New_York", "2024-11-03"),
]


@pytest.mark.parametrize(
    ("every", "change"),
    scaled(
        [(every, CHANGES[(n + m) % 4]) for n, every in enumerate(WIDTHS) for m in (0, 2)],
        list(product(WIDTHS, product(*map(dict.fromkeys, zip(*CHANGES, strict=True))))),
    ),
)
def test_windows_of_days_on_which_clocks_change_equal_pandas(every, change):
    zone, day = change
    times = pd.date_range(pd.Timestamp(day) - pd.Timedelta("36h"), periods=500, freq="12min")
    shuffled = times[np.random.default_rng(1).permutation(500)]
    check(log(shuffled.tz_localize("UTC").tz_convert(zone)), every, {"v": ["sum", "nunique"]})


SIDES = ["left", "right", None]


@pytest.mark.parametrize(
    ("every", "closed", "label"),
    combinations(["1h", "45min", "1D", "W", "ME", "QE", "B"], SIDES, SIDES),
)
def test_times_on_edges_of_windows_are_assigned_as_in_pandas(every, closed, label):
    edges = pd.date_range("2023-12-31", periods=90, freq="1D").append(
        pd.date_range("2024-01-01", periods=30, freq="15min")
    )
    times = edges.append(edges + pd.Timedelta("1us")).append(edges - pd.Timedelta("1us"))
    check(log(times), every, {"v": "sum"}, closed=closed, label=label)


def test_all_functions_in_one_list_equal_pandas():
    times = pd.date_range("2024-01-01", periods=200, freq="13min")[::-1]
    result = check(log(times, k=["a", "b"] * 100), "1h", {"v": ALL}, "k")
    assert list(result.columns) == [("v", name) for name in ALL]


def test_windows_without_rows_equal_pandas():
    times = ["2024-01-01 10:30", "2024-01-01 13:00"]
    frame = log(times, w=pd.array([1, None], dtype="Int64"), x=[True, False], y=["a", "b"])
    agg = {"v": ["sum", "mean", "min", "std", "median"], "w": ["sum", "first"]}
    result = check(frame, "1h", {**agg, "x": ["first", "sum"], "y": ["last", "nunique"]})
    assert len(result) == 3


def test_rows_years_apart_equal_pandas():
    times = pd.DatetimeIndex(["1901-05-05 00:00", "2024-02-29", "1969-12-31 23:59:59"])
    check(log(times), "ME", {"v": "sum"})
    # On January 1, 1906, the clocks of India were set forward at midnight. With pandas 2 the month
    # ends at this time, which does not exist, and pandas itself raises NonExistentTimeError.
    times = times[1:] if IS_PANDAS_2 else times
    check(log(times.tz_localize("UTC").tz_convert("Asia/Kolkata")), "ME", {"v": "sum"})


@pytest.mark.parametrize(
    ("unit", "every"), combinations(["s", "ms", "us", "ns"], ["2D", "7h", "W", "ME"])
)
def test_times_of_every_unit_keep_it(unit, every):
    times = pd.date_range("2024-01-01 05:30", periods=50, freq="7h").as_unit(unit)
    result = check(log(times), every, {"v": "sum"})
    assert result.index.unit == unit


@pytest.mark.parametrize("places", [[0, 0, 0], [10, 10], [5] * 39, []])
def test_partitions_without_rows_do_not_change_the_result(places):
    frame = log(pd.date_range("2024-01-01", periods=10, freq="20min"))
    result = window_agg(cut(frame, places), "time", "1h", {"v": "median"}).compute()
    pandas_results.same_frame(
        result, pandas_results.window_agg(frame, "time", "1h", {"v": "median"})
    )


def test_without_rows_there_are_no_windows():
    result = check(log([]), "1h", {"v": ["sum", "nunique", "first"]})
    assert len(result) == 0
    check(log([], k=pd.Series(dtype="str")), "2D", {"v": "sum"}, "k")


def test_the_index_is_ignored():
    frame = log(pd.date_range("2024-01-01", periods=10, freq="20min")[::-1])
    frame.index = pd.Index([1, 1, 0, 0, 5, 5, 5, 2, 2, 9], name="time")
    df = dd.from_pandas(frame, npartitions=3, sort=False)
    result = window_agg(df, "time", "1h", {"v": "last"}).compute()
    pandas_results.same_frame(
        result, pandas_results.window_agg(frame.reset_index(drop=True), "time", "1h", {"v": "last"})
    )


def test_a_frame_of_80_columns_equals_pandas():
    wide = {f"column {n}": np.arange(30) * n % 11 for n in range(80)}
    frame = log(pd.date_range("2024-01-01", periods=30, freq="20min"), **wide)
    check(frame, "1h", {name: ["sum", "nunique"] for name in wide})


def test_the_first_of_equal_times_is_the_first_row():
    frame = log(["2024-01-01"] * 40, w=np.arange(40.0))
    frame.loc[:3, "w"] = np.nan
    result = check(frame, "1D", {"w": ["first", "last"]}, partitions=8)
    assert result.iloc[0].to_list() == [4.0, 39.0]


def test_small_integers_keep_their_type_while_sums_fit():
    times = ["2024-01-01", "2024-01-01", "2024-01-03"]
    dtypes = ("int8", "uint8", "Int8", "UInt8", "int8[pyarrow]", "uint8[pyarrow]")
    for dtype, value in product(dtypes, (50, 120)):
        frame = log(times, w=pd.Series([value, value, value]).astype(dtype))
        for by in (None, "v") if FULL else (None,) if value == 50 else ("v",):
            check(frame, "1D", {"w": "sum"}, by)


def test_results_in_several_partitions_hold_each_group_once():
    frame = log(pd.date_range("2024-01-01", periods=300, freq="20min"), k=np.arange(300) % 13)
    df = cut(frame, [100, 200])
    for every in ("1h", "2D"):
        result = window_agg(df, "time", every, {"v": ["sum", "nunique"]}, "k", split_out=4)
        assert result.npartitions == 4
        want = pandas_results.window_agg(frame, "time", every, {"v": ["sum", "nunique"]}, ["k"])
        pandas_results.same_frame(result.compute().sort_index(), want)


@pytest.mark.parametrize("every", ["2D", "7h"])
def test_rows_with_a_missing_key_affect_the_start_of_windows(every):
    frame = log(["2024-01-01 10:00", "2024-01-02 05:00"], k=[np.nan, 1.0])
    check(frame, every, {"v": "sum"}, "k")


def test_days_of_a_zone_end_where_pandas_ends_them():
    times = pd.DatetimeIndex(["2024-05-05 10:00", "2024-05-06 00:00"]).tz_localize("Europe/Berlin")
    # pandas 3 adds windows without rows.
    assert len(check(log(times), "1D", {"v": "sum"})) == (1 if IS_PANDAS_2 else 3)


def test_old_utc_offsets_that_bins_do_not_support_are_an_error():
    times = pd.DatetimeIndex(["1903-05-05 10:00", "1903-05-06"]).tz_localize("Asia/Kathmandu")
    with pytest.raises(DataError, match="column 'time': begins at 1903-05-05"):
        check(log(times), "1h", {"v": "sum"})
    check(log(times[:1]), "1D", {"v": "sum"})
    check(log(times.tz_convert("UTC")), "1h", {"v": "sum"})


def test_date_objects_are_counted():
    dates = [datetime.date(2024, 1, 1), datetime.date(2024, 1, 2)]
    frame = log(["2024-01-01", "2024-01-01"], w=pd.Series(dates, dtype=object))
    result = window_agg(cut(frame, []), "time", "1D", {"w": "count"}).compute()
    assert result.w.to_list() == [2]


def test_all_faults_are_reported_together():
    df = cut(log(["2024-01-01"], name=["a"]), [])
    with pytest.raises(RequestError) as caught:
        window_agg(df, "tme", "1 fortnight", {"nme": "sum", "name": "mean"}, "ky", closed="up")
    asked = [fault.where for fault in caught.value.faults]
    assert asked == ["time", "by", "closed", "every", "agg column", "agg['name']"]
    assert "did you mean 'time'?" in str(caught.value)
    assert "did you mean 'name'?" in str(caught.value)


def test_a_column_without_times_is_refused_with_advice():
    with pytest.raises(RequestError, match=r"to_datetime\(df, 'v'\) first"):
        window_agg(cut(log(["2024-01-01"]), []), "v", "1h", {"v": "sum"})
    with pytest.raises(RequestError, match="split_out = 3: expected 1 without by"):
        window_agg(cut(log(["2024-01-01"]), []), "time", "1h", {"v": "sum"}, split_out=3)


@pytest.mark.parametrize("every", ["0h", "-1h", "1H", "bh", "cbh", "", 3, None])
def test_invalid_widths_are_refused(every):
    with pytest.raises(RequestError, match="expected a frequency of pandas, such as '15min'"):
        window_agg(cut(log(["2024-01-01"]), []), "time", every, {"v": "sum"})


@pytest.mark.parametrize("every", ["25h", "1.5h", "WOM-2MON", "3W", "2QS", "YE-MAR"])
def test_unusual_widths_equal_pandas(every):
    times = pd.date_range("2023-12-20 05:00", periods=90, freq="17h")
    check(log(times), every, {"v": ["sum", "nunique"]})


@pytest.mark.parametrize(
    ("every", "same"),
    [("10 Min", "10min"), ("10 min", "10min"), ("2 HRS", "2h"), ("90 sec", "90s"), ("1 d", "1D"),
     ("1500 msec", "1500ms")],
)  # fmt: skip
def test_widths_in_words_are_those_of_pandas(every, same):
    assert normalize_width(every) == same
    times = pd.date_range("2023-12-20 05:00", periods=3, freq="17min")
    df = cut(log(times), [])
    result, wanted = (window_agg(df, "time", one, {"v": "sum"}).compute() for one in (every, same))
    pd.testing.assert_frame_equal(result, wanted)


@pytest.mark.parametrize(
    ("every", "advice"), [("15m", "write '15min', or '15MS' for months"), ("2 wk", "write '2W'")]
)
def test_an_ambiguous_width_has_advice(every, advice):
    with pytest.raises(RequestError, match=re.escape(advice)):
        window_agg(cut(log(["2024-01-01"]), []), "time", every, {"v": "sum"})


@pytest.mark.parametrize(
    "every",
    ["MS", "2MS", "QS", "QS-FEB", "YS", "SMS", "BMS", "ME", "QE", "YE", "SME", "W", "W-MON"],
)
def test_widths_of_the_calendar_are_named_as_pandas_names_them_for_every_side(every):
    times = pd.date_range("2023-11-15 03:17", periods=120, freq="31h")
    for closed, label in scaled([("right", "left")], list(product(SIDES, SIDES))):
        check(log(times), every, {"v": "sum"}, closed=closed, label=label)
    frame = log(times)
    result = window_agg(cut(frame, []), "time", every, {"v": "sum"}, closed=None, label=None)
    wanted = frame.resample(every, on="time").agg({"v": "sum"})
    pd.testing.assert_frame_equal(result.compute(), wanted, check_freq=False)


def test_the_time_and_the_keys_may_be_aggregated():
    frame = log(pd.date_range("2024-01-01", periods=20, freq="20min"), k=list("aabbc") * 4)
    frame = frame.astype({"k": "str"})
    check(frame, "1h", {"time": ["min", "max", "count", "first"], "k": ["max", "nunique"]}, "k")


def test_times_of_arrow_types_give_an_index_of_times():
    for dtype in ("timestamp[us][pyarrow]", "timestamp[us, tz=Europe/Berlin][pyarrow]"):
        frame = log(pd.date_range("2024-03-30", periods=90, freq="7h")).astype({"time": dtype})
        result = window_agg(cut(frame, [20, 50]), "time", "1D", {"v": "sum"}).compute()
        assert isinstance(result.index, pd.DatetimeIndex)
        want = pandas_results.window_agg(frame, "time", "1D", {"v": "sum"})
        assert result.v.to_list() == want.v.to_list()
        assert result.index.to_list() == pd.DatetimeIndex(want.index).to_list()


@pytest.mark.parametrize(
    ("every", "zone"),
    combinations(["1D", "2D", "24h", "15min", "W", "MS"], [None, "UTC", "Europe/Berlin"]),
)
def test_the_index_has_the_frequency_of_the_call(every, zone):
    times = pd.date_range("2024-03-28", periods=50, freq="5h", tz=zone)
    df = cut(log(times), [20])
    index = window_agg(df, "time", every, {"v": "sum"}).compute().index
    assert index.freq == pd.tseries.frequencies.to_offset(every)
    assert index.equals(pd.DatetimeIndex(index.to_list()))
