"""Types that ORC has, those that are stored in wider ones, and those that are refused."""

from __future__ import annotations

import datetime as dt
import decimal

import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import orc

import hyperplane
from hyperplane.errors import DataError, HyperplaneError, ReadError
from hyperplane.formats.orc.write import decode_orc, encode_orc

#: Column, and the type that other programs read; None if it is not checked.
WIDER = [
    (pa.array([1, None], pa.uint8()), pa.int16()),
    (pa.array([2**32 - 1, None], pa.uint32()), pa.int64()),
    (pa.array([2**64 - 1, None], pa.uint64()), pa.decimal128(20, 0)),
    (pa.array([1.5, None], pa.float16()), pa.float32()),
    (pa.array(["a", None], pa.string_view()), pa.string()),
    (pa.array([b"ab", None], pa.binary(2)), pa.binary()),
    (pa.array([dt.time(1, 2, 3), None], pa.time32("s")), pa.int32()),
    (pa.array([dt.time(1, 2, 3, 4), None], pa.time64("us")), pa.int64()),
    (pa.array([dt.timedelta(1), None], pa.duration("ms")), pa.int64()),
    (pa.array([0, None], pa.timestamp("s")), pa.timestamp("ns")),
    (pa.array([0, None], pa.timestamp("us", "Europe/Berlin")), pa.timestamp("ns", "UTC")),
    (pa.array([None, None]), pa.string()),
    (pa.array([[1, 2], None], pa.list_(pa.uint8(), 2)), pa.list_(pa.int16())),
    (pa.array([[None], []], pa.list_(pa.null())), pa.list_(pa.string())),
    (pa.array([{"a": None}, None], pa.struct([("a", pa.null())])), pa.struct([("a", pa.string())])),
    (pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.uint8())), None),
    (pa.array([[[2**63], None], None], pa.large_list(pa.list_(pa.uint64()))), None),
]


@pytest.mark.parametrize(
    ("column", "stored_type"), WIDER, ids=[str(column.type) for column, _ in WIDER]
)
def test_a_type_that_orc_lacks_is_restored(column, stored_type):
    table = pa.table({"n": [1, 2], "x": column})
    data = encode_orc(table).data
    assert decode_orc(data).equals(table)
    if stored_type is not None:
        assert orc.ORCFile(pa.BufferReader(data)).schema.field("x").type == stored_type


@pytest.mark.parametrize(
    ("column", "wrong"),
    [
        (pa.array([decimal.Decimal(1)], pa.decimal256(50, 2)), "decimal256"),
        (pa.array([{}], pa.struct([])), "struct<>"),
        (pa.array([dt.datetime(1600, 1, 1)]), "out of bounds"),
        (pa.array([[dt.datetime(9999, 1, 1)]]), "out of bounds"),
        (pa.array([["a"]]).cast(pa.list_(pa.dictionary(pa.int32(), pa.string()))), "dictionary"),
        (pa.array([None], pa.month_day_nano_interval()), "interval"),
    ],
)
def test_an_unsupported_type_or_value_is_named(tmp_path, column, wrong):
    with pytest.raises(DataError, match=rf"column 'odd': ORC does not support it \(.*{wrong}") as e:
        hyperplane.save(pa.table({"n": [1], "odd": column}), tmp_path / "a.orc")
    assert e.value.column == "odd"
    assert not list(tmp_path.iterdir())


def test_categories_are_saved_as_their_values(tmp_path):
    frame = pd.DataFrame({"c": pd.Categorical(["a", None, "a"])})
    hyperplane.save(frame, tmp_path / "a.orc")
    assert hyperplane.load(tmp_path / "a.orc")["c"].fillna("").to_list() == ["a", "", "a"]


def test_rows_without_columns_are_refused(tmp_path):
    with pytest.raises(DataError, match="rows without columns"):
        hyperplane.save(pd.DataFrame(index=range(3)), tmp_path / "a.orc")


def test_equal_tables_give_equal_bytes():
    whole = pa.table({"n": list(range(5000)), "s": [str(n % 7) for n in range(5000)]})
    chunks = pa.concat_tables([whole.slice(0, 10), whole.slice(10)])
    assert bytes(encode_orc(whole).data) == bytes(encode_orc(chunks).data)


def test_files_of_other_programs_have_their_types(tmp_path):
    table = pa.table({"n": [1, None], "s": ["a", None]})
    orc.write_table(table, tmp_path / "a.orc")
    loaded = hyperplane.load(tmp_path / "a.orc")
    assert loaded["n"].to_list() == [1, pd.NA]


@pytest.mark.parametrize("cut", [0, 1, 10, 100])
def test_a_truncated_file_is_named(tmp_path, cut):
    hyperplane.save(pd.DataFrame({"n": range(100)}), tmp_path / "a.orc")
    data = (tmp_path / "a.orc").read_bytes()
    (tmp_path / "a.orc").write_bytes(data[: min(cut, len(data) - 1)])
    with pytest.raises(ReadError, match=r"a\.orc.*damaged") as caught:
        hyperplane.load(tmp_path / "a.orc")
    assert caught.value.url.endswith("a.orc")


@pytest.mark.parametrize(("name", "value"), [("renamed", 2), ("n", "text"), ("n", [2])])
def test_a_recorded_schema_of_other_columns_is_ignored(tmp_path, name, value):
    encoded = encode_orc(pa.table({"n": pa.array([1], pa.uint8())})).data
    metadata = orc.ORCFile(pa.BufferReader(encoded)).schema.field("n").metadata
    values = pa.array([value])
    field = pa.field(name, values.type, metadata=metadata)  # as pyarrow copies it
    orc.write_table(pa.table([values], schema=pa.schema([field])), tmp_path / "a.orc")
    read = hyperplane.dataframe.read(tmp_path / "a.orc").compute()
    for frame in (hyperplane.load(tmp_path / "a.orc"), read):
        assert list(frame.columns) == [name]
        assert pa.array(frame[name]).to_pylist() == [value]


@pytest.mark.parametrize(
    ("written", "edited"),
    [
        (pa.array([1, 2], pa.uint8()), pa.array([-5, 300], pa.int16())),
        (pa.array([None, None], pa.null()), pa.array(["x", None])),
        (pa.array([0, 1], pa.timestamp("s")), pa.array([1, 2], pa.timestamp("ns"))),
    ],
    ids=["uint8", "null", "seconds"],
)
def test_values_that_do_not_fit_the_recorded_type_keep_the_stored_type(tmp_path, written, edited):
    encoded = encode_orc(pa.table({"n": written, "u": pa.array([1, 2], pa.uint8())})).data
    stored = orc.ORCFile(pa.BufferReader(encoded)).read()
    orc.write_table(stored.set_column(0, stored.schema.field(0), edited), tmp_path / "a.orc")
    table = decode_orc((tmp_path / "a.orc").read_bytes())
    assert table.schema.types == [edited.type, pa.uint8()]
    assert table["n"].to_pylist() == edited.to_pylist()
    assert pa.array(hyperplane.load(tmp_path / "a.orc")["n"]).to_pylist()[1] == edited[1].as_py()


@pytest.mark.parametrize("column", [column for column, _ in WIDER], ids=lambda one: str(one.type))
def test_read_returns_the_types_that_parquet_has(tmp_path, column):
    table = pa.table({"n": [1, 2], "x": column})
    results = {}
    for form in ("orc", "parquet"):
        try:
            hyperplane.save(table, tmp_path / f"a.{form}")
            results[form] = hyperplane.dataframe.read(tmp_path / f"a.{form}").compute()["x"]
        except HyperplaneError:
            results[form] = None
    if results["parquet"] is not None:
        pd.testing.assert_series_equal(results["orc"], results["parquet"])


def test_read_refuses_values_that_do_not_fit_the_recorded_type_and_names_load(tmp_path):
    encoded = encode_orc(pa.table({"n": pa.array([1, 2], pa.uint8()), "m": [1, 2]})).data
    stored = orc.ORCFile(pa.BufferReader(encoded)).read()
    edited = stored.set_column(0, stored.schema.field(0), pa.array([-5, 300], pa.int16()))
    orc.write_table(edited, tmp_path / "a.orc")
    lazy = hyperplane.dataframe.read(tmp_path / "a.orc")
    with pytest.raises(ReadError, match=r"a\.orc.*column 'n'.*uint8.*hyperplane\.load"):
        lazy.compute()
    assert lazy[["m"]].compute()["m"].to_list() == [1, 2]
    assert hyperplane.load(tmp_path / "a.orc")["n"].to_list() == [-5, 300]
