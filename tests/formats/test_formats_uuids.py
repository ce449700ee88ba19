"""UUIDs of any source become text; types that Polars lacks are named in errors."""

from __future__ import annotations

import base64
import re
from uuid import UUID

import dask
import dask.dataframe as dd
import fsspec
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

import hyperplane
from hyperplane.dataframe import drop_duplicates, group_agg, join, read, sort_values
from hyperplane.errors import DataError, RequestError
from hyperplane.formats import schemas
from hyperplane.formats.polars_frames import as_polars

#: Written by DuckDB 2.0: one column of UUIDs, the second value missing.
OF_DUCKDB = base64.b64decode(
    "UEFSMRUAFWoVOiwVBBUAFQYVBgAANRghAAAAQQEAdgEAPAEjRWeJq83vASNFZ4mrze8VAhksNQAYDWR1Y2tkYl9zY2hl"
    "bWEVAgAVDhUgFQIYAXVs7AAAABYEGRwZHCYAHBUOGRUAGRgBdRUCFgQWjAEWXCYIPBgQASNFZ4mrze8BI0VniavN7xgQ"
    "ASNFZ4mrze8BI0VniavN7xYCKBABI0VniavN7wEjRWeJq83vGBABI0VniavN7wEjRWeJq83vEREAGRwVABUAFQIAAAAW"
    "jAEWBCYIFlwAKChEdWNrREIgdmVyc2lvbiB2Mi4wLjAgKGJ1aWxkIGQ1NGNiYmUzZGYpGRwcAAAA1gAAAFBBUjE="
)
#: Written by DuckDB 2.0: a number and an interval of three months.
INTERVAL = base64.b64decode(
    "UEFSMRUAFQgVDCwVAhUAFQYVBgAABAwBAAAAFQAVGBUcLBUCFQAVBhUGAAAMLAMAAAAAAAAAAAAAABUCGTw1ABgNZHVj"
    "a2RiX3NjaGVtYRUEABUCJQAYAW4lIgAVDhUYFQAYAml2JSoAFgIZHBksJgAcFQIZFQAZGAFuFQIWAhYqFi4mCDwYBAEA"
    "AAAYBAEAAAAWACgEAQAAABgEAQAAABERABkcFQAVABUCAAAAJgAcFQ4ZFQAZGAJpdhUCFgIWOhY+JjZJHBUAFQAVAgAA"
    "ABZkFgImCBZsABkcGBxkdWNrZGIuaW50ZXJ2YWxfYmxvb21fZmlsdGVyGA1ub3JtYWxpemVkLXYxABgoRHVja0RCIHZl"
    "cnNpb24gdjIuMC4wIChidWlsZCBkNTRjYmJlM2RmKRksHAAAHAAAAAIBAABQQVIx"
)
ONE = "01234567-89ab-cdef-0123-456789abcdef"
MORE = ["00000000-0000-0000-0000-000000000001", "ffffffff-0000-0000-0000-000000000000"]


@pytest.fixture(autouse=True)
def _sync():
    with dask.config.set(scheduler="sync"):
        yield


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "0.parquet").write_bytes(OF_DUCKDB)
    of_arrow = pa.array([UUID(text).bytes for text in MORE], pa.uuid())
    parquet.write_table(pa.table({"u": of_arrow}), tmp_path / "1.parquet", row_group_size=1)
    return tmp_path


def texts(values):
    return [None if pd.isna(value) else value for value in values]


def test_uuids_of_parquet_are_text(folder):
    df = read(folder)
    assert str(df.dtypes["u"]) == "str"
    assert texts(df.compute()["u"]) == [ONE, None, *MORE]
    assert texts(hyperplane.shard_rows(folder, 1, 0)["u"]) == [ONE, None, *MORE]
    assert read(folder, filters=[("u", "==", MORE[1])]).compute()["u"].tolist() == [MORE[1]]
    assert read(folder, filters=[("u", ">", MORE[0])]).compute()["u"].tolist() == [ONE, MORE[1]]
    chosen = df[df["u"] == ONE]
    assert group_agg(chosen, "u", {"u": "count"}).compute()["u"].to_dict() == {ONE: 1}
    assert sorted(join(folder, folder, "u").compute()["u"].dropna()) == sorted([ONE, *MORE])


def test_uuids_of_another_store_are_text():
    memory = fsspec.filesystem("memory")
    with memory.open("/uuids/0.parquet", "wb") as file:
        file.write(OF_DUCKDB)
    try:
        assert texts(read("memory://uuids/0.parquet").compute()["u"]) == [ONE, None]
    finally:
        memory.rm("/uuids", recursive=True)


def test_uuids_of_python_become_text_and_not_bytes():
    frame = pd.DataFrame({"u": [UUID(ONE), None, UUID(ONE)], "l": [[UUID(ONE)]] * 3})
    with dask.config.set({"dataframe.convert-string": False}):
        df = dd.from_pandas(frame, npartitions=1)
    assert sorted(map(str, drop_duplicates(df[["u"]]).compute()["u"])) == [ONE, "nan"]
    with pytest.raises(DataError, match=r"column 'l': .* such as \[UUID"):
        drop_duplicates(df, "u").compute()


def test_intervals_of_months_are_named(tmp_path):
    (tmp_path / "iv.parquet").write_bytes(INTERVAL)
    with pytest.raises(RequestError, match=r"iv: month_day_nano_interval.* dask\.dataframe"):
        read(tmp_path / "iv.parquet")


@pytest.mark.parametrize("store", ["local", "memory"])
def test_other_columns_of_a_file_that_polars_cannot_open(tmp_path, store):
    where = f"memory://iv{tmp_path.name}" if store == "memory" else str(tmp_path)
    with fsspec.open(f"{where}/0.parquet", "wb") as file:
        file.write(INTERVAL)
    df = read(f"{where}/0.parquet", columns=["n"])
    assert df.compute()["n"].tolist() == [1]
    assert group_agg(df, "n", {"n": "count"}).compute()["n"].to_dict() == {1: 1}
    for chosen, count in ((("n", ">", 1), 0), (("n", "==", 1), 1)):
        assert len(read(f"{where}/0.parquet", columns=["n"], filters=[chosen])) == count
    for options in ({}, {"columns": ["iv"]}, {"columns": ["n"], "filters": [("iv", "==", 1)]}):
        with pytest.raises(RequestError, match="iv"):
            read(f"{where}/0.parquet", **options)
    # With another file in which the column has another type.
    with fsspec.open(f"{where}/1.parquet", "wb") as file:
        parquet.write_table(pa.table({"n": pa.array([2], "int32"), "iv": ["x"]}), file)
    assert read(f"{where}/*.parquet", columns=["n"]).compute()["n"].tolist() == [1, 2]
    with pytest.raises(RequestError, match=r"iv: month_day_nano_interval.*columns="):
        read(f"{where}/*.parquet")


@pytest.mark.parametrize("kind", [pa.decimal256(60, 3), pa.timestamp("us", "+05:45")])
def test_an_unsupported_column_is_ignored_unless_requested(tmp_path, kind):
    odd = pa.array([None, None], kind)
    parquet.write_table(pa.table({"n": [1, 2], "d": odd}), tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet", columns=["n"]).compute()["n"].tolist() == [1, 2]
    with pytest.raises(RequestError, match=rf"d: {re.escape(str(kind))}.*columns="):
        read(tmp_path / "a.parquet")


def test_intervals_within_lists_are_named():
    nested = pa.schema([("n", pa.int64()), ("l", pa.list_(pa.binary(12)))])
    shape, faults = schemas.make_file_schema(nested, "float", "a.parquet", {"l"})
    assert (list(shape.unreadable), faults) == (["l"], [])
    shape, faults = schemas.make_file_schema(nested, "float", "a.parquet")
    assert (list(shape.unreadable), faults) == ([], [])


PAIRS = pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int64(), 2))
WORD = pa.dictionary(pa.int8(), pa.string())
WORDS = pa.array([{"a": "x"}, None, {"a": "y"}], pa.struct([("a", WORD)]))


@pytest.mark.parametrize("values", [PAIRS, WORDS])
@pytest.mark.parametrize("start", range(3))
@pytest.mark.parametrize("rows", range(4))
def test_as_polars_keeps_the_values_of_slices(values, start, rows):
    result = as_polars(pa.table({"v": values.slice(start, rows)}))
    assert result.get_column("v").to_list() == values.slice(start, rows).to_pylist()


def test_lists_of_a_fixed_size_in_any_partition(tmp_path):
    frame = pd.DataFrame({"k": [2, 1, 0], "v": pd.arrays.ArrowExtensionArray(PAIRS)})
    df = dd.from_pandas(frame, npartitions=3)
    assert sort_values(df, "k").compute()["v"].to_list() == [[3, 4], pd.NA, [1, 2]]
    hyperplane.save(df, tmp_path / "lines", format="jsonl")
    assert hyperplane.load(tmp_path / "lines").compute()["v"].to_list() == [[1, 2], pd.NA, [3, 4]]
