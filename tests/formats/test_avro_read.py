"""Avro: the values that fastavro reads, in the types of the schema, in several partitions."""

from __future__ import annotations

import datetime as dt
import decimal
import uuid

import dask
import fastavro
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scale import scaled

from hyperplane.collections.frames.read import read
from hyperplane.errors import ReadError
from hyperplane.formats import partition_sizes
from hyperplane.formats.avro.read import AvroDecoder

UTC = dt.UTC
TIMES = st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2200, 1, 1))
DECIMALS = st.integers(-(10**9), 10**9).map(lambda i: decimal.Decimal(i).scaleb(-2))


def logical(base, name, **more):
    return {"type": base, "logicalType": name, **more}


KINDS = {
    "int": ("int", st.integers(-(2**31), 2**31 - 1)),
    "long": ("long", st.integers(-(2**63), 2**63 - 1)),
    "float": ("float", st.floats(width=32, allow_nan=False)),
    "double": ("double", st.floats(allow_nan=False)),
    "string": ("string", st.text(max_size=5)),
    "bytes": ("bytes", st.binary(max_size=5)),
    "boolean": ("boolean", st.booleans()),
    "day": (logical("int", "date"), st.dates(dt.date(1900, 1, 1), dt.date(2200, 1, 1))),
    "millis": (
        logical("long", "timestamp-millis"),
        TIMES.map(lambda t: t.replace(microsecond=0, tzinfo=UTC)),
    ),
    "micros": (logical("long", "timestamp-micros"), TIMES.map(lambda t: t.replace(tzinfo=UTC))),
    "local": (logical("long", "local-timestamp-micros"), TIMES),
    "decimal": (logical("bytes", "decimal", precision=12, scale=2), DECIMALS),
    "uuid": (logical("string", "uuid"), st.uuids()),
    "time": (logical("long", "time-micros"), st.times()),
    "word": (
        {"type": "enum", "name": "Word", "symbols": ["a", "b", "c"]},
        st.sampled_from("abc"),
    ),
    "list": ({"type": "array", "items": ["null", "long"]}, st.lists(st.none() | st.integers(0, 9))),
    "inner": (
        {"type": "record", "name": "Inner", "fields": [{"name": "z", "type": ["null", "int"]}]},
        st.fixed_dictionaries({"z": st.none() | st.integers(0, 9)}),
    ),
    # With one of the fields below fastavro has to read the whole file.
    "several": (["int", "string", "null"], st.none() | st.integers(0, 9) | st.text(max_size=3)),
    "numbers": (["int", "double"], st.floats(allow_nan=False) | st.integers(0, 9)),
    "map": ({"type": "map", "values": "long"}, st.dictionaries(st.text(max_size=2), st.just(1))),
}


@pytest.fixture(autouse=True)
def _one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


def write(path, fields, records, **options):
    schema = {"type": "record", "name": "row", "fields": fields}
    with path.open("wb") as file:
        fastavro.writer(file, schema, records, **options)


def expected(name, value):
    if value is None:
        return None
    if name == "several":
        return str(value)
    if name == "uuid":
        return str(value)
    if name == "decimal":
        return float(value)
    if name == "day":
        return pd.Timestamp(value)
    return list(value.items()) if name == "map" else value


def plain(value):
    if isinstance(value, (dict, str, bytes)):
        return value
    if hasattr(value, "__len__"):
        return list(value)
    return None if pd.isna(value) else value


@pytest.mark.slow
@settings(max_examples=scaled(10, 80), suppress_health_check=list(HealthCheck))
@given(
    data=st.data(),
    codec=st.sampled_from(["null", "deflate", "bzip2"]),
    parts=st.sampled_from([1, 3]),
)
def test_any_records_are_read_as_they_are(tmp_path_factory, monkeypatch, data, codec, parts):
    path = tmp_path_factory.mktemp("avro") / "a.avro"
    names = data.draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, unique=True))
    nullable = {name: data.draw(st.booleans()) for name in names}
    fields, values = [], {}
    for name in names:
        kind, strategy = KINDS[name]
        union = isinstance(kind, list)
        fields.append(
            {"name": name, "type": ["null", kind] if nullable[name] and not union else kind}
        )
        values[name] = st.none() | strategy if nullable[name] and not union else strategy
    records = data.draw(st.lists(st.fixed_dictionaries(values), max_size=12))
    write(path, fields, records, codec=codec, sync_interval=40)
    monkeypatch.setattr(partition_sizes, "MIN_PARTITION_SIZE", 1)
    df = read(path, partition_size=max(1, path.stat().st_size // parts))
    result = df.compute()
    assert result.dtypes.equals(df.dtypes)
    for name in names:
        assert [plain(value) for value in result[name].tolist()] == [
            expected(name, record[name]) for record in records
        ], name
        column = df[[name]].compute()
        assert [plain(v) for v in column[name].tolist()] == [
            plain(v) for v in result[name].tolist()
        ]


def test_dtypes_follow_from_the_schema(tmp_path):
    fields = [{"name": name, "type": kind} for name, (kind, _) in KINDS.items()]
    record = {
        "int": 1, "long": 1, "float": 1.0, "double": 1.0, "string": "", "bytes": b"",
        "boolean": True, "day": dt.date(2024, 1, 1), "millis": dt.datetime(2024, 1, 1, tzinfo=UTC),
        "micros": dt.datetime(2024, 1, 1, tzinfo=UTC), "local": dt.datetime(2024, 1, 1),
        "decimal": decimal.Decimal("1.25"), "uuid": uuid.UUID(int=1), "time": dt.time(1),
        "word": "b", "list": [], "inner": {"z": 1}, "several": "x", "numbers": 1, "map": {"k": 1},
    }  # fmt: skip
    write(tmp_path / "a.avro", fields, [record])
    df = read(tmp_path / "a.avro")
    assert {name: str(dtype) for name, dtype in df.dtypes.items()} == {
        "int": "int32",
        "long": "int64",
        "float": "float32",
        "double": "float64",
        "string": "str",
        "bytes": "large_binary[pyarrow]",
        "boolean": "bool",
        "day": "datetime64[ms]",
        "millis": "datetime64[ms, UTC]",
        "micros": "datetime64[us, UTC]",
        "local": "datetime64[us]",
        "decimal": "float64",
        "uuid": "str",
        "time": "time64[ns][pyarrow]",
        "word": "str",
        "list": "large_list<item: int64>[pyarrow]",
        "inner": "struct<z: int32>[pyarrow]",
        "several": "str",
        "numbers": "float64",
        "map": "map<large_string, int64>[pyarrow]",
    }
    exact = read(tmp_path / "a.avro", ["decimal"], decimals="exact").compute()
    assert exact.decimal[0] == decimal.Decimal("1.25")


def test_one_file_has_several_partitions_with_each_row_once(tmp_path, monkeypatch):
    rows = [{"n": i, "s": "x" * (i % 50)} for i in range(20_000)]
    fields = [{"name": "n", "type": "long"}, {"name": "s", "type": ["null", "string"]}]
    write(tmp_path / "a.avro", fields, rows, sync_interval=5_000)
    monkeypatch.setattr(partition_sizes, "MIN_PARTITION_SIZE", 1)
    for size in (7_919, 50_000, 200_000):
        df = read(tmp_path / "a.avro", partition_size=size)
        assert df.npartitions > 2
        assert df.n.compute().to_list() == list(range(20_000))
    filtered = read(tmp_path / "a.avro", ["s"], [("n", "in", [3, 19_999])], partition_size="50kB")
    assert filtered.compute().s.to_list() == ["xxx", "x" * 49]


def test_polars_decodes_supported_types(tmp_path, monkeypatch):
    fields = [
        {"name": "word", "type": ["null", {"type": "enum", "name": "W", "symbols": ["a", "b"]}]},
        {"name": "t", "type": logical("long", "timestamp-nanos")},
    ]
    write(tmp_path / "a.avro", fields, [{"word": "b", "t": 1}, {"word": None, "t": 2}])
    monkeypatch.setattr(AvroDecoder, "_decode_with_fastavro", None)
    df = read(tmp_path / "a.avro").compute()
    assert df.word.fillna("-").to_list() == ["b", "-"]
    assert df.t.to_list() == [pd.Timestamp(1, tz="UTC"), pd.Timestamp(2, tz="UTC")]


def test_named_types_are_read_and_recursive_records_are_refused(tmp_path):
    fixed = {"type": "fixed", "name": "Two", "size": 2}
    fields = [{"name": "a", "type": fixed}, {"name": "b", "type": ["null", "Two"]}]
    write(tmp_path / "a.avro", fields, [{"a": b"xy", "b": b"zw"}, {"a": b"xy", "b": None}])
    assert read(tmp_path / "a.avro").compute().b.isna().to_list() == [False, True]
    node = {"type": "record", "name": "Node", "fields": [{"name": "n", "type": ["null", "Node"]}]}
    write(tmp_path / "b.avro", [{"name": "n", "type": node}], [{"n": {"n": None}}])
    with pytest.raises(ReadError, match="contains itself"):
        read(tmp_path / "b.avro")
