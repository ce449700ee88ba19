"""Windows of an index of times, and widths in words."""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import hyperplane.dataframe as hp
from hyperplane.collections.frames.time_bins import parse_windows
from hyperplane.errors import RequestError

ROWS = 60
FRAME = pd.DataFrame(
    {
        "at": pd.date_range("2026-03-01 08:50", periods=ROWS, freq="17min"),
        "kind": np.where(np.arange(ROWS) % 3, "view", "buy"),
        "spent": np.arange(ROWS) % 7,
    }
)
SIDES = {"closed": "left", "label": "left"}


def indexed(name="at", zone=None):
    """Return the rows with times as index, in several partitions, and in pandas."""
    frame = FRAME.set_index("at").rename_axis(index=name)
    frame = frame if zone is None else frame.tz_localize(zone)
    df = dd.from_pandas(frame, npartitions=3)
    return df.compute(scheduler="sync"), df  # with the string types of Dask


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
@pytest.mark.parametrize("by", [None, "kind"])
@pytest.mark.parametrize("time", ["at", None])
def test_windows_of_the_index_equal_pandas(time, by, zone):
    frame, df = indexed(zone=zone)
    agg = {"spent": ["sum", "max"], **({} if by else {"kind": "nunique"})}
    result = hp.window_agg(df, time, "6h", agg, by=by, **SIDES).compute(scheduler="sync")
    grouper = pd.Grouper(freq="6h", **SIDES)
    truth = frame.groupby([by, grouper] if by else grouper).agg(agg)
    pd.testing.assert_frame_equal(result, truth, check_dtype=False, check_freq=False)


@pytest.mark.parametrize("time", ["at", None])
def test_counts_in_windows_of_the_index_equal_pandas(time):
    frame, df = indexed()
    result = hp.window_counts(df, time, "6h", "kind", **SIDES).compute(scheduler="sync")
    dummies = pd.get_dummies(frame, columns=["kind"], dtype=int).drop(columns="spent")
    truth = dummies.groupby(pd.Grouper(freq="6h", **SIDES)).sum()
    pd.testing.assert_frame_equal(result, truth, check_dtype=False, check_freq=False)


def test_an_index_without_a_name_makes_windows_called_time():
    _, df = indexed(name=None)
    result = hp.window_agg(df, None, "1D", {"spent": "sum"})
    assert result._meta.index.name == result.compute(scheduler="sync").index.name == "time"
    assert result.compute(scheduler="sync")["spent"].sum() == FRAME["spent"].sum()


def test_a_column_has_precedence_over_an_index_of_the_same_name():
    other = FRAME.assign(spent=1).set_index(FRAME["at"] + pd.Timedelta("300D"))
    df = dd.from_pandas(other, npartitions=2)
    result = hp.window_agg(df, "at", "1D", {"spent": "sum"}, **SIDES).compute(scheduler="sync")
    assert result.index[0] == pd.Timestamp("2026-03-01")
    with pytest.raises(RequestError, match="'at' is a column too"):
        hp.window_agg(df, None, "1D", {"spent": "sum"})


def test_an_index_without_times_is_refused():
    df = dd.from_pandas(FRAME, npartitions=2)
    named = dd.from_pandas(FRAME.set_index("kind"), npartitions=2)
    for frame, time in ((df, None), (named, None), (named, "kind")):
        with pytest.raises(RequestError) as caught:
            hp.window_agg(frame, time, "1D", {"spent": "sum"})
        [fault] = caught.value.faults
        assert fault.where == "time"
        assert fault.asked.startswith(f"{time!r}, the index, of type ")
        assert "df.reset_index()" in fault.advice
    with pytest.raises(RequestError, match="one of at, kind, spent"):
        hp.window_counts(df, "time", "1D", "kind")


# Dask's handling of a file's index is deprecated in pandas 3.1.
@pytest.mark.filterwarnings("ignore:.*inplace keyword")
@pytest.mark.filterwarnings("ignore:An error occurred while calling the read_parquet")
def test_only_the_columns_that_are_needed_are_read(tmp_path):
    FRAME.set_index("at").to_parquet(tmp_path / "a.parquet")
    df = dd.read_parquet(tmp_path / "a.parquet")
    tasks = hp.window_agg(df, "at", "1D", {"spent": "sum"})
    assert "kind" not in str(dict(tasks.optimize().__dask_graph__()))
    assert tasks.compute(scheduler="sync")["spent"].sum() == FRAME["spent"].sum()


@pytest.mark.parametrize(
    ("words", "letters"),
    [
        *[("1day", "1D"), ("day", "D"), ("1 day", "1D"), ("7days", "7D"), ("1d", "1D")],
        *[("1hour", "1h"), ("2 hours", "2h"), ("1Hour", "1h"), ("3hr", "3h"), ("minute", "min")],
        *[("30 minutes", "30min"), ("90sec", "90s"), ("1second", "1s"), ("5 milliseconds", "5ms")],
    ],
)
def test_a_width_in_words_equals_that_of_pandas(words, letters):
    like = FRAME.astype({"at": "datetime64[ns]"})
    assert parse_windows(like, "at", words, None, None) == parse_windows(
        like, "at", letters, None, None
    )


def test_a_day_in_words_counts_as_a_day_of_the_calendar():
    times = pd.date_range("2026-03-28 12:00", periods=60, freq="1h", tz="Europe/Berlin")
    df = dd.from_pandas(pd.DataFrame({"at": times, "n": 1}), npartitions=2)
    result = hp.window_agg(df, "at", "1day", {"n": "sum"}, **SIDES).compute(scheduler="sync")
    assert result["n"].to_list() == [12, 23, 24, 1]  # daylight saving time began on the 29th


@pytest.mark.parametrize("wrong", ["0days", "-1day", "1 fortnight", "1dayy", "1day2"])
def test_a_wrong_width_is_shown_as_it_was_written(wrong):
    df = dd.from_pandas(FRAME, npartitions=1)
    with pytest.raises(RequestError, match=f"every = '{wrong}'"):
        hp.window_agg(df, "at", wrong, {"spent": "sum"})


def test_a_wrong_time_is_reported_with_the_other_faults():
    _, df = indexed()
    rows = df.reset_index(drop=True)
    calls = {
        "agg['spent']": lambda: hp.window_agg(rows, None, "7 moons", {"spent": "mode"}, by="none"),
        "target": lambda: hp.window_counts(rows, None, "7 moons", "nothing", by="none"),
    }
    for where, call in calls.items():
        with pytest.raises(RequestError) as caught:
            call()
        assert {fault.where for fault in caught.value.faults} == {"time", "every", "by", where}
