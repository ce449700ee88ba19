"""Small files whose metadata claims much data are errors."""

from __future__ import annotations

import io
import json
import struct

import pyarrow as pa
import pytest
from pyarrow import parquet

import hyperplane
from hyperplane import array, dataframe
from hyperplane.errors import DataError, ReadError, RequestError


def _varint(value):
    value, encoded = value << 1, b""
    while value & ~0x7F:
        encoded, value = encoded + bytes([(value & 0x7F) | 0x80]), value >> 7
    return encoded + bytes([value])


def _with_rows(path, rows):
    """Return a Parquet file of 3 rows whose footer declares another number."""
    opened = io.BytesIO()
    plain = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    parquet.write_table(pa.table({"a": [1, 2, 3]}), opened, **plain)
    raw = opened.getvalue()
    (length,) = struct.unpack("<I", raw[-8:-4])
    footer = raw[-8 - length : -8].replace(b"\x16\x06", b"\x16" + _varint(rows))
    path.write_bytes(raw[: -8 - length] + footer + struct.pack("<I", len(footer)) + b"PAR1")
    return path


def test_rows_larger_than_memory_are_an_error_that_names_the_number(tmp_path, monkeypatch):
    path = _with_rows(tmp_path / "x.parquet", 2**40)
    assert parquet.read_metadata(path).num_rows == 2**40

    def refuse(*args, **kwargs):  # as on a machine with too little memory
        raise pa.ArrowMemoryError("malloc of size 2199023255552 failed")

    monkeypatch.setattr(parquet, "read_table", refuse)
    with pytest.raises(ReadError, match="footer declares 1099511627776 rows, too many for memory"):
        hyperplane.load(path)
    honest = tmp_path / "y.parquet"
    parquet.write_table(pa.table({"a": [1, 2, 3]}), honest)
    with pytest.raises(MemoryError):  # for a file that is really that large
        hyperplane.load(honest)


def test_more_rows_than_a_file_can_hold_are_an_error_before_memory_is_taken(tmp_path):
    path = _with_rows(tmp_path / "x.parquet", 2**31)
    with pytest.raises(ReadError, match=r"declares 2147483648 rows, more than \d+ bytes can"):
        dataframe.read(path)


def test_a_footer_that_declares_too_many_rows_is_an_error(tmp_path):
    with pytest.raises(ReadError, match="footer declares 5 rows, and it holds 3"):
        hyperplane.load(_with_rows(tmp_path / "x.parquet", 5))


def test_json_nested_deeper_than_arrow_supports_is_an_error_of_the_column(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text('{"a":' + "[" * 200 + "1" + "]" * 200 + "}\n")
    with pytest.raises(DataError, match=r"column 'a': has a type that Arrow .*read_records"):
        dataframe.read(path)


def test_a_store_of_too_many_chunks_for_a_graph_is_an_error(tmp_path):
    folder = tmp_path / "x.zarr"
    (folder / "a").mkdir(parents=True)
    (folder / ".zgroup").write_text(json.dumps({"zarr_format": 2}))
    (folder / "a" / ".zattrs").write_text(json.dumps({"_ARRAY_DIMENSIONS": ["x", "y"]}))
    metadata = {
        "zarr_format": 2,
        "shape": [2**50, 3],
        "chunks": [1, 3],
        "dtype": "<f8",
        "order": "C",
    }
    metadata |= {"compressor": None, "fill_value": 0, "filters": None}
    (folder / "a" / ".zarray").write_text(json.dumps(metadata))
    with pytest.raises(RequestError, match="'a' has 1125899906842624 chunks; at most 10000000"):
        array.open_zarr_many([str(folder)])
