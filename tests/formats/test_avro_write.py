"""Tables and bags as Avro, and values that Avro does not support."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import zoneinfo

import dask
import dask.bag as db
import dask.dataframe as dd
import fastavro
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hyperplane
from hyperplane.errors import DataError, ReadError, WrongType
from hyperplane.formats.avro.write import read_avro, write_avro
from hyperplane.formats.records import build_table


@pytest.fixture(autouse=True)
def _here():
    with dask.config.set({"scheduler": "sync", "dataframe.convert-string": False}):
        yield


def many_types():
    times = pd.to_datetime(["2024-03-31 00:59:59.123456789", None, "1900-01-01"], format="ISO8601")
    return pd.DataFrame(
        {
            "n": [1, 2, 3],
            "small": np.array([1, -2, 3], "int8"),
            "wide": np.array([1, 2, 2**62], "uint64"),
            "real": [0.1, np.nan, 1e300],
            "half": np.array([0.5, 1, 2], "float32"),
            "yes": [True, False, True],
            "perhaps": pd.array([True, None, False], dtype="boolean"),
            "whole": pd.array([1, None, 3], dtype="Int64"),
            "text": ["a", None, "ü\n"],
            "raw": [b"\x00", None, b"b"],
            "naive": times,
            "zoned": times.tz_localize("UTC").tz_convert("Europe/Berlin"),
            "seconds": times.as_unit("s"),
            "millis": times.as_unit("ms").tz_localize("UTC"),
            "day": [dt.date(2024, 1, 1), None, dt.date(1, 1, 1)],
            "clock": [dt.time(1, 2, 3, 4), None, dt.time(0)],
            "money": [decimal.Decimal("1.50"), None, decimal.Decimal("-99.99")],
            "gap": pd.to_timedelta([1, None, 3], unit="ms"),
            "list": [[1, 2], None, []],
            "inside": [{"a": 1, "b": ["x"]}, None, {"a": None, "b": []}],
        },
        index=pd.Index([10, 20, 30], name="key"),
    )


def test_the_types_of_a_frame_are_restored(tmp_path):
    frame = many_types()
    hyperplane.save(frame, tmp_path / "a.avro")
    assert not hyperplane.save(frame, tmp_path / "a.avro").changed
    result = hyperplane.load(tmp_path / "a.avro")
    # Lists and decimals are restored as from Parquet, which has all of these types.
    hyperplane.save(frame, tmp_path / "a.parquet")
    same = hyperplane.load(tmp_path / "a.parquet").astype({"seconds": "datetime64[s]"})
    pd.testing.assert_frame_equal(result, same)
    assert result.dtypes.drop(["list", "inside"]).equals(frame.dtypes.drop(["list", "inside"]))


def test_fastavro_reads_the_types_of_avro(tmp_path):
    frame = many_types()
    hyperplane.save(frame, tmp_path / "a.avro")
    with (tmp_path / "a.avro").open("rb") as opened:
        first, second, _ = fastavro.reader(opened)
    assert first["n"], first["text"] == (1, "a")
    assert first["seconds"] == dt.datetime(2024, 3, 31, 0, 59, 59)
    assert first["millis"] == dt.datetime(2024, 3, 31, 0, 59, 59, 123_000, tzinfo=dt.UTC)
    assert first["money"] == decimal.Decimal("1.50")
    assert (first["day"], first["clock"]) == (dt.date(2024, 1, 1), dt.time(1, 2, 3, 4))
    assert first["inside"] == {"a": 1, "b": ["x"]}
    assert (second["text"], second["real"], second["key"]) == (None, None, 20)
    ours = hyperplane.dataframe.read(str(tmp_path / "a.avro")).compute()
    assert ours.zoned.dt.tz_convert("Europe/Berlin").equals(frame.zoned.reset_index(drop=True))
    plain = frame[["n", "real", "text", "yes"]]
    hyperplane.save(plain, tmp_path / "b.avro")
    assert pl.read_avro(tmp_path / "b.avro").drop("key").rows() == [
        (1, 0.1, "a", True), (2, None, None, False), (3, 1e300, "ü\n", True),
    ]  # fmt: skip


def test_files_of_fastavro_are_read(tmp_path):
    schema = {
        "type": "record",
        "name": "r",
        "fields": [
            {"name": "n", "type": ["null", "int"]},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "word", "type": {"type": "enum", "name": "w", "symbols": ["A", "B"]}},
        ],
    }
    at = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    with (tmp_path / "a.avro").open("wb") as opened:
        rows = [{"n": None, "at": at, "word": "B"}, {"n": 1, "at": at, "word": "A"}]
        fastavro.writer(opened, schema, rows)
    result = hyperplane.load(tmp_path / "a.avro")
    assert result.word.to_list() == ["B", "A"]
    assert result["at"].to_list() == [pd.Timestamp(at)] * 2
    (tmp_path / "many").mkdir()
    for number in range(3):
        (tmp_path / "many" / f"{number}.avro").write_bytes((tmp_path / "a.avro").read_bytes())
    assert hyperplane.load(tmp_path / "many").word.compute().to_list() == ["B", "A"] * 3
    (tmp_path / "a.avro").write_bytes((tmp_path / "a.avro").read_bytes()[:-3])
    with pytest.raises(ReadError, match="damaged"):
        hyperplane.load(tmp_path / "a.avro")


def test_a_collection_has_one_schema_in_all_its_parts(tmp_path):
    frame = many_types().drop(columns=["list", "inside", "money", "day", "clock", "raw"])
    frame = pd.concat([frame] * 4).sort_index()
    frame["carrier"] = pd.Categorical(["AA", "UA"] * 6)
    df = dd.from_pandas(frame, npartitions=3)
    result = hyperplane.save(df, tmp_path / "out", format="avro")
    assert (result.files, result.rows) == (3, 12)
    assert not hyperplane.save(df, tmp_path / "out", format="avro").changed
    loaded = hyperplane.load(tmp_path / "out").compute()
    # Avro has no categories; they are restored as text.
    pd.testing.assert_frame_equal(loaded, frame.astype({"carrier": loaded.carrier.dtype}))
    schemas = []
    for file in sorted((tmp_path / "out").iterdir()):
        with file.open("rb") as opened:
            schemas.append(fastavro.reader(opened).metadata["avro.schema"])
    assert len(schemas) == 3
    assert len(set(schemas)) == 1


def test_avro_files_without_rows(tmp_path):
    frame = many_types().iloc[:0].drop(columns=["list", "inside"])
    hyperplane.save(dd.from_pandas(frame, npartitions=1), tmp_path / "out", format="avro")
    result = hyperplane.load(tmp_path / "out").compute()
    assert list(result.columns) == list(frame.columns)
    assert result.dtypes["zoned"] == frame.dtypes["zoned"]


@pytest.mark.parametrize(
    ("column", "values", "wrong"),
    [
        ("Flüge", [1], "ASCII letters.*; rename it$"),
        ("n", [1, "a"], "values of one type"),
        ("big", np.array([2**64 - 1], "uint64"), "convert it first"),
        ("z", [1 + 2j], "convert"),
        ("at", np.array(["10000-01-01"], "datetime64[us]"), "years 1 to 9999"),
        ("at", np.array(["-0001-01-01"], "datetime64[s]"), "years 1 to 9999"),
    ],
)
def test_a_column_that_avro_refuses_is_named(tmp_path, column, values, wrong):
    with pytest.raises(DataError, match=wrong) as caught:
        hyperplane.save(
            pd.DataFrame({"fine": values, column: values})[[column]], tmp_path / "a.avro"
        )
    assert caught.value.column == column
    assert not list(tmp_path.iterdir())


def test_the_first_and_the_last_times_are_restored(tmp_path):
    for unit in ("s", "ms", "us"):
        ends = ["0001-01-01T00:00:00", "9999-12-31T23:59:59"]
        frame = pd.DataFrame({"at": np.array(ends, f"datetime64[{unit}]")})
        hyperplane.save(frame, tmp_path / f"{unit}.avro")
        pd.testing.assert_frame_equal(hyperplane.load(tmp_path / f"{unit}.avro"), frame)


def test_equal_tables_give_equal_bytes():
    table = pa.table({"n": range(5000), "text": [str(n) for n in range(5000)]})
    data = write_avro(table)
    assert write_avro(table) == data
    assert write_avro(table.rename_columns(["m", "text"]))[-16:] != data[-16:]
    assert read_avro(data).equals(table)


def test_records_at_paths_that_differ_only_in_underscores_are_restored(tmp_path):
    rows = {
        "a": [{"b": {"c": {"d": 1}}}],
        "a_b": [{"c": {"d": "x"}, "e": None}],
        "a_b_c": [{"d": 1}],
    }
    data = write_avro(pa.table(rows))
    assert read_avro(data).to_pydict() == rows
    (tmp_path / "a.avro").write_bytes(data)
    frame = hyperplane.dataframe.read(tmp_path / "a.avro").compute()
    assert {name: frame[name].to_list() for name in rows} == rows


@pytest.mark.parametrize("form", ["avro", "orc", "parquet"])
@pytest.mark.parametrize("base", ["disk", "memory"])
def test_a_bag_of_dicts_is_restored(tmp_path, form, base):
    url = f"{tmp_path}/bag" if base == "disk" else f"memory://avro/{tmp_path.name}"
    items = [
        {"n": n, "text": f"ü{n}\n", "none": None, "x": n / 3, "in": {"a": [n], "b": None},
         "at": dt.datetime(2024, 1, 1, n, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin"))}
        for n in range(20)
    ]  # fmt: skip
    bag = db.from_sequence(items, npartitions=4)
    result = hyperplane.save(bag, url, format=form)
    assert (result.files, result.rows) == (4, 20)
    assert not hyperplane.save(bag, url, format=form).changed
    loaded = hyperplane.load(url)
    assert isinstance(loaded, db.Bag)
    assert loaded.compute() == items
    assert hyperplane.save(bag, url, format=form, mode="append").files == 8
    assert hyperplane.load(url).count().compute() == 40


def test_the_format_of_a_bag_follows_from_the_name(tmp_path):
    bag = db.from_sequence([{"n": 1}], npartitions=1)
    for end in ("parquet", "avro", "orc"):
        hyperplane.save(bag, tmp_path / f"a.{end}")
        (part,) = (tmp_path / f"a.{end}").iterdir()
        assert part.suffix == f".{end}"
        assert hyperplane.load(tmp_path / f"a.{end}").compute() == [{"n": 1}]
    empty = bag.filter(lambda item: item["n"] > 1)
    hyperplane.save(empty, tmp_path / "none.parquet")
    assert hyperplane.load(tmp_path / "none.parquet").compute() == []


@pytest.mark.parametrize("form", ["avro", "orc", "parquet"])
@pytest.mark.parametrize(
    ("items", "where", "field"),
    [
        ([{"n": 1}, "text"], "item 1", "item"),
        ([{"n": 1}, {}], "item 1", "item"),
        ([{"n": 1}, {"n": 2, "m": 3}], "item 1", "m"),
        ([{"n": 1, "m": 3}, {"n": 2}], "item 1", "m"),
        ([{"n": 1}, {"n": None}, {"n": "a"}], "item 2", "n"),
        ([{"n": {1, 2}}], "item 0", "n"),
        ([{"n": 2**70}], "item 0", "n"),
        ([{"n": {"a": 1}}, {"n": {"b": 1}}], "item 0", "n.b"),
        ([{1: 1}], "item 0", "the key 1"),
        ([{"n": [2**60 + 1, 0.5]}], "item 0", "n"),
    ],
)
def test_an_unsupported_item_is_named(tmp_path, items, where, field, form):
    with pytest.raises(WrongType) as caught:
        hyperplane.save(db.from_sequence(items, npartitions=1), tmp_path / "out", format=form)
    assert (caught.value.where, caught.value.field) == (where, field)
    assert not (tmp_path / "out").exists()


values = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(st.characters(codec="utf-8")),
    st.binary(), st.datetimes(), st.dates(), st.lists(st.integers()),
    st.dictionaries(st.sampled_from("ab"), st.integers()),
)  # fmt: skip


@given(st.lists(st.fixed_dictionaries({"n": values, "m": values}), max_size=4))
def test_items_are_restored_or_refused(items):
    try:
        table = build_table(items, "avro")
        data = write_avro(table)
    except (WrongType, DataError):
        return
    rows = read_avro(data).to_pylist()
    assert len(rows) == len(items)
    for row, item in zip(rows, items, strict=True):
        for name in ("n", "m"):
            both_nan = isinstance(item[name], float) and math.isnan(item[name])
            assert row[name] == item[name] or (both_nan and math.isnan(row[name]))
