"""Files of different columns: an error that names all differences, or ``schema="union"``."""

from __future__ import annotations

import datetime as dt
import decimal

import dask
import fastavro
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from hyperplane.collections.frames.read import read
from hyperplane.errors import RequestError


@pytest.fixture(autouse=True)
def _one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


def write(path, **columns):
    parquet.write_table(pa.table(columns), path)


@pytest.fixture
def mixed(tmp_path):
    write(tmp_path / "0.parquet", n=pa.array([1], pa.int32()), s=["a"], old=[1.5])
    write(tmp_path / "1.parquet", s=["b"], n=pa.array([2**40]), new=[True], old=pa.nulls(1))
    write(tmp_path / "2.parquet", n=[0.5], s=pa.nulls(1))
    return tmp_path


def test_all_differences_are_named(mixed):
    with pytest.raises(RequestError) as caught:
        read(mixed)
    differences = {(fault.where.rpartition("/")[2], fault.asked) for fault in caught.value.faults}
    assert differences == {
        ("1.parquet", "n: Int64"),
        ("1.parquet", "new: Boolean"),
        ("2.parquet", "n: Float64"),
        ("2.parquet", "old: no such column"),
    }
    assert 'schema="union"' in str(caught.value)


def test_union_widens_types_and_fills_missing_columns(mixed):
    df = read(mixed, schema="union")
    whole = df.compute()
    assert [str(dtype) for dtype in whole.dtypes] == ["float64", "str", "float64", "boolean"]
    assert whole.n.to_list() == [1.0, 2.0**40, 0.5]
    assert whole.s.fillna("-").to_list() == ["a", "b", "-"]
    assert whole.old.fillna(0).to_list() == [1.5, 0, 0]
    assert whole.new.to_list() == [pd.NA, True, pd.NA]
    split = read(mixed, schema="union", partition_size="1B", filters=[("new", "not null")])
    assert split.compute().s.to_list() == ["b"]
    assert len(read(mixed, ["new"], [("new", "is null")], schema="union").compute()) == 2


def test_order_of_columns_does_not_matter(tmp_path):
    write(tmp_path / "0.parquet", a=[1], b=["x"])
    write(tmp_path / "1.parquet", b=["y"], a=[2])
    df = read(tmp_path).compute()
    assert df.to_dict("list") == {"a": [1, 2], "b": ["x", "y"]}


def test_types_without_a_common_type_are_refused_in_any_mode(tmp_path):
    for number in range(5):
        write(tmp_path / f"{number}.parquet", a=[1] if number == 0 else ["x"])
    with pytest.raises(RequestError, match=r"and 1 more = a: String.*Int64, as in .*0\.parquet"):
        read(tmp_path, schema="union")


@pytest.mark.parametrize(
    ("first", "second", "call"),
    [
        ("Europe/Berlin", "UTC", "tz_convert('Europe/Berlin')"),
        ("Europe/Berlin", None, "tz_localize('Europe/Berlin')"),
        (None, "UTC", "tz_localize('UTC')"),
    ],
)
@pytest.mark.parametrize("mode", ["strict", "union"])
def test_times_of_different_zones_are_refused_with_advice(tmp_path, first, second, call, mode):
    for number, zone in enumerate((first, second)):
        write(tmp_path / f"{number}.parquet", at=pa.array([1], pa.timestamp("us", zone)))
    with pytest.raises(RequestError) as caught:
        read(tmp_path, schema=mode)
    [fault] = caught.value.faults
    assert fault.advice.endswith(f"as with df.assign(at=df['at'].dt.{call})")


def test_equivalent_column_types_are_not_a_difference(tmp_path):
    money = [decimal.Decimal("1.50")]
    write(tmp_path / "0.parquet", a=pa.array(money, pa.decimal128(9, 2)), s=pa.array(["x"]))
    write(
        tmp_path / "1.parquet",
        a=pa.array(money, pa.decimal128(15, 2)),
        s=pa.array(["y"]).dictionary_encode(),
    )
    assert read(tmp_path).compute().to_dict("list") == {"a": [1.5, 1.5], "s": ["x", "y"]}
    with pytest.raises(RequestError, match="Decimal"):
        read(tmp_path, decimals="exact")
    exact = read(tmp_path, decimals="exact", schema="union").compute()
    assert exact.a.to_list() == money * 2


def test_date32_and_date64_are_not_a_difference(tmp_path):
    day = [dt.date(2024, 1, 1)]
    write(tmp_path / "0.parquet", d=pa.array(day, pa.date32()))
    write(tmp_path / "1.parquet", d=pa.array(day, pa.date64()))
    assert read(tmp_path).compute().d.to_list() == [pd.Timestamp("2024-01-01")] * 2


def test_differences_between_csv_files_and_between_avro_files(tmp_path):
    (tmp_path / "0.csv").write_text("a,b\n1,2\n")
    (tmp_path / "1.csv").write_text("b,c\n5,x\n")
    with pytest.raises(RequestError) as caught:
        read([tmp_path / "0.csv", tmp_path / "1.csv"])
    assert len(caught.value.faults) == 2
    df = read(tmp_path / "*.csv", schema="union").compute()
    assert df.b.to_list() == [2, 5]
    assert df.a.isna().to_list() == [False, True]
    assert df.c.fillna("-").to_list() == ["-", "x"]
    for number, kind in enumerate(("int", "long")):
        schema = {"type": "record", "name": "r", "fields": [{"name": "n", "type": kind}]}
        with (tmp_path / f"{number}.avro").open("wb") as file:
            fastavro.writer(file, schema, [{"n": number}])
    with pytest.raises(RequestError, match="n: Int64"):
        read(tmp_path / "*.avro")
    assert read(tmp_path / "*.avro", schema="union").compute().n.to_list() == [0, 1]
