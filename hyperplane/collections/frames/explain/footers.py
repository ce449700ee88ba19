"""What the footers behind a read of Parquet say: rows, bytes and many distinct values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hyperplane.sizing.footers import OFFSET
from hyperplane.sizing.footers import width_of as width

#: Footers that are looked at, spread evenly over the files.
SAMPLED_FOOTERS = 32
#: A dictionary of distinct values that grows beyond this is given up by the writers of Parquet.
MAX_DICTIONARY = 1_500_000
#: Bytes that a file takes to say how long a text is.
LENGTH_BYTES = 4


@dataclass(frozen=True)
class DatasetFooters:
    """The data of a whole Parquet data set, from some of its files where there are many.

    Parameters
    ----------
    rows : int
        Rows of all files.
    columns : dict of str to int
        Bytes in memory of each column, all files.
    many : frozenset of str
        Columns with so many distinct values that their dictionary was given up.
    """

    rows: int
    columns: dict[str, int]
    high_cardinality: frozenset[str]


def read_footers(read: Any) -> DatasetFooters | None:
    """The footers behind a ``read_parquet``; None where they cannot be read.

    Parameters
    ----------
    read : dask.dataframe.dask_expr.io.ReadParquet
        The step that reads.
    """
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
    """Whether a chunk began with a dictionary and then stored the plain values after all."""
    encodings = set(chunk.encodings)
    if chunk.physical_type == "BYTE_ARRAY":
        wide -= OFFSET - LENGTH_BYTES
    size = chunk.total_uncompressed_size
    return (
        bool(encodings & {"RLE_DICTIONARY", "PLAIN_DICTIONARY"})
        and size > MAX_DICTIONARY
        and size >= chunk.num_values * wide
    )
