"""Data sets written by Dask, pandas and other tools: hive keys and unnamed indexes."""

from __future__ import annotations

from decimal import Decimal

import dask
import dask.dataframe as dd
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import parquet

import hyperplane
from hyperplane.dataframe import group_agg, read, sort_values, value_counts
from hyperplane.errors import RequestError
from hyperplane.formats import hive_partitions


@pytest.fixture(autouse=True)
def _sync():
    with dask.config.set(scheduler="sync"):
        yield


#: Dask's ``to_parquet`` sets an index in place, which pandas deprecates.
notice_of_pandas = pytest.mark.filterwarnings("ignore:The inplace keyword")
FRAME = pd.DataFrame({"x": [1, 2, 3, 4], "city": ["Rome", "Oslo", "Rome", "Bonn"]})


@notice_of_pandas
def test_a_folder_written_by_dask_has_no_additional_column(tmp_path):
    dd.from_pandas(FRAME, npartitions=2).to_parquet(tmp_path / "plain")
    dd.from_pandas(FRAME, npartitions=2).to_parquet(tmp_path / "by", partition_on=["city"])
    assert list(read(tmp_path / "plain").columns) == ["x", "city"]
    assert list(read(tmp_path / "by").columns) == ["x", "city"]
    assert list(hyperplane.shard_rows(tmp_path / "by", 2, 1).columns) == ["x", "city"]
    df = group_agg(tmp_path / "by", "city", {"x": "sum"}).compute()
    assert df["x"].to_dict() == {"Bonn": 4, "Oslo": 2, "Rome": 4}
    assert value_counts(tmp_path / "plain", "city").compute().to_dict()["Rome"] == 2
    # The index is read if columns= names it.
    index = read(tmp_path / "plain", columns=["__null_dask_index__"]).compute()
    assert index["__null_dask_index__"].tolist() == [0, 1, 2, 3]


@notice_of_pandas
def test_an_index_without_a_name_may_differ_between_files(tmp_path):
    dd.from_pandas(FRAME, npartitions=1).to_parquet(tmp_path)  # __null_dask_index__
    FRAME.to_parquet(tmp_path / "range.parquet")  # none
    FRAME.iloc[[3, 0]].to_parquet(tmp_path / "some.parquet")  # __index_level_0__ of numbers
    FRAME.set_axis(list("abcd")).to_parquet(tmp_path / "text.parquet")
    for schema in ("strict", "union"):
        df = read(tmp_path, schema=schema).compute()
        assert list(df.columns) == ["x", "city"]
        assert df["x"].tolist() == [1, 2, 3, 4, 1, 2, 3, 4, 4, 1, 1, 2, 3, 4]


def test_negative_numbers_in_folders_are_numbers(tmp_path):
    frame = pd.DataFrame({"x": [1, 2, 3], "change": [-1, 10, 9]})
    frame.to_parquet(tmp_path, partition_cols=["change"])
    assert sort_values(read(tmp_path), "change").compute()["change"].tolist() == [-1, 9, 10]
    assert read(tmp_path, filters=[("change", "<", 0)]).compute()["x"].tolist() == [1]


@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl"])
def test_a_folder_without_a_value_makes_the_type_nullable(tmp_path, kind):
    for name in ("k=1", "k=2", "k=__HIVE_DEFAULT_PARTITION__", "other=7"):
        (tmp_path / name).mkdir()
        file = tmp_path / name / f"a.{kind}"
        if kind == "parquet":
            FRAME.to_parquet(file)
        elif kind == "csv":
            FRAME.to_csv(file, index=False)
        else:
            FRAME.to_json(file, orient="records", lines=True)
    df = read(tmp_path)
    assert df.dtypes[["k", "other"]].tolist() == ["Int64", "Int64"]
    assert {str(part.compute().dtypes["k"]) for part in df.partitions} == {"Int64"}
    result = df.compute()
    assert result["k"].to_list() == [1] * 4 + [2] * 4 + [pd.NA] * 8
    assert result["other"].to_list() == [pd.NA] * 12 + [7] * 4
    shares = [hyperplane.shard_rows(tmp_path, 4, number) for number in range(4)]
    assert {str(share.dtypes["k"]) for share in shares} == {"Int64"}


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["-1", "0", "7"], pl.Int64()),
        ([str(2**63 - 1), str(-(2**63))], pl.Int64()),
        ([str(2**63)], pl.String()),
        (["", "1"], pl.String()),
        (["-0"], pl.String()),
        (["+1"], pl.String()),
        (["9" * 5000], pl.String()),
    ],
)
def test_types_of_hive_keys(values, kind):
    keys, kinds, missing = hive_partitions.parse_hive_keys(
        [f"d/k={value}/0" for value in values], []
    )
    assert (kinds, missing) == ({"k": kind}, set())
    assert [str(pairs[0][1]) for pairs in keys.values()] == values


@notice_of_pandas
def test_load_has_the_columns_and_the_index_of_a_folder_that_dask_wrote(tmp_path):
    frame = FRAME.assign(n=[1, 1, 2, 2])
    dd.from_pandas(frame, npartitions=2).to_parquet(tmp_path / "by", partition_on=["city", "n"])
    dd.from_pandas(frame, npartitions=2).to_parquet(tmp_path / "plain")
    df = hyperplane.load(tmp_path / "by").compute().sort_values("x")
    assert df["city"].tolist() == FRAME["city"].tolist()
    assert df["n"].tolist() == [1, 1, 2, 2]
    assert hyperplane.load(tmp_path / "plain").index.name is None
    loaded = hyperplane.load(tmp_path / "plain").compute()
    pd.testing.assert_frame_equal(loaded, frame, check_dtype=False)  # Dask wrote "string"


@notice_of_pandas
def test_load_keeps_index_and_types_with_hive_columns(tmp_path):
    frame = pd.DataFrame(
        {
            "price": [Decimal("12345678901234567.89"), None, Decimal("1.00"), Decimal("2.00")],
            "many": pd.array([2**60 + 1, None, 3, 4], dtype="Int64"),
            "month": pd.period_range("2024-01", periods=4, freq="M"),
            "kind": pd.Categorical(["a", "b", "a", "b"]),
            "k": ["u", "u", "v", "v"],
            "g": [1, 1, 2, 2],
        },
        index=pd.Index([10, 20, 30, 40], name="id"),
    )
    frame.to_parquet(tmp_path / "of pandas", partition_cols=["k", "g"])
    loaded = hyperplane.load(tmp_path / "of pandas")
    pd.testing.assert_frame_equal(loaded.compute(), frame, check_dtype=False)
    assert loaded.dtypes[["many", "g"]].tolist() == ["Int64", "int64"]
    assert loaded[["g", "price"]].compute().columns.tolist() == ["g", "price"]
    dd.from_pandas(frame[["kind", "k"]], npartitions=2).to_parquet(
        tmp_path / "of dask", partition_on=["k"]
    )
    loaded = hyperplane.load(tmp_path / "of dask").compute()
    pd.testing.assert_frame_equal(loaded, frame[["kind", "k"]], check_dtype=False)
    table = pa.table({"x": [1, 2, 3], "g": [5, None, 7]})
    parquet.write_to_dataset(table, tmp_path / "missing", partition_cols=["g"])
    loaded = hyperplane.load(tmp_path / "missing").compute().sort_values("x")
    assert loaded["g"].to_list() == [5, pd.NA, 7]


def test_columns_after_an_interval_column_have_their_values(tmp_path):
    some = [bytes(range(16))] * 3
    table = pa.table(
        {
            "between": pa.array(pd.arrays.IntervalArray.from_breaks([0, 1, 2, 3])),
            "x": [100, 200, 300],
            "uuid": pa.ExtensionArray.from_storage(pa.uuid(), pa.array(some, pa.binary(16))),
            "binary": pa.array(some, pa.binary(16)),
        }
    )
    parquet.write_table(table, tmp_path / "a.parquet")
    df = read(tmp_path, columns=["x"], filters=[("x", ">", 150)]).compute()
    assert df["x"].tolist() == [200, 300]
    first = read(tmp_path, columns=["uuid", "binary"]).compute().iloc[0].tolist()
    assert first == ["00010203-0405-0607-0809-0a0b0c0d0e0f", some[0]]


def test_duplicate_column_names_are_refused(tmp_path):
    parquet.write_table(pa.table([[1], [2]], names=["a", "a"]), tmp_path / "0.parquet")
    for call in (read, lambda url: hyperplane.shard_rows(url, 1, 0)):
        with pytest.raises(RequestError, match=r"0\.parquet = 'a' twice"):
            call(tmp_path)


@pytest.mark.parametrize(
    ("one", "other", "helps"),
    [
        (pa.array([1]), pa.array([1.5]), True),
        (pa.array([True]), pa.array([1]), False),
        (pa.array([[1]]), pa.array([[1.5]]), False),
        (pa.array([1], pa.timestamp("us")), pa.array([1], pa.timestamp("us", "UTC")), False),
    ],
)
def test_union_is_advised_only_if_it_helps(tmp_path, one, other, helps):
    parquet.write_table(pa.table({"a": one}), tmp_path / "0.parquet")
    parquet.write_table(pa.table({"a": other}), tmp_path / "1.parquet")
    with pytest.raises(RequestError) as caught:
        read(tmp_path)
    assert ('schema="union"' in str(caught.value)) is helps
    if helps:
        assert read(tmp_path, schema="union").compute()["a"].tolist() == [1.0, 1.5]
    else:
        with pytest.raises(RequestError):
            read(tmp_path, schema="union")


@pytest.mark.parametrize("on_error", ["raise", "skip"])
@pytest.mark.parametrize("form", ["parquet", "csv", "jsonl", "avro", "orc"])
def test_columns_that_no_file_contains_have_all_rows(tmp_path, form, on_error):
    rows = pd.DataFrame({"city": ["Rome", "Oslo", "Bonn"], "x": [1, 2, 3]})
    for year in (2023, 2024):
        hyperplane.save(rows, tmp_path / f"year={year}" / f"rows.{form}")
    years = read(tmp_path, columns=["year"], on_error=on_error)
    assert years["year"].compute().tolist() == [2023] * 3 + [2024] * 3
    assert len(read(tmp_path, filters=[("year", "==", 2024)], on_error=on_error)["year"]) == 3
    if form != "avro":
        shares = [hyperplane.shard_rows(tmp_path, 2, idx, columns=["year"]) for idx in range(2)]
        assert pd.concat(shares)["year"].tolist() == [2023] * 3 + [2024] * 3


@pytest.mark.parametrize("on_error", ["raise", "skip"])
@pytest.mark.parametrize("form", ["parquet", "csv", "avro", "orc"])
def test_a_file_without_any_of_the_columns_has_all_its_rows(tmp_path, form, on_error):
    hyperplane.save(pd.DataFrame({"a": [1, 2]}), tmp_path / f"1.{form}")
    hyperplane.save(pd.DataFrame({"b": ["x", "y", "z"]}), tmp_path / f"2.{form}")
    frame = read(tmp_path, columns=["a"], schema="union", on_error=on_error).compute()
    assert frame["a"].tolist() == [1, 2, pd.NA, pd.NA, pd.NA]
