"""to_datetime: conversion of text and numbers."""

from __future__ import annotations

import datetime

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from frame_strategies import Files, cut
from hypothesis import given, settings
from hypothesis import strategies as st
from pandas_versions import IS_PANDAS_2, TEXT
from scale import combinations, scaled

from hyperplane.dataframe import to_datetime
from hyperplane.errors import DataError, RequestError
from hyperplane.formats.reader import PartitionReader


@pytest.fixture(autouse=True)
def in_this_thread():
    with dask.config.set(scheduler="sync"):
        yield


def frame(*values, dtype=TEXT):
    column = pd.Series(list(values), dtype=object).astype(dtype)
    return pd.DataFrame({"at": column, "n": range(len(values))})


def convert(frame, places=(1,), **how):
    """Convert the column ``at`` of a frame that is divided at ``places``; return its values."""
    df = cut(frame, [place for place in places if place <= len(frame)])
    lazy = to_datetime(df, "at", **how)
    result = lazy.compute()
    assert result.columns.to_list() == ["at", "n"]
    assert result["at"].dtype == lazy["at"].dtype
    return result["at"].to_list()


def stamps(*texts, tz=None):
    return [pd.NaT if text is None else pd.Timestamp(text, tz=tz) for text in texts]


def test_all_forms_of_iso_8601_are_parsed():
    texts = ["2024-02-29", "2024-02-29 10:30", "2024-02-29T10:30:05.25", "20240229", None]
    want = stamps("2024-02-29", "2024-02-29 10:30", "2024-02-29 10:30:05.25", "2024-02-29", None)
    assert convert(frame(*texts)) == want


def test_the_type_does_not_depend_on_the_values():
    for texts in (["2024-01-01"], ["1.2.2024 10:00:00.123"], [None]):
        lazy = to_datetime(cut(frame(*texts), []), "at")
        assert lazy.compute()["at"].dtype == lazy["at"].dtype == "datetime64[us]"


def test_mixed_formats_are_parsed_equally_in_every_partition():
    texts = ["2024-01-31", "01/02/2024", "3 Feb 2024", "13/02/2024", None, "2024-01-31 05:00"]
    whole = convert(frame(*texts), places=[], dayfirst=True)
    assert whole == convert(frame(*texts), places=[1, 2, 3, 4], dayfirst=True)
    assert whole[1] == pd.Timestamp("2024-02-01")
    assert convert(frame("01/02/2024")) == stamps("2024-01-02")


@pytest.mark.parametrize("kind", ["str", "category", "datetime64[us]"])
def test_a_column_named_self_is_converted(kind):
    values = pd.Series(pd.to_datetime(["2026-01-31", "2026-02-01"]), dtype="datetime64[us]")
    given = values if kind == "datetime64[us]" else values.astype("str")
    frame = pd.DataFrame({"self": given.astype(kind), "pairs": [1, 2]})
    result = to_datetime(dd.from_pandas(frame, npartitions=2), "self").compute(scheduler="sync")
    assert list(result.columns) == ["self", "pairs"]
    assert result["self"].to_list() == values.to_list()


def test_a_format_applies_to_all_values():
    texts = ["31.01.2024 10:00", None, "01.02.2024 11:30"]
    want = stamps("2024-01-31 10:00", None, "2024-02-01 11:30")
    assert convert(frame(*texts), format="%d.%m.%Y %H:%M") == want
    with pytest.raises(DataError, match="'2024-01-31'") as caught:
        convert(frame("31.01.2024 10:00", "2024-01-31"), format="%d.%m.%Y %H:%M")
    assert "not times in the format '%d.%m.%Y %H:%M'" in str(caught.value)


def test_offsets_need_utc():
    texts = ["2024-01-01T10:00:00+02:00", "2024-01-01T10:00:00Z", "2024-01-01T10:00:00", None]
    want = stamps("2024-01-01 08:00", "2024-01-01 10:00", "2024-01-01 10:00", None, tz="UTC")
    assert convert(frame(*texts), utc=True) == want
    with pytest.raises(DataError, match=r"write utc=True"):
        convert(frame(*texts))


@pytest.mark.parametrize(
    ("unit", "numbers"),
    [
        ("s", [0, 1.5, -86400]),
        ("ms", [0, 1500, -86_400_000]),
        ("us", [0, 1_500_000, -86_400 * 10**6]),
    ],
)
def test_numbers_are_counted_since_1970(unit, numbers):
    want = stamps("1970-01-01", "1970-01-01 00:00:01.5", "1969-12-31")
    assert convert(frame(*numbers, dtype="float64"), unit=unit) == want
    if unit != "s":
        assert convert(frame(*numbers, dtype="Int64"), unit=unit) == want
        assert convert(frame(*numbers, None, dtype="Int64"), unit=unit) == [*want, pd.NaT]


def test_times_without_an_offset_do_not_have_the_offset_before():
    texts = ["2024-01-01 10:00+02:00", "2024-01-01 10:00", "01/31/2024 10:00-05:00", "01/31/2024"]
    want = stamps("2024-01-01 08:00", "2024-01-01 10:00", "2024-01-31 15:00", "2024-01-31")
    assert convert(frame(*texts), places=[], utc=True) == [at.tz_localize("UTC") for at in want]


@pytest.mark.parametrize("utc", [False, True])
def test_years_beyond_the_times_of_nanoseconds_are_parsed(utc):
    want = stamps("9999-12-31 23:59:59", "1400-01-02", None, tz="UTC" if utc else None)
    times = {
        None: ["9999-12-31 23:59:59", "1400-01-02", None],
        "%d.%m.%Y %H:%M:%S": ["31.12.9999 23:59:59", "02.01.1400 00:00:00", None],
    }
    for time_format, texts in times.items():
        assert convert(frame(*texts), places=[2], format=time_format, utc=utc) == want
        with pytest.raises(DataError, match=r"1 of 4 .* such as '2024-02-30 00:00'"):
            convert(frame(*texts, "2024-02-30 00:00"), places=[], format=time_format, utc=utc)
    for dayfirst, text in ((True, "31/12/9999 23:59:59"), (False, "12/31/9999 23:59:59")):
        assert convert(frame(text), dayfirst=dayfirst, utc=utc) == want[:1]
        with pytest.raises(DataError, match=f"write dayfirst={dayfirst}"):
            convert(frame(text), dayfirst=not dayfirst, utc=utc)
    offset = frame("9999-12-31 23:59:59+02:00", dtype=object)
    assert convert(offset, utc=True)[0] == pd.Timestamp("9999-12-31 21:59:59", tz="UTC")
    with_zone = convert(offset, format="%Y-%m-%d %H:%M:%S%z", utc=True)
    assert with_zone == convert(offset, utc=True)


@pytest.mark.parametrize("dtype", ["int64", "Int64", "float64", "Float64", "int64[pyarrow]"])
@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_numbers_beyond_the_times_of_nanoseconds_are_converted(dtype, unit):
    seconds, factor = 253_402_300_799, {"s": 1, "ms": 1000, "us": 10**6}[unit]
    numbers = frame(seconds * factor, 5 * factor, dtype=dtype)
    assert convert(numbers, unit=unit) == stamps("9999-12-31 23:59:59", "1970-01-01 00:00:05")


def test_bad_values_are_named():
    texts = ["2024-01-01", *(f"bad {n}" for n in range(9)), None]
    with pytest.raises(DataError) as caught:
        convert(frame(*texts), places=[])
    assert caught.value.column == "at"
    assert "9 of 11 values of a partition are not times, such as 'bad 0', 'bad 1'" in str(
        caught.value
    )
    assert "'bad 5'" not in str(caught.value)
    assert "errors='coerce'" in str(caught.value)


def test_bad_values_can_be_made_missing():
    assert convert(frame("2024-01-01", "no", None, "2024-13-01"), errors="coerce") == stamps(
        "2024-01-01", None, None, None
    )
    assert convert(frame(0.0, np.inf, dtype="float64"), unit="s", errors="coerce") == stamps(
        "1970-01-01", None
    )


@pytest.mark.parametrize("dtype", [TEXT, "category", object, "string"], ids=str)
def test_text_of_every_type_is_parsed(dtype):
    want = stamps("2024-01-01", None, "2024-01-01")
    assert convert(frame("2024-01-01", None, "2024-01-01", dtype=dtype)) == want


def test_partitions_without_a_value_have_missing_times():
    assert convert(frame(None, None, "2024-01-01"), places=[0, 1, 2]) == stamps(
        None, None, "2024-01-01"
    )
    assert convert(frame(), places=[0]) == []
    assert convert(frame(None, dtype="float64"), unit="s") == [pd.NaT]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "America/New_York"])
def test_times_are_unchanged_without_utc(unit, zone):
    kind = f"datetime64[{unit}, {zone}]" if zone else f"datetime64[{unit}]"
    given = frame(*stamps("2024-07-01 10:00", None, tz=zone), dtype=kind)
    assert convert(given) == stamps("2024-07-01 10:00", None, tz=zone)
    assert to_datetime(cut(given, []), "at")["at"].dtype == kind
    hour = "14" if zone else "10"
    assert convert(given, utc=True) == stamps(f"2024-07-01 {hour}:00", None, tz="UTC")
    assert to_datetime(cut(given, []), "at", utc=True)["at"].dtype == f"datetime64[{unit}, UTC]"


@pytest.mark.parametrize("zone", [None, "America/New_York"])
def test_times_that_are_categories_keep_their_zone(zone):
    times = stamps("2024-07-01 10:00", None, tz=zone)
    kind = f"datetime64[ns, {zone}]" if zone else "datetime64[ns]"
    given = frame(*times, dtype=kind)
    known = given.astype({"at": "category"})
    assert convert(known) == times
    utc = pd.Timestamp("2024-07-01 14:00" if zone else "2024-07-01 10:00", tz="UTC")
    assert convert(known, utc=True)[0] == utc
    unknown = cut(given, [1]).astype({"at": "category"})
    assert to_datetime(unknown, "at", utc=True).compute()["at"].to_list()[0] == utc
    if zone is None:
        assert to_datetime(unknown, "at").compute()["at"].to_list() == times
    else:
        with pytest.raises(DataError, match="times in America/New_York; write utc=True"):
            to_datetime(unknown, "at").compute()


def test_arrow_times_keep_their_zone():
    kind = pd.ArrowDtype(pa.timestamp("ms", tz="America/New_York"))
    given = frame(*stamps("2024-07-01 10:00", None, tz="America/New_York"), dtype=kind)
    kept = to_datetime(cut(given, [1]), "at")
    assert kept["at"].dtype == kept.compute()["at"].dtype == kind
    assert convert(given, utc=True)[0] == pd.Timestamp("2024-07-01 14:00", tz="UTC")


def test_times_and_numbers_keep_nanoseconds_and_text_does_not():
    times = stamps("2024-01-01 00:00:00.123456789", None)
    assert convert(frame(*times, dtype="datetime64[ns]")) == times
    numbers = frame(times[0].value, 7, dtype="int64")
    assert convert(numbers, unit="ns") == [times[0], pd.Timestamp(7)]
    assert convert(numbers, unit="ns", utc=True)[0] == times[0].tz_localize("UTC")
    # Text is truncated to microseconds, as documented.
    assert convert(frame(str(times[0]))) == stamps("2024-01-01 00:00:00.123456")


@settings(max_examples=scaled(10, 50))
@given(st.lists(st.one_of(st.none(), st.datetimes(datetime.datetime(1700, 1, 1))), max_size=8))
def test_formatted_times_are_parsed_back(times):
    texts = [None if time is None else time.isoformat() for time in times]
    with dask.config.set(scheduler="sync"):
        assert convert(frame(*texts)) == stamps(*times)


def test_only_the_needed_columns_are_read_after_it():
    files = Files()
    wide = frame("2024-01-01").assign(a=1, b=2)
    df = to_datetime(files.parquet(wide, [], 5), "at")
    (reading,) = [
        step
        for step in df[["n"]].optimize(fuse=False).expr.walk()
        if isinstance(getattr(step, "func", None), PartitionReader)
    ]
    assert reading.columns == ["n"]
    (reading,) = [
        step
        for step in df[["at"]].optimize(fuse=False).expr.walk()
        if isinstance(getattr(step, "func", None), PartitionReader)
    ]
    assert reading.columns == ["at"]
    files.close()


def test_all_faults_are_reported_together():
    df = cut(frame("2024-01-01"), [])
    with pytest.raises(RequestError) as caught:
        to_datetime(df, "att", errors="ignore", unit="weeks")
    assert [fault.where for fault in caught.value.faults] == ["column", "errors", "unit"]
    assert "did you mean 'at'?" in str(caught.value)
    with pytest.raises(RequestError, match="one of s, ms, us, ns for numbers"):
        to_datetime(df, "n")
    with pytest.raises(RequestError, match="not a number"):
        to_datetime(df, "at", unit="s")
    with pytest.raises(RequestError, match="unit = 's': expected None with format='%Y'"):
        to_datetime(df, "n", format="%Y", unit="s")
    with pytest.raises(RequestError, match="expected text, numbers or times"):
        to_datetime(cut(frame(True, dtype="bool"), []), "at")
    with pytest.raises(RequestError) as caught:
        to_datetime(df, ["at"], utc="no", dayfirst=0)
    assert [fault.where for fault in caught.value.faults] == ["column", "utc", "dayfirst"]


@pytest.mark.parametrize("dtype", [object, pd.ArrowDtype(pa.binary())])
def test_bytes_are_not_times(dtype):
    values = pd.array(pa.array([b"2026-01-31", b"\xff", None], pa.binary()), dtype=dtype)
    frame = pd.DataFrame({"at": values})
    if dtype is object:
        frame.loc[2, "at"] = "2026-02-01"
    df = cut(frame, [])
    result = to_datetime(df, "at", errors="coerce").compute()["at"]
    assert result.notna().to_list() == [False, False, dtype is object]
    with pytest.raises(DataError, match=r"column 'at': 2 of 3 values .* are not times, such as b'"):
        to_datetime(df, "at").compute()


@pytest.mark.parametrize("dtype", ["int64[pyarrow]", "uint64[pyarrow]", "Int64"])
def test_numbers_out_of_the_range_of_times_are_named(dtype):
    df = cut(pd.DataFrame({"at": pd.array([2**53 + 1, 5, None], dtype)}), [])
    with pytest.raises(DataError, match=r"column 'at': 1 of 3 .* such as 9007199254740993;"):
        to_datetime(df, "at", unit="s").compute()
    result = to_datetime(df, "at", unit="s", errors="coerce").compute()["at"]
    assert result.to_list()[1:] == [pd.Timestamp(5, unit="s"), pd.NaT]


def test_categories_of_numbers_with_missing_ones_are_named():
    frame = pd.DataFrame({"at": pd.Categorical([1, None, 2])})
    with pytest.raises(DataError, match=r"column 'at': 2 of 3 values .* not times, such as 1, 2"):
        to_datetime(cut(frame, []), "at").compute()
    result = to_datetime(cut(frame, []), "at", errors="coerce").compute()
    assert result["at"].isna().all()


def test_times_of_other_zones_are_converted_to_the_declared_one():
    berlin = pd.DataFrame({"at": pd.date_range("2024", periods=2, tz="Europe/Berlin")})
    utc = pd.DataFrame({"at": pd.date_range("2024", periods=2, tz="UTC")})
    naive = pd.DataFrame({"at": pd.date_range("2024", periods=2)})

    def parts(*frames):
        return dd.from_map(lambda part: part, list(frames), meta=frames[0].iloc[:0])

    result = to_datetime(parts(berlin, utc), "at").compute()["at"]
    assert result.dtype == berlin["at"].dtype
    assert result.to_list() == [*berlin["at"], *utc["at"]]
    for one, other in ((berlin, naive), (naive, berlin)):
        with pytest.raises(DataError, match=r"column 'at': holds times .*2024-01-01.*partition 1"):
            to_datetime(parts(one, other), "at").compute()
        result = to_datetime(parts(one, other), "at", utc=True).compute()["at"]
        assert str(result.dt.tz) == "UTC"


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
@pytest.mark.parametrize(
    ("unit", "utc"),
    combinations(
        ["datetime64[ns]", "timestamp[ns][pyarrow]", "timestamp[us][pyarrow]"], [False, True]
    ),
)
def test_times_of_other_units_than_declared_keep_their_digits(zone, utc, unit):
    year = "2400" if IS_PANDAS_2 else "1400"  # pandas 2 crashes with times of 1400 in a zone
    far = pd.Series(np.array([f"{year}-01-01", "2024-01-01"], dtype="datetime64[s]"))
    other = pd.Series([None, pd.Timestamp("2024-01-01 00:00:00.5")]).astype(unit)
    if zone is not None:  # of UTC first: pandas 3.0 has no times of the year 1400 in a zone
        far, other = (each.dt.tz_localize("UTC").dt.tz_convert(zone) for each in (far, other))
    frames = [pd.DataFrame({"at": times}) for times in (far, other)]
    frames.append(frames[1].iloc[:1])  # a single missing value

    def in_parts(*frames, like):
        return dd.from_map(lambda part: part, list(frames), meta=like.iloc[:0])

    want = [*frames[0]["at"], frames[1]["at"][1]]
    if utc and zone is None:
        want = [at.tz_localize("UTC") for at in want]
    result = to_datetime(in_parts(*frames, like=frames[0]), "at", utc=utc).compute()["at"]
    assert result.isna().to_list() == [False, False, True, False, True]
    assert result.dropna().to_list() == want
    assert result.dtype == (
        f"datetime64[us, {'UTC' if utc else zone}]" if zone or utc else "datetime64[us]"
    )
    # Times declared in a finer unit keep their own unit, which has a larger range.
    years = [(at.tz_convert("UTC") if utc else at).year for at in want[:2]]
    for part in (frames[0], frames[0].iloc[:0], frames[0].shift(2)):
        result = to_datetime(in_parts(part, frames[0], like=frames[1]), "at", utc=utc)["at"]
        assert result.compute().dropna().to_list()[-2:] == want[:2]
        assert result.dropna().dt.year.compute().to_list()[-2:] == years


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
@pytest.mark.parametrize("utc", [False, True])
def test_far_times_declared_as_nanoseconds_keep_their_type(zone, utc):
    times = pd.Series(np.array(["9999-12-31", "2024-01-01"], dtype="datetime64[us]"))
    frame = pd.DataFrame({"at": times.dt.tz_localize(zone)})
    frames = [frame.iloc[:1], frame.iloc[1:]]
    meta = frame.iloc[:0].assign(at=frame["at"].iloc[:0].dt.as_unit("ns"))
    result = to_datetime(dd.from_map(lambda part: part, frames, meta=meta), "at", utc=utc)["at"]
    assert str(result.compute().dtype).startswith("datetime64[us")
    assert result.dt.year.compute().to_list() == [9999, 2024 - (utc and zone is not None)]


@pytest.mark.parametrize(
    ("texts", "dayfirst"),
    [
        (["11.01.2025", "13.01.2025"], False),
        (["11-01-25", "13-01-25"], False),
        (["05/01/2025 10:00", "10:00 13/01/2025"], False),
        (["01/11/2025", "01/13/2025"], True),
    ],
)
def test_month_and_day_are_in_one_order_in_all_values(texts, dayfirst):
    """pandas would swap day and month of the second value and misread the first."""
    df = cut(pd.DataFrame({"at": texts}), [1])
    order = "day" if dayfirst else "month"
    message = f"1 of 1 values .* not times with the {order} first, such as '{texts[1]}'; "
    with pytest.raises(DataError, match=f"{message}write dayfirst={not dayfirst}"):
        to_datetime(df, "at", dayfirst=dayfirst).compute()
    result = to_datetime(df, "at", dayfirst=dayfirst, errors="coerce").compute()["at"]
    assert result.isna().to_list() == [False, True]
    right = to_datetime(df, "at", dayfirst=not dayfirst).compute()["at"].dt
    assert (right.month.to_list(), right.day.to_list()[1]) == ([1, 1], 13)


def test_a_year_is_followed_by_the_month():
    df = cut(pd.DataFrame({"at": ["2025-05-01", "2025-13-01"]}), [1])
    result = to_datetime(df, "at", dayfirst=True, errors="coerce").compute()["at"]
    assert result.to_list() == [pd.Timestamp("2025-05-01"), pd.NaT]


@pytest.mark.parametrize(
    "text", ["2026-01-02", "2026/01/02", "  2026-01-02 ", "2026-01-02T03:04:05,5", "1600-01-02"]
)
@pytest.mark.parametrize("dayfirst", [False, True])
def test_a_date_that_begins_with_the_year_has_its_month_next(text: str, dayfirst: bool) -> None:
    frame = pd.DataFrame({"at": [text, "2262-05-06", "2026-01-02T03:04:05.123456789", "4.3.2026"]})
    found = to_datetime(dd.from_pandas(frame, 1), "at", dayfirst=dayfirst).compute()["at"]
    assert [(time.month, time.day) for time in found[:3]] == [(1, 2), (5, 6), (1, 2)]
    assert (found[3].month, found[3].day) == ((3, 4) if dayfirst else (4, 3))


@pytest.mark.parametrize("kind", ["uint64", "UInt64", "uint64[pyarrow]"])
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_numbers_beyond_signed_integers_are_no_times(kind: str, unit: str) -> None:
    frame = pd.DataFrame({"at": pd.Series([0, 2**63 + 5, 2**64 - 1], dtype=kind)})
    found = to_datetime(dd.from_pandas(frame, 1), "at", unit=unit, errors="coerce").compute()["at"]
    assert found.isna().tolist() == [False, True, True]
