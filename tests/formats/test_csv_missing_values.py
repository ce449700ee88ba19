"""``na_values=`` and ``dtypes=`` of CSV have the same meaning as in pandas."""

from __future__ import annotations

import dask
import numpy as np
import pandas as pd
import pytest
from csv_values import equal

import hyperplane
from hyperplane.dataframe import group_agg, read
from hyperplane.errors import ReadError, RequestError

TEXT = "n,s,x,t\n1,a,1.5,True\n-,-,-,-\n3,c,-999,False\n-999,-999.0,-9.99e2,n.a.\n5,n.a.,NA,True\n"


@pytest.fixture(autouse=True)
def _sync():
    with dask.config.set(scheduler="sync"):
        yield


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(TEXT)
    return path


@pytest.mark.parametrize(
    "na_values",
    [
        "-",
        ["-"],
        ["-", "n.a."],
        ("-", -999, "n.a."),
        ["-", -999.0],
        [np.int64(-999), "-"],
        ["-999", "-"],
        {"n": "-"},
        {"n": ["-", -999], "x": ["-"], "t": ["-", "n.a."]},
        {"x": ["-", -999], "s": "a"},
    ],
    ids=repr,
)
def test_missing_values_equal_pandas(file, na_values):
    expected = pd.read_csv(file, na_values=na_values)
    equal(read(file, na_values=na_values).compute(), expected)
    shares = [hyperplane.shard_rows(file, 2, idx, na_values=na_values) for idx in range(2)]
    equal(pd.concat(shares, ignore_index=True), expected)
    only = read(file, columns=["x", "n"], na_values=na_values).compute()
    equal(only, expected[["x", "n"]])


def test_missing_values_count_in_filters_and_helpers(file):
    df = read(file, na_values={"n": ["-", -999], "x": ["-", -999]}, filters=[("n", "not null")])
    assert df.dtypes.astype(str).to_dict() == {"n": "Int64", "s": "str", "x": "float64", "t": "str"}
    assert df.n.compute().to_list() == [1, 3, 5]
    assert df.x.sum().compute() == 1.5
    summed = group_agg(df, "s", {"n": "sum"}).compute()
    assert summed.iloc[:, -1].to_list() == [1, 3, 5]


def test_invalid_na_values_are_refused(file):
    with pytest.raises(RequestError) as raised:
        read(file, na_values={"q": "-", "n": [None], "x": [True]})
    assert [fault.where for fault in raised.value.faults] == ["na_values"] * 3
    assert "'q'" in str(raised.value)
    with pytest.raises(RequestError, match="na_values"):
        read(file, na_values=b"-")
    pd.DataFrame({"n": [1]}).to_parquet(file.with_suffix(".parquet"))
    with pytest.raises(RequestError, match="no value for parquet files"):
        read(file.with_suffix(".parquet"), na_values="-")


def test_text_in_a_number_column_may_be_a_missing_value(tmp_path):
    file = tmp_path / "late.csv"
    file.write_text("n\n" + "1\n" * 1_000_000 + "-\n" + "1\n" * 1_000_000)
    with pytest.raises(ReadError, match=r"or na_values=\{'n': '-'\} where that is a missing value"):
        read(file).compute()
    assert read(file, na_values={"n": "-"}).n.count().compute() == 2_000_000


@pytest.mark.parametrize(
    "dtypes",
    [
        {"n": "Int64", "x": "Float64"},
        {"n": "float32", "s": "string"},
        {"n": "int64[pyarrow]", "x": "double[pyarrow]", "b": "bool[pyarrow]"},
        {"n": str, "x": str},
        {"b": "boolean", "n": "int32"},
        {"n": int, "x": float, "s": "str", "b": bool},
        str,
        "string",
    ],
    ids=repr,
)
def test_types_equal_pandas(tmp_path, dtypes):
    file = tmp_path / "a.csv"
    file.write_text("n,s,x,b\n1,007,1.50,True\n2,1.50,,False\n9,,-0.0,True\n")
    expected = pd.read_csv(file, dtype=dtypes)
    result = read(file, dtypes=dtypes).compute()
    for name in expected:
        if name != "s" or (isinstance(dtypes, dict) and "s" not in dtypes):
            assert result[name].dtype == expected[name].dtype, name
    equal(result, expected)
    shares = [hyperplane.shard_rows(file, 2, idx, dtypes=dtypes) for idx in range(2)]
    equal(pd.concat(shares, ignore_index=True), expected)


@pytest.mark.parametrize(
    "dtypes", [{"n": None}, {"n": []}, {"n": "i4,f8"}, "category", {"n": "M8[ns]"}]
)
def test_dtypes_that_text_cannot_represent_are_refused(file, dtypes):
    with pytest.raises(RequestError, match="dtypes = "):
        read(file, dtypes=dtypes)


@pytest.mark.parametrize("value", [[["-"]], {"n": {"x": "-"}}, {"n": [["-"]]}, {"n": {}}])
def test_nested_na_values_are_refused(tmp_path, value):
    file = tmp_path / "a.csv"
    file.write_text("n\n1\n-\n")
    with pytest.raises(RequestError, match="na_values = "):
        read(file, na_values=value)
