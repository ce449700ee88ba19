"""Indexed tables as bytes, which other processes of the machine map without a copy."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import IO, Any

import polars as pl

from hyperplane.collections.frames.kernels.indexed_table import IndexedTable
from hyperplane.collections.frames.kernels.key_index import TextIndex, hash_texts

#: Bytes at whose multiples the columns and arrays begin, as Arrow recommends.
_ALIGNMENT = 64
#: Bytes of the position of what describes the columns and arrays; it is at the end.
_POSITION_BYTES = 8
#: Another build of Polars, or another processor, may have other hashes.
_PROBE = pl.Series(["", "a", "key of more than 16 characters"])


def _can_copy(table: IndexedTable) -> bool:
    """Return whether a copy has the same values; others are outside the columns, or nested."""
    return all(
        dtype.is_numeric()
        or dtype.is_temporal()
        or dtype in (pl.String, pl.Binary, pl.Boolean, pl.Null)
        for dtype in table.table.dtypes
    )


def dump_table(table: IndexedTable, file: IO[bytes]) -> None:
    """Write a table and its index to an empty file."""
    if not _can_copy(table):
        raise TypeError(f"a copy of {table.table.schema} may have other types")
    arrow = table.table.to_arrow(compat_level=pl.CompatLevel.newest())
    index = table.index
    if isinstance(index, TextIndex):  # its texts are a column
        index = replace(index, keys=index.keys.clear())
    buffers: list[pickle.PickleBuffer] = []
    content = (arrow, table.table.schema, table.key, index, hash_texts(_PROBE))
    described = pickle.dumps(content, protocol=5, buffer_callback=buffers.append)
    ranges = []
    for buffer in buffers:
        file.write(bytes(-file.tell() % _ALIGNMENT))
        with buffer.raw() as raw:
            ranges.append((file.tell(), raw.nbytes))
            file.write(raw)
    position = file.tell()
    pickle.dump((ranges, described), file)
    file.write(position.to_bytes(_POSITION_BYTES, "little"))


def load_table(content: memoryview) -> IndexedTable | None:
    """Return the table in the bytes of a file; None if this process has other types or hashes."""
    position = int.from_bytes(content[-_POSITION_BYTES:], "little")
    # Written by a process of the same user and cluster.
    ranges, described = pickle.loads(content[position:-_POSITION_BYTES])  # noqa: S301
    buffers = [content[first : first + size] for first, size in ranges]
    arrow, schema, key, index, probe = pickle.loads(described, buffers=buffers)  # noqa: S301
    table: Any = pl.from_arrow(arrow)
    if table.schema != schema or (probe != hash_texts(_PROBE)).any():
        return None
    if isinstance(index, TextIndex):
        index = replace(index, keys=table.get_column(key))
    return IndexedTable(table, key, index)
