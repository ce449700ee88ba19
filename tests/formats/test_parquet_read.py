"""Parquet: the same rows as pandas reads, for all kinds of files."""

from __future__ import annotations

import datetime as dt
import decimal
import pickle
from pathlib import Path

import dask
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from dask.base import tokenize
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from scale import scaled

from hyperplane.collections.frames.read import read
from hyperplane.errors import RequestError
from hyperplane.formats import partition_sizes
from hyperplane.formats.reader import PartitionReader

TEXT = st.text(alphabet="aé中😀 ,\"'\n", max_size=5)
INSTANT = st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2200, 1, 1))
COLUMNS = {
    "whole": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "small": (pa.uint8(), st.integers(0, 255)),
    "real": (pa.float64(), st.floats(allow_infinity=True, allow_nan=True)),
    "single": (pa.float32(), st.floats(width=32)),
    "text": (pa.string(), TEXT),
    "truth": (pa.bool_(), st.booleans()),
    "micros": (pa.timestamp("us"), INSTANT),
    "berlin": (pa.timestamp("ms", "Europe/Berlin"), st.integers(0, 2 * 10**12)),
    "took": (pa.duration("us"), st.timedeltas(dt.timedelta(-9), dt.timedelta(9))),
    "word": (pa.dictionary(pa.int32(), pa.string()), TEXT),
}


@pytest.fixture(autouse=True)
def _one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


@st.composite
def tables(draw: st.DrawFn) -> list[pa.Table]:
    names = draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=5, unique=True))
    tables_drawn = []
    for _ in range(draw(st.integers(1, 6))):
        rows = draw(st.integers(0, 7))
        columns = {}
        for name in names:
            kind, values = COLUMNS[name]
            column = draw(st.lists(st.none() | values, min_size=rows, max_size=rows))
            if draw(st.booleans()):
                column = [None] * rows
            columns[name] = pa.array(column, kind)
        tables_drawn.append(pa.table(columns))
    return tables_drawn


def same(ours: pd.DataFrame, theirs: pd.DataFrame) -> None:
    """Assert equal values, where all missing values of pandas are equal."""
    assert list(ours.columns) == list(theirs.columns)
    assert len(ours) == len(theirs)
    for name in ours:
        a = [None if pd.isna(value) else value for value in ours[name].tolist()]
        b = [None if pd.isna(value) else value for value in theirs[name].tolist()]
        assert a == b, name


@settings(max_examples=scaled(12, 60), suppress_health_check=[HealthCheck.too_slow])
@given(tables_drawn=tables(), groups=st.integers(1, 4), size=st.sampled_from(["100MB", "1B"]))
def test_any_files_equal_pandas(tmp_path_factory, tables_drawn, groups, size):
    folder = tmp_path_factory.mktemp("any")
    for number, table in enumerate(tables_drawn):
        parquet.write_table(table, folder / f"part-{number}.parquet", row_group_size=groups)
    frame = read(folder, partition_size=size)
    ours = frame.compute()
    assert ours.dtypes.equals(frame.dtypes)
    for part in frame.partitions:
        assert part.compute().dtypes.equals(frame.dtypes)
    same(ours, pa.concat_tables(tables_drawn).to_pandas(integer_object_nulls=True))


def test_files_are_read_in_natural_order(tmp_path):
    for number in range(40):
        pd.DataFrame({"n": [number, number]}).to_parquet(tmp_path / f"part-{number}.parquet")
    frame = read(str(tmp_path / "part-*.parquet"), partition_size="40B")
    assert frame.npartitions > 10
    assert frame.n.compute().to_list() == [n for n in range(40) for _ in range(2)]
    listed = read([tmp_path / "part-7.parquet", tmp_path / "part-3.parquet"])
    assert listed.n.compute().to_list() == [7, 7, 3, 3]


def test_a_large_file_is_divided_at_row_groups(tmp_path):
    path = tmp_path / "large.parquet"
    frame = pd.DataFrame({"n": np.arange(1000), "x": np.random.default_rng(0).random(1000)})
    frame.to_parquet(path, row_group_size=100)
    df = read(path, partition_size=4_000)
    assert df.npartitions == 4
    lengths = [len(part) for part in dask.compute(*df.to_delayed())]
    assert all(length % 100 == 0 for length in lengths)
    pd.testing.assert_frame_equal(df.compute().reset_index(drop=True), frame)


def test_small_files_are_joined_and_large_data_gives_each_thread_work(tmp_path, monkeypatch):
    for number in range(30):
        pd.DataFrame({"x": np.random.default_rng(number).random(100_000)}).to_parquet(
            tmp_path / f"{number}.parquet"
        )
    # 24 MB would fit into one partition, but then other threads would be idle.
    for threads, partitions in ((1, 1), (2, 2), (16, 3)):
        monkeypatch.setattr(partition_sizes, "count_threads", lambda threads=threads: threads)
        assert read(tmp_path, partition_size="100MB").npartitions == partitions
        assert read(tmp_path).npartitions == 30
    assert read(tmp_path, partition_size="6MB").npartitions == 4


def test_types_of_tpch_and_other_columns(tmp_path):
    table = pa.table(
        {
            "price": pa.array([decimal.Decimal("1.25"), None], pa.decimal128(15, 2)),
            "day": pa.array([dt.date(1994, 1, 1), None]),
            "missing": pa.array([1, None], pa.int32()),
            "there": pa.array([1, 2], pa.int32()),
            "half": pa.array(np.array([1, 2], "float16")),
            "nothing": pa.nulls(2),
            "list": pa.array([[1], None]),
            "bytes": pa.array([b"a", None]),
            "time": pa.array([dt.time(1, 2), None]),
            "away": pa.array([0, 1], pa.timestamp("ns", "+02:00")),
        }
    )
    parquet.write_table(table, tmp_path / "a.parquet")
    df = read(tmp_path / "a.parquet").compute()
    assert {name: str(dtype) for name, dtype in df.dtypes.items()} == {
        "price": "float64",
        "day": "datetime64[ms]",
        "missing": "Int32",
        "there": "int32",
        "half": "float32",
        "nothing": "str",
        "list": "large_list<item: int64>[pyarrow]",
        "bytes": "large_binary[pyarrow]",
        "time": "time64[ns][pyarrow]",
        "away": "datetime64[ns, Etc/GMT-2]",
    }
    assert df.price.to_list()[0] == 1.25
    assert df.day[0] == pd.Timestamp("1994-01-01")
    assert list(df.list[0]) == [1]
    exact = read(tmp_path / "a.parquet", decimals="exact").compute()
    assert exact.price[0] == decimal.Decimal("1.25")
    assert exact.price.dtype == pd.ArrowDtype(pa.decimal128(15, 2))


def test_a_stored_index_is_a_column_if_it_is_named_or_requested(tmp_path):
    frame = pd.DataFrame({"x": [1.0, 2.0]}, index=[5, 6])
    frame.to_parquet(tmp_path / "plain.parquet")
    assert list(read(tmp_path / "plain.parquet").columns) == ["x"]
    unnamed = read(tmp_path / "plain.parquet", columns=["__index_level_0__"])
    assert unnamed.compute()["__index_level_0__"].to_list() == [5, 6]
    frame.rename_axis("key").to_parquet(tmp_path / "named.parquet")
    assert list(read(tmp_path / "named.parquet").columns) == ["x", "key"]


def test_hive_folders_are_columns(tmp_path):
    frame = pd.DataFrame({"x": [1, 2, 3], "year": [2023, 2024, 2024], "city": ["a b", "ö", None]})
    frame.to_parquet(tmp_path / "d", partition_cols=["year", "city"])
    df = read(tmp_path / "d").compute().sort_values("x").reset_index(drop=True)
    assert df.year.to_list() == [2023, 2024, 2024]
    assert df.year.dtype == "int64"
    assert df.city.fillna("-").to_list() == ["a b", "ö", "-"]
    selected = read(tmp_path / "d", filters=[("year", "==", 2023)])
    assert selected.compute().x.to_list() == [1]
    assert selected.expr.iterables[0][0].rows == 1
    assert read(tmp_path / "d", columns=["city"]).compute().city.count() == 2


def test_files_and_filters_without_rows(tmp_path):
    frame = pd.DataFrame({"x": np.array([], "int64"), "s": pd.Series([], dtype="str")})
    frame.to_parquet(tmp_path / "empty.parquet")
    df = read(tmp_path / "empty.parquet")
    assert len(df.compute()) == 0
    assert df.dtypes.to_list() == frame.dtypes.to_list()
    pd.DataFrame({"x": [1]}).to_parquet(tmp_path / "one.parquet")
    none = read(tmp_path / "one.parquet", filters=[("x", ">", 1)])
    assert (none.npartitions, len(none)) == (1, 0)


def test_nothing_is_computed_and_columns_are_pushed_down(tmp_path):
    path = tmp_path / "wide.parquet"
    pd.DataFrame({f"c{i}": [i] for i in range(300)}).to_parquet(path)
    frame = read(path)
    (reader,) = {type(frame.expr.func)}
    assert reader is PartitionReader
    assert frame.expr.func.like.shape == (0, 300)
    pushed = frame[["c7"]].optimize(fuse=False).expr
    assert pushed.columns == ["c7"]
    assert frame[["c299", "c7"]].compute().to_dict("list") == {"c299": [299], "c7": [7]}
    assert (frame.c1 + frame.c2).compute().to_list() == [3]


def test_partitions_are_small_and_have_bounds_and_tokens(tmp_path):
    path = tmp_path / "a.parquet"
    times = pd.date_range("2024-01-01", periods=100, freq="h", tz="Europe/Berlin")
    pd.DataFrame({"t": times, "n": range(100)}).to_parquet(path, row_group_size=50)
    first, second = read(path, partition_size="800B").expr.iterables[0]
    assert (first.rows, second.rows) == (50, 50)
    assert first.bounds("t") == (times[0], times[49])
    assert second.bounds("n") == (50, 99)
    assert second.bounds("nowhere") is None
    sent = pickle.loads(pickle.dumps(second))
    assert sent == second
    assert sent.bounds("n") is None
    assert len(pickle.dumps(second)) < 2_000
    assert tokenize(first) != tokenize(second)
    assert tokenize(read(path)) == tokenize(read(path))
    before = tokenize(read(path))
    pd.DataFrame({"t": times, "n": range(1, 101)}).to_parquet(path)
    assert tokenize(read(path)) != before


def test_all_faults_are_reported_together(tmp_path):
    path = tmp_path / "sales.parquet"
    pd.DataFrame({"price": [1.0], "city": ["Rome"]}).to_parquet(path)
    with pytest.raises(RequestError) as caught:
        read(path, columns=["prize", "city"], filters=[("town", "==", 1), ("price", "=>", 2)])
    text = str(caught.value)
    assert len(caught.value.faults) == 3
    assert "did you mean 'price'?" in text
    with pytest.raises(RequestError, match=r"did you mean 'sales\.parquet'"):
        read(tmp_path / "sale.parquet")
    with pytest.raises(RequestError, match="none were found"):
        read(tmp_path / "*.pq")
    with pytest.raises(RequestError, match="2 faults"):
        read(path, partition_size="big", schema="lose")
    with pytest.raises(RequestError, match="no value for parquet files"):
        read(path, separator=";")
    arguments = {"partition_size": "big", "schema": "lose", "columns": "price", "filters": "n > 1"}
    for url, option in ((tmp_path / "sale.parquet", {}), (path, {"separator": ";"}), (3, {})):
        with pytest.raises(RequestError, match="5 faults"):
            read(url, **arguments, **option)
    Path(tmp_path / "a.xlsx").write_text("")
    with pytest.raises(RequestError, match=r"\.parquet"):
        read(tmp_path / "a.xlsx")
    (tmp_path / "b.csv").write_text("a\n1\n")
    with pytest.raises(RequestError, match="files of one format"):
        read([path, tmp_path / "b.csv"])
    for wrong in ([], None, 3, [""]):
        with pytest.raises(RequestError):
            read(wrong)
