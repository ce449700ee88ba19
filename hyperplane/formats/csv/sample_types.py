"""Parse samples of CSV files into the categories of the values of their columns."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import polars as pl
import pyarrow as pa

from hyperplane.core.units import MAX_EXACT_FLOAT
from hyperplane.formats.csv import inference, quotes
from hyperplane.formats.csv.decoder import CsvDialect, is_plain, parse_csv
from hyperplane.formats.csv.polars_parser import parse_records

_KINDS = (pl.Int64, pl.Float64, pl.String, pl.Boolean)


@dataclass
class ColumnValues:
    """What samples of files show of the values of their columns.

    Parameters
    ----------
    categories : dict of str to set of str
        Those of :func:`.inference.classify_values`, by column.
    missing : set of str
        Columns with missing values.
    nbytes, text_bytes : int
        Bytes in memory and of text.
    """

    categories: dict[str, set[str]] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)
    nbytes: int = 0
    text_bytes: int = 0

    def add(self, other: ColumnValues) -> None:
        """Add what other samples show."""
        for name, found in other.categories.items():
            self.categories.setdefault(name, set()).update(found)
        self.missing |= other.missing
        self.nbytes += other.nbytes
        self.text_bytes += other.text_bytes


def infer_types(text: bytes, dialect: CsvDialect) -> ColumnValues:
    """Parse a sample with pyarrow, which attempts one type of each column after the other.

    Raises
    ------
    pyarrow.ArrowInvalid
        If a row has the wrong number of values.
    """

    def as_text(names: Collection[str]) -> pa.Table:
        return parse_csv(text, dialect, dict.fromkeys(names, pa.string()))

    table = inference.match_pandas_types(parse_csv(text, dialect, None), text, as_text)
    columns = dict(zip(table.column_names, table.columns, strict=True))
    return ColumnValues(
        {name: inference.classify_values(column) for name, column in columns.items()},
        {name for name, column in columns.items() if column.null_count},
        table.nbytes,
        len(text),
    )


def parse_as_known(
    samples: Sequence[tuple[bytes, CsvDialect]], dialect: CsvDialect, known: ColumnValues
) -> ColumnValues | None:
    """Parse samples together with Polars, as the types of a sample that pyarrow has parsed.

    That takes a tenth of the time of :func:`infer_types`.

    Returns
    -------
    ColumnValues, optional
        None if a sample has other columns than ``dialect``, if a value has not its column's type,
        or if :func:`infer_types` could have found other categories.
    """
    texts = [text for text, _ in samples if text]
    if not texts:
        return ColumnValues()
    if any(replace(other, multiline=dialect.multiline) != dialect for _, other in samples):
        return None
    kinds = {
        name: inference.choose_type(known.categories.get(name, set()), complete=False)
        for name in dialect.names
    }
    if not is_plain(dialect) or any(kind not in _KINDS for kind in kinds.values()):
        return None
    if not all(quotes.is_sound(text, dialect.separator_bytes) for text in texts):
        return None
    data = b"".join(text if text.endswith(b"\n") else text + b"\n" for text in texts)
    integers = [f"c{n}" for n, kind in enumerate(kinds.values()) if kind == pl.Int64]
    # pyarrow takes an integer with a plus sign for a float.
    if integers and b"+" in data:
        return None
    records = parse_records(data, dialect.separator_bytes, kinds)
    if records is None or records.large_floats:
        return None
    frame = records.frame
    # Polars treats names such as ^x$ as patterns.
    frame.columns = [f"c{n}" for n in range(frame.width)]
    nulls = dict(zip(dialect.names, frame.null_count().row(0), strict=True))
    untyped = [name for name in dialect.names if known.categories[name] == {"nothing"}]
    if any(nulls[name] < frame.height for name in untyped):
        return None
    categories = {name: set(known.categories[name]) for name in dialect.names}
    for column in frame.select(integers):
        categories[dialect.names[int(column.name[1:])]] |= _classify_integers(column)
    # As long as in Arrow: the texts with an offset for each, and eight bytes for a number or one
    # bit for a boolean.
    strings = [name for name, kind in frame.schema.items() if kind == pl.String]
    lengths = frame.select(pl.col(strings).str.len_bytes().sum()).row(0) if strings else ()
    bits = sum(1 if kind == pl.Boolean else 64 for kind in frame.dtypes) - 32 * len(strings)
    nbytes = sum(lengths) + frame.height * bits // 8
    missing = {name for name, count in nulls.items() if count}
    return ColumnValues(categories, missing, nbytes, sum(map(len, texts)))


def _classify_integers(column: pl.Series) -> set[str]:
    ends = [end for end in (column.min(), column.max()) if isinstance(end, int)]
    if any(abs(end) > MAX_EXACT_FLOAT for end in ends):
        return inference.classify_values(pa.chunked_array([column.to_arrow()]))
    return {"negative" if min(ends, default=0) < 0 else "whole"}
