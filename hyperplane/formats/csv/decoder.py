"""Decode CSV with Polars or pyarrow, with the types inferred from samples."""

from __future__ import annotations

import codecs
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import polars as pl
import pyarrow as pa
from polars import selectors
from pyarrow import csv as arrow_csv

from hyperplane.core.errors import ReadError
from hyperplane.formats import text_errors, time_formats
from hyperplane.formats.byte_ranges import ByteRange
from hyperplane.formats.csv import inference, quotes
from hyperplane.formats.csv.missing_values import PANDAS_MISSING, MissingValues
from hyperplane.formats.csv.polars_parser import FALSE, TRUE, parse_records
from hyperplane.formats.polars_frames import columns
from hyperplane.formats.time_formats import TimeFormat
from hyperplane.objectstore.locations import File

#: UTF-8 byte order mark.
BOM = b"\xef\xbb\xbf"
#: Block sizes of pyarrow: one that fits into the CPU cache, and one for longer rows.
BLOCK = 1 << 20
LARGE_BLOCK = 1 << 27
#: A byte of a row. It is the first one, if there is any; ``bytes.strip`` would copy the data.
_ROW = re.compile(rb"[^\r\n]")
_BAD_VALUE = re.compile(
    r"In CSV column #(\d+): (?:Row #(\d+): )?CSV conversion error to ([^:]+): (.*)"
)
_BAD_ROW = re.compile(
    r"CSV parse error: (?:Row #(\d+): )?(Expected \d+ columns, got \d+): (.*)", re.DOTALL
)


@dataclass(frozen=True)
class CsvDialect:
    """Columns, separator, encoding and missing values of a CSV file.

    Parameters
    ----------
    names : tuple of str
        All columns, in the order of the file.
    separator, encoding : str
        Separator and encoding of the file.
    multiline : bool
        Whether quoted values may contain line ends.
    missing : MissingValues
        Additional texts that are missing values.
    """

    names: tuple[str, ...]
    separator: str
    encoding: str
    multiline: bool
    missing: MissingValues = field(default_factory=MissingValues)

    @property
    def separator_bytes(self) -> bytes:
        """The separator in the encoding of the file."""
        return self.separator.encode(self.encoding)


@dataclass(frozen=True)
class CsvDecoder:
    """Decodes byte ranges of a CSV file, without its header, into columns.

    Parameters
    ----------
    dialect : CsvDialect
        The format of the file.
    kinds : tuple of polars.DataType
        The type of each column of the file.
    times : tuple of (str, TimeFormat)
        The columns to parse as times.
    declared : tuple of str
        The columns whose type the caller set.
    non_nullable : tuple of str
        Those of them whose pandas type has no missing values.
    """

    dialect: CsvDialect
    kinds: tuple[pl.DataType, ...]
    times: tuple[tuple[str, TimeFormat], ...] = ()
    declared: tuple[str, ...] = ()
    non_nullable: tuple[str, ...] = ()

    @property
    def record_end(self) -> bytes:
        """A line end."""
        return b"\n"

    def decode(self, byte_range: ByteRange, names: Collection[str]) -> pl.DataFrame:
        """Decode some columns of a byte range; missing values are null, never NaN.

        Raises
        ------
        ReadError
            If a value does not fit its column's type, or a row has the wrong number of values.
        """
        data = byte_range.read_data()
        sound = self._check_quotes(data, byte_range)
        frame = self._decode_with_polars(data, names, byte_range) if sound else None
        if frame is None:
            frame = self._decode_with_pyarrow(data, names, byte_range)
        locate_row = partial(locate_record, self.dialect, data, byte_range.file, byte_range.start)
        text_errors.check_non_nullable(frame, self.non_nullable, byte_range.file.url, locate_row)
        return frame.with_columns(
            time_formats.parse_column(
                frame.get_column(name), time_format, byte_range.file.url, locate_row
            )
            for name, time_format in self.times
            if name in names
        )

    def _decode_with_polars(
        self, data: bytes, names: Collection[str], byte_range: ByteRange
    ) -> pl.DataFrame | None:
        """Decode with Polars; None if pyarrow must decode the data, or find what is wrong."""
        # Polars checks the number of values of each row only if it returns all columns. For less
        # than half of them pyarrow, which always checks that, costs less.
        if 2 * len(names) < len(self.dialect.names) or not is_plain(self.dialect):
            return None
        texts = {*dict(self.times), *set(self.dialect.names).difference(names)}
        records = parse_records(
            data,
            self.dialect.separator_bytes,
            {
                name: pl.String() if name in texts else kind
                for name, kind in zip(self.dialect.names, self.kinds, strict=True)
            },
        )
        if records is None:
            return None
        frame = records.frame
        large = {name: frame.get_column(name).to_arrow() for name in records.large_floats}
        try:
            self._check_inexact(data, large, byte_range)
        except pa.ArrowInvalid:
            return None
        return frame.select(columns(names))

    def _decode_with_pyarrow(
        self, data: bytes, names: Collection[str], byte_range: ByteRange
    ) -> pl.DataFrame:
        """Decode with pyarrow, whose errors have the row and the value."""
        types = {
            name: pa.string() if name in dict(self.times) else to_arrow_type(kind)
            for name, kind in zip(self.dialect.names, self.kinds, strict=True)
            if name in names
        }
        selected = {name: types[name] for name in names}
        try:
            table = parse_csv(data, self.dialect, selected)
            self._check_hexadecimal(data, selected, byte_range)
            self._check_inexact(
                data, dict(zip(table.column_names, table.columns, strict=True)), byte_range
            )
        except pa.ArrowInvalid as error:
            raise ReadError(
                byte_range.file.url, self._describe_error(error, data, byte_range)
            ) from error
        frame = pl.DataFrame(pl.from_arrow(table, rechunk=False))
        return frame.with_columns(selectors.float().fill_nan(None))

    def _check_quotes(self, data: bytes, byte_range: ByteRange) -> bool:
        """Return whether all quotes are around values; raise for one that is not closed."""
        if quotes.is_sound(data, self.dialect.separator_bytes):
            return True
        offset = quotes.find_unclosed_quote(data, self.dialect.separator_bytes)
        problem = ""
        if offset is not None:
            location = text_errors.locate_line(
                byte_range.file, byte_range.start, data.count(b"\n", 0, offset) + 1
            )
            problem = text_errors.describe_open_quote(
                location, text_errors.excerpt_line(data, offset)
            )
        divided = not self.dialect.multiline and not byte_range.file.compression
        odd = data.count(b'"') % 2 == 1
        if divided and (odd or problem):
            # Then the start of this range, or of one before, may be inside a quoted value.
            what = "an odd number of quotes" if odd else "misplaced quotes"
            problem = (
                f"{what} in bytes {byte_range.start} to {byte_range.stop}: a quote is not "
                "closed, or a quoted value contains line ends; "
                f"for the latter write multiline=True{problem and '. Possible cause: '}{problem}"
            )
        if problem:
            raise ReadError(byte_range.file.url, problem)
        return False

    def _check_hexadecimal(
        self, data: bytes, types: dict[str, pa.DataType], byte_range: ByteRange
    ) -> None:
        """Reject hexadecimal numbers, which pyarrow parses as integers and pandas as text."""
        integers = [name for name, kind in types.items() if pa.types.is_integer(kind)]
        if not integers or not inference.may_be_hexadecimal(data):
            return
        texts = parse_csv(data, self.dialect, dict.fromkeys(integers, pa.string()))
        for name in integers:
            row = inference.find_hexadecimal(texts.column(name))
            if row is not None:
                text = texts.column(name)[row].as_py()
                location = locate_record(self.dialect, data, byte_range.file, byte_range.start, row)
                problem = text_errors.describe_value(
                    name, text, str(types[name]), name in self.declared, location
                )
                raise ReadError(byte_range.file.url, problem)

    def _check_inexact(
        self, data: bytes, numbers: Mapping[str, Any], byte_range: ByteRange
    ) -> None:
        """Reject integers that float64 cannot represent, unless the caller set the type."""
        suspect = [
            name
            for name, column in numbers.items()
            if name not in self.declared and inference.may_be_inexact(column)
        ]
        if not suspect:
            return
        texts = parse_csv(data, self.dialect, dict.fromkeys(suspect, pa.string()))
        for name in suspect:
            row = inference.find_inexact(numbers[name], texts.column(name))
            if row is not None:
                text = texts.column(name)[row].as_py()
                location = locate_record(self.dialect, data, byte_range.file, byte_range.start, row)
                raise ReadError(
                    byte_range.file.url,
                    f"column {name!r} holds {text}, which float64 cannot represent exactly, and "
                    f"the column also contains fractions ({location}); write "
                    f"dtypes={{{name!r}: 'str'}} to keep all digits, or 'float64' to round",
                )

    def _describe_error(self, error: pa.ArrowInvalid, data: bytes, byte_range: ByteRange) -> str:
        value = _BAD_VALUE.match(str(error))
        if value is None:
            return describe_row_error(error, self.dialect, data, byte_range.file, byte_range.start)
        name = self.dialect.names[int(value[1])]
        location = locate_record(
            self.dialect, data, byte_range.file, byte_range.start, int(value[2] or 1) - 1
        )
        if "UTF8" in value[4]:
            fix = "write encoding='latin-1', or the encoding of the file"
            return f"column {name!r}: {value[4]} ({location}); {fix}"
        text = value[4].removeprefix("invalid value ").strip("'")
        problem = text_errors.describe_value(name, text, value[3], name in self.declared, location)
        if text_errors.suggest_dtype(text, value[3]) == "str":
            problem += f", or na_values={{{name!r}: {text!r}}} where that is a missing value"
        return problem


def locate_record(dialect: CsvDialect, data: bytes, file: File, start: int, number: int) -> str:
    """Return the line of the file where record ``number`` (from 0) of a range starts."""
    offset = quotes.find_record_start(data, dialect.separator_bytes, number)
    return text_errors.locate_line(file, start, data.count(b"\n", 0, offset) + 1)


def describe_row_error(
    error: pa.ArrowInvalid, dialect: CsvDialect, data: bytes, file: File, start: int
) -> str:
    """Return the message for a row with the wrong number of values."""
    row = _BAD_ROW.match(str(error))
    if row is None:
        return f"{error}, in bytes {start} to {start + len(data)}"
    location = locate_record(dialect, data, file, start, int(row[1]) - 1) if row[1] else "a line"
    return text_errors.describe_row_length(
        f"{location}: {row[2]}: {row[3]!r}", dialect.names, dialect.separator
    )


def to_arrow_type(kind: pl.DataType) -> pa.DataType:
    """Return the Arrow type to parse for a Polars type."""
    if isinstance(kind, pl.String):
        return pa.string()
    return pl.DataFrame(schema={"one": kind}).to_arrow().schema.field("one").type


def parse_csv(data: bytes, dialect: CsvDialect, types: dict[str, pa.DataType] | None) -> pa.Table:
    """Parse CSV without a header: the columns of ``types``; if None, all, with inferred types."""
    if not _ROW.search(data):
        selected = types or dict.fromkeys(dialect.names, pa.null())
        return pa.schema(list(selected.items())).empty_table()
    if data.startswith(BOM) and _is_utf8(dialect.encoding):
        data = BOM + data  # pyarrow drops the first one, even if it is part of a value
    names = dialect.names if types is None else tuple(types)
    groups = dialect.missing.group_columns(names)
    tables = [_parse_group(data, dialect, types, *group) for group in groups.items()]
    table = tables[0]
    for other in tables[1:]:
        for entry, column in zip(other.schema, other.columns, strict=True):
            table = table.append_column(entry, column)
    return dialect.missing.apply(table.select(names) if tables[1:] else table)


def _parse_group(
    data: bytes,
    dialect: CsvDialect,
    types: dict[str, pa.DataType] | None,
    missing: Sequence[str],
    names: Sequence[str],
) -> pa.Table:
    """Parse the columns that have the same missing values."""
    convert: dict[str, Any] = {"null_values": [*PANDAS_MISSING, *missing]}
    if types is not None:
        convert["column_types"] = {name: types[name] for name in names}
    if types is not None or len(names) < len(dialect.names):
        convert["include_columns"] = list(names)
    try:
        return _read_csv(data, dialect, convert, BLOCK)
    except pa.ArrowInvalid as error:
        if "straddling" not in str(error):
            raise
    return _read_csv(data, dialect, convert, LARGE_BLOCK)


def is_plain(dialect: CsvDialect) -> bool:
    """Whether the encoding is UTF-8, and missing values are those of pandas."""
    return dialect.missing == MissingValues() and _is_utf8(dialect.encoding)


def _is_utf8(encoding: str) -> bool:
    return codecs.lookup(encoding).name in ("utf-8", "utf-8-sig")


def _read_csv(data: bytes, dialect: CsvDialect, convert: dict[str, Any], block: int) -> pa.Table:
    return arrow_csv.read_csv(
        pa.BufferReader(data),
        read_options=arrow_csv.ReadOptions(
            use_threads=False,
            block_size=block,
            column_names=dialect.names,
            encoding=dialect.encoding,
        ),
        # newlines_in_values has no cost for files without quotes.
        parse_options=arrow_csv.ParseOptions(delimiter=dialect.separator, newlines_in_values=True),
        convert_options=arrow_csv.ConvertOptions(
            true_values=TRUE,
            false_values=FALSE,
            strings_can_be_null=True,
            **convert,
        ),
    )
