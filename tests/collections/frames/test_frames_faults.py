"""Messages about common mistakes use the words of the call."""

from __future__ import annotations

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import hyperplane.dataframe as hp
from hyperplane.collections.frames.time_bins import parse_windows
from hyperplane.errors import RequestError

FLIGHTS = pd.DataFrame(
    {
        "time": pd.date_range("2024-01-01", periods=6, freq="7h"),
        "carrier": ["UA", "AA", "UA", "B6", "AA", "UA"],
        "flight": [1, 2, 3, 4, 5, 6],
        "delay": [4.0, 8.0, 1.0, 0.0, 2.0, 9.0],
    }
)
NAMES = pd.DataFrame({"carrier": ["AA", "B6", "UA"], "name": ["American", "JetBlue", "United"]})


@pytest.fixture(autouse=True)
def in_this_thread():
    with dask.config.set(scheduler="sync"):
        yield


def flights():
    return dd.from_pandas(FLIGHTS, npartitions=2)


def names():
    return dd.from_pandas(NAMES, npartitions=1)


def faults_of(call):
    with pytest.raises(RequestError) as caught:
        call()
    return {fault.where: str(fault) for fault in caught.value.faults}


FLAGS = {
    "top_n_per_group": lambda flag: hp.top_n_per_group(
        flights(), "carrier", "delay", 1, ascending=flag
    ),
    "value_counts": lambda flag: hp.value_counts(flights(), "carrier", normalize=flag),
    "sort_values": lambda flag: hp.sort_values(flights(), "delay", ascending=flag),
    "to_datetime utc": lambda flag: hp.to_datetime(flights(), "time", utc=flag),
    "to_datetime dayfirst": lambda flag: hp.to_datetime(flights(), "time", dayfirst=flag),
}


@pytest.mark.parametrize("flag", ["no", "False", 0, [False, True], None])
@pytest.mark.parametrize("call", FLAGS.values(), ids=list(FLAGS))
def test_flags_must_be_booleans(call, flag):
    (message,) = faults_of(lambda: call(flag)).values()
    assert f"= {flag!r}: expected True or False" in message


LISTS = {
    "group_agg": lambda by: hp.group_agg(flights(), by, {"delay": "sum"}),
    "value_counts": lambda by: hp.value_counts(flights(), by),
    "top_n_per_group": lambda by: hp.top_n_per_group(flights(), by, "delay", 1),
    "drop_duplicates": lambda by: hp.drop_duplicates(flights(), by),
    "sort_values": lambda by: hp.sort_values(flights(), by),
    "join": lambda by: hp.join(flights(), names(), by),
    "window_agg": lambda by: hp.window_agg(flights(), "time", "1D", {"delay": "sum"}, by),
    "window_counts by": lambda by: hp.window_counts(flights(), "time", "1D", "flight", by),
    "window_counts": lambda by: hp.window_counts(flights(), "time", "1D", by),
}


@pytest.mark.parametrize("by", [[["carrier"]], [("carrier", ["x"])], {"carrier": 1}, [5, None]])
@pytest.mark.parametrize("call", LISTS.values(), ids=list(LISTS))
def test_a_value_that_is_not_a_column_name_is_reported(call, by):
    message = "".join(faults_of(lambda: call(by)).values())
    assert "carrier, " in message
    assert "write the name of the column as a string" in message


@pytest.mark.parametrize("name", ["join", "drop_duplicates", "sort_values", "value_counts"])
def test_an_empty_list_of_columns_is_reported(name):
    message = "".join(faults_of(lambda: LISTS[name]([])).values())
    assert "= []: expected at least one column" in message


def test_a_string_is_not_a_list_of_columns():
    some = ["delay", "flight"]
    assert "column" in faults_of(lambda: hp.top_n_per_group(flights(), "carrier", some, 1))
    assert "column" in faults_of(lambda: hp.to_datetime(flights(), ["time"]))
    assert "time" in faults_of(lambda: hp.window_agg(flights(), ["time"], "1D", {"delay": "sum"}))
    assert "time" in faults_of(lambda: hp.window_counts(flights(), ["time"], "1D", "carrier"))


def test_exchanged_arguments_are_reported():
    faults = faults_of(lambda: hp.group_agg(flights(), {"delay": "mean"}, "carrier"))
    assert "exchange the two" in faults["by and agg"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        *[("1H", "1h"), ("15T", "15min"), ("1S", "1s"), ("2M", "2ME"), ("Q", "QE"), ("1Y", "1YE")],
        *[("Q-NOV", "QE-NOV"), ("A-JUN", "YE-JUN"), ("1week", "1W"), ("2 months", "2MS")],
    ],
)
def test_removed_frequency_aliases_are_reported_with_the_new_ones(old, new):
    message = faults_of(lambda: hp.window_agg(flights(), "time", old, {"delay": "sum"}))["every"]
    assert f"write {new!r}" in message
    assert parse_windows(FLIGHTS, "time", new, None, None).every == new


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_windows_finer_than_the_unit_of_times_are_reported(unit):
    every = {"s": "500ms", "ms": "1500us", "us": "1ns"}[unit]
    fine = FLIGHTS.assign(time=FLIGHTS.time.dt.as_unit(unit))
    zoned = fine.assign(time=fine.time.dt.tz_localize("Europe/Berlin"))
    for frame, kind in ((fine, "[ns]"), (zoned, "[ns, Europe/Berlin]")):
        message = faults_of(lambda frame=frame: parse_windows(frame, "time", every, None, None))[
            "every"
        ]
        assert f"a whole number of {unit}: 'time' is of type {frame.time.dtype}" in message
        assert f"df['time'].astype('datetime64{kind}')" in message
        finer = frame.astype({"time": f"datetime64{kind}"})
        assert parse_windows(finer, "time", every, None, None).every == every


@pytest.mark.parametrize(("unit", "every"), [("ns", "1ns"), ("us", "1us"), ("ms", "2ms")])
def test_windows_of_one_time_unit(unit, every):
    ticks = pd.DatetimeIndex(np.array([0, 3, 4], dtype=f"datetime64[{unit}]"))
    frame = pd.DataFrame({"time": ticks, "n": 1})
    result = hp.window_agg(dd.from_pandas(frame, npartitions=2), "time", every, {"n": "sum"})
    grouper = pd.Grouper(key="time", freq=every, closed="right", label="right")
    want = frame.groupby(grouper).agg({"n": "sum"})
    pd.testing.assert_frame_equal(result.compute(), want)


@pytest.mark.parametrize(
    ("size", "many"), [(10, "5,600,000"), ("10", "5,600,000"), ("9kB", "6,223")]
)
def test_partitions_of_a_few_bytes_are_reported(size, many):
    message = faults_of(lambda: hp.repartition(flights(), size, data_size="56MB"))["partition_size"]
    assert f"for each partition, which makes {many}: expected 10 kB or more" in message
    number = 10 if size == 10 else "..."
    assert f"df.repartition(npartitions={number})" in message
    assert hp.repartition(flights(), "10kB", data_size="50kB").npartitions >= 5
