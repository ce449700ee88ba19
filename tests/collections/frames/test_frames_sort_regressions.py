"""Regression tests of sorts, exchanges and filters."""

from __future__ import annotations

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from frame_strategies import cut

from hyperplane.dataframe import drop_duplicates, group_agg, read, sort_values
from hyperplane.errors import DataError


@pytest.fixture(autouse=True)
def _synchronous():
    with dask.config.set(scheduler="sync"):
        yield


@pytest.fixture
def numbers(tmp_path):
    frame = pd.DataFrame({"x": [1.0, np.nan, 2.0], "k": ["a", "b", "c"]})
    pq.write_table(pa.table({"x": pa.array(frame.x), "k": frame.k.to_list()}), tmp_path / "a.pq")
    return read(tmp_path, format="parquet"), frame


@pytest.mark.parametrize("values", [[1.0, np.nan], [np.nan], [2.0]])
def test_isin_with_missing_values_equals_pandas(numbers, values):
    df, frame = numbers
    for chosen, want in (
        (df[df.x.isin(values)], frame[frame.x.isin(values)]),
        (df[~df.x.isin(values)], frame[~frame.x.isin(values)]),
    ):
        assert sorted(drop_duplicates(chosen).compute().k) == sorted(want.k)


def test_filters_apply_to_converted_columns(tmp_path):
    small = {"r": [0, 1, 2], "f": pa.array([0.1, 0.2, 0.3], pa.float32())}
    large = {"r": [3, 4, 5], "f": pa.array([0.1, 0.2, 0.3], pa.float64()), "g": [1.0, 2.0, 3.0]}
    pq.write_table(pa.table(small), tmp_path / "a.parquet")
    pq.write_table(pa.table(large), tmp_path / "b.parquet")
    df = read(tmp_path, schema="union")
    whole = df.compute()
    for condition in (lambda d: d.f == 0.1, lambda d: d.g > 1, lambda d: d.g.isna()):
        result = drop_duplicates(df[condition(df)]).compute()
        assert sorted(result.r) == sorted(whole[condition(whole)].r)


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_rows_of_text_files_are_filtered(tmp_path, form):
    frame = pd.DataFrame({"x": [1, 2, 3, 3]})
    if form == "csv":
        frame.to_csv(tmp_path / "a.csv", index=False)
    else:
        frame.to_json(tmp_path / "a.jsonl", orient="records", lines=True)
    df = read(tmp_path)
    assert sorted(drop_duplicates(df[df.x > 1]).compute().x) == [2, 3]


@pytest.mark.parametrize("into", [16, 17, 40])
def test_exchanges_between_many_partitions_equal_pandas(into):
    frame = pd.DataFrame({"n": np.arange(400) % 200, "row": np.arange(400)})
    df = cut(frame, [100, 300])
    once = drop_duplicates(df, "n", split_out=into).compute().sort_values("n")
    assert once.row.to_list() == list(range(200))
    in_order = sort_values(df, "n", split_out=into).compute()
    want = frame.sort_values("n", kind="stable")
    assert in_order.row.to_list() == want.row.to_list()


@pytest.mark.parametrize("at", ["first", "last"])
@pytest.mark.parametrize("ascending", [True, False])
def test_na_position_equals_pandas(at, ascending):
    frame = pd.DataFrame({"x": [3.0, np.nan, 1.0, 2.0, np.nan, 5.0, 4.0]})
    result = sort_values(cut(frame, [3, 5]), "x", ascending=ascending, na_position=at, split_out=4)
    want = frame.x.sort_values(ascending=ascending, na_position=at).to_list()
    assert result.compute().x.fillna(-1).to_list() == pd.Series(want).fillna(-1).to_list()


def test_samples_are_weighted_by_the_rows_of_their_partition():
    frame = pd.DataFrame({"n": [*range(1000), *range(10_000, 50_000)]})
    df = cut(frame, [1000])
    sizes = [len(part) for part in dask.compute(*sort_values(df, "n", split_out=4).to_delayed())]
    assert max(sizes) < 1.3 * len(frame) / 4


def test_durations_of_different_units_are_equal():
    hour = pd.Timedelta("1h")
    parts = [
        pd.DataFrame({"d": pd.Series([hour], dtype=f"timedelta64[{unit}]")}) for unit in ("ns", "s")
    ]
    df = dd.concat([dd.from_pandas(part, npartitions=1) for part in parts])
    assert len(drop_duplicates(df, split_out=20).compute()) == 1


@pytest.mark.parametrize("helper", [drop_duplicates, lambda df: sort_values(df, "x")])
def test_text_and_numbers_in_different_partitions_are_an_error(helper):
    frame = pd.DataFrame({"x": pd.Series([1, 2, "1", "x"], dtype=object)})
    message = "column 'x': holds int64 in partition 0 and text in partition 1, such as '[1x]'"
    with pytest.raises(DataError, match=message):
        helper(cut(frame, [2])).compute()
    with pytest.raises(DataError, match=message):
        group_agg(cut(frame.assign(n=1), [2]), "x", {"n": "sum"}).compute()
