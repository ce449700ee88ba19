"""Rows, bytes and high-cardinality columns of a Parquet dataset, from its footers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hyperplane.formats.parquet.footer_size import OFFSET
from hyperplane.formats.parquet.footer_size import value_width as width

#: Maximum footers that are read, evenly spaced over the files.
SAMPLED_FOOTERS = 32
#: Size in bytes at which writers of Parquet give up the dictionary of a column.
MAX_DICTIONARY = 1_500_000
#: Bytes of the length of a string in a Parquet file.
LENGTH_BYTES = 4


@dataclass(frozen=True)
class DatasetFooters:
    """Summary of the footers of a Parquet dataset; extrapolated if there are many files.

    Parameters
    ----------
    rows : int
        Rows of all files.
    columns : dict of str to int
        Bytes in memory of each column in all files.
    high_cardinality : frozenset of str
        Columns with so many distinct values that writers gave up their dictionary.
    """

    rows: int
    columns: dict[str, int]
    high_cardinality: frozenset[str]


def read_footers(read: Any) -> DatasetFooters | None:
    """Read the footers of the files of a ``ReadParquet`` step; None if they cannot be read."""
    try:
        return _summarize_footers(_list_fragments(read))
    except (AttributeError, KeyError, OSError, ValueError):
        return None


def _list_fragments(read: Any) -> list[Any]:
    info = read._dataset_info
    if "ds" in info:
        return list(info["ds"].get_fragments())
    return [wrapper.fragment for wrapper in info["fragments"]]


def _summarize_footers(fragments: list[Any]) -> DatasetFooters:
    """Read a sample of the footers and extrapolate to all files."""
    count = len(fragments)
    chosen = sorted(
        {round(step * (count - 1) / (SAMPLED_FOOTERS - 1)) for step in range(SAMPLED_FOOTERS)}
    )
    rows, columns, many = 0, dict[str, int](), set[str]()
    for place in chosen:
        footer = fragments[place].metadata
        rows += footer.num_rows
        for group in map(footer.row_group, range(footer.num_row_groups)):
            for index in range(group.num_columns):
                chunk = group.column(index)
                name = chunk.path_in_schema.partition(".")[0]
                wide = width(chunk, footer.schema, index)
                size = max(chunk.total_uncompressed_size, chunk.num_values * wide)
                columns[name] = columns.get(name, 0) + size
                if _has_abandoned_dictionary(chunk, wide):
                    many.add(name)
    scale = count / len(chosen)
    return DatasetFooters(
        round(rows * scale),
        {name: round(size * scale) for name, size in columns.items()},
        frozenset(many),
    )


def _has_abandoned_dictionary(chunk: Any, wide: int) -> bool:
    """Return whether a column chunk began with a dictionary and continued with plain values."""
    encodings = set(chunk.encodings)
    if chunk.physical_type == "BYTE_ARRAY":
        wide -= OFFSET - LENGTH_BYTES
    size = chunk.total_uncompressed_size
    return (
        bool(encodings & {"RLE_DICTIONARY", "PLAIN_DICTIONARY"})
        and size > MAX_DICTIONARY
        and size >= chunk.num_values * wide
    )
