"""Zones with seconds are errors that name the zone; zones of whole minutes are restored."""

from __future__ import annotations

import datetime as dt

import dask
import dask.dataframe as dd
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hyperplane
from hyperplane.errors import DataError
from hyperplane.formats.pandas_frames.to_arrow import check_zones
from hyperplane.storage.object_kinds import list_formats

SECONDS = dt.timezone(dt.timedelta(hours=5, minutes=45, seconds=30))
TIMES = pd.date_range("2024-01-01", periods=3, tz=SECONDS)
FRAMES = {
    "column": pd.DataFrame({"t": TIMES}),
    "objects": pd.DataFrame({"t": pd.Series([None, *TIMES.to_pydatetime()[1:]], dtype=object)}),
    "categories": pd.DataFrame({"t": pd.Categorical(TIMES)}),
    "intervals": pd.DataFrame({"t": pd.interval_range(TIMES[0], periods=3, freq="D")}),
    "index": pd.DataFrame({"a": [1, 2, 3]}, index=TIMES.rename("t")),
    "levels": pd.DataFrame({"a": [1, 2, 3]}, index=[pd.Index([1, 2, 3]), TIMES.rename("t")]),
}


@pytest.mark.parametrize("form", list_formats("dataframe"))
@pytest.mark.parametrize("place", FRAMES)
def test_the_zone_is_named_as_the_reason(place, form, tmp_path):
    with pytest.raises(DataError, match=r"zone UTC\+05:45:30, but .* whole minutes") as caught:
        hyperplane.save(FRAMES[place], tmp_path / f"x.{form}")
    assert caught.value.column == "t"
    assert "of one type" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_the_error_of_a_dask_dataframe_names_the_index(tmp_path):
    df = dd.from_pandas(FRAMES["index"].rename_axis(None), npartitions=1)
    with dask.config.set(scheduler="sync"), pytest.raises(DataError, match=r"column 'index'.*zone"):
        hyperplane.save(df, tmp_path / "x.parquet")


def test_fractions_of_seconds_are_not_dropped(tmp_path):
    zone = dt.timezone(dt.timedelta(hours=1, microseconds=5))
    frame = pd.DataFrame({"t": pd.date_range("2024-01-01", periods=2, tz=zone)})
    with pytest.raises(DataError, match="whole minutes"):
        hyperplane.save(frame, tmp_path / "x.parquet")


def test_the_advised_conversion_can_be_saved(tmp_path):
    for place in ("column", "objects", "categories"):
        df = FRAMES[place].copy()
        with pytest.raises(DataError) as caught:
            check_zones(df, "Parquet")
        exec(str(caught.value).partition("for example with ")[2], {"pd": pd, "df": df})
        hyperplane.save(df, tmp_path / f"{place}.parquet")
    for place in ("index", "levels"):
        df = FRAMES[place]
        with pytest.raises(DataError) as caught:
            check_zones(df, "Parquet")
        advice = (
            str(caught.value).partition("for example with ")[2].removesuffix(" on each partition")
        )
        hyperplane.save(eval(advice, {"df": df}), tmp_path / f"{place}.parquet")


class London(dt.tzinfo):
    """A user-defined zone whose offset depends on the month."""

    def utcoffset(self, when):
        return dt.timedelta(hours=1 if 3 < when.month < 11 else 0)

    def dst(self, when):
        return self.utcoffset(when)

    def tzname(self, when):
        return "Europe/London"


def test_zones_whose_offset_needs_a_time_are_saved(tmp_path):
    time = dt.datetime(2024, 7, 1, 12, tzinfo=London())
    hyperplane.save(pd.DataFrame({"t": pd.Series([time], dtype=object)}), tmp_path / "x.parquet")
    assert list(hyperplane.load(tmp_path / "x.parquet")["t"]) == [time]


_ZONES = st.one_of(
    st.builds(
        lambda seconds: dt.timezone(dt.timedelta(seconds=seconds)), st.integers(-86399, 86399)
    ),
    st.integers(-1439, 1439).map(lambda minutes: dt.timezone(dt.timedelta(minutes=minutes))),
    st.sampled_from(["UTC", "Europe/Amsterdam", "Asia/Kathmandu", "Africa/Monrovia"]),
)


@given(zone=_ZONES, as_index=st.booleans())
def test_any_zone_is_restored_or_refused_for_its_seconds(zone, as_index, tmp_path_factory):
    times = pd.date_range("1900-01-01", periods=2, freq="75YS", tz=zone)
    frame = pd.DataFrame({"a": [1, 2]}, index=times) if as_index else pd.DataFrame({"t": times})
    file = tmp_path_factory.mktemp("zone") / "x.parquet"
    whole = isinstance(zone, str) or not zone.utcoffset(None) % dt.timedelta(minutes=1)
    if not whole:
        with pytest.raises(DataError, match="whole minutes"):
            hyperplane.save(frame, file)
        return
    hyperplane.save(frame, file)
    loaded = hyperplane.load(file)
    actual, values = (loaded.index, times) if as_index else (loaded["t"], frame["t"])
    assert list(actual) == list(values)
    offsets = [[time.utcoffset() for time in column] for column in (actual, values)]
    assert offsets[0] == offsets[1]
