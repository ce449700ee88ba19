"""Avro files with wrong counts are errors, and neither exhaust memory nor crash the process."""

from __future__ import annotations

import io
import json
import zlib

import dask
import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hyperplane
from hyperplane import dataframe
from hyperplane.errors import ReadError
from hyperplane.formats.avro import counts as avro_counts
from hyperplane.formats.avro import schema as avro_schema
from hyperplane.formats.avro.counts import RecordCountCheck, WrongRecordCount

MARK = b"S" * 16
LAYOUT = {
    "type": "record",
    "name": "header",
    "fields": [
        {"name": "magic", "type": {"type": "fixed", "name": "magic", "size": 4}},
        {"name": "meta", "type": {"type": "map", "values": "bytes"}},
        {"name": "sync", "type": {"type": "fixed", "name": "sync", "size": 16}},
    ],
}


def number(value):
    opened = io.BytesIO()
    fastavro.schemaless_writer(opened, "long", value)
    return opened.getvalue()


def record(*kinds):
    fields = [{"name": f"f{number}", "type": kind} for number, kind in enumerate(kinds)]
    return {"type": "record", "name": "r", "fields": fields}


def written(path, schema, *blocks, codec="null"):
    opened = io.BytesIO()
    meta = {"avro.schema": json.dumps(schema).encode(), "avro.codec": codec.encode()}
    header = {"magic": b"Obj\x01", "meta": meta, "sync": MARK}
    fastavro.schemaless_writer(opened, LAYOUT, header)
    for count, data in blocks:
        packed = zlib.compress(data, wbits=-15) if codec == "deflate" else data
        opened.write(number(count) + number(len(packed)) + packed + MARK)
    path.write_bytes(opened.getvalue())
    return path


def read(path):
    with dask.config.set(scheduler="sync"):
        return dataframe.read(path).compute()


FIXED = {"type": "fixed", "name": "f", "size": 2**40}
ITSELF = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "r"}]}
DEEP = "int"
for _ in range(80):
    DEEP = {"type": "array", "items": DEEP}
WRONG = {
    "no fields": (record(), [(2**40, b"")], "without any bytes"),
    "null": (record("null"), [(2**40, b"")], "without any bytes"),
    "many blocks": (record("null"), [(400_000, b"")] * 3, "1200000 records without any bytes"),
    "fixed of 0": (record({**FIXED, "size": 0}), [(2**40, b"")], "without any bytes"),
    "int": (record("int"), [(2**40, b"\2\2")], "2 bytes declares 1099511627776 rec"),
    "union": (record(["null", "string"]), [(3, b"\0\0")], "declares 3 records"),
    "double": (record("double", "int"), [(2, b"\0" * 17)], "17 bytes declares 2 rec"),
    "negative": (record("int"), [(-5, b"\2\2")], "declares -5 records"),
    "fixed": (record(FIXED), [(1, b"ab")], "declares 1 records"),
    "arrays": (record({"type": "array", "items": "null"}), [(1, number(2**40) + b"\0")],
               "items of zero bytes"),
    "itself": (ITSELF, [(1, b"\2\2")], "contains itself"),
    "deep": (record(DEEP), [(1, b"\0")], "nested more than 50 levels deep"),
}  # fmt: skip


@pytest.mark.parametrize("load", [hyperplane.load, read])
@pytest.mark.parametrize("case", WRONG)
def test_impossible_record_counts_are_errors(case, load, tmp_path):
    schema, blocks, message = WRONG[case]
    with pytest.raises(ReadError, match=message):
        load(written(tmp_path / "x.avro", schema, *blocks))


@pytest.mark.parametrize("load", [hyperplane.load, read])
def test_records_that_refer_to_each_other_are_read_up_to_a_limit(load, tmp_path, monkeypatch):
    kinds = [record("int") | {"name": "r0"}]
    for number in range(1, 7):  # each type contains the previous one twice
        kinds.append(record(f"r{number - 1}", f"r{number - 1}") | {"name": f"r{number}"})
    path = written(tmp_path / "x.avro", {**record(*kinds), "name": "all"})
    assert len(load(path)) == 0
    monkeypatch.setattr(avro_schema, "_MAX_TYPES", 100)
    with pytest.raises(ReadError, match="expand to more than 100 types"):
        load(path)


@pytest.mark.parametrize("load", [hyperplane.load, read])
def test_compressed_blocks_are_checked_by_their_uncompressed_size(load, tmp_path):
    blocks = [(2**31, b"\0" * 5_000_000)]
    with pytest.raises(ReadError, match="5000000 bytes declares 2147483648 records"):
        load(written(tmp_path / "x.avro", record("int"), *blocks, codec="deflate"))


def test_a_block_with_a_high_compression_ratio_is_read(tmp_path):
    rows = 1_500_000
    path = written(tmp_path / "x.avro", record("int"), (rows, b"\2" * rows), codec="deflate")
    assert path.stat().st_size < rows / 500
    assert read(path)["f0"].sum() == rows


@pytest.mark.parametrize("load", [hyperplane.load, read])
def test_records_without_bytes_are_read_up_to_the_limit(load, tmp_path, monkeypatch):
    monkeypatch.setattr(avro_counts, "MAX_EMPTY_RECORDS", 3)
    path = written(tmp_path / "x.avro", record("null"), (2, b""), (1, b""))
    assert len(load(path)) == 3


VALUES = st.recursive(
    st.sampled_from(
        [("null", None), ("boolean", True), ("int", 0), ("double", 0.0), ("string", "")]
    ),
    lambda inner: st.one_of(
        inner.map(lambda case: (["null", case[0]] if case[0] != "null" else ["null"], None)),
        st.lists(inner, max_size=3).map(
            lambda cases: (
                {"type": "record", "name": f"r{abs(hash(str(cases)))}", "fields": [
                    {"name": f"f{number}", "type": kind} for number, (kind, _) in enumerate(cases)
                ]},
                {f"f{number}": value for number, (_, value) in enumerate(cases)},
            )
        ),
        inner.map(lambda case: ({"type": "map", "values": case[0]}, {})),
    ),
    max_leaves=6,
)  # fmt: skip


@given(case=VALUES.filter(lambda case: not isinstance(case[0], list)), count=st.integers(1, 5))
def test_the_smallest_records_are_never_refused(case, count):
    kind, value = case
    schema = record(kind)
    try:
        parsed = fastavro.parse_schema(schema)
    except Exception:  # noqa: BLE001 - a name twice
        return
    opened = io.BytesIO()
    for _ in range(count):
        fastavro.schemaless_writer(opened, parsed, {"f0": value})
    size = len(opened.getvalue())
    counts = RecordCountCheck(schema)
    counts.check(count, size)
    if size:
        with pytest.raises(WrongRecordCount):
            counts.check(count + size + 1, size)


ENUM = {"type": "enum", "name": "e", "symbols": ["x", "y"]}
POINT = {"type": "record", "name": "p", "fields": [{"name": "v", "type": "long"}]}
BY_NAME = {
    "enum": (ENUM, "e", "x"),
    "fixed": ({"type": "fixed", "name": "f", "size": 2}, "f", b"ab"),
    "in a map": ({"type": "map", "values": POINT}, "p", {"v": 1}),
    "in a union": (["null", ENUM], "e", "y"),
    "of a namespace": ({**ENUM, "namespace": "n.s"}, "n.s.e", "x"),
}


@pytest.mark.parametrize("load", [hyperplane.load, read])
@pytest.mark.parametrize("case", BY_NAME)
def test_arrays_of_a_type_that_an_earlier_field_defines_are_read(case, load, tmp_path):
    kind, name, item = BY_NAME[case]
    schema = record(kind, {"type": "array", "items": name})
    first = {"k": item} if case == "in a map" else item
    with (tmp_path / "x.avro").open("wb") as opened:
        fastavro.writer(opened, schema, [{"f0": first, "f1": [item, item]}] * 3)
    table = load(tmp_path / "x.avro")
    assert [list(values) for values in table["f1"]] == [[item, item]] * 3
