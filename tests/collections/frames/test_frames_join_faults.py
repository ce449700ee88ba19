"""Errors of joins name the side, the key or the suffix."""

from __future__ import annotations

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from test_frames_faults import FLIGHTS, NAMES, faults_of, flights, names

from hyperplane.dataframe import drop_duplicates, join, read
from hyperplane.errors import DataError


@pytest.fixture(autouse=True)
def in_this_thread():
    with dask.config.set(scheduler="sync"):
        yield


def test_a_fault_names_its_side(tmp_path):
    assert (
        "a column of right: one of carrier, name"
        in faults_of(lambda: join(flights(), names(), "flight"))["on"]
    )
    assert (
        "a column of left: one of time, "
        in faults_of(lambda: join(flights(), names(), "name"))["on"]
    )
    assert set(faults_of(lambda: join(flights(), NAMES, "carrier"))) == {"right"}
    assert set(faults_of(lambda: join(FLIGHTS, NAMES, "carrier"))) == {"left", "right"}
    NAMES.to_parquet(tmp_path / "airlines.parquet")
    missing = str(tmp_path / "airline.parquet")
    message = faults_of(lambda: join(flights(), missing, "carrier"))["right, urls"]
    assert "did you mean 'airlines.parquet'?" in message


def test_a_series_is_refused_with_advice():
    faults = faults_of(lambda: join(flights(), names().carrier, "carrier"))
    assert list(faults) == ["right"]
    assert "right.to_frame()" in faults["right"]
    assert "from_pandas" not in faults["right"]


def test_keys_that_cannot_be_compared_are_refused_at_the_call(tmp_path):
    NAMES.to_parquet(tmp_path / "airlines.parquet")
    FLIGHTS.to_parquet(tmp_path / "flights.parquet")
    for left in (flights(), read(tmp_path / "flights.parquet")):
        numbers = left.assign(carrier=left.flight)
        faults = faults_of(lambda n=numbers: join(n, tmp_path / "airlines.parquet", "carrier"))
        assert "'carrier', int64 on the left and str" in faults["on"]
        assert "right['carrier'].astype(...)" in faults["on"]
    zoned = names().assign(time=pd.Timestamp("2024-01-01", tz="UTC"))
    assert "on" in faults_of(lambda: join(flights(), zoned, "time"))


def test_keys_of_comparable_types_are_joined():
    whole, half = FLIGHTS[["flight", "delay"]], pd.DataFrame({"flight": [1.0, 2.0], "z": [1, 2]})
    sides = dd.from_pandas(whole, npartitions=2), dd.from_pandas(half, npartitions=1)
    with pytest.warns(UserWarning, match="type mismatches"):  # like Dask; the join continues
        result = join(*sides, "flight").compute()
    assert result.z.sort_values().to_list() == [1, 2]
    objects = dd.from_pandas(NAMES.astype({"carrier": "category"}), npartitions=1)
    with pytest.warns(UserWarning, match="type mismatches"):
        assert len(join(flights(), objects, "carrier").compute()) == len(FLIGHTS)


@pytest.mark.parametrize("suffixes", ["_r", ("_x",), (None, "_y"), ("_x", "_y", "_z"), 5])
def test_suffixes_are_two_strings(suffixes):
    faults = faults_of(lambda: join(flights(), flights(), "carrier", suffixes=suffixes))
    assert "two strings, such as ('_x', '_y')" in faults["suffixes"]


def test_suffixes_must_make_names_unique():
    faults = faults_of(lambda: join(flights(), flights(), "carrier", suffixes=("", "")))
    assert "makes two columns 'delay', 'flight', 'time'" in faults["suffixes"]
    taken = flights().assign(delay_y=1)
    faults = faults_of(lambda: join(taken, flights(), "carrier"))
    assert "makes two columns 'delay_y'" in faults["suffixes"]
    some = flights()[["carrier", "delay"]]
    result = join(some, some, "carrier", suffixes=("", "_r"))
    assert result.compute().columns.to_list() == ["carrier", "delay", "delay_r"]


@pytest.mark.filterwarnings("ignore:.*type mismatches")
@pytest.mark.parametrize("parts", [1, 2])
def test_integers_declared_as_floats_are_refused_as_keys_beyond_2_53(parts):
    """2**53 and 2**53 + 1 are the same float."""

    def side(number, declared):
        result = pd.DataFrame({"id": [number], "x": [2**60]})
        return dd.from_map(lambda _: result, range(parts), meta=declared, enforce_metadata=False)

    whole = pd.DataFrame({"id": pd.Series(dtype="int64"), "x": pd.Series(dtype="int64")})
    floats = whole.astype("float64")
    result = join(side(2**53, floats), side(2**53 + 1, whole), "id", how="inner")
    with pytest.raises(
        DataError, match=r"column 'id': holds .*9007199254740992.* declared type is float64"
    ):
        result.compute(scheduler="sync")
    small = join(side(5, floats), side(5, whole), "id")  # other columns may have such values
    assert len(small.compute(scheduler="sync")) == parts**2


def test_the_limit_of_split_out_applies_to_integers_of_numpy():
    faults = faults_of(lambda: drop_duplicates(flights(), split_out=np.int64(20_000)))
    assert faults == {"split_out": "split_out = 20,000: expected at most 10,000"}


def test_wrong_suffixes_are_reported_with_wrong_keys():
    assert set(faults_of(lambda: join(flights(), names(), "none", suffixes="_x"))) == {
        "on",
        "suffixes",
    }
