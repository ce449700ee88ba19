"""Named range indexes, which exist only in Parquet metadata, are read as columns."""

from __future__ import annotations

import json
import warnings

import dask
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from scale import scaled

from hyperplane import shard_rows
from hyperplane.dataframe import group_agg, read, sort_values
from hyperplane.errors import RequestError


@pytest.fixture(autouse=True)
def _sync():
    with dask.config.set(scheduler="sync"), warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        yield


@pytest.fixture
def memory():
    yield MemoryFileSystem()
    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]


def orders(start, length, step=1, name="order"):
    index = pd.RangeIndex(start, start + step * length, step, name=name)
    return pd.DataFrame({"v": np.arange(length) / 2}, index=index)


def write(frame, path, rows=None):
    frame.to_parquet(path, row_group_size=rows or max(1, len(frame)))
    assert frame.index.name not in parquet.read_schema(path).names  # in the metadata only


def assert_same(actual, expected):
    if not isinstance(actual, pd.DataFrame):
        actual = actual.compute()
    pd.testing.assert_frame_equal(actual.reset_index(drop=True), expected.reset_index(drop=True))


def as_columns(*frames):
    """Return the rows with the index as the last column, as pandas stores other indexes."""
    columns = [frame.reset_index()[[*frame.columns, frame.index.name]] for frame in frames]
    return pd.concat(columns, ignore_index=True)


def test_a_named_range_is_a_column(tmp_path):
    frame = pd.DataFrame({"order": range(100, 105), "v": [1.0, 2, 3, 4, 5]}).set_index("order")
    write(frame, tmp_path / "r.parquet")
    df = read(tmp_path / "r.parquet")
    assert df.dtypes.to_dict() == {"v": "float64", "order": "int64"}
    assert_same(df, as_columns(frame))
    assert read(tmp_path / "r.parquet", columns=["order"]).compute()["order"].tolist() == [
        *range(100, 105)
    ]
    assert df["order"].max().compute() == 104
    assert len(read(tmp_path / "r.parquet", columns=["v"]).columns) == 1
    frame.rename_axis(None).to_parquet(tmp_path / "unnamed.parquet")
    assert list(read(tmp_path / "unnamed.parquet").columns) == ["v"]


@settings(max_examples=scaled(10, 100), suppress_health_check=list(HealthCheck))
@given(
    files=st.lists(
        st.tuples(
            st.integers(-50, 50) | st.sampled_from([2**62, -(2**63)]),
            st.integers(0, 12),
            st.integers(-3, 3).filter(bool),
            st.integers(1, 5),
        ),
        min_size=1,
        max_size=4,
    ),
    name=st.sampled_from(["order", "*", "^x$", "", "ü", "a,b"]),
    limit=st.integers(-20, 20),
    op=st.sampled_from(["<", ">=", "not in"]),
    filtered=st.sampled_from(["name", "v"]),
    columns=st.sampled_from(["name", "v", "all"]),
    size=st.sampled_from([1, 40, 100, 10**6, None]),
    remote=st.booleans(),
    n=st.integers(1, 4),
)
def test_ranges_of_any_files(
    memory, tmp_path_factory, files, name, limit, op, filtered, columns, size, remote, n
):
    folder, frames = tmp_path_factory.mktemp("ranges"), []
    for number, (start, length, step, rows) in enumerate(files):
        start = start if start > -(2**62) or step > 0 else start - step * length
        frames.append(orders(start, length, step, name))
        path = folder / f"{number}.parquet"
        write(frames[-1], path, rows)
        memory.pipe_file(f"/{folder.name}/{path.name}", path.read_bytes())
    url = f"memory://{folder.name}/*.parquet" if remote else folder
    expected = as_columns(*frames)
    assert_same(read(url, partition_size=size), expected)
    limit = files[0][0] + limit if filtered == "name" else limit
    values = expected[name if filtered == "name" else "v"]
    fulfill = {"<": values < limit, ">=": values >= limit, "not in": values != limit}[op]
    filters = [(values.name, op, [limit] if op == "not in" else limit)]
    names = {"name": [name], "v": ["v"], "all": None}[columns]
    rows = expected[fulfill][names or list(expected.columns)]
    assert_same(read(url, names, filters, partition_size=size), rows)
    shares = [shard_rows(url, n, idx, columns=names) for idx in range(n)]
    assert_same(pd.concat(shares), expected[names or list(expected.columns)])


def test_filters_on_a_range_skip_row_groups_and_files(tmp_path):
    write(orders(100, 10), tmp_path / "1.parquet", 2)
    write(orders(200, 10), tmp_path / "2.parquet", 2)
    df = read(tmp_path, filters=[("order", ">", 205), ("order", "<=", 207)])
    assert sum(part.rows for part in df.expr.iterables[0]) == 2
    assert df.compute()["order"].tolist() == [206, 207]
    assert df.expr.iterables[0][0].bounds("order") == (206, 207)


def test_helpers_use_the_range_as_a_column(tmp_path):
    frame = orders(100, 6).assign(city=list("abcabc"))
    write(frame, tmp_path / "1.parquet", 2)
    df = group_agg(read(tmp_path, partition_size=1), "city", {"order": "max"}).compute()
    assert df["order"].to_dict() == {"a": 103, "b": 104, "c": 105}
    least = sort_values(read(tmp_path, partition_size=1), "order", ascending=False).compute()
    assert least["order"].tolist() == [105, 104, 103, 102, 101, 100]


def test_stored_indexes_and_ranges_are_read_together(tmp_path):
    write(orders(0, 3), tmp_path / "1.parquet")
    other = orders(0, 3).set_index(pd.Index([7, 5, 9], name="order"))
    other.to_parquet(tmp_path / "2.parquet")  # as a column
    assert "order" in parquet.read_schema(tmp_path / "2.parquet").names
    assert_same(read(tmp_path), as_columns(orders(0, 3), other))


def test_files_without_the_range(tmp_path):
    write(orders(5, 2), tmp_path / "1.parquet")
    orders(0, 2).reset_index(drop=True).to_parquet(tmp_path / "2.parquet")
    with pytest.raises(RequestError, match=r"2\.parquet = order: no such column.*Int64"):
        read(tmp_path)
    df = read(tmp_path, schema="union").compute()
    assert df["order"].dtype == "Int64"
    assert df["order"].fillna(-1).tolist() == [5, 6, -1, -1]
    only = read(tmp_path, schema="union", filters=[("order", "not null")], columns=["v"])
    assert only.compute()["v"].tolist() == [0.0, 0.5]
    halves = pd.DataFrame({"v": [1.0], "order": [0.5]})
    halves.to_parquet(tmp_path / "2.parquet", index=False)
    df = read(tmp_path, schema="union", filters=[("order", "<", 6)]).compute()
    assert df["order"].tolist() == [5.0, 0.5]


def test_a_column_of_the_name_of_the_index_is_that_column(tmp_path):
    frame = orders(5, 2).assign(order=[8, 9])
    frame.to_parquet(tmp_path / "1.parquet")
    assert read(tmp_path / "1.parquet").compute()["order"].tolist() == [8, 9]


def test_a_range_without_rows(tmp_path):
    write(orders(5, 0), tmp_path / "1.parquet")
    df = read(tmp_path / "1.parquet")
    assert df.dtypes.to_dict() == {"v": "float64", "order": "int64"}
    assert_same(df, as_columns(orders(5, 0)))
    none = read(tmp_path / "1.parquet", filters=[("order", ">", 3)])
    assert len(none.compute()) == 0
    write(orders(5, 2), tmp_path / "2.parquet")
    assert_same(read(tmp_path), as_columns(orders(5, 2)))
    assert read(tmp_path, filters=[("order", ">", 99)]).compute()["order"].dtype == "int64"


def test_a_range_of_other_rows_is_left_out_with_a_warning(tmp_path):
    # partition_cols= of pandas writes the range of all rows to each file.
    frame = orders(100, 5).assign(city=list("aabba"))
    frame.to_parquet(tmp_path / "by", partition_cols=["city"])
    with pytest.warns(UserWarning, match=r"'order' is left out of 2 files.*range\(100, 105, 1\)"):
        df = read(tmp_path / "by")
    assert sorted(df.columns) == ["city", "v"]
    assert read(tmp_path / "by", columns=["v"]).columns.tolist() == ["v"]  # and no warning
    with (
        pytest.warns(UserWarning, match="reset_index"),
        pytest.raises(RequestError, match=r"'order'.*a column of the files"),
    ):
        read(tmp_path / "by", columns=["order"])
    with pytest.warns(UserWarning, match="'order' is left out of 2 files"):
        shard_rows(tmp_path / "by", 2, 0)


@pytest.mark.parametrize(
    "index",
    [
        {"kind": "range", "name": "order", "start": 0, "stop": 2, "step": 0},
        {"kind": "range", "name": "order", "start": None, "stop": 2, "step": 1},
        {"kind": "range", "name": "order", "start": 0.0, "stop": 2, "step": 1},
        {"kind": "range", "name": "order", "start": 2**63, "stop": 2**63 + 2, "step": 1},
        {"kind": "range", "name": "order"},
    ],
)
def test_an_invalid_range_is_left_out_with_a_warning(tmp_path, index):
    path = tmp_path / "a.parquet"
    _write_with(path, json.dumps({"index_columns": [index]}))
    with pytest.warns(UserWarning, match="'order' is left out of 1 file: "):
        assert list(read(path).columns) == ["v"]


@pytest.mark.parametrize("text", ['"range"', '{"range', '{"index_columns": 7, "kind": "range"}'])
def test_metadata_of_another_format_has_no_index(tmp_path, text):
    _write_with(tmp_path / "a.parquet", text)
    assert list(read(tmp_path / "a.parquet").columns) == ["v"]


def test_an_index_whose_name_is_a_number_has_its_text(tmp_path):
    write(orders(5, 2, name=7), tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet").compute()["7"].tolist() == [5, 6]


def _write_with(path, text):
    table = pa.table({"v": [1.0, 2.0]}).replace_schema_metadata({"pandas": text})
    parquet.write_table(table, path)


def test_shares_and_ranges_of_a_file_that_polars_does_not_open(tmp_path):
    odd = pa.array([None] * 5, pa.decimal256(60, 3))
    table = pa.Table.from_pandas(orders(100, 5, name="order")).append_column("d", odd)
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=3)
    for columns in (["v", "order"], ["order"], ["v"]):
        expected = as_columns(orders(100, 5))[columns]
        assert_same(read(tmp_path, columns=columns), expected)
        shares = [shard_rows(tmp_path, 3, idx, columns=columns) for idx in range(3)]
        assert [len(share) for share in shares] == [2, 2, 1]
        assert_same(pd.concat(shares), expected)


def test_a_column_without_a_name_in_another_store(memory, tmp_path):
    frame = pd.DataFrame({"": [1, 2], "v": [3, 4]})
    frame.to_parquet(tmp_path / "a.parquet")
    memory.pipe_file(f"/{tmp_path.name}/a.parquet", (tmp_path / "a.parquet").read_bytes())
    assert_same(read(f"memory://{tmp_path.name}/a.parquet"), frame)
