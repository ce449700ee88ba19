"""The three computations equal those of pandas for any partitions."""

from __future__ import annotations

import dask
import dask.dataframe as dd
import pandas as pd
import pytest

from hyperplane.demo import job
from hyperplane.demo.check import compare
from hyperplane.demo.data import COLUMNS


def on_dask(flights: dd.DataFrame) -> job.Results:
    return job.finish(*dask.compute(*job.lazy_results(flights), scheduler="synchronous"))


@pytest.mark.parametrize("npartitions", [1, 2, 13])
def test_dask_and_pandas_agree(some: pd.DataFrame, npartitions: int) -> None:
    found = on_dask(dd.from_pandas(some, npartitions=npartitions))
    assert compare(found, job.results_in_pandas(some))
    assert int(found.hours["flights"].sum()) == len(some)
    assert int(found.departures.to_numpy().sum()) == int(some["dep_time"].notna().sum())


def test_order_of_rows_does_not_matter(some: pd.DataFrame) -> None:
    mixed = some.sample(frac=1, random_state=1).reset_index(drop=True)
    assert compare(on_dask(dd.from_pandas(mixed, npartitions=5)), job.results_in_pandas(some))


def test_data_is_read_once_for_all_results(some: pd.DataFrame) -> None:
    read = []

    def part(number: int) -> pd.DataFrame:
        read.append(number)
        return some.iloc[number::4]

    on_dask(dd.from_map(part, range(4), meta=some.iloc[:0]))
    assert sorted(read) == [0, 1, 2, 3]


def test_longest_has_the_ten_longest_departures_of_each_origin(some: pd.DataFrame) -> None:
    longest = on_dask(dd.from_pandas(some, npartitions=3)).longest
    assert longest.groupby("origin").size().to_dict() == {"EWR": 10, "JFK": 10, "LGA": 10}
    for origin, rows in longest.groupby("origin"):
        departed = some[(some["origin"] == origin) & some["dep_time"].notna()]
        assert rows["distance"].tolist() == departed["distance"].nlargest(10).tolist()
        ties = rows[rows["distance"] == rows["distance"].max()]
        assert ties["air_time"].is_monotonic_decreasing


def flight(**changes: object) -> pd.DataFrame:
    usual = {
        "year": 2013, "month": 5, "day": 6, "dep_time": 800, "sched_dep_time": 800,
        "dep_delay": 0, "carrier": "UA", "flight": 1, "origin": "JFK", "dest": "LAX",
        "air_time": 300, "distance": 2475, "hour": 8,
    }  # fmt: skip
    return pd.DataFrame([{**usual, **changes}])


def results_of(*flights: pd.DataFrame) -> job.Results:
    frame = pd.concat(flights, ignore_index=True).astype(COLUMNS)
    found = on_dask(dd.from_pandas(frame, npartitions=len(flights)))
    compare(found, job.results_in_pandas(frame))
    return found


def test_late_is_more_than_fifteen_minutes() -> None:
    hours = results_of(flight(dep_delay=15), flight(dep_delay=16), flight(dep_delay=-3)).hours
    assert hours.loc[8].to_dict() == {"flights": 3, "departures": 3, "late": 1}


def test_a_cancelled_flight_does_not_count_as_departure() -> None:
    cancelled = flight(carrier="AA", dep_time=None, dep_delay=None, air_time=None, distance=9999)
    found = results_of(flight(), cancelled)
    assert found.hours.loc[8].to_dict() == {"flights": 2, "departures": 1, "late": 0}
    assert found.departures.loc["2013-05-06"].to_dict() == {"AA": 0, "UA": 1}
    assert found.delays.loc["2013-05-06"].isna().to_dict() == {"AA": True, "UA": False}
    assert found.longest["distance"].tolist() == [2475]


def test_a_flight_whose_air_time_is_unknown_ranks_last_of_its_distance() -> None:
    longest = results_of(flight(air_time=None), flight(flight=2), flight(distance=10)).longest
    assert longest["flight"].tolist() == [2, 1, 1]
    assert longest["distance"].tolist() == [2475, 2475, 10]
