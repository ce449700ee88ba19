"""``read`` and ``load`` return the values of fastavro for every Avro type, or raise our errors."""

from __future__ import annotations

import datetime as dt
import decimal
import uuid

import dask
import fastavro
import pandas as pd
import pytest

import hyperplane
from hyperplane.errors import ReadError

UTC = dt.UTC
ODD = 2**53 + 1


def logical(base, name, **more):
    return {"type": base, "logicalType": name, **more}


def fixed(size, **more):
    return {"type": "fixed", "name": "F", "size": size, **more}


def record(**fields):
    return {
        "type": "record",
        "name": "R",
        "fields": [{"name": n, "type": t} for n, t in fields.items()],
    }


def enum():
    return {"type": "enum", "name": "E", "symbols": ["a", "b"]}


def array(items):
    return {"type": "array", "items": items}


def mapping(values):
    return {"type": "map", "values": values}


MICROS = logical("long", "timestamp-micros")
MONEY = logical("bytes", "decimal", precision=9, scale=2)
UUID = logical("string", "uuid")
MOMENT = dt.datetime(2024, 2, 29, 1, 2, 3, 4_000)
ID = uuid.UUID(int=2**100)
#: A type, values of it, and what they become where that is not the same.
TYPES = {
    "map": (mapping("long"), [{"a": ODD, "b": -1}, {}]),
    "map of null": (["null", mapping(["null", "double"])], [{"a": 0.5, "b": None}, None]),
    "map of records": (mapping(record(z=MICROS)), [{"k": {"z": MOMENT.replace(tzinfo=UTC)}}, {}]),
    "map of UUIDs": (mapping(UUID), [{"k": ID}], [{"k": str(ID)}]),
    "map of several": (mapping(["int", "string"]), [{"k": 1, "m": "x"}], [{"k": "1", "m": "x"}]),
    "list of maps": (array(mapping("string")), [[{"a": "x"}], []]),
    "list of several": (array(["int", "string"]), [[1, "x"], []], [["1", "x"], []]),
    "several": (["null", "int", "string"], [1, "x", None], ["1", "x", None]),
    "truth or number": (["boolean", "long"], [True, ODD], ["True", str(ODD)]),
    "number or bytes": (["long", "bytes"], [1, b"\xff"], ["1", "b'\\xff'"]),
    "record or number": ([record(z="int"), "long"], [{"z": 1}, 7], ["{'z': 1}", "7"]),
    "list or text": ([array("int"), "string"], [[1, 2], "x"], ["[1, 2]", "x"]),
    "decimal or text": ([MONEY, "string"], [decimal.Decimal("1.50"), "x"], ["1.50", "x"]),
    "time or text": ([MICROS, "string"], [MOMENT.replace(tzinfo=UTC), "x"]),
    "several in a record": (record(a=["int", "string"]), [{"a": 1}], [{"a": "1"}]),
    "int or long": (["int", "long"], [1, 2**60]),
    "int or float": (["int", "float"], [1, 0.5]),
    "enum": (enum(), ["a", "b"]),
    "enum or null": (["null", enum()], ["a", None]),
    "list of enums": (array(enum()), [["a", "b"], []]),
    "record of enum": (record(w=enum()), [{"w": "b"}]),
    "fixed": (fixed(3), [b"abc", b"\x00\xff\x01"]),
    "fixed or null": (["null", fixed(3)], [b"abc", None]),
    "duration": (fixed(12, logicalType="duration"), [b"\x01\0\0\0\x02\0\0\0\x03\0\0\0"]),
    "fixed UUID": (fixed(16, logicalType="uuid"), [ID.bytes]),
    "decimal": (MONEY, [decimal.Decimal("1.50"), decimal.Decimal("-99.99")]),
    "fixed decimal": (
        fixed(8, logicalType="decimal", precision=15, scale=3),
        [decimal.Decimal("-99.123")],
    ),
    "decimal of 38 digits": (
        logical("bytes", "decimal", precision=38, scale=10),
        [decimal.Decimal("1234567890123456789012345678.0123456789")],
    ),
    "list of decimals": (array(MONEY), [[decimal.Decimal("1.50")], []]),
    "micros": (MICROS, [MOMENT.replace(tzinfo=UTC, microsecond=7)]),
    "nanos": (
        logical("long", "timestamp-nanos"),
        [1, -5],
        [pd.Timestamp(1, tz="UTC"), pd.Timestamp(-5, tz="UTC")],
    ),
    "local millis": (logical("long", "local-timestamp-millis"), [MOMENT, dt.datetime(1, 1, 1)]),
    "local micros": (["null", logical("long", "local-timestamp-micros")], [MOMENT, None]),
    "list of times": (array(logical("long", "local-timestamp-micros")), [[MOMENT], []]),
    "UUID": (["null", UUID], [ID, None], [str(ID), None]),
    "time of day, ms": (logical("int", "time-millis"), [dt.time(23, 59, 59, 999_000)]),
    "time of day, us": (["null", logical("long", "time-micros")], [dt.time(1, 2, 3, 4), None]),
    "date": (logical("int", "date"), [dt.date(2024, 2, 29), dt.date(1, 1, 1)]),
    "unknown": (logical("long", "money"), [5, ODD]),
    "null": ("null", [None, None]),
    "empty record": (record(), [{}, {}]),
    "list of lists": (array(array("float")), [[[0.5]], [[]], []]),
}


def write(path, kind, values):
    schema = {"type": "record", "name": "row", "fields": [{"name": "c", "type": kind}]}
    data = path.with_suffix(".draft")
    with data.open("wb") as file:
        # fastavro does not write a fixed UUID, so it learns of that only when it reads the file.
        plain = {**kind, "logicalType": "xxxx"} if kind == TYPES["fixed UUID"][0] else kind
        fields = [{"name": "c", "type": plain}]
        fastavro.writer(file, {**schema, "fields": fields}, [{"c": value} for value in values])
    path.write_bytes(data.read_bytes().replace(b"xxxx", b"uuid"))
    data.unlink()


def values_of(column):
    arrow = isinstance(column.dtype, pd.ArrowDtype)
    values = column.array.__arrow_array__().to_pylist() if arrow else column.tolist()
    return [plain(value) for value in values]


def plain(value):
    """Return a value in the form of fastavro; in Arrow, maps are lists of pairs."""
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return {name: plain(item) for name, item in value}
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()} or []
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return pd.Timestamp(value.isoformat())
    return None if value is pd.NaT or value is pd.NA or value != value else value


@pytest.mark.parametrize("name", TYPES)
def test_values_equal_fastavro(tmp_path, name):
    kind, values, *others = TYPES[name]
    write(tmp_path / "a.avro", kind, values)
    expected = [plain(value) for value in (others[0] if others else values)]
    if name == "time or text":
        expected = [str(value) for value in expected]
    with dask.config.set(scheduler="sync"):
        frames = [
            hyperplane.dataframe.read(tmp_path / "a.avro", decimals="exact").compute(),
            hyperplane.load(tmp_path / "a.avro"),
            hyperplane.dataframe.read(tmp_path / "a.avro").compute(),
            hyperplane.load(tmp_path).compute(),
        ]
    for frame in frames[:2]:
        assert values_of(frame["c"]) == expected
    # Without decimals="exact", decimals are floats.
    as_floats = [float(v) if isinstance(v, decimal.Decimal) else v for v in expected]
    for frame in frames[2:]:
        assert values_of(frame["c"]) == as_floats


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        (["long", "double"], [ODD, 0.5], rf"column 'c': holds {ODD}, which double, the widest"),
        (array(["long", "double"]), [[ODD, 0.5]], rf"column 'c': holds \[{ODD}, 0.5\], which list"),
        (logical("bytes", "decimal", precision=40), [1], "a decimal of more than 38 digits"),
    ],
)
def test_an_unrepresentable_value_is_named(tmp_path, kind, values, message):
    values = [decimal.Decimal(value) for value in values] if "decimal" in str(kind) else values
    write(tmp_path / "a.avro", kind, values)
    with dask.config.set(scheduler="sync"):
        for load in (
            lambda: hyperplane.dataframe.read(tmp_path / "a.avro").compute(),
            lambda: hyperplane.load(tmp_path / "a.avro"),
        ):
            with pytest.raises(ReadError, match=rf"a\.avro: .*{message}"):
                load()
