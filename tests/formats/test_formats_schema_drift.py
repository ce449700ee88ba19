"""Files whose schemas differ: odd column names, lists, and columns of nulls."""

from __future__ import annotations

import dask
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

import hyperplane
from hyperplane.dataframe import read
from hyperplane.errors import ReadError, RequestError


@pytest.fixture(autouse=True)
def _sync():
    with dask.config.set(scheduler="sync"):
        yield


def values(column):
    arrow = isinstance(column.dtype, pd.ArrowDtype)
    items = column.array.__arrow_array__().to_pylist() if arrow else column.tolist()
    return [None if pd.api.types.is_scalar(value) and pd.isna(value) else value for value in items]


@pytest.mark.parametrize("name", ["^x$", "*", ""])
def test_names_that_are_patterns_in_polars(tmp_path, name):
    parquet.write_table(
        pa.table({name: pa.array([2**53], pa.uint64()), "b": [1]}), tmp_path / "0.parquet"
    )
    parquet.write_table(pa.table({name: [-1.5]}), tmp_path / "1.parquet")
    assert read(tmp_path, schema="union").compute()[name].tolist() == [2**53, -1.5]
    parquet.write_table(pa.table({name: [2**53 + 1]}), tmp_path / "2.parquet")
    with pytest.raises(ReadError, match=r"2\.parquet: column .* holds 9007199254740993"):
        read(tmp_path, schema="union").compute()


@pytest.mark.parametrize(
    "parts",
    [
        [[[], None], [[1, 2]], [[]]],
        [[[1, 2]], [[None]]],
        [[[[]], []], [[["a"], []]]],
        [[{"a": [], "b": None}], [{"a": ["x"], "b": 1}]],
        [[None, {"a": None}], [{"a": {"b": 2.5}}]],
    ],
)
@pytest.mark.parametrize("schema", ["strict", "union"])
def test_lists_and_records_of_nulls_match_any_type(tmp_path, parts, schema):
    for number, part in enumerate(parts):
        parquet.write_table(pa.table({"c": part}), tmp_path / f"{number}.parquet")
    df = read(tmp_path, schema=schema)
    result = df.compute()
    assert values(result.c) == [value for part in parts for value in part]
    assert result.dtypes.equals(df.dtypes)
    first = parts[0]
    assert (
        values(read(tmp_path, schema=schema, partition_size="1GB").compute().c)[: len(first)]
        == first
    )


def test_lists_of_different_types_are_an_error(tmp_path):
    for number, part in enumerate(([[1]], [["a"]], [[0.5]])):
        parquet.write_table(pa.table({"c": part}), tmp_path / f"{number}.parquet")
    with pytest.raises(RequestError, match="c: List"):
        read(tmp_path, schema="union")


@pytest.mark.parametrize(
    "later", [[1, 2], [b"a"], [0.5], [True], ["a"], [pd.Timestamp("2024-01-01")]]
)
def test_a_null_column_in_saved_avro_matches_any_type(tmp_path, later):
    hyperplane.save(pd.DataFrame({"c": [None, None], "n": 1}), tmp_path / "0.avro")
    hyperplane.save(pd.DataFrame({"c": later, "n": 1}), tmp_path / "1.avro")
    for df in (read(tmp_path), read(tmp_path, schema="union"), hyperplane.load(tmp_path)):
        result = df.compute()
        assert values(result.c) == [None, None, *later]
        assert result.dtypes.equals(df.dtypes)


@pytest.mark.parametrize("parts", [[[1, 2], None], [[2**53 + 1], []], [[1, None]]])
def test_arrow_lists_with_object_lists(tmp_path, parts):
    arrow = pd.Series([[7]], dtype=pd.ArrowDtype(pa.list_(pa.int64())))
    pd.DataFrame({"c": arrow}).to_parquet(tmp_path / "0.parquet")
    pd.DataFrame({"c": pd.Series(parts, dtype=object)}).to_parquet(tmp_path / "1.parquet")
    assert values(hyperplane.load(tmp_path).compute().c) == [[7], *parts]
