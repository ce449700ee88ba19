"""Decode JSON lines into columns of known types, with Polars, pyarrow or Python."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from operator import itemgetter
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from hyperplane.core.errors import ReadError
from hyperplane.core.units import MAX_EXACT_FLOAT
from hyperplane.formats import text_errors, time_formats
from hyperplane.formats.byte_ranges import ByteRange
from hyperplane.formats.csv.decoder import BLOCK, LARGE_BLOCK
from hyperplane.formats.jsonl import types
from hyperplane.formats.jsonl.uniform import parse_uniform_lines
from hyperplane.formats.time_formats import TimeFormat
from hyperplane.objectstore.locations import File

#: Bytes of a piece of lines; only pieces that pyarrow rejects are decoded with Python.
PIECE = 64_000
#: JSON string inserted between lines that are parsed together.
SEPARATOR = "\x00hyperplane\x00"
_LONG_NUMBER = r"[:\[,\s]-?[0-9]{16,}\s*[,\]}]"


@dataclass(frozen=True)
class JsonDecoder:
    """Decodes lines with one JSON object each into columns.

    Parameters
    ----------
    kinds : tuple of (str, polars.DataType)
        The columns.
    times : tuple of (str, TimeFormat)
        The columns to parse as times.
    declared : tuple of str
        The columns whose type the caller set.
    non_nullable : tuple of str
        Those of them whose pandas type has no missing values.
    chosen : bool
        Whether the caller chose columns, so that unknown fields are ignored.
    """

    kinds: tuple[tuple[str, pl.DataType], ...]
    times: tuple[tuple[str, TimeFormat], ...] = ()
    declared: tuple[str, ...] = ()
    non_nullable: tuple[str, ...] = ()
    chosen: bool = False

    @property
    def record_end(self) -> bytes:
        """A line end."""
        return b"\n"

    def decode(self, byte_range: ByteRange, names: Collection[str]) -> pl.DataFrame:
        """Decode some columns of a byte range.

        Polars parses records that all have the same fields of simple types, pyarrow parses
        others, and Python the pieces that pyarrow rejects.

        Raises
        ------
        ReadError
            If a line is not a JSON object, has a field that no sample had, or a value that does
            not fit its column's type.
        """
        data = byte_range.read_data()
        formats = dict(self.times)
        columns = {name: pl.String() if name in formats else kind for name, kind in self.kinds}
        selected = {name: kind for name, kind in columns.items() if name in names}
        if _is_blank(data):
            frame = pl.DataFrame(schema=selected)
        else:
            uniform = _decode_uniform(data, columns) if len(selected) == len(columns) else None
            frame = (
                self._decode_general(data, columns, selected, byte_range)
                if uniform is None
                else uniform
            )
        locate_row = partial(_locate_row, data, byte_range)
        text_errors.check_non_nullable(frame, self.non_nullable, byte_range.file.url, locate_row)
        return frame.with_columns(
            time_formats.parse_column(
                frame.get_column(name), formats[name], byte_range.file.url, locate_row
            )
            for name in selected
            if name in formats
        )

    def _decode_general(
        self,
        data: bytes,
        columns: Mapping[str, pl.DataType],
        selected: Mapping[str, pl.DataType],
        byte_range: ByteRange,
    ) -> pl.DataFrame:
        """Decode the columns with pyarrow, or piece by piece if that fails."""
        table = self._decode_with_pyarrow(data, columns, selected)
        if table is None:
            table = self._decode_pieces(data, columns, selected, byte_range)
        frame = pl.DataFrame(
            [pl.Series(f"c{number}", column) for number, column in enumerate(table.columns)]
        )
        frame.columns = list(selected)  # set last, because Polars renames columns with empty names
        return frame

    def _decode_with_pyarrow(
        self, data: bytes, columns: Mapping[str, pl.DataType], selected: Mapping[str, pl.DataType]
    ) -> pa.Table | None:
        """Decode with pyarrow; None if it rejects a line or may have lost digits."""
        # Ignoring unknown fields would also ignore those inside nested columns.
        strict = len(selected) == len(columns) or any(
            kind.is_nested() for kind in selected.values()
        )
        kinds = columns if strict else selected
        schema = pa.schema([(name, types.to_arrow_type(kind)) for name, kind in kinds.items()])
        behavior = "error" if strict else "ignore"
        for block in (BLOCK, LARGE_BLOCK):
            try:
                table = arrow_json.read_json(
                    pa.BufferReader(data),
                    read_options=arrow_json.ReadOptions(use_threads=False, block_size=block),
                    parse_options=arrow_json.ParseOptions(
                        explicit_schema=schema, unexpected_field_behavior=behavior
                    ),
                )
            except pa.ArrowInvalid as error:
                if "straddl" in str(error):
                    continue
                return None
            table = table.select(list(selected))
            inexact = any(map(_may_be_inexact, table.columns)) and _has_long_number(data)
            return None if inexact else table
        return None

    def _decode_pieces(
        self,
        data: bytes,
        columns: Mapping[str, pl.DataType],
        selected: Mapping[str, pl.DataType],
        byte_range: ByteRange,
    ) -> pa.Table:
        """Decode piece by piece, with Python for the pieces that pyarrow rejects."""
        tables, before = [], 0
        for piece in _split_pieces(data):
            if not _is_blank(piece):
                table = self._decode_with_pyarrow(piece, columns, selected)
                if table is None:
                    table = self._decode_lines(piece, columns, selected, byte_range, before)
                tables.append(table)
            before += piece.count(b"\n")
        return pa.concat_tables(tables)

    def _decode_lines(
        self,
        data: bytes,
        columns: Mapping[str, pl.DataType],
        selected: Mapping[str, pl.DataType],
        byte_range: ByteRange,
        before: int,
    ) -> pa.Table:
        """Decode with Python; raise ReadError for the first invalid line."""
        lines = [(n, line) for n, line in enumerate(data.split(b"\n"), before + 1) if line.strip()]
        records = _parse_lines_together([line for _, line in lines])
        if records is None:
            records = [
                parse_object(line, byte_range.file, byte_range.start, number)
                for number, line in lines
            ]

        def locate_row(row: int) -> str:
            return text_errors.locate_line(byte_range.file, byte_range.start, lines[row][0])

        if len(selected) == len(columns) and not self.chosen:
            _check_fields(records, columns, byte_range, locate_row)
        arrays = []
        for name, kind in selected.items():
            values = _get_values(records, name)
            converted = types.convert_values(values, kind)
            if converted is None:
                row = next(i for i, value in enumerate(values) if not types.fits(value, kind))
                declared = name in self.declared
                message = text_errors.describe_value(
                    name, values[row], str(kind), declared, locate_row(row)
                )
                raise ReadError(byte_range.file.url, message)
            arrays.append(_make_array(converted, kind, name, byte_range))
        return pa.table(arrays, names=list(selected))


def _decode_uniform(data: bytes, kinds: Mapping[str, pl.DataType]) -> pl.DataFrame | None:
    """Decode uniform records with Polars, or return None; the first piece is tried first."""
    if len(data) > 4 * PIECE and parse_uniform_lines(next(_split_pieces(data)), kinds) is None:
        return None
    frame = parse_uniform_lines(data, kinds)
    if frame is None:
        return None
    # Polars treats names such as ^x$ as patterns.
    floats = [column.alias("values") for column in frame if column.dtype == pl.Float64]
    inexact = any((column.abs() >= MAX_EXACT_FLOAT).any() for column in floats)
    return None if inexact and _has_long_number(data) else frame


def _get_values(records: Sequence[dict[str, Any]], name: str) -> list[Any]:
    """Return the values of a field; None where it is missing."""
    try:
        return list(map(itemgetter(name), records))  # twice as fast as get
    except KeyError:
        return [record.get(name) for record in records]


def _check_fields(
    records: Sequence[Mapping[str, Any]],
    known: Collection[str],
    byte_range: ByteRange,
    locate_row: Callable[[int], str],
) -> None:
    """Raise ReadError for a field that no sample had."""
    if not set().union(*records).difference(known):
        return
    for row, record in enumerate(records):
        for name in record:
            if name not in known:
                raise ReadError(
                    byte_range.file.url,
                    f"{locate_row(row)} has the field {name!r}, which no sampled line had; write "
                    f"dtypes={{{name!r}: 'str'}} to read it, or columns=[...] without it",
                )


def _make_array(values: list[Any], kind: pl.DataType, name: str, byte_range: ByteRange) -> pa.Array:
    try:
        return pa.array(values, types.to_arrow_type(kind))
    except (pa.ArrowException, ValueError) as error:  # such as unpaired surrogates
        raise ReadError(byte_range.file.url, f"column {name!r}: {error}") from error


def _parse_lines_together(lines: Sequence[bytes]) -> list[dict[str, Any]] | None:
    """Parse all lines in one call; None unless each line is a complete object."""
    between = json.dumps(SEPARATOR).encode()
    joined = (b"," + between + b",").join(lines)
    if joined.count(between) != len(lines) - 1:
        return None
    try:
        values = json.loads(b"[" + joined + b"]")
    except (ValueError, RecursionError):
        return None
    # A line that is not exactly one object shifts the positions of the separators.
    records = values[::2]
    complete = len(records) == len(lines) and values[1::2].count(SEPARATOR) == len(lines) - 1
    return records if complete and set(map(type, records)) == {dict} else None


def _may_be_inexact(column: pa.ChunkedArray) -> bool:
    """Whether floats, at any depth, may be integers that float64 cannot represent."""
    if pa.types.is_list(column.type):
        return _may_be_inexact(pc.list_flatten(column))
    if pa.types.is_struct(column.type):
        return any(
            _may_be_inexact(pc.struct_field(column, i)) for i in range(column.type.num_fields)
        )
    if not pa.types.is_floating(column.type):
        return False
    ends = pc.min_max(column).as_py().values()
    return any(end is not None and abs(end) >= MAX_EXACT_FLOAT for end in ends)


def _locate_row(data: bytes, byte_range: ByteRange, row: int) -> str:
    """Return the line of the file with object ``row`` (from 0) of a byte range."""
    lines = (number for number, line in enumerate(data.split(b"\n"), 1) if line.strip())
    return text_errors.locate_line(
        byte_range.file, byte_range.start, next(islice(lines, row, None))
    )


def parse_object(line: bytes, file: File, start: int, number: int) -> dict[str, Any]:
    """Return the object in a line.

    ``start``, the offset of the byte range, and ``number``, of the line from 1, are for messages.

    Raises
    ------
    ReadError
        If the line is not JSON, or not an object.
    """
    advice = f"correct the line, or {text_errors.SKIP_ADVICE}"
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        location = text_errors.locate_line(file, start, number)
        problem = f"{location} is not JSON ({error}): {line[:60]!r}"
        raise ReadError(file.url, f"{problem}; {advice}") from error
    if not isinstance(record, dict):
        location = text_errors.locate_line(file, start, number)
        problem = f"{location} is not a JSON object: {line[:60]!r}"
        raise ReadError(file.url, f"{problem}; {advice}")
    return record


def _has_long_number(data: bytes) -> bool:
    """Whether any integer has 16 digits or more, which float64 may round."""
    buffers = [None, pa.array([0, len(data)], pa.int64()).buffers()[1], pa.py_buffer(data)]
    whole = pa.LargeBinaryArray.from_buffers(pa.large_binary(), 1, buffers)
    return bool(pc.match_substring_regex(whole, _LONG_NUMBER)[0].as_py())


def _is_blank(data: bytes) -> bool:
    """Whether there is only whitespace; isspace avoids the copy of strip."""
    return not data or data.isspace()


def _split_pieces(data: bytes) -> Iterator[bytes]:
    """Yield pieces of whole lines of at least ``PIECE`` bytes."""
    start = 0
    while start < len(data):
        stop = data.find(b"\n", start + PIECE) + 1 or len(data)
        yield data[start:stop]
        start = stop
