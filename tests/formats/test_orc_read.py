"""ORC: types, stripes, names of columns, and damaged files."""

from __future__ import annotations

import datetime as dt
import decimal
import random
from pathlib import Path
from typing import Any

import dask
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import orc

from hyperplane import save, shard_rows
from hyperplane.calculator.measure import measure_files
from hyperplane.dataframe import read
from hyperplane.errors import ReadError, RequestError
from hyperplane.formats.orc import footers
from hyperplane.formats.orc.read import plan_partitions
from hyperplane.formats.request import ReadRequest
from hyperplane.objectstore.listing import find_files


@pytest.fixture(autouse=True)
def _in_this_thread() -> Any:
    with dask.config.set(scheduler="sync"):
        yield


def write(path: Path, table: pa.Table, **how: Any) -> Path:
    orc.write_table(table, path, **how)
    return path


def write_stripes(path: Path, rows: int = 1000) -> Path:
    table = pa.table({"n": range(rows), "s": [f"text {n}" for n in range(rows)]})
    write(path, table, batch_size=100, stripe_size=1000)
    assert orc.ORCFile(path).nstripes == rows // 100
    return path


TIME = dt.datetime(2024, 2, 29, 12, 30, 15, 123456)
UTC = dt.UTC
TYPES: dict[str, tuple[pa.DataType, list[Any], str]] = {
    "int8": (pa.int8(), [-128, 127, None], "Int8"),
    "int64": (pa.int64(), [-(2**63), 2**63 - 1, None], "Int64"),
    "float32": (pa.float32(), [0.5, -1.5, None], "float32"),
    "bool": (pa.bool_(), [True, False, None], "boolean"),
    "text": (pa.string(), ["ü", "", None], "str"),
    "date": (pa.date32(), [dt.date(1969, 12, 31), dt.date(2024, 2, 29), None], "datetime64[ms]"),
    "time": (pa.timestamp("ns"), [TIME, dt.datetime(1969, 12, 31), None], "datetime64[ns]"),
    "zone": (
        pa.timestamp("us", "Europe/Rome"),
        [TIME.replace(tzinfo=UTC), None, None],
        "datetime64[ns, UTC]",
    ),
    "decimal": (pa.decimal128(12, 2), [decimal.Decimal("1.50"), None, None], "float64"),
}


@pytest.mark.parametrize("name", TYPES)
def test_a_type_has_its_pandas_dtype(tmp_path: Path, name: str) -> None:
    kind, values, dtype = TYPES[name]
    frame = read(write(tmp_path / "a.orc", pa.table({"v": pa.array(values, kind)})))
    assert frame._meta.dtypes["v"] == dtype
    expected = pd.Series(values, name="v", dtype=None if name == "date" else dtype).astype(dtype)
    pd.testing.assert_series_equal(frame.compute().v, expected)
    pd.testing.assert_series_equal(shard_rows(tmp_path / "a.orc", 1, 0).v, expected)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.list_(pa.int64()), [[1, None], [], None]),
        (pa.struct([("x", pa.int8()), ("y", pa.string())]), [{"x": 1, "y": None}, None]),
        (pa.list_(pa.struct([("x", pa.float64())])), [[{"x": 1.5}], None]),
        (pa.map_(pa.string(), pa.int64()), [[("a", 1)], None]),
        (pa.binary(), [b"\x00\xff", None]),
    ],
)
def test_a_nested_type_has_its_values(tmp_path: Path, kind: pa.DataType, values: list[Any]) -> None:
    file = write(
        tmp_path / "a.orc", pa.table({"v": pa.array(values, kind), "n": range(len(values))})
    )
    assert pa.array(read(file).compute().v).to_pylist() == values
    assert read(file, columns=["n"]).compute().n.tolist() == list(range(len(values)))


def test_exact_decimals(tmp_path: Path) -> None:
    values = [decimal.Decimal("12345678901234567890.12"), None]
    file = write(tmp_path / "a.orc", pa.table({"v": pa.array(values, pa.decimal128(22, 2))}))
    assert read(file, decimals="exact").compute().v.tolist()[0] == values[0]


def test_types_that_orc_lacks_are_restored_by_read(tmp_path: Path) -> None:
    table = pa.table(
        {
            "small": pa.array([1, 255, None], pa.uint8()),
            "large": pa.array([2**64 - 1, 0, None], pa.uint64()),
            "length": pa.array([dt.timedelta(seconds=1), None, None], pa.duration("us")),
            "zone": pa.array([TIME, None, None], pa.timestamp("ms", "Europe/Rome")),
            "none": pa.nulls(3),
        }
    )
    save(table, tmp_path / "a.orc")
    frame = read(tmp_path / "a.orc")
    dtypes = ["UInt8", "UInt64", "timedelta64[us]", "datetime64[ms, Europe/Rome]", "str"]
    assert [str(dtype) for dtype in frame._meta.dtypes] == dtypes
    values = frame.compute()
    assert values.large.tolist()[:2] == [2**64 - 1, 0]
    pd.testing.assert_frame_equal(shard_rows(tmp_path / "a.orc", 1, 0), values)
    assert len(read(tmp_path / "a.orc", columns=["length"], filters=[("small", ">", 9)])) == 1


def test_a_time_out_of_range_is_an_error(tmp_path: Path) -> None:
    late = pa.array([dt.datetime(9999, 1, 1)], pa.timestamp("us"))
    write(tmp_path / "late.orc", pa.table({"t": late, "n": [1]}))
    with pytest.raises(ReadError, match=r"late\.orc.*out of range"):
        read(tmp_path / "late.orc").compute()
    assert read(tmp_path / "late.orc", columns=["n"]).compute().n.tolist() == [1]


def test_a_name_with_a_dot_is_not_a_nested_field(tmp_path: Path) -> None:
    table = pa.table({"a.b": [2], "a": [{"b": 3}], "": [4], "*": [5]})
    file = write(tmp_path / "a.orc", table)
    assert read(file, columns=["a.b"]).compute().iloc[0].tolist() == [2]
    assert read(file).compute().iloc[0].tolist() == [2, {"b": 3}, 4, 5]
    assert read(file, columns=[""], filters=[("*", "==", 5)]).compute().iloc[0].tolist() == [4]


@pytest.mark.parametrize("packed", ["uncompressed", "snappy", "zlib", "lz4", "zstd"])
def test_a_compressed_file_is_read(tmp_path: Path, packed: str) -> None:
    table = pa.table({"n": range(10)})
    assert len(read(write(tmp_path / "a.orc", table, compression=packed))) == 10


def test_a_partition_has_whole_stripes(tmp_path: Path) -> None:
    file = write_stripes(tmp_path / "a.orc")
    parts = plan_partitions(find_files(file), ReadRequest(partition_size=4000)).parts
    stripes = [stripe_range.stripes for part in parts for stripe_range in part.slices]
    assert len(parts) > 3
    assert [number for numbers in stripes for number in numbers] == list(range(10))


def test_whole_files_have_known_rows(tmp_path: Path) -> None:
    write_stripes(tmp_path / "a.orc")
    write_stripes(tmp_path / "b.orc", 500)
    parts = plan_partitions(find_files(tmp_path), ReadRequest()).parts
    assert [part.rows for part in parts] == [1500]


def test_a_shard_reads_its_stripes_and_counts_those_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        write_stripes(tmp_path / f"{name}.orc")
    read_stripe, calls = footers.read_stripe, []

    def counting(opened: Any, number: int, names: Any) -> Any:
        calls.append((number, sorted(names)))
        return read_stripe(opened, number, names)

    monkeypatch.setattr("hyperplane.formats.orc.read.read_stripe", counting)
    monkeypatch.setattr(footers, "read_stripe", counting)  # for estimates of sizes
    assert shard_rows(tmp_path, 4, 1).n.tolist() == [*range(750, 1000), *range(500)]
    counted = [(number, ["n"]) for number in range(10)] + [(number, ["n"]) for number in range(5)]
    loaded = [(number, ["n", "s"]) for number in (7, 8, 9, 0, 1, 2, 3, 4)]
    assert calls == counted + loaded
    calls.clear()
    assert shard_rows(tmp_path, 3, 1).n.tolist() == list(range(1000))
    assert calls == [(number, ["n", "s"]) for number in range(10)]


def test_the_size_of_long_text_is_estimated_from_a_sample(tmp_path: Path) -> None:
    table = pa.table({"s": [f"{n}" * 500 for n in range(2000)], "l": [[1.5] * 9] * 2000})
    write(tmp_path / "a.orc", table)
    size, how = measure_files(str(tmp_path / "a.orc"))
    assert table.nbytes / 2 < size < table.nbytes * 2
    assert how.startswith("footers of 1 ORC file and stripes of one, ")


def test_only_some_footers_of_very_many_files_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        write(tmp_path / f"{number}.orc", pa.table({"n": range(100), "x": [0.5] * 100}))
    whole, _ = measure_files(str(tmp_path))
    monkeypatch.setattr(footers, "SAMPLED_FOOTERS", 4)
    size, how = measure_files(str(tmp_path))
    assert size == pytest.approx(whole, rel=0.05)
    assert how.startswith("footers of 4 ORC files")


def test_a_type_that_polars_lacks_is_an_error_of_its_column(tmp_path: Path) -> None:
    union = pa.UnionArray.from_sparse(
        pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["a", "b"])]
    )
    try:
        write(tmp_path / "a.orc", pa.table({"u": union, "n": [1, 2]}))
    except pa.ArrowException as error:
        pytest.skip(str(error))
    with pytest.raises(RequestError, match="u: "):
        read(tmp_path / "a.orc")
    assert read(tmp_path / "a.orc", columns=["n"]).compute().n.tolist() == [1, 2]


@pytest.mark.parametrize("text", [b"", b"ORC", b"no ORC file at all" * 50])
def test_bytes_of_other_formats_are_refused(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "bad.orc").write_bytes(text)
    with pytest.raises(ReadError, match=r"bad\.orc"):
        read(tmp_path / "bad.orc")


def test_damaged_bytes_are_errors_or_give_rows(tmp_path: Path) -> None:
    whole = write_stripes(tmp_path / "a.orc").read_bytes()
    chance, errors = random.Random(5), []
    for number in range(60):
        damaged = bytearray(whole)
        for _ in range(chance.choice([1, 3, 30])):
            damaged[chance.randrange(len(whole))] = chance.randrange(256)
        path = tmp_path / f"damaged-{number}.orc"
        path.write_bytes(damaged)
        try:
            read(path).compute()
        except (ReadError, RequestError) as error:
            errors.append((str(path), str(error)))
    assert len(errors) > 10
    assert [error for path, error in errors if path not in error] == []


def test_the_size_of_a_damaged_file_is_a_fault(tmp_path: Path) -> None:
    file = write(tmp_path / "a.orc", pa.table({"n": range(100)}), compression="zlib")
    opened, data = orc.ORCFile(file), bytearray(file.read_bytes())
    footer = len(data) - 1 - opened.file_postscript_length - opened.file_footer_length
    data[footer + 3 : footer + 20] = b"\xff" * 17
    file.write_bytes(data)
    with pytest.raises(RequestError) as failed:
        measure_files(str(file))
    assert failed.value.faults[0].allowed.startswith("readable files (ReadError: ")


@pytest.mark.parametrize("rows", [1, 3])
def test_a_file_replaced_by_one_with_other_rows_is_an_error(
    tmp_path: Path, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(footers, "check_local_size", lambda file: None)  # as of equal size
    frame = read(write(tmp_path / "a.orc", pa.table({"a": [1, 2]})))
    write(tmp_path / "a.orc", pa.table({"a": list(range(rows))}))
    with pytest.raises(ReadError, match=f"2 rows when .* now has {rows}"):
        frame.compute()


def test_a_file_replaced_by_one_without_a_column_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(footers, "check_local_size", lambda file: None)  # as of equal size
    frame = read(write(tmp_path / "a.orc", pa.table({"a": [1, 2], "b": [1, 2]})))
    write(tmp_path / "a.orc", pa.table({"a": [1, 2]}))
    with pytest.raises(ReadError, match="column 'b' when"):
        frame.compute()


def test_text_that_grows_is_sampled_in_the_whole_file(tmp_path: Path) -> None:
    table = pa.table({"s": ["x" * (n // 100) for n in range(50_000)]})
    write(tmp_path / "a.orc", table, compression="zlib")
    size, _ = measure_files(str(tmp_path))
    assert table.nbytes / 2 < size < table.nbytes * 2
